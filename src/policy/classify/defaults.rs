//! What a class says of a retry and of another target, where no rule says otherwise.
//!
//! Never looks at a text.

use crate::domain::failure::{FailureClass, InvalidRequestDetail};

/// Whether the same target may be asked again, by class.
pub(super) const fn retry(class: FailureClass) -> bool {
    use FailureClass as C;
    match class {
        C::RateLimited
        | C::Overloaded
        | C::ServerError
        | C::Timeout
        | C::Network
        | C::MalformedResponse
        | C::StreamInterrupted
        | C::State
        | C::Cache
        | C::CircuitOpen
        | C::Shed => true,
        C::QuotaExceeded
        | C::Crash
        | C::Authentication
        | C::PermissionDenied
        | C::InvalidRequest
        | C::ContextLength
        | C::ContentFiltered
        | C::NotFound
        | C::Configuration
        | C::Cancelled
        | C::ApprovalRejected
        | C::ToolFailed
        | C::OutcomeUnknown
        | C::Checkpoint
        | C::BudgetEmpty
        | C::Deadline
        | C::Unknown => false,
    }
}

/// Whether another target may help, by class and detail.
pub(super) const fn fallback(class: FailureClass, detail: Option<InvalidRequestDetail>) -> bool {
    use FailureClass as C;
    use InvalidRequestDetail as D;
    match class {
        C::InvalidRequest => matches!(detail, Some(D::UnsupportedParameter)),
        C::Cancelled
        | C::ApprovalRejected
        | C::ToolFailed
        | C::OutcomeUnknown
        | C::State
        | C::Checkpoint
        | C::Cache => false,
        C::RateLimited
        | C::QuotaExceeded
        | C::Overloaded
        | C::ServerError
        | C::Timeout
        | C::Network
        | C::Crash
        | C::Authentication
        | C::PermissionDenied
        | C::ContextLength
        | C::ContentFiltered
        | C::NotFound
        | C::MalformedResponse
        | C::Configuration
        | C::StreamInterrupted
        | C::CircuitOpen
        | C::Shed
        | C::BudgetEmpty
        | C::Deadline
        | C::Unknown => true,
    }
}
