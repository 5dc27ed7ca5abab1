//! Use that executions make of the journal: what waits for it, what it keeps, and whether it can be
//! reached.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{journal_health::JournalHealth, journal_queue::JournalQueue};
use crate::{
    domain::event::EventBody,
    journal::{Compacted, JournalError, Stats},
};

/// Use of the journal by the executions of this replica.
#[derive(Debug)]
pub(super) struct JournalUse {
    /// Steps that wait to be recorded.
    pub(super) queue: Arc<JournalQueue>,
    /// Invocations that ran without a record.
    unrecorded: AtomicU64,
    /// Content of the journal after its newest compaction, and the total that all of them removed.
    kept: Mutex<(Stats, Compacted)>,
    health: Mutex<JournalHealth>,
}

// === impl JournalUse ===

impl JournalUse {
    /// None yet; so many steps may wait at once.
    pub(super) fn new(queue: usize) -> Self {
        Self {
            queue: Arc::new(JournalQueue::new(queue)),
            unrecorded: AtomicU64::new(0),
            kept: Mutex::default(),
            health: Mutex::default(),
        }
    }

    /// Counts an invocation that runs without a record.
    pub(super) fn runs_unrecorded(&self) {
        self.unrecorded.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many invocations ran without a record.
    pub(super) fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// Notes what a compaction removed and what it left.
    pub(super) fn compacted(&self, removed: Compacted, left: Stats) {
        let mut kept = self.kept.lock();
        kept.0 = left;
        kept.1.stripped += removed.stripped;
        kept.1.deleted += removed.deleted;
        kept.1.threads += removed.threads;
    }

    /// Returns the content of the journal after its newest compaction, and the total that all of
    /// them removed.
    pub(super) fn kept_and_removed(&self) -> (Stats, Compacted) {
        *self.kept.lock()
    }

    /// Notes whether the journal was available; returns the event by which a change is reported.
    pub(super) fn was(&self, failure: Option<&JournalError>) -> Option<EventBody> {
        self.health.lock().take(failure)
    }

    /// Returns whether the journal can be reached, and since when.
    pub(super) fn health(&self) -> JournalHealth {
        self.health.lock().clone()
    }
}
