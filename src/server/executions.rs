//! The configured journal, and the executions that it records.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{ServeError, ServerOptions, timed_journal::TimedJournal};
use crate::{
    config::Config,
    engine::Engine,
    execution::{Executions, Settings},
    grpc::resume_token::TokenKey,
    journal::{self, JournalStore, Limits, Owner, Payloads},
    telemetry::{JournalLevels, Metrics},
};

/// Name of the journal in the events of its loss and in metrics.
const STORE: &str = "journal";

/// Opens the journal and keeps what runs on it.
pub(super) async fn start(
    config: &Config,
    options: &ServerOptions,
    engine: Engine,
    metrics: &Metrics,
    tasks: &mut JoinSet<()>,
) -> Result<(Executions, TokenKey), ServeError> {
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
        // The embedded file was not requested, so its failure is not a reason not to serve.
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
    let fresh: [u8; 32] = rand::random();
    // Replicas on one journal resume each other's invocations, so that they share its key; a
    // journal in memory is gone with the process, and so is the key.
    let secret = journal
        .property("resume_token_key", BASE64.encode(fresh))
        .await?;
    metrics.set_store_up(STORE, true);
    let journal = Arc::new(TimedJournal::new(journal, metrics.clone()));
    let executions = Executions::new(engine, journal, settings);
    tasks.spawn(executions.clone().keep());
    Ok((executions, TokenKey::new(secret.as_bytes())))
}

/// Returns the contents of the journal, for the metrics.
pub(super) fn levels(executions: &Executions) -> JournalLevels {
    let levels = executions.levels();
    JournalLevels {
        waiting: levels.waiting as u64,
        dropped: levels.dropped,
        unrecorded: levels.unrecorded,
        invocations: levels.kept.invocations,
        steps: levels.kept.events,
        bytes: levels.kept.bytes,
        threads: levels.kept.threads,
        stripped: levels.removed.stripped,
        deleted: levels.removed.deleted,
        threads_removed: levels.removed.threads,
    }
}

/// Returns this process and no other, also not the same one started again.
fn incarnation() -> Owner {
    Owner::new(Uuid::now_v7().to_string())
}
