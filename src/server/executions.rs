//! The journal that the configuration names, and the executions that it keeps.

use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{Options, StartError};
use crate::{
    config::{
        Config,
        observe::{JournalConfig, JournalStore, Payloads},
    },
    engine::Engine,
    execution::{Executions, Settings},
    grpc::resume_token::TokenKey,
    journal::{self, Limits, Owner},
    telemetry::JournalLevels,
};

/// Opens the journal and keeps what runs on it.
pub(super) async fn start(
    config: &Config,
    options: &Options,
    engine: Engine,
    tasks: &mut JoinSet<()>,
) -> Result<(Executions, TokenKey), StartError> {
    let limits = Limits::from(&config.journal);
    let events_kept = match config.journal.payloads {
        Payloads::Full => limits.events_kept,
        Payloads::None => std::time::Duration::ZERO,
    };
    let mut settings = Settings {
        mode: config.journal.mode,
        lease: limits.lease,
        events_kept,
        queue: config.journal.queue,
        tail_bytes: usize::try_from(config.journal.tail_bytes).unwrap_or(usize::MAX),
        thread_queue: config.journal.thread_queue,
        ..Settings::new(incarnation())
    };
    let mut kept = config.journal.clone();
    if let (JournalStore::Embedded, Some(file)) = (&kept.store, &options.embedded_journal) {
        kept.store = JournalStore::Sqlite(file.clone());
    }
    let journal = match journal::open(&kept).await {
        // Nobody asked for this file, so that it is no reason not to serve.
        Err(error) if matches!(config.journal.store, JournalStore::Embedded) => {
            tracing::warn!(%error, "the embedded journal cannot be opened; the journal is in memory");
            kept.store = JournalStore::Memory;
            journal::open(&kept).await?
        }
        opened => opened?,
    };
    settings.store = match &kept.store {
        JournalStore::Embedded | JournalStore::Memory => "memory",
        JournalStore::Sqlite(_) => "sqlite",
        JournalStore::Postgres(_) => "postgres",
    };
    let executions = Executions::new(engine, journal, settings);
    tasks.spawn(executions.clone().keep());
    Ok((executions, token_key(&kept)))
}

/// What the journal holds, for the metrics.
pub(super) fn levels(executions: &Executions) -> JournalLevels {
    let levels = executions.levels();
    JournalLevels {
        waiting: levels.waiting as u64,
        dropped: levels.dropped,
        invocations: levels.kept.invocations,
        steps: levels.kept.events,
        bytes: levels.kept.event_bytes,
        threads: levels.kept.threads,
        stripped: levels.removed.stripped,
        deleted: levels.removed.deleted,
    }
}

/// This process and no other, also not the same one started again.
fn incarnation() -> Owner {
    Owner::new(Uuid::now_v7().to_string())
}

/// The key of resume tokens. Replicas on one journal resume each other's invocations, so that they share a key; where
/// the journal is gone with the process, so is the key.
fn token_key(config: &JournalConfig) -> TokenKey {
    let place = match &config.store {
        JournalStore::Embedded | JournalStore::Memory => return TokenKey::random(),
        JournalStore::Sqlite(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
        JournalStore::Postgres(url) => url.expose().to_owned(),
    };
    let secret = Sha256::new().chain_update(b"relight resume token\0").chain_update(place.as_bytes()).finalize();
    TokenKey::new(&secret)
}
