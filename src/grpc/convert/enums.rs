//! The enumerations of the contract and of the domain, value for value in both directions.
//!
//! Every match is exhaustive on the domain's side, so that a new value there does not compile until
//! the contract has one for it. Where the domain is more precise than the contract, the nearest
//! value is sent and the comment names it.

use crate::{
    domain::{
        circuit::{CircuitState, GateKind},
        completion::{BlockKind, Exactness, FinishReason},
        event::Severity,
        failure::{FailureClass, FailureCode, InvalidRequestDetail, Surface, Wait, WaitSource},
        invocation::{AttemptCause, InjectionMode, RecoveryStrategy},
        message::Role,
    },
    grpc::v1,
};

/// The contract's value is the unset one, or one without a counterpart here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not set")]
pub struct Unset;

macro_rules! same_words {
    ($($ours:ident { $($word:ident),+ $(,)? })+) => {$(
        impl From<$ours> for v1::$ours {
            fn from(ours: $ours) -> Self {
                match ours { $($ours::$word => Self::$word),+ }
            }
        }

        impl TryFrom<v1::$ours> for $ours {
            type Error = Unset;

            fn try_from(wire: v1::$ours) -> Result<Self, Unset> {
                match wire {
                    v1::$ours::Unspecified => Err(Unset),
                    $(v1::$ours::$word => Ok(Self::$word)),+
                }
            }
        }
    )+};
}

same_words! {
    FailureClass {
        RateLimited, QuotaExceeded, Overloaded, ServerError, Timeout, Network, Crash, Authentication, PermissionDenied,
        InvalidRequest, ContextLength, ContentFiltered, NotFound, MalformedResponse, Configuration, Cancelled,
        ApprovalRejected, ToolFailed, OutcomeUnknown, StreamInterrupted, State, Checkpoint, Cache, CircuitOpen, Shed,
        BudgetEmpty, Deadline, Unknown,
    }
    InvalidRequestDetail { ParameterMismatch, MessageOrder, UnsupportedParameter, BadSchema, Other }
    FailureCode {
        LlmError, ToolError, StateError, ContextError, ApprovalRejected, CacheError, StreamingError,
    }
    RecoveryStrategy { None, Retry, Fallback, Adapt, Chunk, Continue, Impossible }
    Role { System, Developer, User, Assistant, Tool }
    InjectionMode { WhenActionable, Always, Never }
    GateKind { Rate, Credential, Configuration }
    CircuitState { Closed, Open, HalfOpen, Recovering, ForcedOpen, ForcedClosed }
}

impl From<FinishReason> for v1::FinishReason {
    fn from(reason: FinishReason) -> Self {
        match reason {
            FinishReason::Stop => Self::Stop,
            FinishReason::ToolCalls => Self::ToolCalls,
            FinishReason::Length => Self::Length,
            FinishReason::ContextFull => Self::ContextFull,
            FinishReason::ContentFilter => Self::ContentFilter,
            FinishReason::Refusal => Self::Refusal,
            FinishReason::Paused => Self::Paused,
            // The provider's raw value beside it names the reason.
            FinishReason::MalformedToolCall | FinishReason::Other => Self::Other,
        }
    }
}

impl TryFrom<v1::FinishReason> for FinishReason {
    type Error = Unset;

    fn try_from(reason: v1::FinishReason) -> Result<Self, Unset> {
        match reason {
            v1::FinishReason::Unspecified => Err(Unset),
            v1::FinishReason::Stop => Ok(Self::Stop),
            v1::FinishReason::ToolCalls => Ok(Self::ToolCalls),
            v1::FinishReason::Length => Ok(Self::Length),
            v1::FinishReason::ContextFull => Ok(Self::ContextFull),
            v1::FinishReason::ContentFilter => Ok(Self::ContentFilter),
            v1::FinishReason::Refusal => Ok(Self::Refusal),
            v1::FinishReason::Paused => Ok(Self::Paused),
            v1::FinishReason::Other => Ok(Self::Other),
        }
    }
}

impl From<Exactness> for v1::UsageExactness {
    fn from(exactness: Exactness) -> Self {
        match exactness {
            Exactness::Unknown => Self::Unknown,
            Exactness::Estimated => Self::Estimated,
            Exactness::Exact => Self::Exact,
        }
    }
}

impl From<v1::UsageExactness> for Exactness {
    fn from(exactness: v1::UsageExactness) -> Self {
        match exactness {
            v1::UsageExactness::Unspecified | v1::UsageExactness::Unknown => Self::Unknown,
            v1::UsageExactness::Estimated => Self::Estimated,
            v1::UsageExactness::Exact => Self::Exact,
        }
    }
}

impl From<Surface> for v1::FailureSurface {
    fn from(surface: Surface) -> Self {
        match surface {
            Surface::Http => Self::Http,
            Surface::Transport => Self::Transport,
            Surface::Stream => Self::Stream,
            Surface::Grpc => Self::Grpc,
            Surface::Tool => Self::Tool,
        }
    }
}

impl TryFrom<v1::FailureSurface> for Surface {
    type Error = Unset;

    fn try_from(surface: v1::FailureSurface) -> Result<Self, Unset> {
        match surface {
            v1::FailureSurface::Unspecified => Err(Unset),
            v1::FailureSurface::Http => Ok(Self::Http),
            v1::FailureSurface::Transport => Ok(Self::Transport),
            v1::FailureSurface::Stream => Ok(Self::Stream),
            v1::FailureSurface::Grpc => Ok(Self::Grpc),
            v1::FailureSurface::Tool => Ok(Self::Tool),
        }
    }
}

impl From<Severity> for v1::Severity {
    fn from(severity: Severity) -> Self {
        match severity {
            // To a watcher both are the course of things.
            Severity::Debug | Severity::Info => Self::Info,
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Error,
        }
    }
}

impl From<AttemptCause> for v1::AttemptCause {
    fn from(cause: AttemptCause) -> Self {
        match cause {
            AttemptCause::Initial => Self::First,
            AttemptCause::Retry(_) => Self::Retry,
            AttemptCause::Fallback(_) => Self::Fallback,
            AttemptCause::Hedge => Self::Hedge,
            AttemptCause::Continue(_) | AttemptCause::Extend | AttemptCause::Attach(_) => {
                Self::Continue
            }
            AttemptCause::Chunk(_) => Self::Chunk,
            AttemptCause::Adapt(_) => Self::Adapt,
        }
    }
}

impl From<&BlockKind> for v1::BlockKind {
    fn from(kind: &BlockKind) -> Self {
        match kind {
            BlockKind::Text => Self::Text,
            BlockKind::Reasoning => Self::Reasoning,
            BlockKind::ToolCall { .. } => Self::ToolCall,
            BlockKind::Refusal => Self::Refusal,
        }
    }
}

/// A failure class as a field of the contract; `None` is "it did not fail".
#[must_use]
pub fn class_field(class: Option<FailureClass>) -> i32 {
    class
        .map_or(v1::FailureClass::Unspecified, v1::FailureClass::from)
        .into()
}

/// What is wrong with an invalid request, as a field of the contract.
#[must_use]
pub fn detail_field(detail: Option<InvalidRequestDetail>) -> i32 {
    detail
        .map_or(
            v1::InvalidRequestDetail::Unspecified,
            v1::InvalidRequestDetail::from,
        )
        .into()
}

/// What was done to recover, as a field of the contract: exactly `NONE` when nothing was.
#[must_use]
pub fn strategies_field(applied: &[RecoveryStrategy]) -> Vec<i32> {
    let done: Vec<i32> = applied
        .iter()
        .filter(|strategy| **strategy != RecoveryStrategy::None)
        .map(|strategy| v1::RecoveryStrategy::from(*strategy).into())
        .collect();
    if done.is_empty() {
        vec![v1::RecoveryStrategy::None.into()]
    } else {
        done
    }
}

/// The class of the failure that led to an attempt; `None` for a first one and for a hedge.
#[must_use]
pub const fn cause_class(cause: AttemptCause) -> Option<FailureClass> {
    match cause {
        AttemptCause::Retry(class)
        | AttemptCause::Fallback(class)
        | AttemptCause::Continue(class)
        | AttemptCause::Attach(class)
        | AttemptCause::Chunk(class)
        | AttemptCause::Adapt(class) => Some(class),
        AttemptCause::Initial | AttemptCause::Hedge | AttemptCause::Extend => None,
    }
}

/// Where a wait was read. `to_other_target` distinguishes the spread before a switch from a
/// backoff; `class` distinguishes a gate from a circuit, which share one value in the domain.
#[must_use]
pub fn wait_source(
    source: WaitSource,
    to_other_target: bool,
    class: Option<FailureClass>,
) -> v1::WaitSource {
    match source {
        WaitSource::Backoff if to_other_target => v1::WaitSource::TargetSwitch,
        WaitSource::Backoff => v1::WaitSource::Backoff,
        WaitSource::RetryAfter | WaitSource::RetryAfterMs => v1::WaitSource::RetryAfter,
        WaitSource::RateLimitReset => v1::WaitSource::RateLimitReset,
        WaitSource::RetryInfo => v1::WaitSource::RetryInfo,
        WaitSource::BodyField => v1::WaitSource::ErrorBody,
        WaitSource::Text => v1::WaitSource::ErrorText,
        WaitSource::Gate => v1::WaitSource::Gate,
        WaitSource::Parked if class.is_some_and(|class| class.row().gate.is_some()) => {
            v1::WaitSource::Gate
        }
        WaitSource::Parked => v1::WaitSource::Circuit,
    }
}

/// A wait as the two fields of the contract: milliseconds, and where it was read (not set when
/// there is no wait).
#[must_use]
pub fn wait_fields(
    wait: Option<Wait>,
    to_other_target: bool,
    class: Option<FailureClass>,
) -> (u64, i32) {
    match wait {
        Some(wait) if !wait.duration.is_zero() => {
            let source = wait_source(wait.source, to_other_target, class);
            (super::time::wait_millis(wait.duration), source.into())
        }
        _ => (0, v1::WaitSource::Unspecified.into()),
    }
}

/// The position of a note, by its name in snake case as in events: the contract's own value, or the
/// two that `policy::inject` has beside them.
#[must_use]
pub fn vehicle(name: &str) -> v1::InjectionVehicle {
    match name {
        "user_text_block" => v1::InjectionVehicle::TextPart,
        "after_tool_results" => v1::InjectionVehicle::UserMessage,
        name => by_name(
            name,
            "INJECTION_VEHICLE_",
            v1::InjectionVehicle::from_str_name,
        )
        .unwrap_or_default(),
    }
}

/// Why there was no note, as in events: the contract's value in snake case (`not_actionable`), the
/// value by which `layers::inject` marks a target that rejected earlier notes, or other text for
/// people, which always concerns the position. Empty: there was a note, or none was needed.
#[must_use]
pub fn skip_reason(reason: &str) -> v1::InjectionSkipReason {
    match reason {
        "" => v1::InjectionSkipReason::Unspecified,
        "this target refused a note before" => v1::InjectionSkipReason::TargetRefused,
        reason => by_name(
            reason,
            "INJECTION_SKIP_REASON_",
            v1::InjectionSkipReason::from_str_name,
        )
        .unwrap_or(v1::InjectionSkipReason::NoLegalPlace),
    }
}

/// The store, by its name in an event (`journal`, `fleet`).
#[must_use]
pub fn store_kind(name: &str) -> v1::StoreKind {
    by_name(name, "STORE_KIND_", v1::StoreKind::from_str_name).unwrap_or_default()
}

fn by_name<W>(name: &str, prefix: &str, find: fn(&str) -> Option<W>) -> Option<W> {
    find(&format!("{prefix}{}", name.to_ascii_uppercase()))
}

#[cfg(test)]
mod tests;
