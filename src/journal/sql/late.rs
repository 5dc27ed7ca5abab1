//! Deferred records of invocations: many in one transaction, a row each.

use sqlx::{AnyConnection, AssertSqlSafe};

use super::{
    super::{JournalError, LateRecord, NewInvocation, RunState, ToolExecution, tool_execution::Whose},
    invocations::{ROWS_PER_INSERT, Steps, insert_steps, length},
    rows::{int, json, micros, placeholders},
    store::Store,
};
use crate::config::observe::Payloads;

/// The columns of a row, in the order in which [`insert_invocations`] binds them. None of these invocations has a request
/// id or a thread.
const COLUMNS: [&str; 21] = [
    "invocation_id",
    "tenant",
    "fingerprint",
    "route",
    "operation",
    "labels",
    "created_at",
    "deadline_at",
    "state",
    "finished_at",
    "owner",
    "epoch",
    "epoch_first_seq",
    "lease_expires_at",
    "last_seq",
    "event_count",
    "event_bytes",
    "cancel_requested",
    "request",
    "outcome",
    "snapshot",
];

/// Rows of one insert at most; `SQLite` binds 32,766 values.
const INVOCATIONS_PER_INSERT: usize = 32;

/// One invocation as a row, and its steps.
struct LateRow {
    texts: [String; 6],
    created_at: i64,
    deadline_at: i64,
    finished_at: Option<i64>,
    owner: String,
    epoch: i64,
    lease_expires_at: i64,
    last_seq: i64,
    steps: Steps,
    request: Option<String>,
    outcome: Option<String>,
    snapshot: Option<String>,
}

impl Store {
    /// Records invocations with all that is known of them. Existing rows are left unchanged, so that a batch may be
    /// sent again when its result was lost.
    pub(super) async fn record_late(&self, late: &[LateRecord]) -> Result<(), JournalError> {
        let rows = late.iter().map(|record| self.late_row(record)).collect::<Result<Vec<_>, _>>()?;
        let mut writing = self.write().await?;
        for rows in rows.chunks(INVOCATIONS_PER_INSERT) {
            insert_invocations(writing.db(), rows).await?;
        }
        let steps: Vec<_> = rows.iter().flat_map(|row| &row.steps.rows).collect();
        for steps in steps.chunks(ROWS_PER_INSERT) {
            insert_steps(writing.db(), steps).await?;
        }
        for record in late {
            let Some((end, _)) = &record.end else { continue };
            let NewInvocation { tenant, route, operation, thread, .. } = &record.new;
            let whose = Whose { tenant, route, operation, thread: thread.as_ref() };
            let executions = ToolExecution::of(&whose, &end.outcome, self.limits.payloads == Payloads::Full);
            self.insert_executions(writing.db(), &executions).await?;
        }
        writing.commit().await?;
        for record in late {
            self.announce(&record.new.id);
        }
        Ok(())
    }

    fn late_row(&self, late: &LateRecord) -> Result<LateRow, JournalError> {
        let record = late.new.clone().into_record(&self.limits, late.began_at);
        let drawer = self.cipher.of_invocation(record.id.as_str());
        let kept = self.limits.payloads == Payloads::Full;
        let request = record.request.as_ref().map(|request| drawer.seal("request", 0, json(request, "a request")?));
        let end = late.end.as_ref().filter(|_| kept);
        let outcome = end.map(|(end, _)| drawer.seal("outcome", 0, json(&end.outcome, "an outcome")?));
        let snapshot = end.map(|(end, _)| drawer.seal("snapshot", 0, json(&end.snapshot, "a snapshot")?));
        let steps = if kept { &late.entries[..] } else { &[] };
        Ok(LateRow {
            created_at: micros(record.created_at),
            deadline_at: micros(record.deadline_at),
            finished_at: late.end.as_ref().map(|(_, at)| micros(*at)),
            owner: record.owner.as_str().to_owned(),
            epoch: int(record.epoch),
            lease_expires_at: match record.state {
                RunState::Running { lease_expires_at } => micros(lease_expires_at),
                RunState::Finished { at } => micros(at),
            },
            last_seq: int(late.entries.last().map_or(0, |entry| entry.seq)),
            steps: Steps::write(&record.id, steps, &self.cipher)?,
            request: request.transpose()?,
            outcome: outcome.transpose()?,
            snapshot: snapshot.transpose()?,
            texts: [
                record.id.as_str().to_owned(),
                record.tenant.as_str().to_owned(),
                drawer.seal("fingerprint", 0, record.fingerprint.as_str().to_owned())?,
                record.route.as_str().to_owned(),
                record.operation.as_str().to_owned(),
                json(&record.labels, "labels")?,
            ],
        })
    }
}

async fn insert_invocations(db: &mut AnyConnection, rows: &[LateRow]) -> Result<(), JournalError> {
    let sql = format!(
        "INSERT INTO invocations ({}, content_bytes) VALUES {} ON CONFLICT DO NOTHING",
        COLUMNS.join(", "),
        placeholders(rows.len(), COLUMNS.len() + 1)
    );
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for row in rows {
        for text in &row.texts {
            query = query.bind(text.clone());
        }
        let state = if row.finished_at.is_some() { "finished" } else { "running" };
        let content = [&row.request, &row.outcome, &row.snapshot].map(|text| length(text.as_deref())).iter().sum();
        let content: i64 = content;
        query = query
            .bind(row.created_at)
            .bind(row.deadline_at)
            .bind(state.to_owned())
            .bind(row.finished_at)
            .bind(row.owner.clone())
            .bind(row.epoch)
            .bind(1_i64)
            .bind(row.lease_expires_at)
            .bind(row.last_seq)
            .bind(int(row.steps.rows.len() as u64))
            .bind(int(row.steps.bytes))
            .bind(0_i64)
            .bind(row.request.clone())
            .bind(row.outcome.clone())
            .bind(row.snapshot.clone())
            .bind(content);
    }
    query.execute(db).await?;
    Ok(())
}
