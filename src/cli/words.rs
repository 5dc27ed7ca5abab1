//! The enumerations of the API as text for people: `rate_limited`, `half-open`, `retry`.
//!
//! A value that this version does not know is shown as `unknown`, since a newer server may send
//! one.

use crate::{domain::failure::FailureClass, grpc::v1};

/// The class in snake case; `-` where nothing failed.
pub(super) fn class(number: i32) -> &'static str {
    match v1::FailureClass::try_from(number) {
        Ok(v1::FailureClass::Unspecified) => "-",
        Ok(class) => FailureClass::try_from(class).map_or("unknown", FailureClass::as_str),
        Err(_) => "unknown",
    }
}

/// The state of an invocation.
pub(super) fn state(number: i32) -> &'static str {
    match v1::InvocationState::try_from(number) {
        Ok(v1::InvocationState::Running) => "running",
        Ok(v1::InvocationState::Waiting) => "waiting",
        Ok(v1::InvocationState::Succeeded) => "succeeded",
        Ok(v1::InvocationState::Failed) => "failed",
        Ok(v1::InvocationState::Cancelled) => "cancelled",
        Ok(v1::InvocationState::Unspecified) | Err(_) => "unknown",
    }
}

/// The state of a circuit.
pub(super) fn circuit(number: i32) -> &'static str {
    match v1::CircuitState::try_from(number) {
        Ok(v1::CircuitState::Closed) => "closed",
        Ok(v1::CircuitState::Open) => "open",
        Ok(v1::CircuitState::HalfOpen) => "half-open",
        Ok(v1::CircuitState::Recovering) => "recovering",
        Ok(v1::CircuitState::ForcedOpen) => "forced open",
        Ok(v1::CircuitState::ForcedClosed) => "forced closed",
        Ok(v1::CircuitState::Unspecified) | Err(_) => "unknown",
    }
}

/// Which part a release plays.
pub(super) fn release_channel(number: i32) -> &'static str {
    match v1::ReleaseChannel::try_from(number) {
        Ok(v1::ReleaseChannel::Stable) => "stable",
        Ok(v1::ReleaseChannel::Candidate) => "candidate",
        Ok(v1::ReleaseChannel::Unspecified) | Err(_) => "unknown",
    }
}

/// Where a release is in its life.
pub(super) fn release_state(number: i32) -> &'static str {
    match v1::ReleaseState::try_from(number) {
        Ok(v1::ReleaseState::Active) => "active",
        Ok(v1::ReleaseState::ProvisionallyRolledBack) => "provisionally rolled back",
        Ok(v1::ReleaseState::RolledBack) => "rolled back",
        Ok(v1::ReleaseState::Superseded) => "superseded",
        Ok(v1::ReleaseState::Unspecified) | Err(_) => "unknown",
    }
}

/// What was done with a release.
pub(super) fn release_action(number: i32) -> &'static str {
    match v1::ReleaseAction::try_from(number) {
        Ok(v1::ReleaseAction::RolledBack) => "rolled back",
        Ok(v1::ReleaseAction::Promoted) => "promoted",
        Ok(v1::ReleaseAction::Reinstated) => "reinstated",
        Ok(v1::ReleaseAction::Held) => "held",
        Ok(v1::ReleaseAction::Unspecified) | Err(_) => "unknown",
    }
}

/// By which rule it was done.
pub(super) fn release_lane(number: i32) -> &'static str {
    match v1::ReleaseLane::try_from(number) {
        Ok(v1::ReleaseLane::Contract) => "the contract lane",
        Ok(v1::ReleaseLane::Immediate) => "the immediate lane",
        Ok(v1::ReleaseLane::Fast) => "the fast lane",
        Ok(v1::ReleaseLane::Evidence) => "the evidence lane",
        Ok(v1::ReleaseLane::Standard) => "the standard lane",
        Ok(v1::ReleaseLane::Unspecified) => "an operator",
        Err(_) => "an unknown rule",
    }
}

/// Why an attempt was made.
pub(super) fn cause(number: i32) -> &'static str {
    match v1::AttemptCause::try_from(number) {
        Ok(v1::AttemptCause::First) => "first",
        Ok(v1::AttemptCause::Retry) => "retry",
        Ok(v1::AttemptCause::Fallback) => "fallback",
        Ok(v1::AttemptCause::Hedge) => "hedge",
        Ok(v1::AttemptCause::Continue) => "continue",
        Ok(v1::AttemptCause::Adapt) => "adapt",
        Ok(v1::AttemptCause::Chunk) => "chunk",
        Ok(v1::AttemptCause::Unspecified) | Err(_) => "unknown",
    }
}

/// Where a wait comes from, completing "waited 2 s, …".
pub(super) fn wait_source(number: i32) -> &'static str {
    match v1::WaitSource::try_from(number) {
        Ok(v1::WaitSource::Backoff) => "(backoff)",
        Ok(v1::WaitSource::RetryAfter) => "(at least the provider's retry-after)",
        Ok(v1::WaitSource::RateLimitReset) => "until the provider's rate limit resets",
        Ok(v1::WaitSource::RetryInfo | v1::WaitSource::ErrorBody | v1::WaitSource::ErrorText) => {
            "(at least the wait in the provider's error)"
        }
        Ok(v1::WaitSource::TargetSwitch) => "before another target",
        Ok(v1::WaitSource::Gate) => "until its gate opens",
        Ok(v1::WaitSource::Circuit) => "until its circuit probes",
        Ok(v1::WaitSource::Unspecified) | Err(_) => "",
    }
}

/// What a gate holds back.
pub(super) fn gate(number: i32) -> &'static str {
    match v1::GateKind::try_from(number) {
        Ok(v1::GateKind::Rate) => "rate",
        Ok(v1::GateKind::Credential) => "credential",
        Ok(v1::GateKind::Configuration) => "configuration",
        Ok(v1::GateKind::Unspecified) | Err(_) => "unknown",
    }
}

/// How much an event matters, five letters wide at most.
pub(super) fn severity(number: i32) -> &'static str {
    match v1::Severity::try_from(number) {
        Ok(v1::Severity::Warning) => "WARN",
        Ok(v1::Severity::Error) => "ERROR",
        Ok(v1::Severity::Info | v1::Severity::Unspecified) | Err(_) => "INFO",
    }
}

/// What was done to recover, in order.
pub(super) fn strategies(numbers: &[i32]) -> String {
    let words = numbers
        .iter()
        .map(|number| match v1::RecoveryStrategy::try_from(*number) {
            Ok(v1::RecoveryStrategy::None) => "nothing",
            Ok(v1::RecoveryStrategy::Retry) => "retry",
            Ok(v1::RecoveryStrategy::Fallback) => "fallback",
            Ok(v1::RecoveryStrategy::Adapt) => "adapt",
            Ok(v1::RecoveryStrategy::Chunk) => "chunk",
            Ok(v1::RecoveryStrategy::Continue) => "continue",
            Ok(v1::RecoveryStrategy::Impossible) => "impossible",
            Ok(v1::RecoveryStrategy::Unspecified) | Err(_) => "unknown",
        });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_domain_and_a_newer_servers_value_is_unknown() {
        assert_eq!(class(v1::FailureClass::RateLimited.into()), "rate_limited");
        assert_eq!(class(0), "-");
        assert_eq!(class(9_999), "unknown");
        assert_eq!(strategies(&[2, 3]), "retry, fallback");
    }
}
