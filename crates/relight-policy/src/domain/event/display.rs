//! Events in one line each, for people.

use std::time::Duration;

use super::{Event, EventBody};
use crate::domain::{
    circuit::CircuitState,
    failure::FailureClass,
    ids::TargetId,
    release::{ReleaseAction, ReleaseDecision},
    units,
};

/// Most changed settings that a line names.
const MAX_NAMED: usize = 3;

impl Event {
    /// One line for people, such as `Retrying executor (attempt 1/2): Request timeout`.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one arm for each kind of event")]
    pub fn display(&self) -> String {
        let operation = self
            .scope
            .as_ref()
            .map_or("invocation", |scope| scope.operation.as_str());
        let target = self.target.as_ref().map_or("-", TargetId::as_str);
        match &self.body {
            EventBody::InvocationStarted { deadline_ms, .. } => {
                format!(
                    "{operation} started ({} to answer)",
                    duration_text(*deadline_ms)
                )
            }
            EventBody::InvocationSucceeded { duration_ms, .. } => {
                format!("{operation} answered in {}", duration_text(*duration_ms))
            }
            EventBody::InvocationRecovered {
                duration_ms,
                attempts,
                ..
            } => {
                format!(
                    "{operation} recovered: answered by attempt {attempts} after {}",
                    duration_text(*duration_ms)
                )
            }
            EventBody::InvocationFailed {
                attempts,
                message,
                class,
                ..
            } => {
                let tries = match attempts {
                    0 => "before any attempt".to_owned(),
                    1 => "after 1 attempt".to_owned(),
                    attempts => format!("after {attempts} attempts"),
                };
                format!("{operation} failed {tries}: {class}: {message}")
            }
            EventBody::InvocationParked {
                class,
                wait_ms,
                in_line,
            } => parked_words(target, *class, *wait_ms, *in_line),
            EventBody::CallsRefused { count } => refused_words(self.target.as_ref(), *count),
            EventBody::AttemptStarted { cause, model, .. } => {
                // A tool has no model.
                let model = if model.is_empty() {
                    String::new()
                } else {
                    format!(" ({model})")
                };
                format!(
                    "Attempt {} on {target}{model}: {}",
                    self.attempt,
                    cause.label()
                )
            }
            EventBody::FirstToken { after_ms } => {
                format!(
                    "First token from {target} after {}",
                    duration_text(*after_ms)
                )
            }
            EventBody::AttemptReadOn { reason, requests } => {
                format!(
                    "Attempt {} on {target} is read on ({requests}): {reason}",
                    self.attempt
                )
            }
            EventBody::AttemptSucceeded { duration_ms, .. } => {
                format!(
                    "Attempt {} on {target} answered in {}",
                    self.attempt,
                    duration_text(*duration_ms)
                )
            }
            EventBody::AttemptFailed { class, message, .. } => {
                format!(
                    "Attempt {} on {target} failed: {class}: {message}",
                    self.attempt
                )
            }
            EventBody::RecoveryAttempted {
                error,
                retry,
                max_retries,
                adaptation,
                going_on,
                ..
            } => recovery_words(
                operation,
                error,
                (*retry, *max_retries),
                adaptation.as_deref(),
                going_on.as_deref(),
            ),
            EventBody::ContextInjected { vehicle, .. } => {
                format!(
                    "Informed the model of the failure (attempt {}, {vehicle})",
                    self.attempt
                )
            }
            EventBody::ContextInjectionSkipped { reason, .. } => {
                format!("Did not inform the model of the failure: {reason}")
            }
            // Nothing failed in this call: the preferred target is closed to calls.
            EventBody::FallbackChosen { from, class }
                if self.attempt <= 1 || *class == FailureClass::CircuitOpen =>
            {
                format!("Going straight to {target}: {from} takes no calls now")
            }
            EventBody::FallbackChosen { from, class } => {
                format!("Falling back from {from} to {target}: {class}")
            }
            EventBody::HedgeStarted { beside, after_ms } => {
                format!(
                    "Hedging on {target}: {beside} sent no token within {}",
                    duration_text(*after_ms)
                )
            }
            EventBody::CircuitOpened { .. } => self.opened_words(target),
            EventBody::CircuitHalfOpen { open_ms, .. } => {
                format!(
                    "Circuit of {target} is half-open after {}: probing",
                    duration_text(*open_ms)
                )
            }
            EventBody::CircuitRecovering {
                admitted_percent, ..
            } => {
                format!("Circuit of {target} is recovering: {admitted_percent} % admitted")
            }
            EventBody::CircuitClosed {
                forced: true,
                from: CircuitState::ForcedClosed,
                ..
            } => {
                format!(
                    "An operator no longer holds the circuit of {target} closed: it opens again when calls fail"
                )
            }
            EventBody::CircuitClosed { forced: true, .. } => {
                format!("An operator closed the circuit of {target}")
            }
            EventBody::CircuitClosed { disturbed_ms, .. } => {
                format!(
                    "Circuit of {target} closed, {} after it had opened",
                    duration_text(*disturbed_ms)
                )
            }
            EventBody::GateClosed {
                gate,
                reopens_in_ms,
                class,
                key,
                ..
            } => {
                format!(
                    "The {} gate of {}{target} closed for {}: {class}",
                    gate.as_str(),
                    of_key(key.as_deref()),
                    duration_text(*reopens_in_ms)
                )
            }
            EventBody::GateOpened {
                gate,
                key,
                closed_ms,
            } => {
                format!(
                    "The {} gate of {}{target} opened after {}",
                    gate.as_str(),
                    of_key(key.as_deref()),
                    duration_text(*closed_ms)
                )
            }
            EventBody::BudgetExhausted { level, capacity } => {
                format!("The retry budget of {target} is empty ({level:.0} of {capacity:.0} left)")
            }
            EventBody::ReleaseDecided {
                release,
                to,
                decision,
                ..
            } => decided_words(release, to, decision),
            EventBody::ConfigurationReloaded {
                generation,
                changed,
                needs_restart,
            } => reloaded_words(*generation, changed, needs_restart),
            EventBody::ConfigurationRejected { reason, .. } => {
                format!("A new configuration was refused, the old one stays in force: {reason}")
            }
            EventBody::StoreLost { store, reason } => {
                format!("The {store} store is lost: {reason}")
            }
            EventBody::StoreFound { store, lost_ms } => {
                format!(
                    "The {store} store is back after {}",
                    duration_text(*lost_ms)
                )
            }
        }
    }

    /// Returns the line for a circuit that opened; empty for any other event.
    fn opened_words(&self, target: &str) -> String {
        let EventBody::CircuitOpened {
            evidence,
            retry_in_ms,
            reason,
            class,
            streak,
            forced,
            ..
        } = &self.body
        else {
            return String::new();
        };
        if *forced {
            let (who, why) = reason.split_once(": ").unwrap_or((reason, ""));
            let who = who
                .strip_prefix("forced open by an operator")
                .unwrap_or_default();
            let why = if why.is_empty() {
                String::new()
            } else {
                format!(" ({why})")
            };
            return format!(
                "An operator{who} opened the circuit of {target}{why}: no calls until an operator closes it"
            );
        }
        let class = class.map(|class| format!(", {class}")).unwrap_or_default();
        let again = if *streak > 1 {
            format!(" again (time {streak} in a row)")
        } else {
            String::new()
        };
        let probing = retry_in_ms
            .map(|ms| format!("; probing in {}", duration_text(ms)))
            .unwrap_or_default();
        let failures = evidence.failures;
        let committed = evidence.committed;
        let threshold = match evidence.threshold {
            threshold @ 2.. if reason == "failures in a row" => {
                format!(", {threshold} in a row open it")
            }
            _ => String::new(),
        };
        format!(
            "Circuit of {target} opened{again}: {reason}{class} ({failures} of {committed} failed{threshold}){probing}"
        )
    }
}

/// Returns the line for what follows a failure, such as `Retrying executor (attempt 1/2): Request
/// timeout`; `count`: the number of the recovery, and how many are allowed.
#[must_use]
pub fn recovery_words(
    operation: &str,
    error: &str,
    count: (u32, u32),
    adaptation: Option<&str>,
    going_on: Option<&str>,
) -> String {
    if let Some(words) = going_on {
        return format!("Going on with {operation}: {error}; {words}");
    }
    let (retry, max_retries) = count;
    let changed = adaptation
        .map(|words| format!("; {words}"))
        .unwrap_or_default();
    format!("Retrying {operation} (attempt {retry}/{max_retries}): {error}{changed}")
}

/// Returns the line for an invocation that waits, such as `Waiting 12 s for main: rate limit`.
#[must_use]
pub fn parked_words(target: &str, class: FailureClass, wait_ms: u64, in_line: bool) -> String {
    let why = match class {
        FailureClass::CircuitOpen => "its circuit is open".to_owned(),
        class => class.phrase().to_lowercase(),
    };
    let wait = duration_text(wait_ms);
    if in_line {
        format!("Queued for {target}, about {wait}: {why}")
    } else {
        format!("Waiting {wait} for {target}: {why}")
    }
}

/// Returns the summary of calls that were refused within a second.
fn refused_words(target: Option<&TargetId>, count: u64) -> String {
    let calls = if count == 1 {
        "1 call was".to_owned()
    } else {
        format!("{count} calls were")
    };
    match target {
        Some(target) => format!(
            "{calls} refused at target {target} in the last second: it takes no more calls now"
        ),
        None => format!(
            "{calls} refused in the last second: too many invocations are in flight, or their \
             tenants are over their limits"
        ),
    }
}

/// Such as `key …3f9a of `; empty if the target has one key.
fn of_key(key: Option<&str>) -> String {
    key.map(|key| format!("key {key} of ")).unwrap_or_default()
}

fn duration_text(ms: u64) -> String {
    units::duration_text(Duration::from_millis(ms))
}

fn reloaded_words(generation: u64, changed: &[String], needs_restart: &[String]) -> String {
    let changed = named(": ", changed);
    let restart = named("; a restart is needed for ", needs_restart);
    format!("A new configuration is in force, number {generation}{changed}{restart}")
}

/// Returns the first of these paths after an introduction; empty if there are none.
fn named(introduction: &str, paths: &[String]) -> String {
    let named = paths
        .iter()
        .take(MAX_NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    match paths.len().checked_sub(MAX_NAMED) {
        _ if paths.is_empty() => String::new(),
        None | Some(0) => format!("{introduction}{named}"),
        Some(more) => format!("{introduction}{named} and {more} more"),
    }
}

/// Returns the decision about a release, in words.
fn decided_words(release: &str, to: &str, decision: &ReleaseDecision) -> String {
    let reason = Some(decision.reason.as_str()).filter(|reason| !reason.is_empty());
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    match decision.action {
        ReleaseAction::RolledBack if decision.provisional => {
            format!("Release {release} was rolled back to {to} provisionally{because}")
        }
        ReleaseAction::RolledBack => format!("Release {release} was rolled back to {to}{because}"),
        ReleaseAction::Promoted => format!("Release {release} became the stable one{because}"),
        ReleaseAction::Reinstated => {
            format!("Release {release} has its share of the traffic again{because}")
        }
        ReleaseAction::Held => format!("Release {release} stays as it is{because}"),
    }
}
