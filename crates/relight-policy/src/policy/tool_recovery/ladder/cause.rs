//! What a failure of a tool comes from, and the rungs of the ladder that may help against it.

use crate::{
    domain::failure::{Failure, FailureClass, InvalidRequestDetail, TransportFault},
    policy::tool_recovery::{ToolSituation, plea::Plea},
};

/// Source of a tool's failure, as far as the next step differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Time mends it.
    Transient,
    /// The tool failed, and its server keeps the cause to itself.
    Opaque,
    /// The tool's server takes less than it was sent.
    Limited,
    /// It took too long.
    TooSlow,
    /// The request or its result is too large.
    TooLarge,
    /// The arguments were refused.
    Arguments,
    /// Something named does not exist: the tool, or the thing it was called for.
    Missing,
    /// Another tool may be allowed or able to.
    OnlyElsewhere,
    /// Nothing helps.
    Impossible,
    /// A person or Relight itself ended it.
    Ended,
}

/// A rung of the ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rung {
    Retry,
    Adapt,
    Alternative,
    Chunk,
}

// === impl Cause ===

impl Cause {
    pub(super) fn of(failure: &Failure) -> Self {
        use FailureClass as C;
        match Plea::of(failure) {
            Some(Plea::Person) => return Self::OnlyElsewhere,
            Some(Plea::Time) => return Self::Transient,
            None => {}
        }
        let by_class = match failure.class {
            C::Timeout => Self::TooSlow,
            C::RateLimited => Self::Limited,
            C::ContextLength => Self::TooLarge,
            C::ServerError | C::ToolFailed | C::Unknown if is_opaque(&failure.message) => {
                Self::Opaque
            }
            C::InvalidRequest if failure.detail == Some(InvalidRequestDetail::MessageOrder) => {
                Self::OnlyElsewhere
            }
            C::InvalidRequest => Self::Arguments,
            C::NotFound => Self::Missing,
            C::QuotaExceeded | C::Configuration | C::ToolFailed | C::Checkpoint => {
                Self::OnlyElsewhere
            }
            C::PermissionDenied | C::Authentication | C::ContentFiltered => Self::Impossible,
            C::Cancelled | C::ApprovalRejected | C::Deadline | C::OutcomeUnknown => Self::Ended,
            _ => Self::Transient,
        };
        let is_too_large =
            failure.fault == Some(TransportFault::TooLarge) || failure.status == Some(413);
        if is_too_large && !matches!(by_class, Self::Impossible | Self::Ended) {
            Self::TooLarge
        } else {
            by_class
        }
    }

    /// Returns the rungs that may help, in order; the explanation comes after the last.
    pub(super) fn rungs(self, situation: &ToolSituation<'_>) -> &'static [Rung] {
        use Rung::{Adapt, Alternative, Chunk, Retry};
        match self {
            Self::Transient => &[Retry, Alternative],
            Self::Opaque => &[Retry, Alternative, Chunk],
            // A stated wait is waited for once: then it is known that time alone does not do it.
            Self::Limited
                if situation.failure.retry_after.is_some() && situation.tried.retries == 0 =>
            {
                &[Retry, Chunk, Alternative]
            }
            Self::Limited | Self::TooSlow => &[Chunk, Retry, Alternative],
            Self::TooLarge => &[Chunk, Alternative],
            Self::Arguments => &[Adapt, Alternative],
            Self::Missing | Self::OnlyElsewhere => &[Alternative],
            Self::Impossible | Self::Ended => &[],
        }
    }
}

/// Returns whether a server reports that a tool failed and nothing else, as that of the Python SDK
/// does from its version 2 on.
fn is_opaque(message: &str) -> bool {
    let rest = message.trim().strip_prefix("Error executing tool ");
    rest.is_some_and(|name| !name.trim_end_matches([':', '.', ' ']).contains([' ', ':']))
}
