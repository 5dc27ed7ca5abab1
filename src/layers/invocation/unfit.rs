//! A whole completion whose tool calls do not fit: the layer that finds it leaves the decision to the
//! retry loop.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::domain::failure::Failure;

/// Known facts of such a completion.
#[derive(Debug, Default)]
pub struct UnfitAnswer {
    fault: Mutex<Option<Failure>>,
    is_passed_on: AtomicBool,
}

// === impl UnfitAnswer ===

impl UnfitAnswer {
    /// Records that the completion that ends now has this fault.
    pub fn found(&self, fault: Failure) {
        *self.fault.lock() = Some(fault);
    }

    /// Returns the fault of the completion that just ended, if it has one.
    pub fn take(&self) -> Option<Failure> {
        self.fault.lock().take()
    }

    /// Records that the completion is passed on all the same.
    pub fn pass_on(&self) {
        self.is_passed_on.store(true, Ordering::Relaxed);
    }

    /// Returns whether it is passed on.
    pub fn is_passed_on(&self) -> bool {
        self.is_passed_on.load(Ordering::Relaxed)
    }
}
