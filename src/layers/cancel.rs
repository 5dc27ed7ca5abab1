//! Request to end an invocation early, and its reason.
//!
//! The owner of the invocation keeps one end; the layer that ends invocations waits at the other. A
//! request cannot be withdrawn, and only the first one's reason counts. An owner that cannot even
//! let the invocation start says so here.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use crate::domain::failure::Failure;

/// A cancellation that can be requested once; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    token: CancellationToken,
    reason: Arc<OnceLock<EarlyEnd>>,
}

/// Reason why an invocation ends early.
#[derive(Debug)]
enum EarlyEnd {
    /// It is to end, for this reason.
    Wanted(String),
    /// Its owner could not let it start.
    NotBegun(Box<Failure>),
}

// === impl Cancel ===

impl Cancel {
    /// Requests the cancellation; `reason` is in plain words (`client gone`).
    pub fn cancel(&self, reason: impl Into<String>) {
        // A second reason would not change what was done for the first.
        let _ = self.reason.set(EarlyEnd::Wanted(reason.into()));
        self.token.cancel();
    }

    /// Notes that the invocation cannot start; its steps are dropped unread, and this is the
    /// failure that it ends with.
    pub fn cannot_begin(&self, failure: Failure) {
        let _ = self.reason.set(EarlyEnd::NotBegun(Box::new(failure)));
    }

    /// Returns the reason why the invocation could not start; `None` if it could.
    pub fn not_begun(&self) -> Option<&Failure> {
        match self.reason.get()? {
            EarlyEnd::NotBegun(failure) => Some(failure),
            EarlyEnd::Wanted(_) => None,
        }
    }

    /// Returns whether it was uttered.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns the reason why it was uttered; `None` if it was not.
    pub fn reason(&self) -> Option<&str> {
        match self.reason.get()? {
            EarlyEnd::Wanted(reason) => Some(reason),
            EarlyEnd::NotBegun(_) => None,
        }
    }

    /// Waits for the request and returns its reason. Cancel safe.
    pub async fn cancelled(&self) -> String {
        self.token.cancelled().await;
        self.reason().map(str::to_owned).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::FailureClass;

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

    #[test]
    fn an_invocation_that_could_not_begin_is_not_wanted_ended() {
        let cancel = Cancel::default();
        let failure = Failure::local(FailureClass::State, "no record");
        cancel.cannot_begin(failure.clone());
        assert_eq!(
            (cancel.not_begun(), cancel.reason(), cancel.is_cancelled()),
            (Some(&failure), None, false)
        );
    }
}
