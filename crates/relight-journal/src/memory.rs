//! The journal in memory: complete, bounded, and gone with the process.
//!
//! The default, for development and for callers who need no more than retries. Apart from
//! durability it makes the same guarantees as the durable engines, tested by the same
//! specification. It does no I/O.

mod state;
mod threads;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use self::state::MemoryState;
use super::{
    AppendError, BeginResult, CancelWish, Changes, Compacted, Entry, ExecutionListing, Finish,
    FinishError, Held, Journal, JournalFuture, Limits, Listing, Locked, NewInvocation, Owner, Page,
    Record, Renewed, Stats, StoreHealth, Takeover, Thread, ThreadError, ThreadKey, ToolExecution,
    changes::Notices, record::OWNER_DEAD,
};
use crate::domain::{
    ids::{InvocationId, RequestId, TenantId},
    upstream::UpstreamHandle,
};

/// A journal in memory.
#[derive(Debug)]
pub struct MemoryJournal {
    state: Mutex<MemoryState>,
    notices: Notices,
}

// === impl MemoryJournal ===

impl MemoryJournal {
    /// An empty journal.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            state: Mutex::new(MemoryState::new(limits)),
            notices: Notices::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock()
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Journal for MemoryJournal {
    fn health(&self) -> Option<watch::Receiver<StoreHealth>> {
        None
    }

    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult> {
        Box::pin(async move { self.state().begin(new, now) })
    }

    fn append<'a>(
        &'a self,
        id: &'a InvocationId,
        entries: &'a [Entry],
    ) -> JournalFuture<'a, (), AppendError> {
        Box::pin(async move {
            self.state().append(id, entries)?;
            self.notices.announce(id);
            Ok(())
        })
    }

    fn remember<'a>(
        &'a self,
        held: &'a Held,
        upstream: &'a UpstreamHandle,
    ) -> JournalFuture<'a, bool, AppendError> {
        Box::pin(async move {
            self.state().remember(held, upstream)?;
            // No other process ever sees it.
            Ok(false)
        })
    }

    fn read<'a>(
        &'a self,
        id: &'a InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> JournalFuture<'a, Option<Page>> {
        Box::pin(async move { Ok(self.state().read(id, after_seq, limit)) })
    }

    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError> {
        Box::pin(async move {
            let id = end.id.clone();
            self.state().finish(end, now)?;
            self.notices.announce(&id);
            Ok(())
        })
    }

    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>> {
        Box::pin(async move { Ok(self.state().get(id)) })
    }

    fn get_by_request<'a>(
        &'a self,
        tenant: &'a TenantId,
        request: &'a RequestId,
    ) -> JournalFuture<'a, Option<Record>> {
        Box::pin(async move { Ok(self.state().get_by_request(tenant, request)) })
    }

    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>> {
        Box::pin(async move { Ok(self.state().list(wanted, limit)) })
    }

    fn executions<'a>(
        &'a self,
        wanted: &'a ExecutionListing,
        limit: usize,
    ) -> JournalFuture<'a, Vec<ToolExecution>> {
        Box::pin(async move { Ok(self.state().executions(wanted, limit)) })
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Held],
        now: Timestamp,
    ) -> JournalFuture<'a, Renewed> {
        Box::pin(async move { Ok(self.state().renew(owner, held, now)) })
    }

    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()> {
        Box::pin(async move {
            self.state().release(owner, held);
            Ok(())
        })
    }

    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        Box::pin(async move { Ok(self.state().expired(now, limit)) })
    }

    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        Box::pin(async move { Ok(self.state().expired(OWNER_DEAD, limit)) })
    }

    fn take_over<'a>(
        &'a self,
        expected: &'a Held,
        owner: &'a Owner,
        now: Timestamp,
    ) -> JournalFuture<'a, Takeover> {
        Box::pin(async move {
            let takeover = self.state().take_over(expected, owner, now);
            self.notices.announce(&expected.id);
            Ok(takeover)
        })
    }

    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()> {
        Box::pin(async move {
            self.state().free_request(id);
            Ok(())
        })
    }

    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish> {
        Box::pin(async move {
            let wish = self.state().request_cancel(id);
            self.notices.announce(id);
            Ok(wish)
        })
    }

    fn changes(&self, id: &InvocationId) -> Changes {
        self.notices.subscribe(id, None)
    }

    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>> {
        Box::pin(async move { Ok(self.state().load_thread(key)) })
    }

    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked> {
        Box::pin(async move { self.state().lock_thread(key, invocation, now) })
    }

    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError> {
        Box::pin(async move { self.state().delete_thread(key, version, now) })
    }

    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted> {
        Box::pin(async move { Ok(self.state().compact(now)) })
    }

    fn property<'a>(&'a self, _: &'a str, fresh: String) -> JournalFuture<'a, String> {
        // What is gone with the process needs no name.
        Box::pin(async move { Ok(fresh) })
    }

    fn keeps_properties(&self) -> bool {
        false
    }

    fn swap_property<'a>(&'a self, _: &'a str, _: &'a str, _: String) -> JournalFuture<'a, bool> {
        Box::pin(async move { Ok(true) })
    }

    fn stats(&self) -> JournalFuture<'_, Stats> {
        Box::pin(async move { Ok(self.state().stats()) })
    }
}
