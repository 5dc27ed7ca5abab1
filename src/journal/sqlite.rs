//! The journal in a `SQLite` file: durable without any other service.
//!
//! Write-ahead log, so that readers never wait for the writer; writers queue fairly in the process. Meant for one
//! process: another one may open the file, but is not told of changes.

use std::{fmt::Write as _, path::Path, time::Duration};

use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    any::AnyPoolOptions,
    error::DatabaseError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};
use tokio::time::{Instant, sleep};

use super::{
    JournalError, Limits, migrate,
    sql::{Dialect, SqlJournal, Store, fault},
};
use crate::config::observe::JournalMode;

/// Connections: one writes, the others read.
const CONNECTIONS: u32 = 5;
/// How long a connection or the file's lock is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before a file whose lock was refused is opened again.
const PAUSE: Duration = Duration::from_millis(20);

const DIALECT: Dialect = Dialect { begin: "BEGIN IMMEDIATE", for_update: "", for_update_free: "", one_writer: true };

/// Opens the file, creating it where there is none, and brings its tables to this version.
///
/// In `strict` mode a commit outlives a power failure, in `fast` mode it outlives the process.
///
/// # Errors
/// [`JournalError::Unavailable`] when it cannot be opened, [`JournalError::Corrupt`] when it is not a journal of this
/// version or an older one.
pub async fn open(path: &Path, mode: JournalMode, limits: Limits) -> Result<SqlJournal, JournalError> {
    let pragmas = match mode {
        JournalMode::Fast => "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000; PRAGMA synchronous = NORMAL",
        JournalMode::Strict => "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL",
    };
    let path = std::path::absolute(path).map_err(|error| JournalError::Unavailable(error.to_string()))?;
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(PATIENCE);
    let mut connection = connect(&options).await?;
    // The lock: nobody else writes until the transaction ends.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    migrate::migrator(migrate::SQLITE).run_direct(None, &mut *transaction, false).await?;
    transaction.commit().await?;
    connection.close().await?;

    sqlx::any::install_default_drivers();
    let pool = AnyPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(PATIENCE)
        .after_connect(move |connection, _| {
            Box::pin(async move { sqlx::raw_sql(pragmas).execute(connection).await.map(drop) })
        })
        .connect(&url(&path))
        .await?;
    Ok(SqlJournal::new(Store::new(pool, limits, DIALECT)))
}

/// Connects, and waits where somebody else is just making the file: `SQLite` waits for a lock itself, but not to turn the
/// write-ahead log on while another process writes.
async fn connect(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        match options.connect().await {
            Err(error) if is_busy(&error) && Instant::now() < until => sleep(PAUSE).await,
            connected => return connected,
        }
    }
}

/// `SQLITE_BUSY`, whatever for.
fn is_busy(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.and_then(|code| fault::of_sqlite(&code)) == Some(5)
}

/// The path as a URL, with every byte escaped that could mean something else in one.
fn url(path: &Path) -> String {
    let mut url = "sqlite://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => url.push(char::from(*byte)),
            byte => {
                // Writing to a string does not fail.
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    url
}
