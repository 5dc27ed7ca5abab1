//! Number of steps of this replica that wait for the journal, over all its invocations: one bound
//! for all of them.
//!
//! It counts, and signals when there is room again. The action to take if there is none is up to
//! the recorder.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::Notify;

/// The steps that wait, and those that were never recorded.
#[derive(Debug)]
pub(super) struct JournalQueue {
    waiting: AtomicUsize,
    freed: Notify,
    max: usize,
    dropped: AtomicU64,
}

/// One invocation's part of the backlog; given back when it is dropped.
#[derive(Debug)]
pub(super) struct QueueReservation {
    queue: Arc<JournalQueue>,
    steps: usize,
}

// === impl JournalQueue ===

impl JournalQueue {
    /// Nothing waits; at most `max` steps may.
    pub(super) fn new(max: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            freed: Notify::new(),
            max: max.max(1),
            dropped: AtomicU64::new(0),
        }
    }

    /// Returns the number of waiting steps.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Returns the number of steps that were published and never recorded.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Returns whether no more steps may wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting() >= self.max
    }

    /// Returns when more steps may wait. Cancel safe.
    pub(super) async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that what is freed between is noticed.
            freed.as_mut().enable();
            if !self.is_full() {
                return;
            }
            freed.await;
        }
    }
}

// === impl QueueReservation ===

impl QueueReservation {
    /// A part of which nothing waits yet.
    pub(super) fn of(queue: Arc<JournalQueue>) -> Self {
        Self { queue, steps: 0 }
    }

    pub(super) fn queue(&self) -> &JournalQueue {
        &self.queue
    }

    /// One more step waits.
    pub(super) fn add(&mut self) {
        self.steps += 1;
        self.queue.waiting.fetch_add(1, Relaxed);
    }

    /// So many steps wait no longer: they are recorded.
    pub(super) fn recorded(&mut self, steps: usize) {
        let steps = steps.min(self.steps);
        self.steps -= steps;
        if steps > 0 {
            self.queue.waiting.fetch_sub(steps, Relaxed);
            self.queue.freed.notify_waiters();
        }
    }

    /// So many steps are never recorded; those of them that waited wait no longer.
    pub(super) fn drop_steps(&mut self, steps: usize) {
        self.queue.dropped.fetch_add(steps as u64, Relaxed);
        self.recorded(steps);
    }
}

impl Drop for QueueReservation {
    fn drop(&mut self) {
        self.recorded(self.steps);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn all_invocations_share_one_bound_and_give_back_what_they_held() {
        let queue = Arc::new(JournalQueue::new(3));
        let mut one = QueueReservation::of(Arc::clone(&queue));
        let mut other = QueueReservation::of(Arc::clone(&queue));
        one.add();
        other.add();
        assert!(!queue.is_full());
        other.add();
        assert!(queue.is_full() && queue.room().now_or_never().is_none());
        one.recorded(1);
        assert!(queue.room().now_or_never().is_some());
        other.drop_steps(5);
        assert_eq!(
            (queue.waiting(), queue.dropped()),
            (0, 5),
            "what was never taken in is dropped, too"
        );
        one.add();
        drop(one);
        assert_eq!(queue.waiting(), 0);
    }
}
