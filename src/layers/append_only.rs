//! What a front that cannot take back tells the retry loop: that it has sent something, and that a new attempt says
//! something else than was sent.
//!
//! Such a front pulls the steps of its invocation one by one, so that the loop sees its word right after the step that
//! it is about.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The word of a front that cannot take back; clones share it. By default nothing is sent that cannot be taken back.
#[derive(Debug, Clone, Default)]
pub struct AppendOnly {
    shared: Arc<AppendOnlyState>,
}

#[derive(Debug, Default)]
struct AppendOnlyState {
    has_sent: AtomicBool,
    has_diverged: AtomicBool,
}

// === impl AppendOnly ===

impl AppendOnly {
    /// Something was sent.
    pub fn sent(&self) {
        self.shared.has_sent.store(true, Ordering::Relaxed);
    }

    /// Whether anything was sent.
    pub fn has_sent(&self) -> bool {
        self.shared.has_sent.load(Ordering::Relaxed)
    }

    /// The running attempt does not begin with what was sent: it is of no use.
    pub fn diverged(&self) {
        self.shared.has_diverged.store(true, Ordering::Relaxed);
    }

    /// Whether the running attempt was found to be of no use; asking forgets it.
    pub fn take_divergence(&self) -> bool {
        self.shared.has_diverged.swap(false, Ordering::Relaxed)
    }
}
