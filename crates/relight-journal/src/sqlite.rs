//! The journal in a `SQLite` file: durable without any other service.
//!
//! It uses a write-ahead log, so that readers do not wait for the writer; writers queue fairly in
//! the process. Meant for one process: another one may open the file, but is not notified of
//! changes.

use std::{
    fmt::Write as _,
    fs, io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
    time::Duration,
};

use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    any::AnyPoolOptions,
    error::DatabaseError,
    sqlite::{SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode},
};
use tokio::time::{Instant, sleep};

use super::{
    JournalError, Limits, migrate,
    sql::{FileIdentity, SqlDialect, SqlJournal, Store, fault},
};
use crate::settings::JournalMode;

/// Connections: one writes, the others read.
const CONNECTIONS: u32 = 5;
/// Longest wait for a connection or the file's lock.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before a file whose lock was refused is opened again.
const PAUSE: Duration = Duration::from_millis(20);

const DIALECT: SqlDialect = SqlDialect {
    begin: "BEGIN IMMEDIATE",
    for_update: "",
    for_update_free: "",
    one_writer: true,
    clock: None,
    shrink: &[
        "PRAGMA incremental_vacuum",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    ],
};

/// Opens the file, creating it if it does not exist, and brings its tables to this version.
///
/// In `strict` mode a commit outlives a power failure, in `fast` mode it outlives the process.
///
/// # Errors
/// Returns [`JournalError::Unavailable`] if it cannot be opened, [`JournalError::Corrupt`] if it is
/// not a journal of this version or an older one.
pub async fn open(
    path: &Path,
    mode: JournalMode,
    limits: Limits,
) -> Result<SqlJournal, JournalError> {
    let pragmas = match mode {
        JournalMode::Fast => {
            "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 1500; PRAGMA synchronous = NORMAL"
        }
        JournalMode::Strict => {
            "PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 1500; PRAGMA synchronous = FULL"
        }
    };
    let path = std::path::absolute(path).map_err(|error| unavailable(&error))?;
    make_private(&path).map_err(|error| unavailable(&error))?;
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(PATIENCE);
    let mut connection = connect(&options).await?;
    // Takes the lock: no other writer until the transaction ends.
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    migrate::migrator(migrate::SQLITE)
        .run_direct(None, &mut *transaction, false)
        .await?;
    transaction.commit().await?;
    let shrinks: i64 = sqlx::query_scalar("PRAGMA auto_vacuum")
        .fetch_one(&mut connection)
        .await?;
    if shrinks == 0 {
        // A file of an earlier version is rewritten once, so that it can shrink from now on.
        if let Err(error) = sqlx::query("VACUUM").execute(&mut connection).await {
            tracing::warn!(%error, path = %path.display(), "the journal's file cannot be made to shrink");
        }
    }
    connection.close().await?;

    sqlx::any::install_default_drivers();
    let pool = AnyPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(PATIENCE)
        // A connection to a file does not break by itself.
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            Box::pin(async move { sqlx::raw_sql(pragmas).execute(connection).await.map(drop) })
        })
        .connect(&url(&path))
        .await?;
    let file = FileIdentity::of(&path).map_err(|error| unavailable(&error))?;
    Ok(SqlJournal::new(
        Store::new(pool, limits, DIALECT).in_file(file),
    ))
}

/// Makes a new or existing file readable by its owner alone: it holds prompts and completions. `SQLite`
/// gives its log beside it the same permissions.
fn make_private(path: &Path) -> io::Result<()> {
    match fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mode = fs::metadata(path)?.permissions().mode();
            if mode & 0o077 != 0
                && let Err(error) =
                    fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700))
            {
                tracing::warn!(%error, path = %path.display(), "the journal's file can be read by other users");
            }
            Ok(())
        }
        made => made.map(drop),
    }
}

fn unavailable(error: &io::Error) -> JournalError {
    JournalError::Unavailable(error.to_string())
}

/// Connects, and waits if another process is just creating the file: `SQLite` waits for a lock
/// itself, but not to turn the write-ahead log on while another process writes.
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

/// Returns the path as a URL, with every byte escaped that could mean something else in one.
fn url(path: &Path) -> String {
    let mut url = "sqlite://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                url.push(char::from(*byte));
            }
            byte => {
                // Writing to a string does not fail.
                let _ = write!(url, "%{byte:02X}");
            }
        }
    }
    url
}
