//! Retention in SQL: in small transactions that skip locked rows, so that no other writer waits
//! long.

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

/// Threads that are deleted before their bytes are counted: no more than needed are lost.
const FEWEST: u64 = 8;

/// Finished invocations, the oldest first.
const OLDEST: &str =
    "state = 'finished' AND finished_at <= $1 AND finished_at <= $2 ORDER BY finished_at";

/// Finished invocations that have events, the oldest first.
const OLDEST_WITH_EVENTS: &str = "state = 'finished' AND event_count > 0 AND finished_at <= $1 AND finished_at <= $2 ORDER BY finished_at";

/// Amount that is or was removed: so many at most, and no more than it takes to free so many bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    count: u64,
    bytes: u64,
}

/// All that a condition finds.
const ALL: Amount = Amount {
    count: u64::MAX,
    bytes: u64::MAX,
};

impl Store {
    pub(super) async fn compact(&self, now: Timestamp) -> Result<Compacted, JournalError> {
        let now = self.time(now).await?;
        let kept_since = micros(earlier(now, self.limits.outcomes_kept));
        let stripped_since = micros(earlier(now, self.limits.events_kept));
        let mut done = Compacted::default();
        done.deleted += self
            .in_batches(OLDEST, kept_since, micros(now), Work::Delete, ALL)
            .await?
            .count;
        // Abandoned: not taken over for as long as its outcome would have been kept.
        let old = "state = 'running' AND deadline_at <= $1 AND lease_expires_at <= $2 ORDER BY lease_expires_at";
        done.deleted += self
            .in_batches(old, kept_since, micros(now), Work::Delete, ALL)
            .await?
            .count;
        let stripped = self
            .in_batches(
                OLDEST_WITH_EVENTS,
                stripped_since,
                micros(now),
                Work::Strip,
                ALL,
            )
            .await?;
        done.stripped += stripped.count;
        let count = self
            .stats()
            .await?
            .invocations
            .saturating_sub(self.limits.max_invocations);
        done.deleted += self
            .oldest(OLDEST, Work::Delete, Amount { count, ..ALL })
            .await?
            .count;
        done.threads += self
            .delete_threads(earlier(now, self.limits.threads_kept), now, u64::MAX)
            .await?
            .count;
        // Counted once: a count reads the whole table.
        let bytes = self
            .stats()
            .await?
            .bytes
            .saturating_sub(self.limits.total_bytes);
        let stripped = self
            .oldest(OLDEST_WITH_EVENTS, Work::Strip, Amount { bytes, ..ALL })
            .await?;
        done.stripped += stripped.count;
        let bytes = bytes.saturating_sub(stripped.bytes);
        let deleted = self
            .oldest(OLDEST, Work::Delete, Amount { bytes, ..ALL })
            .await?;
        done.deleted += deleted.count;
        let bytes = bytes.saturating_sub(deleted.bytes);
        // What is left after that belongs to running invocations.
        done.threads += self.delete_threads(Timestamp::MAX, now, bytes).await?.count;
        for sql in self.dialect.shrink {
            // A reader that is in the way is passed over until the next time.
            if let Err(error) = sqlx::query(*sql).execute(&self.pool).await {
                tracing::debug!(%error, "the journal's file could not be made smaller");
            }
        }
        Ok(done)
    }

    /// Deletes threads that were not used since then and on which nothing runs, the oldest first,
    /// until `bytes` are free.
    async fn delete_threads(
        &self,
        unused_since: Timestamp,
        now: Timestamp,
        bytes: u64,
    ) -> Result<Amount, JournalError> {
        let sql = "DELETE FROM threads WHERE (tenant, thread_id) IN (SELECT tenant, thread_id FROM threads AS t \
                   WHERE updated_at <= $1 AND NOT EXISTS (SELECT 1 FROM invocations AS i WHERE \
                   i.invocation_id = t.running_invocation AND i.state = 'running' AND i.lease_expires_at > $2) \
                   ORDER BY updated_at LIMIT $3) RETURNING bytes";
        let batch = if bytes == u64::MAX {
            BATCH as u64
        } else {
            FEWEST
        };
        let mut done = Amount::default();
        while done.bytes < bytes {
            let mut writing = self.write().await?;
            let query = sqlx::query(sql)
                .bind(micros(unused_since))
                .bind(micros(now))
                .bind(int(batch));
            let deleted = query.fetch_all(writing.db()).await?;
            writing.commit().await?;
            for row in &deleted {
                done.bytes += count(row, "bytes")?;
            }
            done.count += deleted.len() as u64;
            if (deleted.len() as u64) < batch {
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
        let bytes = count(&row, "event_bytes")?
            + count(&row, "content_bytes")?
            + count(&threads, "thread_bytes")?;
        Ok(Stats {
            invocations: count(&row, "invocations")?,
            running: count(&row, "running")?,
            events: count(&row, "events")?,
            event_bytes: count(&row, "event_bytes")?,
            bytes,
            threads: count(&threads, "threads")?,
        })
    }

    /// Removes from the finished invocations of a condition, whenever they ended.
    async fn oldest(
        &self,
        condition: &'static str,
        work: Work,
        limit: Amount,
    ) -> Result<Amount, JournalError> {
        self.in_batches(condition, i64::MAX, i64::MAX, work, limit)
            .await
    }

    /// Removes from the invocations of a condition until the limit is reached; returns what was
    /// removed.
    async fn in_batches(
        &self,
        condition: &'static str,
        first: i64,
        second: i64,
        work: Work,
        limit: Amount,
    ) -> Result<Amount, JournalError> {
        let mut done = Amount::default();
        while done.count < limit.count && done.bytes < limit.bytes {
            let batch = (limit.count - done.count).min(BATCH as u64);
            let mut writing = self.write().await?;
            let found = self
                .some(&mut writing, condition, (first, second), batch)
                .await?;
            let mut ids = Vec::with_capacity(found.len());
            for (id, event_bytes, content_bytes) in &found {
                if done.bytes >= limit.bytes {
                    break;
                }
                ids.push(id.as_str());
                done.count += 1;
                done.bytes += event_bytes
                    + if matches!(work, Work::Delete) {
                        *content_bytes
                    } else {
                        0
                    };
            }
            work.on(writing.db(), &ids).await?;
            writing.commit().await?;
            if (found.len() as u64) < batch {
                break;
            }
        }
        Ok(done)
    }

    /// Ids, bytes of events and bytes of content.
    async fn some(
        &self,
        writing: &mut WriteTransaction<'_>,
        condition: &'static str,
        values: (i64, i64),
        limit: u64,
    ) -> Result<Vec<(String, u64, u64)>, JournalError> {
        let free = self.dialect.for_update_free;
        let columns = "invocation_id, event_bytes, content_bytes";
        let sql = format!("SELECT {columns} FROM invocations WHERE {condition} LIMIT $3{free}");
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(values.0)
            .bind(values.1)
            .bind(int(limit));
        let found = query.fetch_all(writing.db()).await?;
        let fields = |row| {
            Ok((
                rows::text(row, "invocation_id")?,
                count(row, "event_bytes")?,
                count(row, "content_bytes")?,
            ))
        };
        found.iter().map(fields).collect()
    }
}

/// Treatment of expired invocations.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// Their events are deleted.
    Strip,
    /// They are deleted as a whole.
    Delete,
}

// === impl Work ===

impl Work {
    async fn on(self, db: &mut AnyConnection, ids: &[&str]) -> Result<(), JournalError> {
        if ids.is_empty() {
            return Ok(());
        }
        let statements: &[&'static str] = match self {
            Self::Strip => &[
                "DELETE FROM events WHERE",
                "UPDATE invocations SET event_count = 0, event_bytes = 0 WHERE",
            ],
            Self::Delete => &["DELETE FROM invocations WHERE"],
        };
        let places: Vec<String> = (1..=ids.len()).map(|place| format!("${place}")).collect();
        for statement in statements {
            let sql = format!("{statement} invocation_id IN ({})", places.join(", "));
            let query = ids
                .iter()
                .fold(sqlx::query(AssertSqlSafe(sql)), |query, id| {
                    query.bind((*id).to_owned())
                });
            query.execute(&mut *db).await?;
        }
        Ok(())
    }
}

fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}
