//! Executions of tools in SQL.

use std::time::Duration;

use sqlx::{AnyConnection, AssertSqlSafe, any::AnyRow};

use super::{
    super::{
        ExecutionDetail, ExecutionListing, ExecutionState, JournalError, ToolExecution,
        payload_cipher::PayloadCipher,
    },
    additions::ROWS_PER_INSERT,
    rows::{self, batches, count, int, json, micros, placeholders},
    store::Store,
};
use crate::domain::{
    failure::FailureClass,
    ids::{InvocationId, Operation, TargetId, TenantId, ThreadId},
};

/// The columns of a row, in the order in which they are bound.
const COLUMNS: [&str; 11] = [
    "invocation_id",
    "attempt",
    "target",
    "goal_key",
    "cause",
    "state",
    "class",
    "release",
    "started_at",
    "duration_us",
    "detail",
];

impl Store {
    /// Records executions; those that are there already are left as they are.
    pub(super) async fn insert_executions(
        &self,
        db: &mut AnyConnection,
        executions: &[ToolExecution],
    ) -> Result<(), JournalError> {
        for some in batches(executions, ROWS_PER_INSERT) {
            let sql = format!(
                "INSERT INTO tool_executions ({}) VALUES {} ON CONFLICT DO NOTHING",
                COLUMNS.join(", "),
                placeholders(some.len(), COLUMNS.len())
            );
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for one in some {
                let drawer = self.cipher.of_invocation(one.invocation.as_str());
                let sealed = |detail| {
                    drawer.seal(
                        "execution",
                        u64::from(one.attempt),
                        json(detail, "an execution")?,
                    )
                };
                let detail = one.detail.as_ref().map(sealed).transpose()?;
                query = query
                    .bind(one.invocation.as_str().to_owned())
                    .bind(i64::from(one.attempt))
                    .bind(one.target.as_str().to_owned())
                    .bind(one.goal_key.clone())
                    .bind(one.cause.clone())
                    .bind(one.state.as_str().to_owned())
                    .bind(one.class.map(|class| class.as_str().to_owned()))
                    .bind(one.release.clone())
                    .bind(micros(one.started_at))
                    .bind(int(
                        u64::try_from(one.duration.as_micros()).unwrap_or(u64::MAX)
                    ))
                    .bind(detail);
            }
            query.execute(&mut *db).await?;
        }
        Ok(())
    }

    pub(super) async fn executions(
        &self,
        wanted: &ExecutionListing,
        limit: usize,
    ) -> Result<Vec<ToolExecution>, JournalError> {
        let mut texts: Vec<String> = Vec::new();
        let mut text = |value: &str| {
            texts.push(value.to_owned());
            format!("${}", texts.len())
        };
        let mut conditions = vec!["1 = 1".to_owned()];
        for (column, value) in [
            ("i.tenant", wanted.tenant.as_ref().map(TenantId::as_str)),
            (
                "i.operation",
                wanted.operation.as_ref().map(Operation::as_str),
            ),
            ("i.thread_id", wanted.thread.as_ref().map(ThreadId::as_str)),
            (
                "e.invocation_id",
                wanted.invocation.as_ref().map(InvocationId::as_str),
            ),
            ("e.target", wanted.target.as_ref().map(TargetId::as_str)),
            ("e.goal_key", wanted.goal_key.as_deref()),
            ("e.state", wanted.state.map(ExecutionState::as_str)),
        ] {
            conditions.extend(value.map(|value| format!("{column} = {}", text(value))));
        }
        if !wanted.routes.is_empty() {
            let routes: Vec<String> = wanted
                .routes
                .iter()
                .map(|route| text(route.as_str()))
                .collect();
            conditions.push(format!("i.route IN ({})", routes.join(", ")));
        }
        if let Some((id, attempt)) = &wanted.before {
            let id = text(id.as_str());
            // Numbers of our own need no binding.
            conditions.push(format!(
                "(e.invocation_id < {id} OR (e.invocation_id = {id} AND e.attempt < {attempt}))"
            ));
        }
        conditions.extend(
            wanted
                .since
                .map(|since| format!("e.started_at >= {}", micros(since))),
        );
        let columns: Vec<String> = COLUMNS.iter().map(|column| format!("e.{column}")).collect();
        let sql = format!(
            "SELECT {}, i.tenant, i.route, i.operation, i.thread_id FROM tool_executions AS e \
             JOIN invocations AS i ON i.invocation_id = e.invocation_id \
             WHERE {} ORDER BY e.invocation_id DESC, e.attempt DESC LIMIT {limit}",
            columns.join(", "),
            conditions.join(" AND ")
        );
        let query = texts
            .into_iter()
            .fold(sqlx::query(AssertSqlSafe(sql)), sqlx::query::Query::bind);
        query
            .fetch_all(&self.pool)
            .await?
            .iter()
            .map(|row| execution(row, &self.cipher))
            .collect()
    }
}

fn execution(row: &AnyRow, cipher: &PayloadCipher) -> Result<ToolExecution, JournalError> {
    let id = rows::text(row, "invocation_id")?;
    let number = count(row, "attempt")?;
    let drawer = cipher.of_invocation(&id);
    let unknown =
        |what: &str| JournalError::Corrupt(format!("the {what} of an execution is unknown"));
    let detail: Option<ExecutionDetail> = rows::maybe_text(row, "detail")?
        .map(|text| rows::parse(&drawer.open("execution", number, text)?, "an execution"))
        .transpose()?;
    let class = rows::maybe_text(row, "class")?
        .map(|name| FailureClass::parse(&name).ok_or_else(|| unknown("class")))
        .transpose()?;
    Ok(ToolExecution {
        attempt: u32::try_from(number).map_err(|_| unknown("attempt"))?,
        tenant: rows::text(row, "tenant")?.into(),
        route: rows::text(row, "route")?.into(),
        operation: rows::text(row, "operation")?.into(),
        thread: rows::maybe_text(row, "thread_id")?.map(Into::into),
        target: rows::text(row, "target")?.into(),
        goal_key: rows::text(row, "goal_key")?,
        cause: rows::text(row, "cause")?,
        state: ExecutionState::parse(&rows::text(row, "state")?).ok_or_else(|| unknown("state"))?,
        class,
        release: rows::text(row, "release")?,
        started_at: rows::time(row, "started_at")?,
        duration: Duration::from_micros(count(row, "duration_us")?),
        detail,
        invocation: id.into(),
    })
}
