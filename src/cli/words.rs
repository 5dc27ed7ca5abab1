//! The enumerations of the API as text for people: `rate_limited`, `half-open`, `retry`.
//!
//! A value that this version does not know is shown as `unknown`, since a newer server may send
//! one.

use crate::{
    domain::failure::FailureClass,
    grpc::{convert::enums::IntoDomain as _, v1},
};

/// Returns the class in snake case; `-` if nothing failed.
pub(super) fn class(number: i32) -> &'static str {
    match v1::FailureClass::try_from(number) {
        Ok(v1::FailureClass::Unspecified) => "-",
        Ok(class) => class.into_domain().map_or("unknown", FailureClass::as_str),
        Err(_) => "unknown",
    }
}

/// Returns the value's name in the contract, without the prefix of its type, as words.
fn word<W: TryFrom<i32>>(number: i32, name: fn(&W) -> &'static str, prefix: &str) -> String {
    W::try_from(number)
        .ok()
        .and_then(|value| name(&value).strip_prefix(prefix))
        .filter(|word| *word != "UNSPECIFIED")
        .unwrap_or("UNKNOWN")
        .to_ascii_lowercase()
        .replace('_', " ")
}

/// Returns the state of an invocation.
pub(super) fn state(number: i32) -> String {
    word(
        number,
        v1::InvocationState::as_str_name,
        "INVOCATION_STATE_",
    )
}

/// Returns the state of a circuit.
pub(super) fn circuit(number: i32) -> String {
    match word(number, v1::CircuitState::as_str_name, "CIRCUIT_STATE_").as_str() {
        "half open" => "half-open".to_owned(),
        state => state.to_owned(),
    }
}

/// Returns the part that a release plays.
pub(super) fn release_channel(number: i32) -> String {
    word(number, v1::ReleaseChannel::as_str_name, "RELEASE_CHANNEL_")
}

/// Returns the stage of a release's life.
pub(super) fn release_state(number: i32) -> String {
    word(number, v1::ReleaseState::as_str_name, "RELEASE_STATE_")
}

/// Returns the action that was taken on a release.
pub(super) fn release_action(number: i32) -> String {
    word(number, v1::ReleaseAction::as_str_name, "RELEASE_ACTION_")
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

/// Returns the reason why an attempt was made.
pub(super) fn cause(number: i32) -> String {
    word(number, v1::AttemptCause::as_str_name, "ATTEMPT_CAUSE_")
}

/// Returns the source of a wait, completing "waited 2 s, …".
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

/// Returns the kind of a gate, in words.
pub(super) fn gate(number: i32) -> String {
    word(number, v1::GateKind::as_str_name, "GATE_KIND_")
}

/// Returns the severity of an event, five letters wide at most.
pub(super) fn severity(number: i32) -> &'static str {
    match v1::Severity::try_from(number) {
        Ok(v1::Severity::Warning) => "WARN",
        Ok(v1::Severity::Error) => "ERROR",
        Ok(v1::Severity::Info | v1::Severity::Unspecified) | Err(_) => "INFO",
    }
}

/// Returns the steps that were taken to recover, in order.
pub(super) fn strategies(numbers: &[i32]) -> String {
    let words = numbers.iter().map(|number| {
        match word(
            *number,
            v1::RecoveryStrategy::as_str_name,
            "RECOVERY_STRATEGY_",
        )
        .as_str()
        {
            "none" => "nothing".to_owned(),
            strategy => strategy.to_owned(),
        }
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
        assert_eq!(strategies(&[1, 2, 3]), "nothing, retry, fallback");
        assert_eq!(circuit(v1::CircuitState::HalfOpen.into()), "half-open");
        assert_eq!(circuit(v1::CircuitState::ForcedOpen.into()), "forced open");
        let state = v1::ReleaseState::ProvisionallyRolledBack;
        assert_eq!(release_state(state.into()), "provisionally rolled back");
        assert_eq!(cause(v1::AttemptCause::First.into()), "first");
        assert_eq!(
            (super::state(0), gate(9_999)),
            ("unknown".to_owned(), "unknown".to_owned())
        );
    }
}
