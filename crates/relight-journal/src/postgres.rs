//! The journal in `PostgreSQL`: one record for all replicas.
//!
//! Replicas notify each other of changes through `NOTIFY`, as hints; a reader that receives none
//! polls. When the server is unavailable, operations fail with [`JournalError::Unavailable`] within
//! seconds, and later ones try again.

mod notify;

use std::time::Duration;

use sqlx::{Connection as _, PgConnection, any::AnyPoolOptions};
use tokio::time::timeout;

use self::notify::Backplane;
use super::{
    JournalError, Limits,
    changes::Notices,
    migrate,
    sql::{SqlDialect, SqlJournal, Store},
};

/// Connections of one replica at most, one more for listening.
const CONNECTIONS: u32 = 16;
/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// No statement, lock or idle transaction may hold others up for longer, whatever becomes of its
/// client.
const SESSION: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; SET idle_in_transaction_session_timeout = '10s'";

const DIALECT: SqlDialect = SqlDialect {
    begin: "BEGIN",
    for_update: " FOR UPDATE",
    for_update_free: " FOR UPDATE SKIP LOCKED",
    one_writer: false,
    clock: None,
    // The server does by itself.
    shrink: &[],
};

/// The server's clock, which counts for all replicas.
const SERVER_CLOCK: &str = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

/// Connects, and brings the tables to this version under an advisory lock.
///
/// # Errors
/// [`JournalError::Unavailable`] when the server cannot be reached or refuses,
/// [`JournalError::Corrupt`] when its tables are of a later version.
pub async fn open(url: &str, limits: Limits) -> Result<SqlJournal, JournalError> {
    open_by(url, limits, Notices::default(), DIALECT).await
}

/// Returns the same for replicas whose clocks may differ: the server's decides about leases,
/// deadlines and retention, and the times that are passed in do not. Its readers listen at
/// `notices`.
///
/// # Errors
/// The same.
pub async fn open_shared(
    url: &str,
    limits: Limits,
    notices: Notices,
) -> Result<SqlJournal, JournalError> {
    open_by(
        url,
        limits,
        notices,
        SqlDialect {
            clock: Some(SERVER_CLOCK),
            ..DIALECT
        },
    )
    .await
}

async fn open_by(
    url: &str,
    limits: Limits,
    notices: Notices,
    dialect: SqlDialect,
) -> Result<SqlJournal, JournalError> {
    let connecting = timeout(PATIENCE, PgConnection::connect(url));
    let mut connection = connecting
        .await
        .map_err(|_| JournalError::Unavailable("its server does not respond".to_owned()))??;
    migrate::migrator(migrate::POSTGRES)
        .run_direct(None, &mut connection, false)
        .await?;
    connection.close().await?;

    sqlx::any::install_default_drivers();
    let pool = AnyPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .after_connect(|connection, _| {
            Box::pin(async move { sqlx::raw_sql(SESSION).execute(connection).await.map(drop) })
        })
        .connect(url)
        .await?;
    let backplane = Backplane::default();
    let outward = backplane.clone();
    let store = Store::new(pool.clone(), limits, dialect)
        .announcing(notices)
        .with_announcer(move |id| outward.enqueue(id));
    Ok(backplane.run(url.to_owned(), pool, store))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_accepts_and_never_responds_is_not_waited_for_without_end() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgres://u:p@{}/d", silent.local_addr().unwrap());
        let opening = open(&url, Limits::default());
        let opened = timeout(Duration::from_mins(1), opening).await;
        let error = opened.expect("it gives up").unwrap_err();
        assert!(matches!(error, JournalError::Unavailable(_)), "{error}");
    }
}
