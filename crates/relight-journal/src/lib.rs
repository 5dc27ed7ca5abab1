//! The journal: the durable record of invocations, their steps and outcomes, and of threads.
//!
//! It answers four questions: was this request made before, what happened since step N, which
//! process owns the execution, and what is the history of this thread. Every write of an execution
//! is conditional on its epoch, so that a paused owner that was taken for dead can no longer write;
//! every change is atomic. Times are passed in.
//!
//! It makes no decisions: when to renew, take over, attach or replay is up to the layers above,
//! which use it as `Arc<dyn Journal>`.

mod changes;
mod error;
mod fingerprint;
mod guarded;
mod instance;
mod memory;
mod migrate;
mod payload_cipher;
pub mod postgres;
mod record;
mod settings;
mod size;
mod sql;
pub mod sqlite;
mod thread;
mod tool_execution;
mod write_guard;

use std::{fmt::Debug, sync::Arc};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

use relight_policy::{domain, policy};

use self::instance::Instance;
pub use self::{
    changes::{Changes, Notices},
    error::{AppendError, FinishError, JournalError, ThreadError},
    fingerprint::Fingerprint,
    guarded::{GuardedJournal, StoreHealth},
    memory::MemoryJournal,
    payload_cipher::PayloadCipher,
    record::{
        BeginResult, CancelWish, Compacted, EVENTS_KEPT, Entry, Finish, Held, LEASE, LateRecord,
        Limits, Listing, NewInvocation, Owner, Page, Record, RecordedRequest, Renewed, RunState,
        Stats, Takeover,
    },
    settings::{JournalConfig, JournalMode, JournalStore, Payloads},
    sql::SqlJournal,
    thread::{Locked, THREAD_ERRORS_KEPT, Thread, ThreadCommit, ThreadEnd, ThreadKey},
    tool_execution::{ExecutionDetail, ExecutionListing, ExecutionState, ToolExecution, goal_key},
};
use crate::domain::{
    ids::{InvocationId, RequestId, TenantId},
    secret::Secret,
    upstream::UpstreamHandle,
};

/// Future of a journal operation.
pub type JournalFuture<'a, T, E = JournalError> = BoxFuture<'a, Result<T, E>>;

/// The durable record. An operation whose future is dropped is done completely or not at all.
pub trait Journal: Debug + Send + Sync {
    /// Returns whether the store accepts writes, as that changes; `None` if it cannot be lost.
    fn health(&self) -> Option<watch::Receiver<StoreHealth>>;

    /// Invocations since the beginning that were to be recorded at their end and could not be.
    fn unrecorded(&self) -> u64 {
        0
    }

    /// Records an invocation, unless its tenant used its request id before: exactly one of any
    /// number of concurrent begins gets [`BeginResult::New`].
    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult>;

    /// Records steps of an execution, all of one epoch, right after those recorded so far. Steps
    /// that the same epoch recorded before are skipped, so that a batch may be sent again when its
    /// result was lost.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing of the batch was recorded.
    fn append<'a>(
        &'a self,
        id: &'a InvocationId,
        entries: &'a [Entry],
    ) -> JournalFuture<'a, (), AppendError>;

    /// Records the handle of the response that an execution waits for, replacing an earlier one;
    /// removed when the invocation ends. Returns whether a process that takes the execution over
    /// can read it: not in memory, and not if payloads are not kept.
    ///
    /// # Errors
    /// Returns [`AppendError::Fenced`], [`AppendError::Finished`], [`AppendError::Unknown`] or the
    /// store's own error.
    fn remember<'a>(
        &'a self,
        held: &'a Held,
        upstream: &'a UpstreamHandle,
    ) -> JournalFuture<'a, bool, AppendError>;

    /// Reads at most `limit` steps after `after_seq`; `None` if there is no such invocation.
    fn read<'a>(
        &'a self,
        id: &'a InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> JournalFuture<'a, Option<Page>>;

    /// Records the last steps, the outcome and the thread's change in one piece. Once recorded, the
    /// same epoch may send it again without effect.
    ///
    /// # Errors
    /// [`FinishError`]; then nothing of it was recorded.
    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError>;

    /// The invocation as it is kept.
    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>>;

    /// Returns the invocation of a tenant's request id.
    fn get_by_request<'a>(
        &'a self,
        tenant: &'a TenantId,
        request: &'a RequestId,
    ) -> JournalFuture<'a, Option<Record>>;

    /// At most `limit` of the matching invocations, the largest ids first, without request and
    /// snapshot.
    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>>;

    /// At most `limit` of the wanted executions of tools, the newest first; recorded with the end
    /// of their invocation.
    fn executions<'a>(
        &'a self,
        wanted: &'a ExecutionListing,
        limit: usize,
    ) -> JournalFuture<'a, Vec<ToolExecution>>;

    /// Frees the request id of a finished invocation for reuse.
    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()>;

    /// Extends the leases of what `owner` holds, and returns what it holds no longer. An expired
    /// lease that no other owner took is extended, too.
    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Held],
        now: Timestamp,
    ) -> JournalFuture<'a, Renewed>;

    /// Ends the leases of what `owner` holds, so that another replica takes over at once.
    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()>;

    /// At most `limit` running invocations whose leases have expired, longest first.
    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>>;

    /// At most `limit` running invocations whose leases were released, so that they need an owner
    /// at once.
    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>>;

    /// Takes an execution over whose lease has expired, if it is still at `expected.epoch`: of any
    /// number of concurrent callers exactly one gets it.
    fn take_over<'a>(
        &'a self,
        expected: &'a Held,
        owner: &'a Owner,
        now: Timestamp,
    ) -> JournalFuture<'a, Takeover>;

    /// Records a request to cancel an invocation.
    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish>;

    /// Subscribes to changes of an invocation; call it before reading the record.
    fn changes(&self, id: &InvocationId) -> Changes;

    /// Returns the kept thread; `None` if there is none.
    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>>;

    /// Locks a thread for an invocation that has started, creating the thread if it does not exist.
    /// A lock whose invocation is finished, gone, or abandoned by its owner (lease expired) is
    /// taken over; locking again is not an error.
    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked>;

    /// Deletes a thread, at `version` or at any; returns whether there was one.
    ///
    /// # Errors
    /// [`ThreadError::Version`] at another version, [`ThreadError::Busy`] while a live invocation
    /// runs on it.
    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError>;

    /// Applies the retention: events, then outcomes that are too old, then the oldest beyond the
    /// cap.
    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted>;

    /// Returns what the journal keeps under this name; if there is nothing yet, `fresh` from now
    /// on.
    fn property<'a>(&'a self, name: &'a str, fresh: String) -> JournalFuture<'a, String>;

    /// Returns whether properties outlive this process.
    fn keeps_properties(&self) -> bool {
        true
    }

    /// Puts `new` in the place of what is kept under this name, if that still is `expected`;
    /// returns whether it was. In memory nothing is kept, and no other process changes it.
    fn swap_property<'a>(
        &'a self,
        name: &'a str,
        expected: &'a str,
        new: String,
    ) -> JournalFuture<'a, bool>;

    /// Returns the amount that is kept.
    fn stats(&self) -> JournalFuture<'_, Stats>;
}

/// Opens the journal that the configuration names.
///
/// # Errors
/// [`JournalError`] when its store cannot be opened or is of a later version.
pub async fn open(config: &JournalConfig) -> Result<Arc<dyn Journal>, JournalError> {
    let limits = Limits::from(config);
    let cipher = PayloadCipher::new(config.encryption_keys.iter().map(Secret::expose));
    Ok(match &config.store {
        JournalStore::Embedded | JournalStore::Memory => Arc::new(MemoryJournal::new(limits)),
        JournalStore::Sqlite(path) => {
            let path = path.clone();
            let mode = config.mode;
            let notices = Notices::default();
            let instance = Instance::of(&path).await;
            Arc::new(
                GuardedJournal::start(
                    instance,
                    config.mode == JournalMode::Fast,
                    Box::new(move || {
                        let path = path.clone();
                        let limits = limits.clone();
                        let cipher = cipher.clone();
                        let notices = notices.clone();
                        Box::pin(async move {
                            Ok(sqlite::open(&path, mode, limits)
                                .await?
                                .with_encryption(cipher)
                                .announcing(notices))
                        })
                    }),
                )
                .await?,
            )
        }
        JournalStore::Postgres(url) => {
            let url = url.clone();
            let notices = Notices::default();
            Arc::new(
                GuardedJournal::start(
                    None,
                    // Other replicas may look it up at once.
                    false,
                    Box::new(move || {
                        let (url, limits, cipher, notices) =
                            (url.clone(), limits.clone(), cipher.clone(), notices.clone());
                        Box::pin(async move {
                            Ok(postgres::open_shared(url.expose(), limits, notices)
                                .await?
                                .with_encryption(cipher))
                        })
                    }),
                )
                .await?,
            )
        }
    })
}
