//! How many steps of this replica wait for the journal, over all its invocations: one bound for all of them.
//!
//! It counts and tells when there is room again. What happens when there is none, the recorder knows.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::sync::watch;

/// The steps that wait, and those that were never recorded.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: watch::Sender<usize>,
    most: usize,
    dropped: AtomicU64,
}

/// One invocation's part of the backlog; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    backlog: Arc<Backlog>,
    steps: usize,
}

// === impl Backlog ===

impl Backlog {
    /// Nothing waits; at most `most` steps may.
    pub(super) fn new(most: usize) -> Self {
        Self { waiting: watch::channel(0).0, most: most.max(1), dropped: AtomicU64::new(0) }
    }

    /// How many steps wait.
    pub(super) fn waiting(&self) -> usize {
        *self.waiting.borrow()
    }

    /// How many steps were told and never recorded.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Whether no more steps may wait.
    pub(super) fn is_full(&self) -> bool {
        self.waiting() >= self.most
    }

    /// Returns when more steps may wait. Cancel safe.
    pub(super) async fn room(&self) {
        // The sender lives as long as this, so that waiting cannot fail.
        let _ = self.waiting.subscribe().wait_for(|waiting| *waiting < self.most).await;
    }
}

// === impl Share ===

impl Share {
    /// A part of which nothing waits yet.
    pub(super) fn of(backlog: Arc<Backlog>) -> Self {
        Self { backlog, steps: 0 }
    }

    pub(super) fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// One more step waits.
    pub(super) fn add(&mut self) {
        self.steps += 1;
        self.backlog.waiting.send_modify(|waiting| *waiting += 1);
    }

    /// So many steps wait no longer: they are recorded.
    pub(super) fn recorded(&mut self, steps: usize) {
        let steps = steps.min(self.steps);
        self.steps -= steps;
        self.backlog.waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(steps));
    }

    /// So many steps are never recorded; those of them that waited wait no longer.
    pub(super) fn drop_steps(&mut self, steps: usize) {
        self.backlog.dropped.fetch_add(steps as u64, Relaxed);
        self.recorded(steps);
    }
}

impl Drop for Share {
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
        let backlog = Arc::new(Backlog::new(3));
        let (mut one, mut other) = (Share::of(Arc::clone(&backlog)), Share::of(Arc::clone(&backlog)));
        one.add();
        other.add();
        assert!(!backlog.is_full());
        other.add();
        assert!(backlog.is_full() && backlog.room().now_or_never().is_none());
        one.recorded(1);
        assert!(backlog.room().now_or_never().is_some());
        other.drop_steps(5);
        assert_eq!((backlog.waiting(), backlog.dropped()), (0, 5), "what was never taken in is dropped, too");
        one.add();
        drop(one);
        assert_eq!(backlog.waiting(), 0);
    }
}
