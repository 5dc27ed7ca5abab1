//! Leases in SQL: which process executes what, and until when.

use std::collections::HashMap;

use jiff::Timestamp;
use sqlx::AssertSqlSafe;

use super::{
    super::{
        Held, JournalError, Owner, Renewed, RunState, Takeover,
        record::{OWNER_DEAD, RELEASED},
    },
    rows::{self, count, int, micros},
    store::Store,
};
use crate::domain::ids::InvocationId;

/// Leases renewed by one statement at most.
const LEASES_PER_UPDATE: usize = 200;

impl Store {
    pub(super) async fn renew(
        &self,
        owner: &Owner,
        held: &[Held],
        now: Timestamp,
    ) -> Result<Renewed, JournalError> {
        let mut renewed = Renewed::default();
        for held in rows::batches(held, LEASES_PER_UPDATE) {
            let mine = self.extend(owner, held, now).await?;
            for Held { id, epoch } in held {
                match mine.get(id) {
                    Some((current, cancel)) if current == epoch => {
                        if *cancel {
                            renewed.cancel_requested.push(id.clone());
                        }
                    }
                    Some(_) | None => renewed.lost.push(id.clone()),
                }
            }
        }
        Ok(renewed)
    }

    pub(super) async fn release(&self, owner: &Owner, held: &[Held]) -> Result<(), JournalError> {
        let sql = "UPDATE invocations SET lease_expires_at = $1 WHERE invocation_id = $2 AND owner = $3 \
                   AND epoch = $4 AND state = 'running'";
        for Held { id, epoch } in held {
            let mut writing = self.write().await?;
            let query = sqlx::query(sql)
                .bind(micros(RELEASED))
                .bind(id.as_str().to_owned());
            query
                .bind(owner.as_str().to_owned())
                .bind(int(*epoch))
                .execute(writing.db())
                .await?;
            writing.commit().await?;
        }
        Ok(())
    }

    pub(super) async fn expired(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<Held>, JournalError> {
        self.expired_at(&self.now("$1"), now, limit).await
    }

    /// Returns those whose leases expired by a time, given as an expression over `$1`, which is
    /// `at`.
    async fn expired_at(
        &self,
        time: &str,
        at: Timestamp,
        limit: usize,
    ) -> Result<Vec<Held>, JournalError> {
        let sql = format!(
            "SELECT invocation_id, epoch FROM invocations WHERE state = 'running' AND lease_expires_at <= {time} \
             ORDER BY lease_expires_at LIMIT $2"
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(micros(at))
            .bind(int(limit as u64));
        let found = query.fetch_all(&self.pool).await?;
        let held = |row| {
            Ok(Held {
                id: rows::text(row, "invocation_id")?.into(),
                epoch: count(row, "epoch")?,
            })
        };
        found.iter().map(held).collect()
    }

    pub(super) async fn released(&self, limit: usize) -> Result<Vec<Held>, JournalError> {
        self.expired_at("$1", OWNER_DEAD, limit).await
    }

    pub(super) async fn give_up_all(&self) -> Result<(), JournalError> {
        let sql = "UPDATE invocations SET lease_expires_at = $1 WHERE state = 'running' AND lease_expires_at > $1";
        let mut writing = self.write().await?;
        sqlx::query(sql)
            .bind(micros(OWNER_DEAD))
            .execute(writing.db())
            .await?;
        writing.commit().await
    }

    pub(super) async fn take_over(
        &self,
        expected: &Held,
        owner: &Owner,
        now: Timestamp,
    ) -> Result<Takeover, JournalError> {
        let mut writing = self.write().await?;
        let sql = format!(
            "SELECT {} FROM invocations WHERE invocation_id = $1{}",
            self.record_columns(),
            self.dialect.for_update
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(expected.id.as_str().to_owned());
        let Some(row) = query.fetch_optional(writing.db()).await? else {
            return Ok(Takeover::Unknown);
        };
        let mut record = rows::record(&row, &self.cipher)?;
        if let Some(refused) = record.refuses_takeover(expected.epoch, now) {
            return Ok(refused);
        }
        let was_released = matches!(record.state, RunState::Running { lease_expires_at } if lease_expires_at <= RELEASED);
        record.takeovers += u64::from(!was_released);
        record.epoch += 1;
        record.owner = owner.clone();
        let lease_expires_at = now.checked_add(self.limits.lease).unwrap_or(Timestamp::MAX);
        record.state = RunState::Running { lease_expires_at };
        let sql = format!(
            "UPDATE invocations SET epoch = $2, epoch_first_seq = last_seq + 1, owner = $3, \
             lease_expires_at = {} + {}, takeovers = $5 WHERE invocation_id = $1",
            self.now("$4"),
            self.lease_micros()
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(expected.id.as_str().to_owned())
            .bind(int(record.epoch));
        let query = query
            .bind(owner.as_str().to_owned())
            .bind(micros(now))
            .bind(int(record.takeovers));
        query.execute(writing.db()).await?;
        writing.commit().await?;
        self.announce(&expected.id);
        Ok(Takeover::Taken(Box::new(record)))
    }

    /// Extends what the owner still runs of these, in any epoch, and returns which, with requested
    /// cancellations.
    async fn extend(
        &self,
        owner: &Owner,
        held: &[Held],
        now: Timestamp,
    ) -> Result<HashMap<InvocationId, (u64, bool)>, JournalError> {
        let ids: Vec<String> = (3..held.len() + 3)
            .map(|number| format!("${number}"))
            .collect();
        let sql = format!(
            "UPDATE invocations SET lease_expires_at = {} + {} WHERE owner = $2 AND state = 'running' \
             AND invocation_id IN ({}) RETURNING invocation_id, epoch, cancel_requested",
            self.now("$1"),
            self.lease_micros(),
            ids.join(", ")
        );
        let mut writing = self.write().await?;
        let mut query = sqlx::query(AssertSqlSafe(sql))
            .bind(micros(now))
            .bind(owner.as_str().to_owned());
        for Held { id, .. } in held {
            query = query.bind(id.as_str().to_owned());
        }
        let found = query.fetch_all(writing.db()).await?;
        writing.commit().await?;
        let one = |row| {
            let id = InvocationId::from(rows::text(row, "invocation_id")?);
            Ok((
                id,
                (count(row, "epoch")?, count(row, "cancel_requested")? != 0),
            ))
        };
        found.iter().map(one).collect()
    }

    fn lease_micros(&self) -> u64 {
        u64::try_from(self.limits.lease.as_micros()).unwrap_or(u64::MAX)
    }
}
