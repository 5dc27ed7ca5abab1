//! Whether this process drains, and who watches it: state that the services and the shutdown share.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::watch;

/// The drain state, shared by the services and the server; cheap to clone.
#[derive(Debug, Clone)]
pub struct DrainState {
    draining: watch::Receiver<bool>,
    watchers: Arc<AtomicU64>,
    missed: Arc<AtomicU64>,
}

/// One watcher, counted until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    drain: DrainState,
}

// === impl DrainState ===

impl DrainState {
    /// Serving until the receiver yields `true`.
    pub fn new(draining: watch::Receiver<bool>) -> Self {
        Self {
            draining,
            watchers: Arc::default(),
            missed: Arc::default(),
        }
    }

    /// Returns whether the process is about to end.
    pub fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Completes when the process starts to drain. Cancel safe.
    pub async fn drained(&self) {
        let mut draining = self.draining.clone();
        if draining.wait_for(|draining| *draining).await.is_err() {
            // The server is gone without a drain; its connections end by themselves.
            std::future::pending::<()>().await;
        }
    }

    /// Counts a watcher.
    pub fn watch(&self) -> Watcher {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Watcher {
            drain: self.clone(),
        }
    }

    /// Number of current watchers.
    pub fn watchers(&self) -> u64 {
        self.watchers.load(Ordering::Relaxed)
    }

    /// Events that slow watchers missed.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

// === impl Watcher ===

impl Watcher {
    /// Counts events that this watcher missed.
    pub fn missed(&self, count: u64) {
        self.drain.missed.fetch_add(count, Ordering::Relaxed);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.drain.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
