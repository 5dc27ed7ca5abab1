//! Invocations and their steps in SQL.

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe, any::AnyRow};

use super::{
    super::{
        AppendError, BeginResult, CancelWish, Entry, Finish, FinishError, Held, JournalError, Listing, NewInvocation,
        Page, Record, RunState, ThreadError, ThreadKey, ToolExecution, payload_cipher::PayloadCipher,
        tool_execution::Whose,
    },
    rows::{self, count, int, json, micros, placeholders},
    store::{Store, WriteTransaction},
    threads,
};
use crate::{
    config::observe::Payloads,
    domain::{
        ids::{InvocationId, Operation, RequestId, TenantId, ThreadId},
        upstream::UpstreamHandle,
    },
};

/// Rows of one insert at most: six values each, far below what any database binds.
pub(super) const ROWS_PER_INSERT: usize = 64;
/// How often a begin starts over when the invocation that it collided with is deleted meanwhile.
const BEGIN_ROUNDS: usize = 3;

impl Store {
    pub(super) async fn begin(&self, new: NewInvocation, now: Timestamp) -> Result<BeginResult, JournalError> {
        let fresh = new.clone().into_record(&self.limits, now);
        for _ in 0..BEGIN_ROUNDS {
            let mut writing = self.write().await?;
            let inserted = self.insert(writing.db(), &fresh).await?;
            writing.commit().await?;
            if inserted {
                return Ok(BeginResult::New { epoch: fresh.epoch });
            }
            if let Some(request) = &new.request_id
                && let Some(known) = self.get_by_request(&new.tenant, request).await?
            {
                return Ok(known.begin_again(&new));
            }
            if self.get(&new.id).await?.is_some() {
                return Err(JournalError::Corrupt(format!("invocation {} exists already", new.id)));
            }
        }
        Err(JournalError::Unavailable("the request id is in motion".to_owned()))
    }

    pub(super) async fn append(&self, id: &InvocationId, entries: &[Entry]) -> Result<(), AppendError> {
        let mut writing = self.write().await?;
        let row = self.locked(&mut writing, id).await?.ok_or(AppendError::Unknown)?;
        let fresh = rows::standing(&row)?.fresh(entries)?;
        let steps = Steps::write(id, fresh, &self.cipher)?;
        let held = count(&row, "event_bytes")?;
        let cap = self.limits.invocation_bytes;
        if held + steps.bytes > cap {
            return Err(AppendError::Full { held, cap });
        }
        self.record(writing.db(), id, &steps).await?;
        writing.commit().await?;
        self.announce(id);
        Ok(())
    }

    pub(super) async fn remember(&self, held: &Held, upstream: &UpstreamHandle) -> Result<bool, AppendError> {
        let mut writing = self.write().await?;
        let row = self.locked(&mut writing, &held.id).await?.ok_or(AppendError::Unknown)?;
        rows::standing(&row)?.admit(held.epoch)?;
        if self.limits.payloads == Payloads::None {
            return Ok(false);
        }
        let drawer = self.cipher.of_invocation(held.id.as_str());
        let sealed = drawer.seal("upstream", 0, json(upstream, "a handle")?)?;
        let query = sqlx::query("UPDATE invocations SET upstream = $2 WHERE invocation_id = $1");
        query.bind(held.id.as_str().to_owned()).bind(sealed).execute(writing.db()).await?;
        writing.commit().await?;
        Ok(true)
    }

    pub(super) async fn read(
        &self,
        id: &InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Option<Page>, JournalError> {
        // The row first: steps that come meanwhile are then only more than it promises, and none is taken for gone.
        let sql = "SELECT last_seq, epoch, state FROM invocations WHERE invocation_id = $1";
        let Some(row) = sqlx::query(sql).bind(id.as_str().to_owned()).fetch_optional(&self.pool).await? else {
            return Ok(None);
        };
        let sql = "SELECT epoch, seq, attempt, at, step FROM events WHERE invocation_id = $1 AND seq > $2 \
                   ORDER BY seq LIMIT $3";
        let query = sqlx::query(sql).bind(id.as_str().to_owned()).bind(int(after_seq)).bind(int(limit as u64));
        let drawer = self.cipher.of_invocation(id.as_str());
        let found = query.fetch_all(&self.pool).await?;
        let entries: Vec<Entry> = found.iter().map(|row| rows::entry(row, &drawer)).collect::<Result<_, _>>()?;
        let last_seq = entries.last().map_or(0, |entry| entry.seq).max(count(&row, "last_seq")?);
        let epoch = count(&row, "epoch")?;
        let page = Page { entries, last_seq, epoch, finished: rows::is_finished(&row)?, gone: false };
        Ok(Some(page.with_gap_after(after_seq, limit)))
    }

    pub(super) async fn finish(&self, end: Finish, now: Timestamp) -> Result<(), FinishError> {
        let mut writing = self.write().await?;
        let row = self.locked(&mut writing, &end.id).await?.ok_or(AppendError::Unknown)?;
        let standing = rows::standing(&row)?;
        if standing.finished && standing.epoch == end.epoch {
            return Ok(());
        }
        standing.admit(end.epoch)?;
        let drawer = self.cipher.of_invocation(end.id.as_str());
        let steps = Steps::write(&end.id, standing.fresh(&end.entries)?, &self.cipher)?;
        let tenant = TenantId::from(rows::text(&row, "tenant")?);
        let key = rows::maybe_text(&row, "thread_id")?.map(|thread| ThreadKey::new(tenant, thread.into()));
        match (&key, &end.thread) {
            (Some(key), Some(change)) => threads::end(&mut writing, self, key, change, &end, now).await?,
            (None, Some(_)) => return Err(ThreadError::NotLocked { holder: None }.into()),
            (Some(key), None) => threads::unlock(writing.db(), key, &end.id).await?,
            (None, None) => {}
        }
        self.record(writing.db(), &end.id, &steps).await?;
        if end.outcome.attempts.iter().any(|record| record.tool.is_some()) {
            let (route, operation) = (rows::text(&row, "route")?.into(), rows::text(&row, "operation")?.into());
            let (tenant, thread) = (rows::text(&row, "tenant")?.into(), rows::maybe_text(&row, "thread_id")?);
            let thread = thread.map(ThreadId::from);
            let whose = Whose { tenant: &tenant, route: &route, operation: &operation, thread: thread.as_ref() };
            let executions = ToolExecution::of(&whose, &end.outcome, self.limits.payloads == Payloads::Full);
            self.insert_executions(writing.db(), &executions).await?;
        }
        let (outcome, snapshot) = match self.limits.payloads {
            Payloads::Full => {
                let outcome = drawer.seal("outcome", 0, json(&end.outcome, "an outcome")?)?;
                (Some(outcome), Some(drawer.seal("snapshot", 0, json(&end.snapshot, "a snapshot")?)?))
            }
            Payloads::None => (None, None),
        };
        let sql = format!(
            "UPDATE invocations SET state = 'finished', finished_at = {}, upstream = NULL, outcome = $3, snapshot = $4, \
             content_bytes = content_bytes + $5 WHERE invocation_id = $1",
            self.now("$2")
        );
        let added = length(outcome.as_deref()) + length(snapshot.as_deref());
        let query = sqlx::query(AssertSqlSafe(sql)).bind(end.id.as_str().to_owned()).bind(micros(now));
        query.bind(outcome).bind(snapshot).bind(added).execute(writing.db()).await?;
        writing.commit().await?;
        self.announce(&end.id);
        Ok(())
    }

    pub(super) async fn get(&self, id: &InvocationId) -> Result<Option<Record>, JournalError> {
        let sql = format!("SELECT {} FROM invocations WHERE invocation_id = $1", self.record_columns());
        let query = sqlx::query(AssertSqlSafe(sql)).bind(id.as_str().to_owned());
        query.fetch_optional(&self.pool).await?.map(|row| rows::record(&row, &self.cipher)).transpose()
    }

    pub(super) async fn get_by_request(
        &self,
        tenant: &TenantId,
        request: &RequestId,
    ) -> Result<Option<Record>, JournalError> {
        let sql = format!("SELECT {} FROM invocations WHERE tenant = $1 AND request_id = $2", self.record_columns());
        let query = sqlx::query(AssertSqlSafe(sql)).bind(tenant.as_str().to_owned()).bind(request.as_str().to_owned());
        query.fetch_optional(&self.pool).await?.map(|row| rows::record(&row, &self.cipher)).transpose()
    }

    pub(super) async fn list(&self, wanted: &Listing, limit: usize) -> Result<Vec<Record>, JournalError> {
        let mut texts: Vec<String> = Vec::new();
        let mut text = |value: &str| {
            texts.push(value.to_owned());
            format!("${}", texts.len())
        };
        let mut conditions = vec!["1 = 1".to_owned()];
        for (column, value) in [
            ("tenant", wanted.tenant.as_ref().map(TenantId::as_str)),
            ("operation", wanted.operation.as_ref().map(Operation::as_str)),
            ("thread_id", wanted.thread.as_ref().map(ThreadId::as_str)),
            ("state", wanted.finished.map(|finished| if finished { "finished" } else { "running" })),
        ] {
            conditions.extend(value.map(|value| format!("{column} = {}", text(value))));
        }
        if !wanted.routes.is_empty() {
            let routes: Vec<String> = wanted.routes.iter().map(|route| text(route.as_str())).collect();
            conditions.push(format!("route IN ({})", routes.join(", ")));
        }
        conditions.extend(wanted.before.as_ref().map(|before| format!("invocation_id < {}", text(before.as_str()))));
        // A number of our own, which needs no binding.
        conditions.extend(wanted.since.map(|since| format!("created_at >= {}", micros(since))));
        let columns =
            ["request", "upstream", "snapshot"].into_iter().fold(self.record_columns(), |columns, left_out| {
                columns.replace(&format!(" {left_out},"), &format!(" CAST(NULL AS TEXT) AS {left_out},"))
            });
        let sql = format!(
            "SELECT {columns} FROM invocations WHERE {} ORDER BY invocation_id DESC LIMIT {limit}",
            conditions.join(" AND ")
        );
        let query = texts.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), sqlx::query::Query::bind);
        query.fetch_all(&self.pool).await?.iter().map(|row| rows::record(row, &self.cipher)).collect()
    }

    pub(super) async fn free_request(&self, id: &InvocationId) -> Result<(), JournalError> {
        let mut writing = self.write().await?;
        let sql = "UPDATE invocations SET request_id = NULL WHERE invocation_id = $1 AND state = 'finished'";
        sqlx::query(sql).bind(id.as_str().to_owned()).execute(writing.db()).await?;
        writing.commit().await
    }

    pub(super) async fn request_cancel(&self, id: &InvocationId) -> Result<CancelWish, JournalError> {
        let mut writing = self.write().await?;
        let sql = "UPDATE invocations SET cancel_requested = 1 WHERE invocation_id = $1 AND state = 'running'";
        let done = sqlx::query(sql).bind(id.as_str().to_owned()).execute(writing.db()).await?.rows_affected() > 0;
        writing.commit().await?;
        if done {
            self.announce(id);
            return Ok(CancelWish::Recorded);
        }
        Ok(if self.get(id).await?.is_some() { CancelWish::Finished } else { CancelWish::Unknown })
    }

    /// The row of an invocation, locked until the end of the transaction.
    pub(super) async fn locked(
        &self,
        writing: &mut WriteTransaction<'_>,
        id: &InvocationId,
    ) -> Result<Option<AnyRow>, JournalError> {
        let sql = format!(
            "SELECT {} FROM invocations WHERE invocation_id = $1{}",
            "tenant, route, operation, thread_id, state, epoch, epoch_first_seq, last_seq, event_bytes",
            self.dialect.for_update
        );
        Ok(sqlx::query(AssertSqlSafe(sql)).bind(id.as_str().to_owned()).fetch_optional(writing.db()).await?)
    }

    async fn record(&self, db: &mut AnyConnection, id: &InvocationId, steps: &Steps) -> Result<(), JournalError> {
        let Some(last) = steps.rows.last() else { return Ok(()) };
        let kept = self.limits.payloads == Payloads::Full;
        if kept {
            for rows in steps.rows.iter().collect::<Vec<_>>().chunks(ROWS_PER_INSERT) {
                insert_steps(db, rows).await?;
            }
        }
        let (added, bytes) = if kept { (steps.rows.len() as u64, steps.bytes) } else { (0, 0) };
        let sql = "UPDATE invocations SET last_seq = $2, event_count = event_count + $3, \
                   event_bytes = event_bytes + $4 WHERE invocation_id = $1";
        let query = sqlx::query(sql).bind(id.as_str().to_owned()).bind(last.seq).bind(int(added)).bind(int(bytes));
        query.execute(db).await?;
        Ok(())
    }

    /// Inserts a new invocation; returns whether neither its id nor its request id was there.
    async fn insert(&self, db: &mut AnyConnection, record: &Record) -> Result<bool, JournalError> {
        let drawer = self.cipher.of_invocation(record.id.as_str());
        let sealed = |request| drawer.seal("request", 0, json(request, "a request")?);
        let request = record.request.as_ref().map(sealed).transpose()?;
        // Durations are bound, and added to whichever clock counts.
        let allowed = micros(record.deadline_at).saturating_sub(micros(record.created_at));
        let lease = match record.state {
            RunState::Running { lease_expires_at } => micros(lease_expires_at) - micros(record.created_at),
            RunState::Finished { .. } => 0,
        };
        let now = self.now("$9");
        let sql = format!(
            "INSERT INTO invocations (invocation_id, tenant, request_id, fingerprint, route, operation, thread_id, \
             labels, created_at, deadline_at, state, owner, epoch, epoch_first_seq, lease_expires_at, last_seq, \
             event_count, event_bytes, cancel_requested, request, content_bytes) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {now}, {now} + $10, 'running', $11, $12, 1, {now} + $13, 0, 0, 0, \
             0, $14, $15) ON CONFLICT DO NOTHING"
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(record.id.as_str().to_owned())
            .bind(record.tenant.as_str().to_owned())
            .bind(record.request_id.as_ref().map(|id| id.as_str().to_owned()))
            .bind(drawer.seal("fingerprint", 0, record.fingerprint.as_str().to_owned())?)
            .bind(record.route.as_str().to_owned())
            .bind(record.operation.as_str().to_owned())
            .bind(record.thread.as_ref().map(|id| id.as_str().to_owned()))
            .bind(json(&record.labels, "labels")?)
            .bind(micros(record.created_at))
            .bind(allowed)
            .bind(record.owner.as_str().to_owned())
            .bind(int(record.epoch))
            .bind(lease)
            .bind(request.clone())
            .bind(length(request.as_deref()));
        Ok(query.execute(db).await?.rows_affected() > 0)
    }
}

/// Steps as rows.
pub(super) struct Steps {
    pub(super) rows: Vec<StepRow>,
    pub(super) bytes: u64,
}

/// One step as a row.
pub(super) struct StepRow {
    id: String,
    seq: i64,
    epoch: i64,
    attempt: i64,
    at: i64,
    step: String,
}

// === impl Steps ===

impl Steps {
    pub(super) fn write(id: &InvocationId, entries: &[Entry], cipher: &PayloadCipher) -> Result<Self, JournalError> {
        let drawer = cipher.of_invocation(id.as_str());
        let row = |entry: &Entry| {
            let step = drawer.seal("step", entry.seq, json(&entry.step, "a step")?)?;
            let (seq, epoch) = (int(entry.seq), int(entry.epoch));
            let (attempt, at) = (i64::from(entry.attempt), micros(entry.at));
            Ok(StepRow { id: id.as_str().to_owned(), seq, epoch, attempt, at, step })
        };
        let rows = entries.iter().map(row).collect::<Result<Vec<_>, JournalError>>()?;
        let bytes = rows.iter().map(|row| row.step.len() as u64).sum();
        Ok(Self { rows, bytes })
    }
}

pub(super) async fn insert_steps(db: &mut AnyConnection, rows: &[&StepRow]) -> Result<(), JournalError> {
    let values = placeholders(rows.len(), 6);
    let sql = format!("INSERT INTO events (invocation_id, seq, epoch, attempt, at, step) VALUES {values}");
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for row in rows {
        query = query.bind(row.id.clone()).bind(row.seq).bind(row.epoch).bind(row.attempt);
        query = query.bind(row.at).bind(row.step.clone());
    }
    query.execute(db).await?;
    Ok(())
}

/// Bytes of a text that may be kept.
pub(super) fn length(text: Option<&str>) -> i64 {
    text.map_or(0, |text| int(text.len() as u64))
}
