//! The database as the journal uses it: a pool, its dialect, and one writer at a time if the
//! database allows no more.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use sqlx::{Any, AnyConnection, AnyPool, AssertSqlSafe, Connection as _, Transaction};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::{JournalError, Limits, changes::Notices, payload_cipher::PayloadCipher};
use super::rows;
use crate::domain::{clock, ids::InvocationId};

/// Differences between the databases.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct SqlDialect {
    /// Statement that starts a writing transaction.
    pub(in super::super) begin: &'static str,
    /// Ends a select whose rows will be written in the same transaction.
    pub(in super::super) for_update: &'static str,
    /// As `for_update`, but skipping rows that another transaction has locked.
    pub(in super::super) for_update_free: &'static str,
    /// If set, the database takes one writer at a time: they then queue fairly here, instead of
    /// polling there.
    pub(in super::super) one_writer: bool,
    /// Server's time in microseconds since 1970, as an expression; `None` if times are passed in.
    /// Leases, deadlines and retention follow one clock, whatever the clocks of replicas show.
    pub(in super::super) clock: Option<&'static str>,
    /// Statements that give back space that was freed.
    pub(in super::super) shrink: &'static [&'static str],
}

/// A database with the journal's tables; clones are the same store.
#[derive(Clone)]
pub(in super::super) struct Store {
    pub(super) pool: AnyPool,
    pub(super) limits: Limits,
    pub(super) dialect: SqlDialect,
    pub(super) notices: Notices,
    pub(super) cipher: PayloadCipher,
    outward: Option<Outward>,
    turn: Option<Arc<Semaphore>>,
    file: Option<FileIdentity>,
}

/// First bytes of a file of `SQLite`.
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// File to which a path led.
#[derive(Debug, Clone)]
pub(in super::super) struct FileIdentity {
    path: PathBuf,
    handle: Arc<File>,
}

/// The files that this process looked at. A process that closes any handle of a file loses all its
/// locks on it, those of `SQLite` as well; another process would then remove the write-ahead log
/// under it. So none is closed before its file is removed.
static HANDLES: Mutex<Vec<Arc<File>>> = Mutex::new(Vec::new());

/// Announces changes to other replicas; a hint, so callers do not wait for it.
pub(in super::super) type Outward = Arc<dyn Fn(&InvocationId) + Send + Sync>;

/// A writing transaction, rolled back when dropped without a commit.
pub(super) struct WriteTransaction<'a> {
    transaction: Transaction<'a, Any>,
    // Dropped after the transaction.
    _turn: Option<SemaphorePermit<'a>>,
}

// === impl Store ===

impl Store {
    /// A store over a pool whose database is migrated.
    pub(in super::super) fn new(pool: AnyPool, limits: Limits, dialect: SqlDialect) -> Self {
        let turn = dialect.one_writer.then(|| Arc::new(Semaphore::new(1)));
        let notices = Notices::default();
        let cipher = PayloadCipher::default();
        Self {
            pool,
            limits,
            dialect,
            notices,
            cipher,
            outward: None,
            turn,
            file: None,
        }
    }

    /// Returns the store with a function that announces changes to other replicas.
    pub(in super::super) fn with_announcer(
        self,
        outward: impl Fn(&InvocationId) + Send + Sync + 'static,
    ) -> Self {
        Self {
            outward: Some(Arc::new(outward)),
            ..self
        }
    }

    /// The same store, which encrypts content.
    pub(super) fn with_encryption(self, cipher: PayloadCipher) -> Self {
        Self { cipher, ..self }
    }

    /// The same store, whose readers on this replica listen there.
    pub(in super::super) fn announcing(self, notices: Notices) -> Self {
        Self { notices, ..self }
    }

    /// Returns the same store, as a file: if it is removed or replaced, the store is lost.
    pub(in super::super) fn in_file(self, file: FileIdentity) -> Self {
        Self {
            file: Some(file),
            ..self
        }
    }

    /// Checks that its file is still the one that was opened, is writable, and is a database:
    /// writes to a replaced, removed or overwritten file succeed and are lost.
    pub(in super::super) fn check_file(&self) -> Result<(), JournalError> {
        self.file.as_ref().map_or(Ok(()), FileIdentity::check)
    }

    /// Writes, and reads nothing back.
    pub(super) async fn probe(&self) -> Result<(), JournalError> {
        self.check_file()?;
        let mut writing = self.write().await?;
        let sql = "UPDATE properties SET value = $1 WHERE name = 'probe'";
        let now = clock::wall_now().as_second().to_string();
        sqlx::query(sql).bind(now).execute(writing.db()).await?;
        writing.commit().await
    }

    /// Returns the place at which readers of this replica listen.
    pub(in super::super) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Returns the time now, as an expression over a parameter that holds this process's.
    pub(super) fn now(&self, parameter: &str) -> String {
        // The parameter stays in the statement, so that it is bound in any case, whether it counts
        // or not.
        self.dialect.clock.map_or_else(
            || parameter.to_owned(),
            |clock| format!("COALESCE({clock}, {parameter})"),
        )
    }

    /// Returns the columns that [`rows::record`] reads.
    pub(super) fn record_columns(&self) -> String {
        match self.dialect.clock {
            Some(clock) => format!("{}, {clock} AS {}", rows::RECORD, rows::SERVER_TIME),
            None => rows::RECORD.to_owned(),
        }
    }

    /// Returns the time now of whichever clock counts.
    pub(super) async fn time(&self, now: Timestamp) -> Result<Timestamp, JournalError> {
        let Some(clock) = self.dialect.clock else {
            return Ok(now);
        };
        let row = sqlx::query(AssertSqlSafe(format!("SELECT {clock} AS at")))
            .fetch_one(&self.pool)
            .await?;
        rows::time(&row, "at")
    }

    /// Returns what is kept under this name; `fresh` if there is nothing yet.
    pub(super) async fn property(&self, name: &str, fresh: String) -> Result<String, JournalError> {
        let mut writing = self.write().await?;
        let sql = "INSERT INTO properties (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        sqlx::query(sql)
            .bind(name.to_owned())
            .bind(fresh)
            .execute(writing.db())
            .await?;
        let sql = "SELECT value FROM properties WHERE name = $1";
        let row = sqlx::query(sql)
            .bind(name.to_owned())
            .fetch_one(writing.db())
            .await?;
        let value = rows::text(&row, "value")?;
        writing.commit().await?;
        Ok(value)
    }

    /// Puts another value in the place of the one that is expected there; returns whether it was.
    pub(super) async fn swap_property(
        &self,
        name: &str,
        expected: &str,
        new: String,
    ) -> Result<bool, JournalError> {
        let mut writing = self.write().await?;
        let sql = "UPDATE properties SET value = $3 WHERE name = $1 AND value = $2";
        let query = sqlx::query(sql)
            .bind(name.to_owned())
            .bind(expected.to_owned())
            .bind(new);
        let swapped = query.execute(writing.db()).await?.rows_affected() > 0;
        writing.commit().await?;
        Ok(swapped)
    }

    /// Begins to write.
    pub(super) async fn write(&self) -> Result<WriteTransaction<'_>, JournalError> {
        let turn = self.turn().await?;
        Ok(WriteTransaction {
            transaction: self.pool.begin_with(self.dialect.begin).await?,
            _turn: turn,
        })
    }

    /// Returns the same over this connection.
    pub(super) async fn write_over<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> Result<WriteTransaction<'a>, JournalError> {
        let turn = self.turn().await?;
        Ok(WriteTransaction {
            transaction: connection.begin_with(self.dialect.begin).await?,
            _turn: turn,
        })
    }

    async fn turn(&self) -> Result<Option<SemaphorePermit<'_>>, JournalError> {
        let Some(turn) = &self.turn else {
            return Ok(None);
        };
        turn.acquire()
            .await
            .map(Some)
            .map_err(|error| JournalError::Unavailable(error.to_string()))
    }

    /// Announces a change to readers in all processes.
    pub(super) fn announce(&self, id: &InvocationId) {
        self.notices.announce(id);
        if let Some(outward) = &self.outward {
            outward(id);
        }
    }
}

// === impl FileIdentity ===

impl FileIdentity {
    /// Returns the file that is there now.
    pub(in super::super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let mut handles = HANDLES.lock();
        handles.retain(|handle| handle.metadata().is_ok_and(|metadata| metadata.nlink() > 0));
        let known = handles.iter().find(|handle| {
            handle
                .metadata()
                .is_ok_and(|metadata| is_same(&metadata, &found))
        });
        let handle = if let Some(known) = known {
            Arc::clone(known)
        } else {
            let opened = Arc::new(File::open(path)?);
            handles.push(Arc::clone(&opened));
            opened
        };
        Ok(Self {
            path: path.to_owned(),
            handle,
        })
    }

    fn check(&self) -> Result<(), JournalError> {
        let lost = |error: io::Error| JournalError::Unavailable(format!("its file: {error}"));
        let found = fs::metadata(&self.path).map_err(lost)?;
        if !is_same(&found, &self.handle.metadata().map_err(lost)?) {
            return Err(JournalError::Unavailable(
                "its file was replaced".to_owned(),
            ));
        }
        // Open connections can still write; new ones could not.
        rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK)
            .map_err(|error| lost(error.into()))?;
        let mut head = [0; SQLITE_MAGIC.len()];
        if self.handle.read_exact_at(&mut head, 0).is_err() || head != *SQLITE_MAGIC {
            return Err(JournalError::Unavailable(
                "its file was overwritten".to_owned(),
            ));
        }
        Ok(())
    }
}

fn is_same(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

// === impl WriteTransaction ===

impl WriteTransaction<'_> {
    /// Returns the connection, within the transaction.
    pub(super) fn db(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }

    /// Makes it all durable.
    pub(super) async fn commit(self) -> Result<(), JournalError> {
        Ok(self.transaction.commit().await?)
    }
}
