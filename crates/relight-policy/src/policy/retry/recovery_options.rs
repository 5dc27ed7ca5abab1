//! What may help against each class of failure: the table of recovery as code, and when a larger
//! window is tried first.

use super::{Candidate, RetryPolicy};
use crate::domain::{
    failure::{Failure, FailureClass, InvalidRequestDetail, TransportFault},
    target::Target,
};

/// Options that may help against a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a question of its own"
)]
pub struct RecoveryOptions {
    /// Calling the same target again.
    pub same_target: bool,
    /// Calling another target, within `restriction`.
    pub other_target: bool,
    /// Another target that is free is called before the same one, however short the wait for that.
    pub other_first: bool,
    /// Other targets that may help.
    pub restriction: Restriction,
    /// Wait that precedes a retry at the same target.
    pub backoff_kind: BackoffKind,
    /// `true` if an attempt pays the budget; one after a response that came does not: its target is
    /// well.
    pub costs_budget: bool,
    /// Retries after which this class is not tried again, if that is fewer than the policy's.
    pub at_most: Option<u32>,
}

/// Other targets that may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Restriction {
    /// Any.
    None,
    /// Those with another credential.
    OtherCredential,
    /// Those that take longer prompts.
    LargerWindow,
}

/// Wait that precedes a retry at the same target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackoffKind {
    /// Not at all: the target is well.
    AtOnce,
    /// By `backoff`.
    Backoff,
    /// By the backoff of limits.
    Throttle,
}

// === impl RecoveryOptions ===

impl RecoveryOptions {
    const NONE: Self = Self {
        same_target: false,
        other_target: false,
        other_first: false,
        restriction: Restriction::None,
        backoff_kind: BackoffKind::Backoff,
        costs_budget: true,
        at_most: None,
    };

    /// The same target again, at this pace.
    #[must_use]
    pub const fn again(backoff_kind: BackoffKind) -> Self {
        Self {
            same_target: true,
            backoff_kind,
            ..Self::NONE
        }
    }

    /// Another target.
    #[must_use]
    pub const fn elsewhere() -> Self {
        Self {
            other_target: true,
            ..Self::NONE
        }
    }

    /// Returns whether `candidate` is of any use against the failure; `failed` means that it is the
    /// target that failed. A target that this rules out stays ruled out for the rest of the
    /// invocation (`Candidate::ruled_out`).
    #[must_use]
    pub fn admits(&self, candidate: &Candidate, failed: bool) -> bool {
        if failed {
            return self.same_target;
        }
        self.other_target
            && match self.restriction {
                Restriction::None => true,
                Restriction::OtherCredential => candidate.other_credential,
                Restriction::LargerWindow => candidate.larger_window,
            }
    }

    /// The same, after the request was changed so that the target which refused it may take it.
    #[must_use]
    pub(super) fn adapted(self) -> Self {
        Self {
            same_target: true,
            backoff_kind: BackoffKind::AtOnce,
            costs_budget: false,
            ..self
        }
    }
}

/// Returns the options that may help against `failure`. If the table allows an option, the
/// failure's own `retryable` and `fallback_helps` may still forbid it (a provider's "do not retry",
/// a rule of the configuration); an option that the table forbids, nothing allows.
#[must_use]
pub fn recovery_options(policy: &RetryPolicy, failure: &Failure) -> RecoveryOptions {
    let same_target = failure.retryable;
    let other_target = failure.fallback_helps;
    let both = RecoveryOptions {
        same_target,
        other_target,
        ..RecoveryOptions::NONE
    };
    let elsewhere = RecoveryOptions {
        other_target,
        ..RecoveryOptions::NONE
    };
    match failure.class {
        FailureClass::RateLimited => RecoveryOptions {
            backoff_kind: BackoffKind::Throttle,
            ..both
        },
        FailureClass::Overloaded => RecoveryOptions {
            backoff_kind: BackoffKind::Throttle,
            other_first: true,
            ..both
        },
        FailureClass::Timeout => RecoveryOptions {
            other_first: true,
            ..both
        },
        FailureClass::Crash => RecoveryOptions {
            same_target: policy.retry_crash,
            ..both
        },
        FailureClass::QuotaExceeded | FailureClass::Authentication => RecoveryOptions {
            restriction: Restriction::OtherCredential,
            ..elsewhere
        },
        FailureClass::ContentFiltered => RecoveryOptions {
            other_target: policy.fallback_on_content_filter,
            ..RecoveryOptions::NONE
        },
        FailureClass::InvalidRequest => match failure.detail {
            // The conversation itself is wrong: it is wrong everywhere.
            Some(InvalidRequestDetail::ParameterMismatch | InvalidRequestDetail::MessageOrder) => {
                RecoveryOptions::NONE
            }
            Some(
                InvalidRequestDetail::UnsupportedParameter
                | InvalidRequestDetail::BadSchema
                | InvalidRequestDetail::Other,
            )
            | None => elsewhere,
        },
        FailureClass::ContextLength => RecoveryOptions {
            restriction: Restriction::LargerWindow,
            ..elsewhere
        },
        FailureClass::NotFound | FailureClass::Configuration => elsewhere,
        // It was paid for, and is likely to be as long again.
        FailureClass::MalformedResponse if failure.fault == Some(TransportFault::TooLarge) => {
            RecoveryOptions {
                backoff_kind: BackoffKind::AtOnce,
                at_most: Some(1),
                ..both
            }
        }
        FailureClass::MalformedResponse => RecoveryOptions {
            backoff_kind: BackoffKind::AtOnce,
            costs_budget: false,
            ..both
        },
        // A failed read may be repeated once; a write is not retryable.
        FailureClass::State | FailureClass::Checkpoint => RecoveryOptions {
            same_target,
            at_most: Some(1),
            ..RecoveryOptions::NONE
        },
        FailureClass::PermissionDenied
        | FailureClass::Cancelled
        | FailureClass::ApprovalRejected
        | FailureClass::OutcomeUnknown
        | FailureClass::Cache => RecoveryOptions::NONE,
        // No target is to blame: the last upstream failure and `select` decide which targets may be
        // called.
        FailureClass::CircuitOpen
        | FailureClass::Shed
        | FailureClass::BudgetEmpty
        | FailureClass::Deadline => RecoveryOptions {
            same_target: true,
            other_target: true,
            ..RecoveryOptions::NONE
        },
        _ => both,
    }
}

/// Returns whether a target takes longer prompts than another one.
#[must_use]
pub fn has_larger_window(target: &Target, than: &Target) -> bool {
    match (
        target.capabilities.context_window_tokens,
        than.capabilities.context_window_tokens,
    ) {
        (Some(window), Some(other)) => window > other,
        // Where one is unknown, another model may have more room; the same one has not.
        (Some(_) | None, None) | (None, Some(_)) => target.model != than.model,
    }
}

/// Returns whether a target with a larger window is called before the one that found the prompt too
/// long gets a changed request.
#[must_use]
pub fn larger_window_first(failure: &Failure, candidates: &[Candidate]) -> bool {
    let is_larger = |one: &Candidate| {
        one.larger_window && !one.ruled_out && failure.target.as_ref() != Some(&one.target)
    };
    failure.class == FailureClass::ContextLength && candidates.iter().any(is_larger)
}
