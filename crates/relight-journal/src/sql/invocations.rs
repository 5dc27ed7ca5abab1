//! Looks invocations and their steps up in SQL.

use std::collections::HashMap;

use sqlx::{AnyConnection, AssertSqlSafe, any::AnyRow};

use super::{
    super::{AppendError, CancelWish, Entry, Held, JournalError, Listing, Page, Record},
    rows::{self, count, int, json, micros, placeholders},
    store::{Store, WriteTransaction},
};
use crate::{
    domain::{
        ids::{InvocationId, Operation, RequestId, TenantId, ThreadId},
        upstream::UpstreamHandle,
    },
    settings::Payloads,
};

impl Store {
    pub(super) async fn remember(
        &self,
        held: &Held,
        upstream: &UpstreamHandle,
    ) -> Result<bool, AppendError> {
        let mut writing = self.write().await?;
        let row = self
            .locked(&mut writing, &[&held.id])
            .await?
            .pop()
            .ok_or(AppendError::Unknown)?;
        rows::write_guard(&row)?.admit(held.epoch)?;
        if self.limits.payloads == Payloads::None {
            return Ok(false);
        }
        let drawer = self.cipher.of_invocation(held.id.as_str());
        let sealed = drawer.seal("upstream", 0, json(upstream, "a handle")?)?;
        let query = sqlx::query("UPDATE invocations SET upstream = $2 WHERE invocation_id = $1");
        query
            .bind(held.id.as_str().to_owned())
            .bind(sealed)
            .execute(writing.db())
            .await?;
        writing.commit().await?;
        Ok(true)
    }

    pub(super) async fn read(
        &self,
        id: &InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> Result<Option<Page>, JournalError> {
        // The row first: steps that come meanwhile are then only more than it promises, and none is
        // taken for gone.
        let sql = "SELECT last_seq, epoch, state FROM invocations WHERE invocation_id = $1";
        let Some(row) = sqlx::query(sql)
            .bind(id.as_str().to_owned())
            .fetch_optional(&self.pool)
            .await?
        else {
            return Ok(None);
        };
        let sql = "SELECT e.epoch, e.seq, e.attempt, e.at, e.step, \
                   CASE WHEN e.seq = i.last_seq THEN i.outcome END AS outcome \
                   FROM events AS e JOIN invocations AS i ON i.invocation_id = e.invocation_id \
                   WHERE e.invocation_id = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3";
        let query = sqlx::query(sql)
            .bind(id.as_str().to_owned())
            .bind(int(after_seq))
            .bind(int(limit as u64));
        let drawer = self.cipher.of_invocation(id.as_str());
        let found = query.fetch_all(&self.pool).await?;
        let entries: Vec<Entry> = found
            .iter()
            .map(|row| rows::entry(row, &drawer))
            .collect::<Result<_, _>>()?;
        let last_seq = entries
            .last()
            .map_or(0, |entry| entry.seq)
            .max(count(&row, "last_seq")?);
        let epoch = count(&row, "epoch")?;
        let page = Page {
            entries,
            last_seq,
            epoch,
            finished: rows::is_finished(&row)?,
            gone: false,
        };
        Ok(Some(page.with_gap_after(after_seq, limit)))
    }

    pub(super) async fn get(&self, id: &InvocationId) -> Result<Option<Record>, JournalError> {
        let sql = format!(
            "SELECT {} FROM invocations WHERE invocation_id = $1",
            self.record_columns()
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(id.as_str().to_owned());
        query
            .fetch_optional(&self.pool)
            .await?
            .map(|row| rows::record(&row, &self.cipher))
            .transpose()
    }

    /// Returns the invocations of tenants' request ids, by these.
    pub(super) async fn find(
        &self,
        db: &mut AnyConnection,
        keys: &[&(TenantId, RequestId)],
    ) -> Result<HashMap<(TenantId, RequestId), Record>, JournalError> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let place = |number: usize| {
            format!(
                "(tenant = ${} AND request_id = ${})",
                2 * number + 1,
                2 * number + 2
            )
        };
        let conditions: Vec<_> = (0..keys.len()).map(place).collect();
        let sql = format!(
            "SELECT {} FROM invocations WHERE {}",
            self.record_columns(),
            conditions.join(" OR ")
        );
        let query = keys.iter().fold(
            sqlx::query(AssertSqlSafe(sql)),
            |query, (tenant, request)| {
                query
                    .bind(tenant.as_str().to_owned())
                    .bind(request.as_str().to_owned())
            },
        );
        let found = query.fetch_all(db).await?;
        let keyed = |row| {
            let record = rows::record(row, &self.cipher)?;
            let request = record
                .request_id
                .clone()
                .ok_or_else(|| JournalError::Corrupt("a request id".to_owned()))?;
            Ok(((record.tenant.clone(), request), record))
        };
        found.iter().map(keyed).collect()
    }

    pub(super) async fn list(
        &self,
        wanted: &Listing,
        limit: usize,
    ) -> Result<Vec<Record>, JournalError> {
        let mut texts: Vec<String> = Vec::new();
        let mut text = |value: &str| {
            texts.push(value.to_owned());
            format!("${}", texts.len())
        };
        let mut conditions = vec!["1 = 1".to_owned()];
        for (column, value) in [
            ("tenant", wanted.tenant.as_ref().map(TenantId::as_str)),
            (
                "operation",
                wanted.operation.as_ref().map(Operation::as_str),
            ),
            ("thread_id", wanted.thread.as_ref().map(ThreadId::as_str)),
            (
                "state",
                wanted
                    .finished
                    .map(|finished| if finished { "finished" } else { "running" }),
            ),
        ] {
            conditions.extend(value.map(|value| format!("{column} = {}", text(value))));
        }
        if !wanted.routes.is_empty() {
            let routes: Vec<String> = wanted
                .routes
                .iter()
                .map(|route| text(route.as_str()))
                .collect();
            conditions.push(format!("route IN ({})", routes.join(", ")));
        }
        conditions.extend(
            wanted
                .before
                .as_ref()
                .map(|before| format!("invocation_id < {}", text(before.as_str()))),
        );
        // A number of our own, which needs no binding.
        conditions.extend(
            wanted
                .since
                .map(|since| format!("created_at >= {}", micros(since))),
        );
        let columns = ["request", "upstream", "snapshot"].into_iter().fold(
            self.record_columns(),
            |columns, left_out| {
                columns.replace(
                    &format!(" {left_out},"),
                    &format!(" CAST(NULL AS TEXT) AS {left_out},"),
                )
            },
        );
        let sql = format!(
            "SELECT {columns} FROM invocations WHERE {} ORDER BY invocation_id DESC LIMIT {limit}",
            conditions.join(" AND ")
        );
        let query = texts
            .into_iter()
            .fold(sqlx::query(AssertSqlSafe(sql)), sqlx::query::Query::bind);
        query
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(|row| rows::record(row, &self.cipher))
            .collect()
    }

    pub(super) async fn free_request(&self, id: &InvocationId) -> Result<(), JournalError> {
        let mut writing = self.write().await?;
        let sql = "UPDATE invocations SET request_id = NULL WHERE invocation_id = $1 AND state = 'finished'";
        sqlx::query(sql)
            .bind(id.as_str().to_owned())
            .execute(writing.db())
            .await?;
        writing.commit().await
    }

    pub(super) async fn request_cancel(
        &self,
        id: &InvocationId,
    ) -> Result<CancelWish, JournalError> {
        let mut writing = self.write().await?;
        let sql = "UPDATE invocations SET cancel_requested = 1 WHERE invocation_id = $1 AND state = 'running'";
        let done = sqlx::query(sql)
            .bind(id.as_str().to_owned())
            .execute(writing.db())
            .await?
            .rows_affected()
            > 0;
        writing.commit().await?;
        if done {
            self.announce(id);
            return Ok(CancelWish::Recorded);
        }
        Ok(if self.get(id).await?.is_some() {
            CancelWish::Finished
        } else {
            CancelWish::Unknown
        })
    }

    /// Returns the rows of invocations, locked until the end of the transaction.
    pub(super) async fn locked(
        &self,
        writing: &mut WriteTransaction<'_>,
        ids: &[&InvocationId],
    ) -> Result<Vec<AnyRow>, JournalError> {
        let sql = format!(
            "SELECT {} FROM invocations WHERE invocation_id IN {}{}",
            "invocation_id, tenant, route, operation, thread_id, state, epoch, epoch_first_seq, last_seq, event_bytes",
            placeholders(1, ids.len()),
            self.dialect.for_update
        );
        let query = sqlx::query(AssertSqlSafe(sql));
        let query = ids
            .iter()
            .fold(query, |query, id| query.bind(id.as_str().to_owned()));
        Ok(query.fetch_all(writing.db()).await?)
    }
}
