//! Whether a retry and whether another target helps, by class, where no rule says otherwise.

use super::{FailureClass, InvalidRequestDetail};

impl FailureClass {
    /// Whether a retry at the same target helps, where nothing says otherwise.
    #[must_use]
    pub const fn retry_helps(self) -> bool {
        match self {
            Self::RateLimited
            | Self::Overloaded
            | Self::ServerError
            | Self::Timeout
            | Self::Network
            | Self::MalformedResponse
            | Self::StreamInterrupted
            | Self::State
            | Self::Cache
            | Self::CircuitOpen
            | Self::Shed
            // What nobody knows may well be gone the next time.
            | Self::Unknown => true,
            Self::QuotaExceeded
            | Self::Crash
            | Self::Authentication
            | Self::PermissionDenied
            | Self::InvalidRequest
            | Self::ContextLength
            | Self::ContentFiltered
            | Self::NotFound
            | Self::Configuration
            | Self::Cancelled
            | Self::ApprovalRejected
            | Self::ToolFailed
            | Self::OutcomeUnknown
            | Self::Checkpoint
            | Self::BudgetEmpty
            | Self::Deadline => false,
        }
    }

    /// Whether another target helps, where nothing says otherwise.
    #[must_use]
    pub const fn fallback_helps(self, detail: Option<InvalidRequestDetail>) -> bool {
        use InvalidRequestDetail as D;
        match self {
            Self::InvalidRequest => matches!(detail, Some(D::UnsupportedParameter)),
            Self::Cancelled
            | Self::ApprovalRejected
            | Self::ToolFailed
            | Self::OutcomeUnknown
            | Self::State
            | Self::Checkpoint
            | Self::Cache => false,
            Self::RateLimited
            | Self::QuotaExceeded
            | Self::Overloaded
            | Self::ServerError
            | Self::Timeout
            | Self::Network
            | Self::Crash
            | Self::Authentication
            | Self::PermissionDenied
            | Self::ContextLength
            | Self::ContentFiltered
            | Self::NotFound
            | Self::MalformedResponse
            | Self::Configuration
            | Self::StreamInterrupted
            | Self::CircuitOpen
            | Self::Shed
            | Self::BudgetEmpty
            | Self::Deadline
            | Self::Unknown => true,
        }
    }
}
