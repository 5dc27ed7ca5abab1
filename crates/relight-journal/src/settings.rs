//! Settings of the journal.

use std::{error::Error, path::PathBuf, str::FromStr as _, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;
use tracing::{Dispatch, dispatcher::with_default};

use crate::domain::{
    secret::{REDACTED, Secret},
    units,
};

/// The durable record of events, outcomes and threads.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JournalConfig {
    /// Location: `memory`, `sqlite:relight.db` or `postgres://user:password@host/database`. Default
    /// `embedded`: a `SQLite` file of `relight serve` in the user's state directory, one for each
    /// port; in memory if there is none.
    #[schemars(with = "String")]
    pub store: JournalStore,
    /// Mode, which decides whether a completion waits for its record.
    pub mode: JournalMode,
    /// Time for which finished invocations and their events are kept (at least 1m).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub retention: Duration,
    /// Invocations kept at most, oldest finished first to go (at least 1).
    pub max_invocations: u64,
    /// Steps of all invocations that may wait to be written at once (at least 1). Beyond it,
    /// `strict` waits, and `fast` abandons the record of the invocation with the excess step: the
    /// invocation continues, is counted, and cannot be resumed elsewhere.
    pub queue: usize,
    /// Bytes of the newest steps that a running invocation keeps in memory for its readers (4KiB to
    /// 64MiB). A reader that is further behind reads the journal. Of a call with no request id, no
    /// thread and no stream to resume, only 8KiB are kept of what its readers have.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub tail_bytes: u64,
    /// Bytes kept in total (at least 1MiB; default 256MiB), prompts, steps, answers and threads: in
    /// memory at any time, in a database after each compaction (once a minute). Beyond it the
    /// oldest finished invocations are removed first: in a database their steps, then their
    /// records, then the threads that were unused for longest. In memory, calls without thread and
    /// request id then run without a record, and others are refused.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_bytes: u64,
    /// Time for which an unused thread is kept (at least 1m; default 30d). Then it is deleted with
    /// its messages.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub thread_retention: Duration,
    /// Invocations that may wait, on one replica, for a thread on which another one runs (0 to 64);
    /// 0 refuses them at once. They wait in order, until their deadline at most.
    pub thread_queue: usize,
    /// Keys with which inputs and completions are encrypted in a database, each of at least 32
    /// characters: the first one encrypts, all of them decrypt. None: nothing is encrypted. What
    /// was written before without a key stays readable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub encryption_keys: Vec<Secret>,
    /// Policy that decides whether inputs and completions are kept, which idempotency, resumption and
    /// threads need.
    pub payloads: Payloads,
}

/// Location in which the journal is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Secret", into = "String")]
pub enum JournalStore {
    /// By default, `relight serve` keeps an `SQLite` file of its own if it can; anything else keeps
    /// it in memory.
    #[default]
    Embedded,
    /// In memory; gone with the process.
    Memory,
    /// A `SQLite` file.
    Sqlite(PathBuf),
    /// `PostgreSQL`, by URL.
    Postgres(Secret),
}

/// Mode that decides whether a completion waits for its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalMode {
    /// Written behind; the last moments may be lost with the process.
    #[default]
    Fast,
    /// An outcome is durable before it is sent.
    Strict,
}

/// Extent to which the journal keeps inputs and completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Payloads {
    /// All of them.
    #[default]
    Full,
    /// Nothing.
    None,
}

// === impl JournalConfig ===

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            store: JournalStore::Embedded,
            mode: JournalMode::Fast,
            retention: Duration::from_hours(24),
            max_invocations: 100_000,
            queue: 8192,
            tail_bytes: 256 << 10,
            max_bytes: 256 << 20,
            thread_retention: Duration::from_hours(30 * 24),
            thread_queue: 0,
            encryption_keys: Vec::new(),
            payloads: Payloads::Full,
        }
    }
}

// === impl JournalStore ===

impl TryFrom<Secret> for JournalStore {
    type Error = String;

    fn try_from(text: Secret) -> Result<Self, Self::Error> {
        let url = text.expose();
        if url == "embedded" {
            Ok(Self::Embedded)
        } else if url == "memory" {
            Ok(Self::Memory)
        } else if let Some(path) = url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            Ok(Self::Sqlite(PathBuf::from(path)))
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            match fault_of_postgres(url) {
                Some(fault) => Err(fault),
                None => Ok(Self::Postgres(text)),
            }
        } else {
            Err(
                "is no store; write memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE"
                    .to_owned(),
            )
        }
    }
}

impl From<JournalStore> for String {
    fn from(store: JournalStore) -> Self {
        match store {
            JournalStore::Embedded => "embedded".to_owned(),
            JournalStore::Memory => "memory".to_owned(),
            JournalStore::Sqlite(path) => format!("sqlite:{}", path.display()),
            JournalStore::Postgres(_) => format!("postgres://{REDACTED}"),
        }
    }
}

/// Returns why no connection can be made by this URL, whatever is there; the text does not repeat
/// it.
fn fault_of_postgres(url: &str) -> Option<String> {
    // The driver logs parameters that it does not know, with their values.
    let parsed = with_default(&Dispatch::none(), || PgConnectOptions::from_str(url));
    let why = match parsed {
        Ok(options) if options.get_port() == 0 => "invalid port number".to_owned(),
        Ok(_) => return None,
        Err(error) => {
            let mut innermost: &dyn Error = &error;
            while let Some(source) = innermost.source() {
                innermost = source;
            }
            innermost.to_string()
        }
    };
    Some(format!("is no URL of a PostgreSQL database: {why}"))
}
