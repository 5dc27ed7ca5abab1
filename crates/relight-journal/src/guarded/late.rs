//! Deferred records: an invocation without a request id, a thread or a resumable stream is recorded
//! when it ends, or when it has run for [`RUNNING_AFTER`], many in one transaction. Its record is
//! not needed before: a crash ends such a call for its caller in any case, and a lookup writes the
//! record first.
//!
//! This holds the deferred records, up to a number and a size; the guard writes them. Beyond that
//! an invocation is recorded when it starts: callers wait for a store that falls behind, instead of
//! filling the memory.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::super::{
    Entry, Finish, LateRecord, NewInvocation,
    size::{content_bytes, outcome_bytes, request_bytes, snapshot_bytes},
};
use crate::domain::ids::InvocationId;

/// Time for which an invocation runs before it is recorded as running.
const RUNNING_AFTER: Duration = Duration::from_millis(250);
/// Time for which records wait for others, to be written together.
pub(super) const BATCH_AFTER: Duration = Duration::from_millis(50);
/// Records of one transaction at most.
const BATCH: usize = 64;
/// Records that wait at most; while so many do, further invocations are recorded at once.
const MOST: usize = 1024;
/// Bytes of the requests, steps and ends that wait at most; what would be more is recorded at once.
const MOST_BYTES: u64 = 32 * 1024 * 1024;
/// Steps of one invocation that wait at most; then it is recorded.
const MOST_STEPS: usize = 512;
/// Time for which an end is kept that the store does not take.
const KEPT: Duration = Duration::from_mins(1);

/// The deferred records.
#[derive(Default)]
pub(super) struct LateRecords {
    waiting: Mutex<HashMap<InvocationId, Waiting>>,
    /// Size of all that wait. Changed only while `waiting` is locked.
    bytes: AtomicU64,
    /// Notified when the first record starts to wait.
    pub(super) added: Notify,
    /// Notified when a lookup needs a record.
    pub(super) wanted: Notify,
    /// Notified when records were written or dropped.
    pub(super) written: watch::Sender<()>,
    given_up: AtomicU64,
}

/// One deferred record.
struct Waiting {
    /// `None` while it is being written.
    record: Option<LateRecord>,
    bytes: u64,
    since: Instant,
    ended: Option<Instant>,
    is_wanted: bool,
}

// === impl LateRecords ===

impl LateRecords {
    /// Defers the record of a new invocation, if only its id refers to it and there is room; else
    /// returns it.
    pub(super) fn defer(&self, new: NewInvocation, now: Timestamp) -> Option<NewInvocation> {
        let is_promised = new.request_id.is_some()
            || new.thread.is_some()
            || new.request.overrides.resumable_grace.is_some();
        if is_promised {
            return Some(new);
        }
        let bytes = request_bytes(&new.request);
        let mut waiting = self.waiting();
        if waiting.len() >= MOST || !self.has_room(bytes) || waiting.contains_key(&new.id) {
            return Some(new);
        }
        if waiting.is_empty() {
            self.added.notify_one();
        }
        let id = new.id.clone();
        let record = Some(LateRecord {
            new,
            began_at: now,
            entries: Vec::new(),
            end: None,
        });
        waiting.insert(
            id,
            Waiting {
                record,
                bytes,
                since: Instant::now(),
                ended: None,
                is_wanted: false,
            },
        );
        self.bytes.fetch_add(bytes, Relaxed);
        None
    }

    /// Adds steps to a record that waits; returns whether there is one with room.
    pub(super) fn append(&self, id: &InvocationId, entries: &[Entry]) -> bool {
        let bytes = content_bytes(entries);
        let mut waiting = self.waiting();
        let Some(Waiting {
            record: Some(record),
            bytes: held,
            ..
        }) = waiting.get_mut(id)
        else {
            return false;
        };
        if record.entries.len() + entries.len() > MOST_STEPS || !self.has_room(bytes) {
            return false;
        }
        record.add(entries);
        *held += bytes;
        self.bytes.fetch_add(bytes, Relaxed);
        true
    }

    /// Adds the end to a record that waits; returns the end if none does.
    pub(super) fn finish(&self, end: Finish, now: Timestamp) -> Option<Finish> {
        let mut waiting = self.waiting();
        let Some(waiting) = waiting.get_mut(&end.id) else {
            return Some(end);
        };
        let Some(record) = waiting.record.as_mut().filter(|_| end.thread.is_none()) else {
            return Some(end);
        };
        let bytes = content_bytes(&end.entries)
            + outcome_bytes(&end.outcome)
            + snapshot_bytes(&end.snapshot);
        waiting.bytes += bytes;
        self.bytes.fetch_add(bytes, Relaxed);
        record.add(&end.entries);
        let ended_at = end.ended_at(now);
        record.end = Some((end, ended_at));
        waiting.ended = Some(Instant::now());
        None
    }

    /// Has the record of one invocation, or all records, written next, and returns the ids of those
    /// that wait.
    pub(super) fn want(&self, id: Option<&InvocationId>) -> Vec<InvocationId> {
        let mut waiting = self.waiting();
        let wanted = waiting
            .iter_mut()
            .filter(|(waits, _)| id.is_none_or(|id| id == *waits));
        let mark = |(id, waiting): (&InvocationId, &mut Waiting)| {
            waiting.is_wanted = true;
            id.clone()
        };
        let ids: Vec<_> = wanted.map(mark).collect();
        if !ids.is_empty() {
            self.wanted.notify_one();
        }
        ids
    }

    /// Returns whether any of these still waits.
    pub(super) fn holds_any(&self, ids: &[InvocationId]) -> bool {
        let waiting = self.waiting();
        ids.iter().any(|id| waiting.contains_key(id))
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Returns the records to write now, at most a transaction's worth. Each of them counts as
    /// waiting until it is [done](Self::done) or [put back](Self::put_back).
    pub(super) fn due(&self) -> Vec<LateRecord> {
        let mut waiting = self.waiting();
        let is_due = |waiting: &&mut Waiting| {
            waiting.is_wanted || waiting.ended.is_some() || waiting.since.elapsed() >= RUNNING_AFTER
        };
        waiting
            .values_mut()
            .filter(is_due)
            .filter_map(|waiting| waiting.record.take())
            .take(BATCH)
            .collect()
    }

    /// Removes records that were written or dropped.
    pub(super) fn done(&self, records: &[LateRecord]) {
        let mut waiting = self.waiting();
        for record in records {
            self.remove(&mut waiting, &record.new.id);
        }
        drop(waiting);
        self.written.send_replace(());
    }

    /// Returns records that could not be written to the queue, except those that ended [`KEPT`]
    /// ago: these are dropped. Returns how many.
    pub(super) fn put_back(&self, records: Vec<LateRecord>) -> usize {
        let mut waiting = self.waiting();
        let before = waiting.len();
        for record in records {
            let id = record.new.id.clone();
            let Some(entry) = waiting.get_mut(&id) else {
                continue;
            };
            if entry.ended.is_some_and(|ended| ended.elapsed() >= KEPT) {
                self.remove(&mut waiting, &id);
            } else {
                entry.record = Some(record);
            }
        }
        let given_up = before - waiting.len();
        self.given_up.fetch_add(given_up as u64, Relaxed);
        given_up
    }

    /// Removes records that cannot be written.
    pub(super) fn give_up(&self, records: &[LateRecord]) {
        self.given_up.fetch_add(records.len() as u64, Relaxed);
        self.done(records);
    }

    /// Number of records dropped since the start.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(Relaxed)
    }

    /// Returns whether so many bytes more may wait.
    fn has_room(&self, bytes: u64) -> bool {
        self.bytes.load(Relaxed).saturating_add(bytes) <= MOST_BYTES
    }

    fn remove(&self, waiting: &mut HashMap<InvocationId, Waiting>, id: &InvocationId) {
        if let Some(removed) = waiting.remove(id) {
            self.bytes.fetch_sub(removed.bytes, Relaxed);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<InvocationId, Waiting>> {
        self.waiting.lock()
    }
}

// === impl LateRecord ===

impl LateRecord {
    /// Adds the steps that it does not have yet.
    fn add(&mut self, entries: &[Entry]) {
        let last = self.entries.last().map_or(0, |entry| entry.seq);
        self.entries
            .extend(entries.iter().filter(|entry| entry.seq > last).cloned());
    }
}
