//! Adds to the records of invocations: steps, and with the last of them the end. Many in one
//! transaction.

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe, any::AnyRow};

use super::{
    super::{
        AppendError, Entry, Finish, FinishError, JournalError, ThreadError, ThreadKey,
        ToolExecution, tool_execution::Whose, write_guard::WriteGuard,
    },
    rows::{self, OUTCOME_STEP, count, int, json, micros, placeholders},
    store::{Store, WriteTransaction},
    threads,
};
use crate::{
    domain::{
        fold::StreamStep,
        ids::{InvocationId, ThreadId},
        invocation::Outcome,
    },
    settings::Payloads,
};

/// Rows of one insert at most: six values each, far below what any database binds.
pub(super) const ROWS_PER_INSERT: usize = 64;

/// Data that is added to the record of an invocation.
pub(super) struct Addition {
    pub(super) id: InvocationId,
    steps: Vec<StepRow>,
    end: Option<End>,
}

/// The end of an invocation, as its row has it.
struct End {
    epoch: u64,
    /// Time at which it is recorded.
    at: i64,
    /// Time by which it ended before that.
    ended_before: i64,
    /// `None` if payloads are not kept, as the snapshot.
    sealed: Option<(String, String)>,
    outcome: Arc<Outcome>,
}

/// An addition that its invocation's record takes.
pub(super) struct AdmittedAddition<'a> {
    addition: &'a Addition,
    /// The invocation's row, locked until the transaction ends.
    row: AnyRow,
    guard: WriteGuard,
    /// The steps that are not recorded yet.
    fresh: &'a [StepRow],
    /// If set, the end was recorded before, so that there is nothing to do.
    is_done: bool,
}

/// One step as a row.
pub(super) struct StepRow {
    id: String,
    seq: u64,
    epoch: u64,
    attempt: i64,
    at: i64,
    step: String,
}

// === impl Addition ===

impl Addition {
    /// Steps of an invocation that continues.
    pub(super) fn of_steps(
        store: &Store,
        id: &InvocationId,
        entries: &[Entry],
    ) -> Result<Self, JournalError> {
        Ok(Self {
            id: id.clone(),
            steps: store.steps(id, entries, None)?,
            end: None,
        })
    }

    /// Returns the end of an invocation.
    pub(super) fn of_end(
        store: &Store,
        end: &Finish,
        now: Timestamp,
    ) -> Result<Self, JournalError> {
        Ok(Self {
            id: end.id.clone(),
            steps: store.steps(&end.id, &end.entries, Some(&end.outcome))?,
            end: Some(End {
                epoch: end.epoch,
                at: micros(now),
                ended_before: i64::try_from(end.ended_before.as_micros()).unwrap_or(i64::MAX),
                sealed: store.sealed_end(end)?,
                outcome: Arc::clone(&end.outcome),
            }),
        })
    }

    /// Checks it against its invocation's row.
    fn admit(&self, row: AnyRow, cap: u64) -> Result<AdmittedAddition<'_>, AppendError> {
        let guard = rows::write_guard(&row)?;
        let is_done = self
            .end
            .as_ref()
            .is_some_and(|end| guard.finished && guard.epoch == end.epoch);
        if is_done {
            return Ok(AdmittedAddition {
                addition: self,
                row,
                guard,
                fresh: &[],
                is_done,
            });
        }
        if let Some(end) = &self.end {
            guard.admit(end.epoch)?;
        }
        let known = guard.known(self.steps.iter().map(|step| (step.epoch, step.seq)))?;
        let fresh = self.steps.get(known..).unwrap_or_default();
        if self.end.is_none() {
            let held = count(&row, "event_bytes")?;
            if held + bytes_of(fresh) > cap {
                return Err(AppendError::Full { held, cap });
            }
        }
        Ok(AdmittedAddition {
            addition: self,
            row,
            guard,
            fresh,
            is_done,
        })
    }
}

// === impl AdmittedAddition ===

impl AdmittedAddition<'_> {
    /// Returns the thread that its invocation runs on.
    fn thread(&self) -> Result<Option<ThreadId>, JournalError> {
        Ok(rows::maybe_text(&self.row, "thread_id")?.map(ThreadId::from))
    }

    /// Returns whether it ends an invocation on a thread, so that the thread changes with it.
    pub(super) fn ends_on_thread(&self) -> Result<bool, JournalError> {
        Ok(self.addition.end.is_some() && !self.is_done && self.thread()?.is_some())
    }

    /// Returns the executions of tools that it ends with.
    fn executions(&self, keeps: bool) -> Result<Vec<ToolExecution>, JournalError> {
        let Some(end) = &self.addition.end else {
            return Ok(Vec::new());
        };
        if end
            .outcome
            .attempts
            .iter()
            .all(|record| record.tool.is_none())
        {
            return Ok(Vec::new());
        }
        let route = rows::text(&self.row, "route")?.into();
        let operation = rows::text(&self.row, "operation")?.into();
        let tenant = rows::text(&self.row, "tenant")?.into();
        let thread = self.thread()?;
        let whose = Whose {
            tenant: &tenant,
            route: &route,
            operation: &operation,
            thread: thread.as_ref(),
        };
        Ok(ToolExecution::of(&whose, &end.outcome, keeps))
    }
}

impl Store {
    /// Checks additions against the rows of their invocations, which are then locked until the
    /// transaction ends.
    pub(super) async fn admit<'a>(
        &self,
        writing: &mut WriteTransaction<'_>,
        additions: &[&'a Addition],
    ) -> Result<Vec<Result<AdmittedAddition<'a>, AppendError>>, JournalError> {
        let mut found = HashMap::new();
        for some in rows::batches(additions, ROWS_PER_INSERT) {
            let ids: Vec<_> = some.iter().map(|addition| &addition.id).collect();
            for row in self.locked(writing, &ids).await? {
                found.insert(InvocationId::from(rows::text(&row, "invocation_id")?), row);
            }
        }
        let admit = |addition: &&'a Addition| {
            let row = found.remove(&addition.id).ok_or(AppendError::Unknown)?;
            addition.admit(row, self.limits.invocation_bytes)
        };
        Ok(additions.iter().map(admit).collect())
    }

    /// Writes additions that were admitted in this transaction.
    pub(super) async fn add(
        &self,
        db: &mut AnyConnection,
        admitted: &[AdmittedAddition<'_>],
    ) -> Result<(), JournalError> {
        let keeps = self.limits.payloads == Payloads::Full;
        if keeps {
            let steps: Vec<_> = admitted
                .iter()
                .flat_map(|admitted| admitted.fresh)
                .collect();
            insert_steps(db, &steps).await?;
        }
        let mut continued = Vec::new();
        let mut ended = Vec::new();
        for admitted in admitted {
            match &admitted.addition.end {
                Some(_) if admitted.is_done => {}
                Some(end) => {
                    self.insert_executions(db, &admitted.executions(keeps)?)
                        .await?;
                    ended.push((admitted, Some(end)));
                }
                None if admitted.fresh.is_empty() => {}
                None => continued.push((admitted, None)),
            }
        }
        let counted = "last_seq = v.column2, event_count = event_count + v.column3, event_bytes = event_bytes + v.column4";
        let end = format!(
            "state = 'finished', upstream = NULL, finished_at = {} - v.column9, outcome = v.column6, snapshot = v.column7, \
             content_bytes = content_bytes + v.column8",
            self.now("v.column5")
        );
        for (set, columns, admitted) in [
            (counted.to_owned(), 4, continued),
            (format!("{counted}, {end}"), 9, ended),
        ] {
            for admitted in rows::batches(&admitted, ROWS_PER_INSERT) {
                let sql = format!(
                    "UPDATE invocations SET {set} FROM (VALUES {}) AS v WHERE invocation_id = v.column1",
                    placeholders(admitted.len(), columns)
                );
                let mut query = sqlx::query(AssertSqlSafe(sql));
                for (admitted, end) in admitted {
                    let fresh = admitted.fresh;
                    let (steps, bytes) = if keeps {
                        (fresh.len() as u64, bytes_of(fresh))
                    } else {
                        (0, 0)
                    };
                    let last_seq = fresh
                        .last()
                        .map_or(admitted.guard.last_seq, |step| step.seq);
                    query = query.bind(admitted.addition.id.as_str().to_owned());
                    query = query.bind(int(last_seq)).bind(int(steps)).bind(int(bytes));
                    if let Some(end) = end {
                        let (outcome, snapshot) = end.sealed.clone().unzip();
                        let added = length(outcome.as_deref()) + length(snapshot.as_deref());
                        query = query
                            .bind(end.at)
                            .bind(outcome)
                            .bind(snapshot)
                            .bind(added)
                            .bind(end.ended_before);
                    }
                }
                query.execute(&mut *db).await?;
            }
        }
        Ok(())
    }

    /// Returns the outcome and the snapshot of an end as they are stored; `None` if payloads are
    /// not kept.
    pub(super) fn sealed_end(
        &self,
        end: &Finish,
    ) -> Result<Option<(String, String)>, JournalError> {
        if self.limits.payloads == Payloads::None {
            return Ok(None);
        }
        let drawer = self.cipher.of_invocation(end.id.as_str());
        let outcome = drawer.seal("outcome", 0, json(&end.outcome, "an outcome")?)?;
        Ok(Some((
            outcome,
            drawer.seal("snapshot", 0, json(&end.snapshot, "a snapshot")?)?,
        )))
    }

    /// Steps of an invocation as rows. Where they end it, its outcome is in a column already, and
    /// the last step refers to it; but not on a server, whose readers may be replicas of an earlier
    /// version that do not know that.
    pub(super) fn steps(
        &self,
        id: &InvocationId,
        entries: &[Entry],
        outcome: Option<&Arc<Outcome>>,
    ) -> Result<Vec<StepRow>, JournalError> {
        let drawer = self.cipher.of_invocation(id.as_str());
        let stored = outcome.filter(|_| self.dialect.one_writer);
        let row = |entry: &Entry| {
            let text = match &entry.step {
                StreamStep::Terminal(end)
                    if stored.is_some_and(|stored| Arc::ptr_eq(end, stored)) =>
                {
                    OUTCOME_STEP.to_owned()
                }
                step => json(step, "a step")?,
            };
            Ok(StepRow {
                id: id.as_str().to_owned(),
                seq: entry.seq,
                epoch: entry.epoch,
                attempt: i64::from(entry.attempt),
                at: micros(entry.at),
                step: drawer.seal("step", entry.seq, text)?,
            })
        };
        entries.iter().map(row).collect()
    }

    /// Records the end of an invocation on a thread, and what becomes of the thread.
    pub(super) async fn finish_on_thread(
        &self,
        end: &Finish,
        now: Timestamp,
    ) -> Result<(), FinishError> {
        let addition = Addition::of_end(self, end, now)?;
        let mut writing = self.write().await?;
        let admitted = self
            .admit(&mut writing, &[&addition])
            .await?
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        let Some(found) = admitted.first().filter(|admitted| !admitted.is_done) else {
            return Ok(());
        };
        let tenant = rows::text(&found.row, "tenant")?.into();
        let key = found.thread()?.map(|thread| ThreadKey::new(tenant, thread));
        match (&key, &end.thread) {
            (Some(key), Some(change)) => {
                threads::end(&mut writing, self, key, change, end, now).await?;
            }
            (None, Some(_)) => return Err(ThreadError::NotLocked { holder: None }.into()),
            (Some(key), None) => threads::unlock(writing.db(), key, &end.id).await?,
            (None, None) => {}
        }
        self.add(writing.db(), &admitted).await?;
        writing.commit().await?;
        self.announce(&end.id);
        Ok(())
    }
}

/// Bytes of steps.
pub(super) fn bytes_of(steps: &[StepRow]) -> u64 {
    steps.iter().map(|row| row.step.len() as u64).sum()
}

/// Inserts steps of any invocations.
pub(super) async fn insert_steps(
    db: &mut AnyConnection,
    steps: &[&StepRow],
) -> Result<(), JournalError> {
    for rows in rows::batches(steps, ROWS_PER_INSERT) {
        let values = placeholders(rows.len(), 6);
        let sql = format!(
            "INSERT INTO events (invocation_id, seq, epoch, attempt, at, step) VALUES {values}"
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for row in rows {
            query = query
                .bind(row.id.clone())
                .bind(int(row.seq))
                .bind(int(row.epoch))
                .bind(row.attempt);
            query = query.bind(row.at).bind(row.step.clone());
        }
        query.execute(&mut *db).await?;
    }
    Ok(())
}

/// Bytes of a text that may be kept.
pub(super) fn length(text: Option<&str>) -> i64 {
    text.map_or(0, |text| int(text.len() as u64))
}
