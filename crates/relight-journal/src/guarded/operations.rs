//! The journal's operations, each of them guarded.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::{
    super::{
        AppendError, BeginResult, CancelWish, Changes, Compacted, Entry, ExecutionListing, Finish,
        FinishError, Held, Journal, JournalFuture, Listing, Locked, NewInvocation, Owner, Page,
        Record, Renewed, SqlJournal, Stats, Takeover, Thread, ThreadError, ThreadKey,
        ToolExecution,
    },
    GuardedJournal, LONGEST, StoreHealth,
    late::LateRecords,
};
use crate::domain::{
    ids::{InvocationId, RequestId, TenantId},
    upstream::UpstreamHandle,
};

// === impl Journal ===

impl Journal for GuardedJournal {
    fn health(&self) -> Option<watch::Receiver<StoreHealth>> {
        Some(self.guard.health.subscribe())
    }

    fn unrecorded(&self) -> u64 {
        self.guard.late.as_ref().map_or(0, LateRecords::given_up)
    }

    fn begin(&self, new: NewInvocation, now: Timestamp) -> JournalFuture<'_, BeginResult> {
        Box::pin(async move {
            // While the store is unavailable, a begin fails at once, and its caller decides what
            // follows.
            let is_up = *self.guard.health.borrow() == StoreHealth::Up;
            let new = match self.guard.late.as_ref().filter(|_| is_up) {
                Some(late) => match late.defer(new, now) {
                    Some(new) => new,
                    None => return Ok(BeginResult::New { epoch: 1 }),
                },
                None => new,
            };
            self.write(async move |store| store.begin(new, now).await)
                .await
        })
    }

    fn append<'a>(
        &'a self,
        id: &'a InvocationId,
        entries: &'a [Entry],
    ) -> JournalFuture<'a, (), AppendError> {
        Box::pin(async move {
            if self
                .guard
                .late
                .as_ref()
                .is_some_and(|late| late.append(id, entries))
            {
                return Ok(());
            }
            self.guard.recorded(Some(id)).await?;
            self.write(async move |store| store.append(id, entries).await)
                .await
        })
    }

    fn remember<'a>(
        &'a self,
        held: &'a Held,
        upstream: &'a UpstreamHandle,
    ) -> JournalFuture<'a, bool, AppendError> {
        Box::pin(async move {
            self.guard.recorded(Some(&held.id)).await?;
            self.write(async move |store| store.remember(held, upstream).await)
                .await
        })
    }

    fn read<'a>(
        &'a self,
        id: &'a InvocationId,
        after_seq: u64,
        limit: usize,
    ) -> JournalFuture<'a, Option<Page>> {
        Box::pin(self.with_recorded(id, async move |store| {
            store.read(id, after_seq, limit).await
        }))
    }

    fn finish(&self, end: Finish, now: Timestamp) -> JournalFuture<'_, (), FinishError> {
        Box::pin(async move {
            let end = match &self.guard.late {
                Some(late) => match late.finish(end, now) {
                    Some(end) => end,
                    None => return Ok(()),
                },
                None => end,
            };
            self.guard
                .recorded(Some(&end.id))
                .await
                .map_err(AppendError::from)?;
            self.write(async move |store| store.finish(end, now).await)
                .await
        })
    }

    fn get<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, Option<Record>> {
        Box::pin(self.with_recorded(id, async move |store| store.get(id).await))
    }

    fn get_by_request<'a>(
        &'a self,
        tenant: &'a TenantId,
        request: &'a RequestId,
    ) -> JournalFuture<'a, Option<Record>> {
        Box::pin(self.with(LONGEST, async move |store| {
            store.get_by_request(tenant, request).await
        }))
    }

    fn renew<'a>(
        &'a self,
        owner: &'a Owner,
        held: &'a [Held],
        now: Timestamp,
    ) -> JournalFuture<'a, Renewed> {
        Box::pin(self.with_all_recorded(LONGEST, async move |store| {
            store.renew(owner, held, now).await
        }))
    }

    fn release<'a>(&'a self, owner: &'a Owner, held: &'a [Held]) -> JournalFuture<'a, ()> {
        Box::pin(
            self.with_all_recorded(LONGEST, async move |store| store.release(owner, held).await),
        )
    }

    fn expired(&self, now: Timestamp, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        Box::pin(self.with(LONGEST, async move |store| store.expired(now, limit).await))
    }

    fn released(&self, limit: usize) -> JournalFuture<'_, Vec<Held>> {
        Box::pin(self.with(LONGEST, async move |store| store.released(limit).await))
    }

    fn take_over<'a>(
        &'a self,
        expected: &'a Held,
        owner: &'a Owner,
        now: Timestamp,
    ) -> JournalFuture<'a, Takeover> {
        Box::pin(self.with_recorded(&expected.id, async move |store| {
            store.take_over(expected, owner, now).await
        }))
    }

    fn list<'a>(&'a self, wanted: &'a Listing, limit: usize) -> JournalFuture<'a, Vec<Record>> {
        Box::pin(
            self.with_all_recorded(LONGEST, async move |store| store.list(wanted, limit).await),
        )
    }

    fn executions<'a>(
        &'a self,
        wanted: &'a ExecutionListing,
        limit: usize,
    ) -> JournalFuture<'a, Vec<ToolExecution>> {
        Box::pin(self.with_all_recorded(LONGEST, async move |store| {
            store.executions(wanted, limit).await
        }))
    }

    fn free_request<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, ()> {
        Box::pin(self.with_recorded(id, async move |store| store.free_request(id).await))
    }

    fn request_cancel<'a>(&'a self, id: &'a InvocationId) -> JournalFuture<'a, CancelWish> {
        Box::pin(self.with_recorded(id, async move |store| store.request_cancel(id).await))
    }

    fn changes(&self, id: &InvocationId) -> Changes {
        self.guard.current.load().changes(id)
    }

    fn load_thread<'a>(&'a self, key: &'a ThreadKey) -> JournalFuture<'a, Option<Thread>> {
        Box::pin(self.with(LONGEST, async move |store| store.load_thread(key).await))
    }

    fn lock_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        invocation: &'a InvocationId,
        now: Timestamp,
    ) -> JournalFuture<'a, Locked> {
        Box::pin(self.with_recorded(invocation, async move |store| {
            store.lock_thread(key, invocation, now).await
        }))
    }

    fn delete_thread<'a>(
        &'a self,
        key: &'a ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> JournalFuture<'a, bool, ThreadError> {
        Box::pin(self.with(LONGEST, async move |store| {
            store.delete_thread(key, version, now).await
        }))
    }

    fn compact(&self, now: Timestamp) -> JournalFuture<'_, Compacted> {
        Box::pin(self.with(Duration::from_mins(5), async move |store| {
            store.compact(now).await
        }))
    }

    fn property<'a>(&'a self, name: &'a str, fresh: String) -> JournalFuture<'a, String> {
        Box::pin(async move {
            let kept = self
                .with(LONGEST, async move |store: &SqlJournal| {
                    store.property(name, fresh).await
                })
                .await?;
            self.guard
                .properties()
                .insert(name.to_owned(), kept.clone());
            Ok(kept)
        })
    }

    fn swap_property<'a>(
        &'a self,
        name: &'a str,
        expected: &'a str,
        new: String,
    ) -> JournalFuture<'a, bool> {
        Box::pin(async move {
            let kept = new.clone();
            let swapping =
                async move |store: &SqlJournal| store.swap_property(name, expected, new).await;
            let swapped = self.with(LONGEST, swapping).await?;
            if swapped {
                self.guard.properties().insert(name.to_owned(), kept);
            }
            Ok(swapped)
        })
    }

    fn stats(&self) -> JournalFuture<'_, Stats> {
        Box::pin(
            self.with_all_recorded(Duration::from_mins(1), async move |store| {
                store.stats().await
            }),
        )
    }
}
