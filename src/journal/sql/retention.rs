//! Retention in SQL: in small transactions that skip locked rows, so that no other writer waits long.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::{
    super::{Compacted, JournalError, Stats},
    rows::{self, count, int, micros},
    store::{Store, WriteTransaction},
};

/// Invocations of one transaction at most.
const BATCH: usize = 100;

/// Invocations whose events go before it is looked again whether the rest may stay.
const FEW: u64 = 50;

/// Invocations or threads that go whole before it is looked again: no more than needed are lost.
const FEWEST: u64 = 8;

impl Store {
    pub(super) async fn compact(&self, now: Timestamp) -> Result<Compacted, JournalError> {
        let now = self.time(now).await?;
        let kept_since = micros(earlier(now, self.limits.outcomes_kept));
        let stripped_since = micros(earlier(now, self.limits.events_kept));
        let mut done = Compacted::default();
        let old = "state = 'finished' AND finished_at <= $1 AND finished_at <= $2 ORDER BY finished_at";
        done.deleted += self.in_batches(old, kept_since, micros(now), Work::Delete, u64::MAX).await?;
        // Abandoned: not taken over for as long as its outcome would have been kept.
        let old = "state = 'running' AND deadline_at <= $1 AND lease_expires_at <= $2 ORDER BY lease_expires_at";
        done.deleted += self.in_batches(old, kept_since, micros(now), Work::Delete, u64::MAX).await?;
        let old = "state = 'finished' AND event_count > 0 AND finished_at <= $1 AND finished_at <= $2 \
                   ORDER BY finished_at";
        done.stripped += self.in_batches(old, stripped_since, micros(now), Work::Strip, u64::MAX).await?;
        let excess = self.stats().await?.invocations.saturating_sub(self.limits.max_invocations);
        let oldest = "state = 'finished' AND finished_at <= $1 AND finished_at <= $2 ORDER BY finished_at";
        done.deleted += self.in_batches(oldest, i64::MAX, i64::MAX, Work::Delete, excess).await?;
        done.threads += self.delete_threads(earlier(now, self.limits.threads_kept), now, u64::MAX).await?;
        while self.stats().await?.bytes > self.limits.total_bytes {
            let oldest = "state = 'finished' AND event_count > 0 AND finished_at <= $1 AND finished_at <= $2 \
                          ORDER BY finished_at";
            let stripped = self.in_batches(oldest, i64::MAX, i64::MAX, Work::Strip, FEW).await?;
            done.stripped += stripped;
            if stripped > 0 {
                continue;
            }
            let oldest = "state = 'finished' AND finished_at <= $1 AND finished_at <= $2 ORDER BY finished_at";
            let deleted = self.in_batches(oldest, i64::MAX, i64::MAX, Work::Delete, FEWEST).await?;
            done.deleted += deleted;
            if deleted > 0 {
                continue;
            }
            let threads = self.delete_threads(Timestamp::MAX, now, FEWEST).await?;
            done.threads += threads;
            if threads == 0 {
                // The rest belongs to what runs.
                break;
            }
        }
        for sql in self.dialect.shrink {
            // A reader that is in the way is passed over until the next time.
            if let Err(error) = sqlx::query(*sql).execute(&self.pool).await {
                tracing::debug!(%error, "the journal's file could not be made smaller");
            }
        }
        Ok(done)
    }

    /// Deletes at most `limit` threads that were not used since then and on which nothing runs, the oldest first;
    /// returns how many.
    async fn delete_threads(&self, unused_since: Timestamp, now: Timestamp, limit: u64) -> Result<u64, JournalError> {
        let sql = "DELETE FROM threads WHERE (tenant, thread_id) IN (SELECT tenant, thread_id FROM threads AS t \
                   WHERE updated_at <= $1 AND NOT EXISTS (SELECT 1 FROM invocations AS i WHERE \
                   i.invocation_id = t.running_invocation AND i.state = 'running' AND i.lease_expires_at > $2) \
                   ORDER BY updated_at LIMIT $3)";
        let mut done = 0;
        while done < limit {
            let batch = (limit - done).min(BATCH as u64);
            let mut writing = self.write().await?;
            let query = sqlx::query(sql).bind(micros(unused_since)).bind(micros(now)).bind(int(batch));
            let deleted = query.execute(writing.db()).await?.rows_affected();
            writing.commit().await?;
            done += deleted;
            if deleted < batch {
                break;
            }
        }
        Ok(done)
    }

    pub(super) async fn stats(&self) -> Result<Stats, JournalError> {
        let sql = "SELECT COUNT(*) AS invocations, \
                   CAST(COALESCE(SUM(CASE WHEN state = 'running' THEN 1 ELSE 0 END), 0) AS BIGINT) AS running, \
                   CAST(COALESCE(SUM(event_count), 0) AS BIGINT) AS events, \
                   CAST(COALESCE(SUM(event_bytes), 0) AS BIGINT) AS event_bytes, \
                   CAST(COALESCE(SUM(content_bytes), 0) AS BIGINT) AS content_bytes FROM invocations";
        let row = sqlx::query(sql).fetch_one(&self.pool).await?;
        let threads = sqlx::query(
            "SELECT COUNT(*) AS threads, CAST(COALESCE(SUM(bytes), 0) AS BIGINT) AS thread_bytes FROM threads",
        )
        .fetch_one(&self.pool)
        .await?;
        let bytes = count(&row, "event_bytes")? + count(&row, "content_bytes")? + count(&threads, "thread_bytes")?;
        Ok(Stats {
            invocations: count(&row, "invocations")?,
            running: count(&row, "running")?,
            events: count(&row, "events")?,
            event_bytes: count(&row, "event_bytes")?,
            bytes,
            threads: count(&threads, "threads")?,
        })
    }

    /// Processes at most `limit` invocations of a condition; returns how many.
    async fn in_batches(
        &self,
        condition: &'static str,
        first: i64,
        second: i64,
        work: Work,
        limit: u64,
    ) -> Result<u64, JournalError> {
        let mut done = 0;
        while done < limit {
            let batch = (limit - done).min(BATCH as u64);
            let mut writing = self.write().await?;
            let ids = self.some(&mut writing, condition, (first, second), batch).await?;
            for id in &ids {
                work.on(writing.db(), id).await?;
            }
            writing.commit().await?;
            done += ids.len() as u64;
            if (ids.len() as u64) < batch {
                break;
            }
        }
        Ok(done)
    }

    async fn some(
        &self,
        writing: &mut WriteTransaction<'_>,
        condition: &'static str,
        values: (i64, i64),
        limit: u64,
    ) -> Result<Vec<String>, JournalError> {
        let free = self.dialect.for_update_free;
        let sql = format!("SELECT invocation_id FROM invocations WHERE {condition} LIMIT $3{free}");
        let query = sqlx::query(AssertSqlSafe(sql)).bind(values.0).bind(values.1).bind(int(limit));
        query.fetch_all(writing.db()).await?.iter().map(|row| rows::text(row, "invocation_id")).collect()
    }
}

/// What is done to an expired invocation.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Its events go.
    Strip,
    /// It goes whole.
    Delete,
}

// === impl Work ===

impl Work {
    async fn on(self, db: &mut AnyConnection, id: &str) -> Result<(), JournalError> {
        let statements: &[&'static str] = match self {
            Self::Strip => &[
                "DELETE FROM events WHERE invocation_id = $1",
                "UPDATE invocations SET event_count = 0, event_bytes = 0 WHERE invocation_id = $1",
            ],
            Self::Delete => &["DELETE FROM invocations WHERE invocation_id = $1"],
        };
        for sql in statements {
            sqlx::query(*sql).bind(id.to_owned()).execute(&mut *db).await?;
        }
        Ok(())
    }
}

fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}
