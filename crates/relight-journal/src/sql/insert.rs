//! Inserts invocations: when they start, or late, with all that is known of them. Many in one
//! statement, a row each.

use std::{collections::HashSet, fmt::Write as _};

use sqlx::{AnyConnection, AssertSqlSafe};

use super::{
    super::{
        JournalError, LateRecord, NewInvocation, RunState, ToolExecution, tool_execution::Whose,
    },
    additions::{StepRow, bytes_of, insert_steps, length},
    rows::{batches, int, json, micros, text},
    store::Store,
};
use crate::settings::Payloads;

/// The columns of a row, in the order in which they are bound.
const COLUMNS: [&str; 24] = [
    "invocation_id",
    "tenant",
    "fingerprint",
    "route",
    "operation",
    "labels",
    "owner",
    "state",
    "created_at",
    "deadline_at",
    "lease_expires_at",
    "finished_at",
    "request_id",
    "thread_id",
    "request",
    "outcome",
    "snapshot",
    "epoch",
    "epoch_first_seq",
    "last_seq",
    "event_count",
    "event_bytes",
    "cancel_requested",
    "content_bytes",
];
/// Index of `created_at` among the columns.
const CREATED_AT: usize = 8;

/// Rows of one insert at most; `SQLite` binds 32,766 values.
const INVOCATIONS_PER_INSERT: usize = 32;

/// The values of one invocation's row, and its steps.
pub(super) struct InvocationValues {
    /// The columns up to `state`.
    texts: [String; 8],
    created_at: i64,
    deadline_at: i64,
    lease_expires_at: i64,
    finished_at: Option<i64>,
    /// The columns from `request_id` up to `snapshot`.
    maybe_texts: [Option<String>; 5],
    epoch: i64,
    last_seq: i64,
    steps: Vec<StepRow>,
}

impl Store {
    /// Records invocations with all that is known of them. Existing rows are left unchanged, so
    /// that a batch may be sent again when its result was lost.
    pub(super) async fn record_late(&self, late: &[LateRecord]) -> Result<(), JournalError> {
        let rows = late
            .iter()
            .map(|record| self.invocation_values(record))
            .collect::<Result<Vec<_>, _>>()?;
        let rows: Vec<_> = rows.iter().collect();
        let mut writing = self.write().await?;
        self.insert_invocations(writing.db(), &rows).await?;
        let steps: Vec<_> = rows.iter().flat_map(|row| &row.steps).collect();
        insert_steps(writing.db(), &steps).await?;
        for record in late {
            let Some((end, _)) = &record.end else {
                continue;
            };
            let NewInvocation {
                tenant,
                route,
                operation,
                thread,
                ..
            } = &record.new;
            let whose = Whose {
                tenant,
                route,
                operation,
                thread: thread.as_ref(),
            };
            let executions =
                ToolExecution::of(&whose, &end.outcome, self.limits.payloads == Payloads::Full);
            self.insert_executions(writing.db(), &executions).await?;
        }
        writing.commit().await?;
        for record in late {
            self.announce(&record.new.id);
        }
        Ok(())
    }

    /// Returns the values of an invocation's row.
    pub(super) fn invocation_values(
        &self,
        late: &LateRecord,
    ) -> Result<InvocationValues, JournalError> {
        let record = late.new.clone().into_record(&self.limits, late.began_at);
        let drawer = self.cipher.of_invocation(record.id.as_str());
        let kept = self.limits.payloads == Payloads::Full;
        let request = record
            .request
            .as_ref()
            .map(|request| drawer.seal("request", 0, json(request, "a request")?));
        let end = late
            .end
            .as_ref()
            .map(|(end, _)| self.sealed_end(end))
            .transpose()?;
        let (outcome, snapshot) = end.flatten().unzip();
        let steps = if kept { &late.entries[..] } else { &[] };
        Ok(InvocationValues {
            created_at: micros(record.created_at),
            deadline_at: micros(record.deadline_at),
            lease_expires_at: match record.state {
                RunState::Running { lease_expires_at } => micros(lease_expires_at),
                RunState::Finished { at } => micros(at),
            },
            finished_at: late.end.as_ref().map(|(_, at)| micros(*at)),
            epoch: int(record.epoch),
            last_seq: int(late.entries.last().map_or(0, |entry| entry.seq)),
            steps: self.steps(
                &record.id,
                steps,
                late.end.as_ref().map(|(end, _)| &end.outcome),
            )?,
            maybe_texts: [
                record.request_id.as_ref().map(|id| id.as_str().to_owned()),
                record.thread.as_ref().map(|id| id.as_str().to_owned()),
                request.transpose()?,
                outcome,
                snapshot,
            ],
            texts: [
                record.id.as_str().to_owned(),
                record.tenant.as_str().to_owned(),
                drawer.seal("fingerprint", 0, record.fingerprint.as_str().to_owned())?,
                record.route.as_str().to_owned(),
                record.operation.as_str().to_owned(),
                json(&record.labels, "labels")?,
                record.owner.as_str().to_owned(),
                if late.end.is_some() {
                    "finished"
                } else {
                    "running"
                }
                .to_owned(),
            ],
        })
    }

    /// Inserts rows, and returns the ids of those whose id and request id were both new.
    pub(super) async fn insert_invocations(
        &self,
        db: &mut AnyConnection,
        rows: &[&InvocationValues],
    ) -> Result<HashSet<String>, JournalError> {
        let mut inserted = HashSet::new();
        for rows in batches(rows, INVOCATIONS_PER_INSERT) {
            let mut sql = format!("INSERT INTO invocations ({}) VALUES ", COLUMNS.join(", "));
            for row in 0..rows.len() {
                sql.push_str(if row == 0 { "(" } else { ", (" });
                self.write_values(&mut sql, row);
                sql.push(')');
            }
            sql.push_str(" ON CONFLICT DO NOTHING RETURNING invocation_id");
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for row in rows {
                for text in &row.texts {
                    query = query.bind(text.clone());
                }
                query = query
                    .bind(row.created_at)
                    .bind(row.deadline_at)
                    .bind(row.lease_expires_at);
                query = query.bind(row.finished_at);
                for text in &row.maybe_texts {
                    query = query.bind(text.clone());
                }
                let content: i64 = row.maybe_texts[2..]
                    .iter()
                    .map(|text| length(text.as_deref()))
                    .sum();
                query = query
                    .bind(row.epoch)
                    .bind(1_i64)
                    .bind(row.last_seq)
                    .bind(int(row.steps.len() as u64))
                    .bind(int(bytes_of(&row.steps)))
                    .bind(0_i64)
                    .bind(content);
            }
            for row in query.fetch_all(&mut *db).await? {
                inserted.insert(text(&row, "invocation_id")?);
            }
        }
        Ok(inserted)
    }

    /// Writes the expressions of one row of the insert. Where the server's clock counts, times are
    /// moved to it.
    fn write_values(&self, sql: &mut String, row: usize) {
        let place = |column: usize| row * COLUMNS.len() + column + 1;
        for (column, name) in COLUMNS.iter().enumerate() {
            let separator = if column == 0 { "" } else { ", " };
            let is_moved = self.dialect.clock.is_some()
                && matches!(*name, "created_at" | "deadline_at" | "lease_expires_at");
            // Writing to a string does not fail.
            let _ = if is_moved {
                let created_at = format!("${}", place(CREATED_AT));
                write!(
                    sql,
                    "{separator}{} + (${} - {created_at})",
                    self.now(&created_at),
                    place(column)
                )
            } else {
                write!(sql, "{separator}${}", place(column))
            };
        }
    }
}

// === impl InvocationValues ===

impl InvocationValues {
    /// Returns its id.
    pub(super) fn id(&self) -> &str {
        &self.texts[0]
    }
}
