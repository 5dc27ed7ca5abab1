//! Ends of a stream that is not over: the invocation may have more.

use crate::{
    call_error::{
        CallError,
        table::{CUT_OFF, DRAINING, INVOCATION_NOT_FOUND, RESUME, STORE_UNAVAILABLE},
    },
    domain::ids::InvocationId,
    journal::JournalError,
};

/// Reason why no more steps can be read here although the invocation may have more: resume here or
/// at another replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// This replica ends.
    Closing,
    /// The invocation is no longer kept, or never was.
    Gone,
    /// The journal lost the record of the invocation, which it needs: there is nothing to resume.
    Record,
    /// The journal fails.
    Journal(JournalError),
}

// === impl Lost ===

impl Lost {
    /// Returns the error for a client that can come back to the invocation, here or at another
    /// replica.
    pub fn of_resumable(self, id: &InvocationId) -> CallError {
        let resume = CallError::new(RESUME).fact("invocationId", id);
        match self {
            Self::Closing => resume,
            Self::Gone => CallError::new(INVOCATION_NOT_FOUND).fact("invocation", id),
            Self::Record => CallError::new(STORE_UNAVAILABLE).fact("store", "journal"),
            Self::Journal(error) => {
                tracing::warn!(invocation = %id, %error, "a stream is lost");
                let wait = CallError::new(STORE_UNAVAILABLE).retry_after();
                resume.after(wait.unwrap_or_default())
            }
        }
    }

    /// Returns the error for a client that has no name by which to come back. It may repeat the
    /// request, but for a call of a tool: what that did before it was lost is not known.
    pub fn of_call(self, id: &InvocationId, is_tool: bool) -> CallError {
        match self {
            Self::Closing | Self::Record | Self::Journal(_) if is_tool => {
                CallError::new(CUT_OFF).fact("invocationId", id)
            }
            Self::Closing => CallError::new(DRAINING),
            Self::Gone | Self::Record => self.of_resumable(id),
            Self::Journal(error) => error.into(),
        }
    }
}
