//! A journal that reports to the metrics how long each operation took.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    domain::{
        ids::{InvocationId, RequestId, TenantId},
        upstream::UpstreamHandle,
    },
    journal::{
        AppendError, BeginResult, CancelWish, Changes, Compacted, Entry, ExecutionListing, Finish,
        FinishError, Held, Journal, JournalFuture, Listing, Locked, NewInvocation, Owner, Page,
        Record, Renewed, Stats, StoreHealth, Takeover, Thread, ThreadError, ThreadKey,
        ToolExecution,
    },
    telemetry::Metrics,
};

/// A journal whose operations are timed.
#[derive(Debug)]
pub(super) struct TimedJournal {
    inner: Arc<dyn Journal>,
    metrics: Metrics,
}

/// Records how long an operation took when it ends, in any way.
struct Timed<'a> {
    metrics: &'a Metrics,
    operation: &'static str,
    began: Instant,
}

// === impl TimedJournal ===

impl TimedJournal {
    pub(super) fn new(inner: Arc<dyn Journal>, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }

    fn timed<'a, T: 'a, E: 'a>(
        &'a self,
        operation: &'static str,
        running: JournalFuture<'a, T, E>,
    ) -> JournalFuture<'a, T, E> {
        Box::pin(async move {
            let _timed = Timed {
                metrics: &self.metrics,
                operation,
                began: Instant::now(),
            };
            running.await
        })
    }
}

impl Journal for TimedJournal {
    fn health(&self) -> Option<tokio::sync::watch::Receiver<StoreHealth>> {
        self.inner.health()
    }

    fn unrecorded(&self) -> u64 {
        self.inner.unrecorded()
    }

    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult> {
        self.timed("begin", self.inner.begin(new, now))
    }

    fn append<'a>(
        &'a self,
        id: &'a InvocationId,
        entries: &'a [Entry],
    ) -> JournalFuture<'a, (), AppendError> {
        self.timed("append", self.inner.append(id, entries))
    }

    fn remember<'a>(
        &'a self,
        held: &'a Held,
        upstream: &'a UpstreamHandle,
    ) -> JournalFuture<'a, bool, AppendError> {
        self.timed("remember", self.inner.remember(held, upstream))
    }

    fn read<'a>(
        &'a self,
        id: &'a InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> JournalFuture<'a, Option<Page>> {
        self.timed("read", self.inner.read(id, after_seq, limit))
    }

    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError> {
        self.timed("finish", self.inner.finish(end, now))
    }

    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>> {
        self.timed("get", self.inner.get(id))
    }

    fn get_by_request<'a>(
        &'a self,
        tenant: &'a TenantId,
        request: &'a RequestId,
    ) -> JournalFuture<'a, Option<Record>> {
        self.timed("get_by_request", self.inner.get_by_request(tenant, request))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Held],
        now: Timestamp,
    ) -> JournalFuture<'a, Renewed> {
        self.timed("renew", self.inner.renew(owner, held, now))
    }

    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()> {
        self.timed("release", self.inner.release(owner, held))
    }

    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        self.timed("expired", self.inner.expired(now, limit))
    }

    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        self.timed("released", self.inner.released(limit))
    }

    fn take_over<'a>(
        &'a self,
        expected: &'a Held,
        owner: &'a Owner,
        now: Timestamp,
    ) -> JournalFuture<'a, Takeover> {
        self.timed("take_over", self.inner.take_over(expected, owner, now))
    }

    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>> {
        self.timed("list", self.inner.list(wanted, limit))
    }

    fn executions<'a>(
        &'a self,
        wanted: &'a ExecutionListing,
        limit: usize,
    ) -> JournalFuture<'a, Vec<ToolExecution>> {
        self.timed("executions", self.inner.executions(wanted, limit))
    }

    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()> {
        self.timed("free_request", self.inner.free_request(id))
    }

    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish> {
        self.timed("request_cancel", self.inner.request_cancel(id))
    }

    fn changes(&self, id: &InvocationId) -> Changes {
        self.inner.changes(id)
    }

    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>> {
        self.timed("load_thread", self.inner.load_thread(key))
    }

    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked> {
        self.timed("lock_thread", self.inner.lock_thread(key, invocation, now))
    }

    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError> {
        self.timed("delete_thread", self.inner.delete_thread(key, version, now))
    }

    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted> {
        self.timed("compact", self.inner.compact(now))
    }

    fn property<'a>(&'a self, name: &'a str, fresh: String) -> JournalFuture<'a, String> {
        self.timed("property", self.inner.property(name, fresh))
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
        self.timed(
            "swap_property",
            self.inner.swap_property(name, expected, new),
        )
    }

    fn stats(&self) -> JournalFuture<'_, Stats> {
        self.timed("stats", self.inner.stats())
    }
}

// === impl Timed ===

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let took: Duration = self.began.elapsed();
        self.metrics.journal_took(self.operation, took);
    }
}
