//! The enumerations of the contract and of the domain, value for value.
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
        release::{ReleaseAction, ReleaseLane},
    },
    grpc::v1,
};

/// The contract's value is the unset one, or one without a counterpart here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not set")]
pub struct Unset;

/// A value of the domain that the contract has too. In place of `From`, since both types belong to
/// other crates.
pub trait IntoProto {
    /// The contract's type.
    type Proto;

    /// Returns the contract's value.
    fn into_proto(self) -> Self::Proto;
}

/// A value of the contract that the domain has too, unless it is the unset one.
pub trait IntoDomain {
    /// The domain's type.
    type Domain;

    /// Returns the domain's value.
    fn into_domain(self) -> Result<Self::Domain, Unset>;
}

macro_rules! same_words {
    ($($ours:ident = $theirs:ident { $($word:ident),+ $(,)? })+) => {$(
        impl IntoProto for $ours {
            type Proto = v1::$theirs;

            fn into_proto(self) -> v1::$theirs {
                match self { $(Self::$word => v1::$theirs::$word),+ }
            }
        }

        impl IntoDomain for v1::$theirs {
            type Domain = $ours;

            fn into_domain(self) -> Result<$ours, Unset> {
                match self {
                    Self::Unspecified => Err(Unset),
                    $(Self::$word => Ok($ours::$word)),+
                }
            }
        }
    )+};
}

same_words! {
    FailureClass = FailureClass {
        RateLimited, QuotaExceeded, Overloaded, ServerError, Timeout, Network, Crash, Authentication, PermissionDenied,
        InvalidRequest, ContextLength, ContentFiltered, NotFound, MalformedResponse, Configuration, Cancelled,
        ApprovalRejected, ToolFailed, OutcomeUnknown, StreamInterrupted, State, Checkpoint, Cache, CircuitOpen, Shed,
        BudgetEmpty, Deadline, Unknown,
    }
    InvalidRequestDetail = InvalidRequestDetail { ParameterMismatch, MessageOrder, UnsupportedParameter, BadSchema, Other }
    FailureCode = FailureCode {
        LlmError, ToolError, StateError, ContextError, ApprovalRejected, CacheError, StreamingError,
    }
    RecoveryStrategy = RecoveryStrategy { None, Retry, Fallback, Adapt, Chunk, Continue, Impossible }
    Role = Role { System, Developer, User, Assistant, Tool }
    InjectionMode = InjectionMode { WhenActionable, Always, Never }
    GateKind = GateKind { Rate, Credential, Configuration }
    CircuitState = CircuitState { Closed, Open, HalfOpen, Recovering, ForcedOpen, ForcedClosed }
    ReleaseAction = ReleaseAction { RolledBack, Promoted, Reinstated, Held }
    ReleaseLane = ReleaseLane { Contract, Immediate, Fast, Evidence, Standard }
    Surface = FailureSurface { Http, Transport, Stream, Grpc, Tool }
    Exactness = UsageExactness { Unknown, Estimated, Exact }
}

impl IntoProto for FinishReason {
    type Proto = v1::FinishReason;

    fn into_proto(self) -> v1::FinishReason {
        match self {
            Self::Stop => v1::FinishReason::Stop,
            Self::ToolCalls => v1::FinishReason::ToolCalls,
            Self::Length => v1::FinishReason::Length,
            Self::ContextFull => v1::FinishReason::ContextFull,
            Self::ContentFilter => v1::FinishReason::ContentFilter,
            Self::Refusal => v1::FinishReason::Refusal,
            Self::Paused => v1::FinishReason::Paused,
            // The provider's raw value beside it names the reason.
            Self::MalformedToolCall | Self::Other => v1::FinishReason::Other,
        }
    }
}

impl IntoProto for Severity {
    type Proto = v1::Severity;

    fn into_proto(self) -> v1::Severity {
        match self {
            // To a watcher both are the course of things.
            Self::Debug | Self::Info => v1::Severity::Info,
            Self::Warning => v1::Severity::Warning,
            Self::Error => v1::Severity::Error,
        }
    }
}

impl IntoProto for AttemptCause {
    type Proto = v1::AttemptCause;

    fn into_proto(self) -> v1::AttemptCause {
        match self {
            Self::Initial => v1::AttemptCause::First,
            Self::Retry(_) => v1::AttemptCause::Retry,
            Self::Fallback(_) => v1::AttemptCause::Fallback,
            Self::Hedge => v1::AttemptCause::Hedge,
            Self::Continue(_) | Self::Extend | Self::Attach(_) => v1::AttemptCause::Continue,
            Self::Chunk(_) => v1::AttemptCause::Chunk,
            Self::Rotate(_) => v1::AttemptCause::Rotate,
            Self::Adapt(_) => v1::AttemptCause::Adapt,
        }
    }
}

impl IntoProto for &BlockKind {
    type Proto = v1::BlockKind;

    fn into_proto(self) -> v1::BlockKind {
        match self {
            BlockKind::Text => v1::BlockKind::Text,
            BlockKind::Reasoning => v1::BlockKind::Reasoning,
            BlockKind::ToolCall { .. } => v1::BlockKind::ToolCall,
            BlockKind::Refusal => v1::BlockKind::Refusal,
        }
    }
}

/// Returns a failure class as a field of the contract; `None` is "it did not fail".
#[must_use]
pub fn class_field(class: Option<FailureClass>) -> i32 {
    class
        .map_or(v1::FailureClass::Unspecified, IntoProto::into_proto)
        .into()
}

/// Returns the fault of an invalid request, as a field of the contract.
#[must_use]
pub fn detail_field(detail: Option<InvalidRequestDetail>) -> i32 {
    detail
        .map_or(v1::InvalidRequestDetail::Unspecified, IntoProto::into_proto)
        .into()
}

/// Returns the actions that were taken to recover, as a field of the contract: exactly `NONE` if
/// there were none.
#[must_use]
pub fn strategies_field(applied: &[RecoveryStrategy]) -> Vec<i32> {
    let done: Vec<i32> = applied
        .iter()
        .filter(|strategy| **strategy != RecoveryStrategy::None)
        .map(|strategy| strategy.into_proto().into())
        .collect();
    if done.is_empty() {
        vec![v1::RecoveryStrategy::None.into()]
    } else {
        done
    }
}

/// Returns the source from which a wait was read. `to_other_target` distinguishes the spread before
/// a switch from a backoff; `class` distinguishes a gate from a circuit, which share one value in
/// the domain.
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

/// Returns a wait as the two fields of the contract: milliseconds, and the source from which it was
/// read (not set if there is no wait).
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

/// Returns the position of a note, by its name in snake case as in events: the contract's own
/// value, or the two that `policy::inject` has beside them.
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

/// Returns the reason for which there was no note, as in events: the contract's value in snake case
/// (`not_actionable`), the value by which `layers::inject` marks a target that rejected earlier
/// notes, or other text for people, which always concerns the position. Empty: there was a note, or
/// none was needed.
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

/// Returns the store, by its name in an event (`journal`, `fleet`).
#[must_use]
pub fn store_kind(name: &str) -> v1::StoreKind {
    by_name(name, "STORE_KIND_", v1::StoreKind::from_str_name).unwrap_or_default()
}

/// Returns the value of the contract by its name in snake case, behind the prefix of its type.
pub(super) fn by_name<W>(name: &str, prefix: &str, find: fn(&str) -> Option<W>) -> Option<W> {
    find(&format!("{prefix}{}", name.to_ascii_uppercase()))
}

#[cfg(test)]
mod tests;
