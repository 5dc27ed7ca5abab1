//! A journal that fails as often as a test wants.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use crate::{
    domain::{
        ids::{InvocationId, RequestId, TenantId},
        upstream::UpstreamHandle,
    },
    journal::{
        AppendError, BeginResult, CancelWish, Changes, Compacted, Entry, ExecutionListing, Finish,
        FinishError, Held, Journal, JournalError, JournalFuture, Limits, Listing, Locked,
        MemoryJournal, NewInvocation, Owner, Page, Record, Renewed, Stats, StoreHealth, Takeover,
        Thread, ThreadError, ThreadKey, ToolExecution,
    },
};

/// A journal in memory whose operations fail as often as is said.
#[derive(Debug)]
pub(super) struct Failing {
    inner: MemoryJournal,
    pub(super) begins: AtomicUsize,
    pub(super) appends: AtomicUsize,
    pub(super) finishes: AtomicUsize,
    pub(super) locks: AtomicUsize,
    /// One writes at a time.
    writer: Semaphore,
}

impl Failing {
    pub(super) fn new() -> Self {
        let none = AtomicUsize::default;
        let inner = MemoryJournal::new(Limits::default());
        Self {
            inner,
            begins: none(),
            appends: none(),
            finishes: none(),
            locks: none(),
            writer: Semaphore::new(1),
        }
    }

    fn fails(left: &AtomicUsize) -> Option<JournalError> {
        let fails = left
            .try_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_ok();
        fails.then(|| JournalError::Unavailable("as the test said".to_owned()))
    }
}

impl Journal for Failing {
    fn health(&self) -> Option<watch::Receiver<StoreHealth>> {
        None
    }

    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult> {
        match Self::fails(&self.begins) {
            Some(error) => Box::pin(async { Err(error) }),
            // Others may begin meanwhile, as with a store that is elsewhere.
            None => Box::pin(async move {
                tokio::task::yield_now().await;
                self.inner.begin(new, now).await
            }),
        }
    }

    fn append<'a>(
        &'a self,
        id: &'a InvocationId,
        entries: &'a [Entry],
    ) -> JournalFuture<'a, (), AppendError> {
        match Self::fails(&self.appends) {
            Some(error) => Box::pin(async { Err(error.into()) }),
            None => self.inner.append(id, entries),
        }
    }

    fn remember<'a>(
        &'a self,
        _: &'a Held,
        _: &'a UpstreamHandle,
    ) -> JournalFuture<'a, bool, AppendError> {
        Box::pin(async {
            let _turn = self.writer.acquire().await;
            std::future::pending().await
        })
    }

    fn read<'a>(
        &'a self,
        id: &'a InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> JournalFuture<'a, Option<Page>> {
        self.inner.read(id, after_seq, limit)
    }

    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError> {
        match Self::fails(&self.finishes) {
            Some(error) => Box::pin(async { Err(error.into()) }),
            None => Box::pin(async move {
                let _turn = self.writer.acquire().await;
                self.inner.finish(end, now).await
            }),
        }
    }

    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>> {
        self.inner.get(id)
    }

    fn get_by_request<'a>(
        &'a self,
        tenant: &'a TenantId,
        request: &'a RequestId,
    ) -> JournalFuture<'a, Option<Record>> {
        self.inner.get_by_request(tenant, request)
    }

    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>> {
        self.inner.list(wanted, limit)
    }

    fn executions<'a>(
        &'a self,
        wanted: &'a ExecutionListing,
        limit: usize,
    ) -> JournalFuture<'a, Vec<ToolExecution>> {
        self.inner.executions(wanted, limit)
    }

    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()> {
        self.inner.free_request(id)
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Held],
        now: Timestamp,
    ) -> JournalFuture<'a, Renewed> {
        self.inner.renew(owner, held, now)
    }

    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()> {
        self.inner.release(owner, held)
    }

    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        self.inner.released(limit)
    }

    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        self.inner.expired(now, limit)
    }

    fn take_over<'a>(
        &'a self,
        expected: &'a Held,
        owner: &'a Owner,
        now: Timestamp,
    ) -> JournalFuture<'a, Takeover> {
        self.inner.take_over(expected, owner, now)
    }

    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish> {
        self.inner.request_cancel(id)
    }

    fn changes(&self, id: &InvocationId) -> Changes {
        self.inner.changes(id)
    }

    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>> {
        self.inner.load_thread(key)
    }

    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked> {
        match Self::fails(&self.locks) {
            Some(error) => Box::pin(async { Err(error) }),
            None => self.inner.lock_thread(key, invocation, now),
        }
    }

    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError> {
        self.inner.delete_thread(key, version, now)
    }

    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted> {
        self.inner.compact(now)
    }

    fn property<'a>(&'a self, name: &'a str, fresh: String) -> JournalFuture<'a, String> {
        self.inner.property(name, fresh)
    }

    fn keeps_properties(&self) -> bool {
        self.inner.keeps_properties()
    }

    fn swap_property<'a>(
        &'a self,
        name: &'a str,
        expected: &'a str,
        new: String,
    ) -> JournalFuture<'a, bool> {
        self.inner.swap_property(name, expected, new)
    }

    fn stats(&self) -> JournalFuture<'_, Stats> {
        self.inner.stats()
    }
}
