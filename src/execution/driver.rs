//! Who drives a run: the follower that waits for its end, or a task of its own.
//!
//! Of a unary call there is just one who waits. That it drives the run itself saves the hand-over
//! between two threads for every step; when it leaves, the run continues as a task, which ends it
//! as for any client that leaves.

use std::{fmt, sync::Arc};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::ExecutionShared;

/// A run that proceeds only while it is polled; dropped before its end, it becomes a task.
pub(super) struct Driver {
    shared: Arc<ExecutionShared>,
    /// `None` once it has ended. Never locked: a follower is shared by reference, and a future is
    /// not.
    running: Mutex<Option<BoxFuture<'static, ()>>>,
}

// === impl Driver ===

impl Driver {
    pub(super) fn new(
        shared: Arc<ExecutionShared>,
        running: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        Self {
            shared,
            running: Mutex::new(Some(Box::pin(running))),
        }
    }

    /// Drives the run to its end. Cancel safe.
    pub(super) async fn drive(&mut self) {
        let running = self.running();
        if let Some(future) = running {
            future.await;
            *running = None;
        }
    }

    fn running(&mut self) -> &mut Option<BoxFuture<'static, ()>> {
        self.running.get_mut()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(running) = self.running().take() {
            self.shared.tasks.spawn(running);
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
