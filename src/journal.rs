//! The journal: the durable record of invocations, their steps and outcomes, and of threads.
//!
//! It answers four questions: was this request made before, what happened since step N, whose is the execution now,
//! and what was said on this thread. Every write of an execution is conditional on its epoch, so that a paused owner
//! that was taken for dead cannot write any more; every change is made whole or not at all. Times are passed in.
//!
//! It never decides anything: when to renew, take over, attach or replay is the business of the layers above, which
//! know it as `Arc<dyn Journal>`.

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
mod size;
mod sql;
pub mod sqlite;
mod thread;
mod write_guard;

use std::{fmt::Debug, sync::Arc};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;

use self::instance::Instance;
pub use self::{
    changes::{Changes, Notices},
    error::{AppendError, FinishError, JournalError, ThreadError},
    fingerprint::Fingerprint,
    guarded::{GuardedJournal, StoreHealth},
    memory::MemoryJournal,
    payload_cipher::PayloadCipher,
    record::{
        BeginResult, CancelWish, Compacted, EVENTS_KEPT, Entry, Finish, Held, LEASE, LateRecord, Limits, Listing,
        NewInvocation, Owner, Page, Record, RecordedRequest, Renewed, RunState, Stats, Takeover,
    },
    sql::SqlJournal,
    thread::{Locked, THREAD_ERRORS_KEPT, Thread, ThreadCommit, ThreadEnd, ThreadKey},
};
use crate::{
    config::{
        observe::{JournalConfig, JournalMode, JournalStore},
        secret::Secret,
    },
    domain::{
        ids::{InvocationId, RequestId, TenantId},
        upstream::UpstreamHandle,
    },
};

/// What a journal's operation comes to, in time.
pub type JournalFuture<'a, T, E = JournalError> = BoxFuture<'a, Result<T, E>>;

/// The durable record. Dropping an operation's future leaves it done or not done, never half done.
pub trait Journal: Debug + Send + Sync {
    /// Whether its store takes writes, as it changes; `None` where it cannot be lost.
    fn health(&self) -> Option<watch::Receiver<StoreHealth>>;

    /// Invocations since the beginning that were to be recorded at their end and could not be.
    fn unrecorded(&self) -> u64 {
        0
    }

    /// Records an invocation, unless its tenant used its request id before: exactly one of any number of concurrent
    /// begins gets [`BeginResult::New`].
    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult>;

    /// Records steps of an execution, all of one epoch, right after what is recorded. Steps that the same epoch
    /// recorded before are passed over, so that a batch whose answer was lost may be sent again.
    ///
    /// # Errors
    /// [`AppendError`]; then nothing of the batch was recorded.
    fn append<'a>(&'a self, id: &'a InvocationId, entries: &'a [Entry]) -> JournalFuture<'a, (), AppendError>;

    /// Remembers where the answer is found that an execution waits for, in place of what was remembered before; forgotten
    /// with the end. Tells whether a process that takes the execution over can learn of it: not in memory, and not where
    /// payloads are not kept.
    ///
    /// # Errors
    /// [`AppendError::Fenced`], [`AppendError::Finished`], [`AppendError::Unknown`] or the store's own.
    fn remember<'a>(&'a self, held: &'a Held, upstream: &'a UpstreamHandle) -> JournalFuture<'a, bool, AppendError>;

    /// Reads at most `limit` steps after `after_seq`; `None` where there is no such invocation.
    fn read<'a>(&'a self, id: &'a InvocationId, after_seq: u64, limit: usize) -> JournalFuture<'a, Option<Page>>;

    /// Records the last steps, the outcome and the thread's change in one piece. Once recorded, the same epoch may
    /// send it again without effect.
    ///
    /// # Errors
    /// [`FinishError`]; then nothing of it was recorded.
    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError>;

    /// The invocation as it is kept.
    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>>;

    /// The invocation that a tenant's request id stands for.
    fn get_by_request<'a>(&'a self, tenant: &'a TenantId, request: &'a RequestId) -> JournalFuture<'a, Option<Record>>;

    /// At most `limit` of the wanted invocations, the largest ids first, without what was asked and the snapshot.
    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>>;

    /// Lets the request id of a finished invocation be used anew, as if it never had been.
    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()>;

    /// Extends the leases of what `owner` holds, and tells what it does not hold any more. An expired lease that
    /// nobody took is extended, too.
    fn renew<'a>(&'a self, owner: &'a Owner, held: &'a [Held], now: Timestamp) -> JournalFuture<'a, Renewed>;

    /// Ends the leases of what `owner` holds, so that another replica takes over at once.
    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()>;

    /// At most `limit` running invocations whose leases have expired, longest first.
    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>>;

    /// At most `limit` running invocations whose leases were released, so that they need an owner at once.
    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>>;

    /// Takes an execution over whose lease has expired, if it is still at `expected.epoch`: of any number of
    /// concurrent callers exactly one gets it.
    fn take_over<'a>(&'a self, expected: &'a Held, owner: &'a Owner, now: Timestamp) -> JournalFuture<'a, Takeover>;

    /// Records that somebody wants an invocation cancelled.
    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish>;

    /// An ear for changes of an invocation; subscribe before reading.
    fn changes(&self, id: &InvocationId) -> Changes;

    /// The thread as it is kept; `None` where there is none.
    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>>;

    /// Locks a thread for an invocation that has begun, creating it where there is none. A lock whose invocation is
    /// finished, gone, or left by its owner (lease expired) is taken; locking again is no error.
    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked>;

    /// Deletes a thread for good, at `version` or at any; tells whether there was one.
    ///
    /// # Errors
    /// [`ThreadError::Version`] at another version, [`ThreadError::Busy`] while a live invocation runs on it.
    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError>;

    /// Applies the retention: events, then outcomes that are too old, then the oldest beyond the cap.
    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted>;

    /// What the journal keeps under this name; `fresh` from now on where there is nothing yet.
    fn property<'a>(&'a self, name: &'a str, fresh: String) -> JournalFuture<'a, String>;

    /// How much is kept.
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
            let (path, mode, notices) = (path.clone(), config.mode, Notices::default());
            let instance = Instance::of(&path).await;
            Arc::new(
                GuardedJournal::start(
                    instance,
                    config.mode == JournalMode::Fast,
                    Box::new(move || {
                        let (path, limits, cipher, notices) =
                            (path.clone(), limits.clone(), cipher.clone(), notices.clone());
                        Box::pin(async move {
                            Ok(sqlite::open(&path, mode, limits).await?.with_encryption(cipher).announcing(notices))
                        })
                    }),
                )
                .await?,
            )
        }
        JournalStore::Postgres(url) => {
            let (url, notices) = (url.clone(), Notices::default());
            Arc::new(
                GuardedJournal::start(
                    None,
                    // Other replicas may be asked for it at once.
                    false,
                    Box::new(move || {
                        let (url, limits, cipher, notices) =
                            (url.clone(), limits.clone(), cipher.clone(), notices.clone());
                        Box::pin(async move {
                            Ok(postgres::open_shared(url.expose(), limits, notices).await?.with_encryption(cipher))
                        })
                    }),
                )
                .await?,
            )
        }
    })
}
