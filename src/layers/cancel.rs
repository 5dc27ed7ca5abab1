//! A request to end an invocation early, and its reason.
//!
//! The owner of the invocation keeps one end; the layer that ends invocations waits at the other. A request cannot be
//! withdrawn, and only the first one's reason counts.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// A cancellation that can be requested once; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

// === impl Cancel ===

impl Cancel {
    /// Requests the cancellation; `reason` is in plain words (`client gone`).
    pub fn cancel(&self, reason: impl Into<String>) {
        // A second reason would not change what was done for the first.
        let _ = self.reason.set(reason.into());
        self.token.cancel();
    }

    /// Whether it was uttered.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Why it was uttered; `None` where it was not.
    pub fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// Waits for the request and returns its reason. Cancel safe.
    pub async fn cancelled(&self) -> String {
        self.token.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_counts() {
        let cancel = Cancel::default();
        let other = cancel.clone();
        assert!(!cancel.is_cancelled() && cancel.reason().is_none());
        other.cancel("client gone");
        cancel.cancel("again");
        assert_eq!(cancel.cancelled().await, "client gone");
        assert!(other.is_cancelled());
    }
}
