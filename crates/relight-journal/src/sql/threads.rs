//! Threads in SQL. The thread's row is locked first, so that its messages, errors and version
//! change as one.

use jiff::Timestamp;
use sqlx::{AnyConnection, AssertSqlSafe, any::AnyRow};

use super::{
    super::{
        Finish, JournalError, Locked, THREAD_ERRORS_KEPT, Thread, ThreadCommit, ThreadEnd,
        ThreadError, ThreadKey,
    },
    rows::{batches, count, int, json, maybe_text, micros, parse, placeholders, text, time},
    store::{SqlDialect, Store, WriteTransaction},
};
use crate::{
    domain::{ids::InvocationId, invocation::Outcome, message::Message},
    settings::Payloads,
};

/// Rows of one insert at most.
const ROWS_PER_INSERT: usize = 64;

impl Store {
    pub(super) async fn load_thread(
        &self,
        key: &ThreadKey,
    ) -> Result<Option<Thread>, JournalError> {
        // A writing transaction sees the row, its messages and its errors as of one moment on every
        // database.
        let mut writing = self.write().await?;
        let Some(row) = row(writing.db(), self.dialect, key).await? else {
            return Ok(None);
        };
        Ok(Some(self.load(writing.db(), key, &row).await?))
    }

    pub(super) async fn lock_thread(
        &self,
        key: &ThreadKey,
        invocation: &InvocationId,
        now: Timestamp,
    ) -> Result<Locked, JournalError> {
        if self.limits.payloads == Payloads::None {
            return Err(JournalError::NotKept("a thread"));
        }
        let mut writing = self.write().await?;
        let sql = "INSERT INTO threads (tenant, thread_id, version, created_at, updated_at, route) VALUES \
                   ($1, $2, 1, $3, $3, (SELECT route FROM invocations WHERE invocation_id = $4)) \
                   ON CONFLICT DO NOTHING";
        of(key, sql)
            .bind(micros(now))
            .bind(invocation.as_str().to_owned())
            .execute(writing.db())
            .await?;
        let Some(row) = row(writing.db(), self.dialect, key).await? else {
            return Err(JournalError::Unavailable(
                "the thread was deleted meanwhile".to_owned(),
            ));
        };
        if let Some(running) = self.alive(writing.db(), &row, now).await?
            && running != *invocation
        {
            return Ok(Locked::Busy { running });
        }
        let sql = "UPDATE threads SET running_invocation = $3 WHERE tenant = $1 AND thread_id = $2";
        of(key, sql)
            .bind(invocation.as_str().to_owned())
            .execute(writing.db())
            .await?;
        let mut thread = self.load(writing.db(), key, &row).await?;
        thread.running = Some(invocation.clone());
        writing.commit().await?;
        Ok(Locked::Locked(Box::new(thread)))
    }

    pub(super) async fn delete_thread(
        &self,
        key: &ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> Result<bool, ThreadError> {
        let mut writing = self.write().await?;
        let Some(row) = row(writing.db(), self.dialect, key).await? else {
            return Ok(false);
        };
        if let Some(running) = self.alive(writing.db(), &row, now).await? {
            return Err(ThreadError::Busy { running });
        }
        let current = count(&row, "version")?;
        if version.is_some_and(|version| version != current) {
            return Err(ThreadError::Version { current });
        }
        of(
            key,
            "DELETE FROM threads WHERE tenant = $1 AND thread_id = $2",
        )
        .execute(writing.db())
        .await?;
        writing.commit().await?;
        Ok(true)
    }

    /// Returns the live invocation that runs on the thread.
    async fn alive(
        &self,
        db: &mut AnyConnection,
        row: &AnyRow,
        now: Timestamp,
    ) -> Result<Option<InvocationId>, JournalError> {
        let Some(running) = maybe_text(row, "running_invocation")? else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT invocation_id FROM invocations \
             WHERE invocation_id = $1 AND state = 'running' AND lease_expires_at > {}",
            self.now("$2")
        );
        let query = sqlx::query(AssertSqlSafe(sql))
            .bind(running.clone())
            .bind(micros(now));
        Ok(query.fetch_optional(db).await?.map(|_| running.into()))
    }

    async fn load(
        &self,
        db: &mut AnyConnection,
        key: &ThreadKey,
        row: &AnyRow,
    ) -> Result<Thread, JournalError> {
        let sql = "SELECT position, message FROM thread_messages WHERE tenant = $1 AND thread_id = $2 ORDER BY position";
        let messages = of(key, sql).fetch_all(&mut *db).await?;
        let sql = "SELECT position, outcome FROM thread_errors WHERE tenant = $1 AND thread_id = $2 ORDER BY position";
        let errors = of(key, sql).fetch_all(db).await?;
        let drawer = self.cipher.of_thread(key.tenant.as_str(), key.id.as_str());
        let opened =
            |row, place, column| drawer.open(place, count(row, "position")?, text(row, column)?);
        let message = |row| parse(&opened(row, "message", "message")?, "a thread's message");
        let outcome = |row| parse(&opened(row, "error", "outcome")?, "a thread's error");
        Ok(Thread {
            version: count(row, "version")?,
            messages: messages.iter().map(message).collect::<Result<_, _>>()?,
            errors: errors.iter().map(outcome).collect::<Result<_, _>>()?,
            created_at: time(row, "created_at")?,
            updated_at: time(row, "updated_at")?,
            running: maybe_text(row, "running_invocation")?.map(Into::into),
            route: maybe_text(row, "route")?.map(Into::into),
        })
    }
}

/// Applies the end of its invocation to a thread.
pub(super) async fn end(
    writing: &mut WriteTransaction<'_>,
    store: &Store,
    key: &ThreadKey,
    change: &ThreadEnd,
    end: &Finish,
    now: Timestamp,
) -> Result<(), ThreadError> {
    match change {
        ThreadEnd::Commit(change) => commit(writing, store, key, &end.id, change, now)
            .await
            .map(drop),
        ThreadEnd::Fail => fail(writing, store, key, &end.outcome, now).await,
    }
}

/// Unlocks a thread, if it is this invocation's.
pub(super) async fn unlock(
    db: &mut AnyConnection,
    key: &ThreadKey,
    invocation: &InvocationId,
) -> Result<(), JournalError> {
    let sql = "UPDATE threads SET running_invocation = NULL \
               WHERE tenant = $1 AND thread_id = $2 AND running_invocation = $3";
    of(key, sql)
        .bind(invocation.as_str().to_owned())
        .execute(db)
        .await?;
    Ok(())
}

async fn commit(
    writing: &mut WriteTransaction<'_>,
    store: &Store,
    key: &ThreadKey,
    invocation: &InvocationId,
    change: &ThreadCommit,
    now: Timestamp,
) -> Result<(), ThreadError> {
    let row = row(writing.db(), store.dialect, key)
        .await?
        .ok_or(ThreadError::NotLocked { holder: None })?;
    let current = count(&row, "version")?;
    let holder = maybe_text(&row, "running_invocation")?.map(InvocationId::from);
    if holder.as_ref() != Some(invocation) {
        return Err(ThreadError::NotLocked { holder });
    }
    if current != change.expected_version {
        return Err(ThreadError::Version { current });
    }
    let splice = change.splice();
    let sql = "SELECT COUNT(*) AS held FROM thread_messages WHERE tenant = $1 AND thread_id = $2";
    let held = count(
        &of(key, sql)
            .fetch_one(writing.db())
            .await
            .map_err(JournalError::from)?,
        "held",
    )?;
    let kept = held.saturating_sub(splice.drop as u64);
    let sql = "DELETE FROM thread_messages WHERE tenant = $1 AND thread_id = $2 AND position >= $3";
    of(key, sql).bind(int(kept)).execute(writing.db()).await?;
    insert_messages(writing.db(), store, key, kept, &splice.append).await?;
    let sql = "UPDATE threads SET version = version + 1, updated_at = $3, running_invocation = NULL \
               WHERE tenant = $1 AND thread_id = $2";
    of(key, sql).bind(micros(now)).execute(writing.db()).await?;
    Ok(measure(writing.db(), key).await?)
}

async fn fail(
    writing: &mut WriteTransaction<'_>,
    store: &Store,
    key: &ThreadKey,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), ThreadError> {
    let row = row(writing.db(), store.dialect, key)
        .await?
        .ok_or(ThreadError::NotLocked { holder: None })?;
    let holder = maybe_text(&row, "running_invocation")?.map(InvocationId::from);
    if holder.as_ref() != Some(&outcome.invocation) {
        return Err(ThreadError::NotLocked { holder });
    }
    let sql = "SELECT COALESCE(MAX(position) + 1, 0) AS next FROM thread_errors WHERE tenant = $1 AND thread_id = $2";
    let next = count(
        &of(key, sql)
            .fetch_one(writing.db())
            .await
            .map_err(JournalError::from)?,
        "next",
    )?;
    let sql = "INSERT INTO thread_errors (tenant, thread_id, position, invocation_id, outcome) \
               VALUES ($1, $2, $3, $4, $5)";
    let query = of(key, sql)
        .bind(int(next))
        .bind(outcome.invocation.as_str().to_owned());
    let drawer = store.cipher.of_thread(key.tenant.as_str(), key.id.as_str());
    query
        .bind(drawer.seal("error", next, json(outcome, "an outcome")?)?)
        .execute(writing.db())
        .await?;
    let sql = "DELETE FROM thread_errors WHERE tenant = $1 AND thread_id = $2 AND position <= $3";
    let oldest = int(next).saturating_sub(int(THREAD_ERRORS_KEPT as u64));
    of(key, sql).bind(oldest).execute(writing.db()).await?;
    let sql = "UPDATE threads SET updated_at = $3, running_invocation = NULL WHERE tenant = $1 AND thread_id = $2";
    of(key, sql).bind(micros(now)).execute(writing.db()).await?;
    Ok(measure(writing.db(), key).await?)
}

/// Notes how much the thread takes.
async fn measure(db: &mut AnyConnection, key: &ThreadKey) -> Result<(), JournalError> {
    let sql = "UPDATE threads SET bytes = \
               (SELECT CAST(COALESCE(SUM(OCTET_LENGTH(message)), 0) AS BIGINT) FROM thread_messages \
                WHERE tenant = $1 AND thread_id = $2) + \
               (SELECT CAST(COALESCE(SUM(OCTET_LENGTH(outcome)), 0) AS BIGINT) FROM thread_errors \
                WHERE tenant = $1 AND thread_id = $2) WHERE tenant = $1 AND thread_id = $2";
    of(key, sql).execute(db).await?;
    Ok(())
}

/// Returns the thread's row, locked until the end of the transaction.
async fn row(
    db: &mut AnyConnection,
    dialect: SqlDialect,
    key: &ThreadKey,
) -> Result<Option<AnyRow>, JournalError> {
    let sql = format!(
        "SELECT version, created_at, updated_at, running_invocation, route FROM threads \
         WHERE tenant = $1 AND thread_id = $2{}",
        dialect.for_update
    );
    let query = sqlx::query(AssertSqlSafe(sql)).bind(key.tenant.as_str().to_owned());
    Ok(query
        .bind(key.id.as_str().to_owned())
        .fetch_optional(db)
        .await?)
}

async fn insert_messages(
    db: &mut AnyConnection,
    store: &Store,
    key: &ThreadKey,
    first: u64,
    messages: &[Message],
) -> Result<(), JournalError> {
    let drawer = store.cipher.of_thread(key.tenant.as_str(), key.id.as_str());
    let mut position = first;
    for messages in batches(messages, ROWS_PER_INSERT) {
        let values = placeholders(messages.len(), 4);
        let sql = format!(
            "INSERT INTO thread_messages (tenant, thread_id, position, message) VALUES {values}"
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for message in messages {
            query = query
                .bind(key.tenant.as_str().to_owned())
                .bind(key.id.as_str().to_owned());
            let message = drawer.seal("message", position, json(message, "a message")?)?;
            query = query.bind(int(position)).bind(message);
            position += 1;
        }
        query.execute(&mut *db).await?;
    }
    Ok(())
}

/// Returns a statement whose first two values name the thread.
fn of(
    key: &ThreadKey,
    sql: &'static str,
) -> sqlx::query::Query<'static, sqlx::Any, sqlx::any::AnyArguments> {
    sqlx::query(sql)
        .bind(key.tenant.as_str().to_owned())
        .bind(key.id.as_str().to_owned())
}
