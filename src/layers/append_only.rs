//! State that an append-only front shares with the retry loop: that it has sent something, and that
//! a new attempt differs from what was sent.
//!
//! Such a front pulls the steps of its invocation one by one, so that the loop sees a change right
//! after the step that it concerns.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The delivery state of an append-only front; clones share it. By default nothing irrevocable has
/// been sent.
#[derive(Debug, Clone, Default)]
pub struct AppendOnly {
    shared: Arc<AppendOnlyState>,
}

#[derive(Debug, Default)]
struct AppendOnlyState {
    has_sent: AtomicBool,
    has_diverged: AtomicBool,
    is_continued: AtomicBool,
}

// === impl AppendOnly ===

impl AppendOnly {
    /// Something was sent.
    pub fn sent(&self) {
        self.shared.has_sent.store(true, Ordering::Relaxed);
    }

    /// Returns whether anything was sent.
    pub fn has_sent(&self) -> bool {
        self.shared.has_sent.load(Ordering::Relaxed)
    }

    /// Another request will ask for the rest of what was sent, if no attempt repeats it.
    pub fn continued_by_another_request(&self) {
        self.shared.is_continued.store(true, Ordering::Relaxed);
    }

    /// Returns whether another request will ask for the rest: one call is left for it.
    pub fn is_continued(&self) -> bool {
        self.shared.is_continued.load(Ordering::Relaxed)
    }

    /// The running attempt does not start with what was sent: it is of no use.
    pub fn diverged(&self) {
        self.shared.has_diverged.store(true, Ordering::Relaxed);
    }

    /// Returns whether the running attempt diverged from what was sent, and resets the flag.
    pub fn take_divergence(&self) -> bool {
        self.shared.has_diverged.swap(false, Ordering::Relaxed)
    }
}
