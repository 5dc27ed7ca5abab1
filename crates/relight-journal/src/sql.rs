//! The journal over SQL: one set of statements for `SQLite` and `PostgreSQL`, which differ in a
//! [`SqlDialect`] only.
//!
//! Every change is one transaction that first locks the row it depends on, then checks the shared
//! rules, then writes.

mod additions;
mod executions;
pub(super) mod fault;
mod groups;
mod insert;
mod invocations;
mod leases;
mod retention;
mod rows;
mod store;
mod threads;

use std::{fmt, sync::OnceLock, time::Duration};

use jiff::Timestamp;
use tokio::{sync::watch, task::JoinSet};

use self::groups::OperationGroups;
pub(super) use self::store::{FileIdentity, SqlDialect, Store};
use super::{
    AppendError, BeginResult, CancelWish, Changes, Compacted, Entry, ExecutionListing, Finish,
    FinishError, Held, Journal, JournalError, JournalFuture, LateRecord, Listing, Locked,
    NewInvocation, Owner, Page, PayloadCipher, Record, Renewed, Stats, StoreHealth, Takeover,
    Thread, ThreadError, ThreadKey, ToolExecution, changes::Notices,
};
use crate::domain::{
    ids::{InvocationId, RequestId, TenantId},
    upstream::UpstreamHandle,
};

/// A journal in a database.
pub struct SqlJournal {
    store: Store,
    /// Started with the first operation that can be done together with others.
    groups: OnceLock<OperationGroups>,
    poll: Option<watch::Receiver<Duration>>,
    /// Ended when the journal is dropped.
    _tasks: JoinSet<()>,
}

// === impl SqlJournal ===

impl SqlJournal {
    /// Over a store whose changes are all made by this process.
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            groups: OnceLock::new(),
            poll: None,
            _tasks: JoinSet::new(),
        }
    }

    /// Returns the journal with encryption of inputs and completions.
    #[must_use]
    pub fn with_encryption(self, cipher: PayloadCipher) -> Self {
        Self {
            store: self.store.with_encryption(cipher),
            ..self
        }
    }

    /// The same journal, whose readers listen there: those of a store that this one replaces are
    /// woken, too.
    pub(super) fn announcing(self, notices: Notices) -> Self {
        Self {
            store: self.store.announcing(notices),
            ..self
        }
    }

    /// Releases every running invocation on behalf of its owner: none of the owners lives.
    ///
    /// # Errors
    /// The store's own.
    pub(super) async fn give_up_all(&self) -> Result<(), JournalError> {
        self.store.give_up_all().await
    }

    /// Records invocations with all that is known of them, in one transaction; may be sent again.
    ///
    /// # Errors
    /// The store's own; then nothing of it was recorded.
    pub(super) async fn record_late(&self, late: &[LateRecord]) -> Result<(), JournalError> {
        self.store.record_late(late).await
    }

    /// Writes something that means nothing: whether the store takes writes.
    ///
    /// # Errors
    /// Why it does not.
    pub(super) async fn probe(&self) -> Result<(), JournalError> {
        self.store.probe().await
    }

    /// Checks whether the store's file is the one that was opened; without a file, it is.
    ///
    /// # Errors
    /// Returns the reason for which it is not.
    pub(super) fn check_file(&self) -> Result<(), JournalError> {
        self.store.check_file()
    }

    /// Returns the journal for a store with other writers: `tasks` receive change hints, and
    /// readers poll at `poll`.
    pub(super) fn listening(self, poll: watch::Receiver<Duration>, tasks: JoinSet<()>) -> Self {
        Self {
            poll: Some(poll),
            _tasks: tasks,
            ..self
        }
    }
}

impl fmt::Debug for SqlJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pool's options hold the URL with its password.
        f.debug_struct("SqlJournal").finish_non_exhaustive()
    }
}

impl Journal for SqlJournal {
    fn health(&self) -> Option<watch::Receiver<StoreHealth>> {
        // It is judged by the guard around it.
        None
    }

    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult> {
        Box::pin(self.begin_grouped(new, now))
    }

    fn append<'a>(
        &'a self,
        id: &'a InvocationId,
        entries: &'a [Entry],
    ) -> JournalFuture<'a, (), AppendError> {
        Box::pin(self.append_grouped(id, entries))
    }

    fn remember<'a>(
        &'a self,
        held: &'a Held,
        upstream: &'a UpstreamHandle,
    ) -> JournalFuture<'a, bool, AppendError> {
        Box::pin(self.store.remember(held, upstream))
    }

    fn read<'a>(
        &'a self,
        id: &'a InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> JournalFuture<'a, Option<Page>> {
        Box::pin(self.store.read(id, after_seq, limit))
    }

    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError> {
        Box::pin(self.finish_grouped(end, now))
    }

    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>> {
        Box::pin(self.store.get(id))
    }

    fn get_by_request<'a>(
        &'a self,
        tenant: &'a TenantId,
        request: &'a RequestId,
    ) -> JournalFuture<'a, Option<Record>> {
        Box::pin(self.find(tenant, request))
    }

    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>> {
        Box::pin(self.store.list(wanted, limit))
    }

    fn executions<'a>(
        &'a self,
        wanted: &'a ExecutionListing,
        limit: usize,
    ) -> JournalFuture<'a, Vec<ToolExecution>> {
        Box::pin(self.store.executions(wanted, limit))
    }

    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()> {
        Box::pin(self.store.free_request(id))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Held],
        now: Timestamp,
    ) -> JournalFuture<'a, Renewed> {
        Box::pin(self.store.renew(owner, held, now))
    }

    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()> {
        Box::pin(self.store.release(owner, held))
    }

    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        Box::pin(self.store.expired(now, limit))
    }

    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        Box::pin(self.store.released(limit))
    }

    fn take_over<'a>(
        &'a self,
        expected: &'a Held,
        owner: &'a Owner,
        now: Timestamp,
    ) -> JournalFuture<'a, Takeover> {
        Box::pin(self.store.take_over(expected, owner, now))
    }

    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish> {
        Box::pin(self.store.request_cancel(id))
    }

    fn changes(&self, id: &InvocationId) -> Changes {
        self.store.notices().subscribe(id, self.poll.clone())
    }

    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>> {
        Box::pin(self.store.load_thread(key))
    }

    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked> {
        Box::pin(self.store.lock_thread(key, invocation, now))
    }

    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError> {
        Box::pin(self.store.delete_thread(key, version, now))
    }

    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted> {
        Box::pin(self.store.compact(now))
    }

    fn property<'a>(&'a self, name: &'a str, fresh: String) -> JournalFuture<'a, String> {
        Box::pin(self.store.property(name, fresh))
    }

    fn swap_property<'a>(
        &'a self,
        name: &'a str,
        expected: &'a str,
        new: String,
    ) -> JournalFuture<'a, bool> {
        Box::pin(self.store.swap_property(name, expected, new))
    }

    fn stats(&self) -> JournalFuture<'_, Stats> {
        Box::pin(self.store.stats())
    }
}
