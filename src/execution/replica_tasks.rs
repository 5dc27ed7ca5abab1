//! Tasks that end with this replica at the latest.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::task::JoinSet;

/// The tasks of this replica, and whether it ends.
#[derive(Debug, Default)]
pub(super) struct ReplicaTasks {
    running: Mutex<JoinSet<()>>,
    closing: AtomicBool,
}

// === impl ReplicaTasks ===

impl ReplicaTasks {
    /// Runs a task that ends with this replica at the latest; not at all once it ends.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        if !self.are_closing() {
            running.spawn(task);
        }
    }

    /// Begins no further task.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Returns whether this replica ends.
    pub(super) fn are_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Returns the tasks that still run, to be ended by the caller.
    pub(super) fn take(&self) -> JoinSet<()> {
        std::mem::take(&mut *self.running.lock())
    }
}
