//! Events in one line each, for people.

use super::{Event, EventBody};
use crate::domain::{failure::FailureClass, ids::TargetId};

/// Most changed settings that a line names.
const MOST_NAMED: usize = 3;

impl Event {
    /// One line for people, such as `Retrying executor (attempt 1/2): Request timeout`.
    #[must_use]
    pub fn display(&self) -> String {
        let operation = self.scope.as_ref().map_or("invocation", |scope| scope.operation.as_str());
        let target = self.target.as_ref().map_or("-", TargetId::as_str);
        match &self.body {
            EventBody::InvocationStarted { deadline_ms, .. } => {
                format!("{operation} started ({deadline_ms} ms to answer)")
            }
            EventBody::InvocationSucceeded { duration_ms, .. } => format!("{operation} answered in {duration_ms} ms"),
            EventBody::InvocationRecovered { duration_ms, attempts, .. } => {
                format!("{operation} recovered: answered by attempt {attempts} after {duration_ms} ms")
            }
            EventBody::InvocationFailed { attempts, message, class, .. } => {
                let tries = if *attempts == 1 { "attempt" } else { "attempts" };
                format!("{operation} failed after {attempts} {tries}: {class}: {message}")
            }
            EventBody::InvocationParked { class, wait_ms, in_line } => parked_words(target, *class, *wait_ms, *in_line),
            EventBody::AttemptStarted { cause, model, .. } => {
                format!("Attempt {} on {target} ({model}): {}", self.attempt, cause.label())
            }
            EventBody::FirstToken { after_ms } => format!("First token from {target} after {after_ms} ms"),
            EventBody::AttemptReadOn { reason, requests } => {
                format!("Attempt {} on {target} is read on ({requests}): {reason}", self.attempt)
            }
            EventBody::AttemptSucceeded { duration_ms, .. } => {
                format!("Attempt {} on {target} answered in {duration_ms} ms", self.attempt)
            }
            EventBody::AttemptFailed { class, message, .. } => {
                format!("Attempt {} on {target} failed: {class}: {message}", self.attempt)
            }
            EventBody::RecoveryAttempted { error, retry, max_retries, adaptation, .. } => {
                let changed = adaptation.as_ref().map(|words| format!("; {words}")).unwrap_or_default();
                format!("Retrying {operation} (attempt {retry}/{max_retries}): {error}{changed}")
            }
            EventBody::ContextInjected { vehicle, .. } => {
                format!("Told the model what went wrong (attempt {}, {vehicle})", self.attempt)
            }
            EventBody::ContextInjectionSkipped { reason, .. } => format!("Did not tell the model: {reason}"),
            EventBody::FallbackChosen { from, class } => format!("Falling back from {from} to {target}: {class}"),
            EventBody::HedgeStarted { beside, after_ms } => {
                format!("Asking {target} too: {beside} is silent after {after_ms} ms")
            }
            EventBody::CircuitOpened { forced: true, .. } => {
                format!("An operator opened the circuit of {target}: no calls until an operator says so")
            }
            EventBody::CircuitOpened { evidence, retry_in_ms, reason, class, streak, .. } => {
                let class = class.map(|class| format!(", {class}")).unwrap_or_default();
                let again = if *streak > 1 { format!(" again (time {streak} in a row)") } else { String::new() };
                let probing = retry_in_ms.map(|ms| format!("; probing in {ms} ms")).unwrap_or_default();
                let (failures, committed) = (evidence.failures, evidence.committed);
                format!(
                    "Circuit of {target} opened{again}: {reason}{class} ({failures} of {committed} failed){probing}"
                )
            }
            EventBody::CircuitHalfOpen { open_ms, .. } => {
                format!("Circuit of {target} is half-open after {open_ms} ms: probing")
            }
            EventBody::CircuitRecovering { admitted_percent, .. } => {
                format!("Circuit of {target} is recovering: {admitted_percent} % admitted")
            }
            EventBody::CircuitClosed { forced: true, .. } => format!("An operator closed the circuit of {target}"),
            EventBody::CircuitClosed { disturbed_ms, .. } => {
                format!("Circuit of {target} closed, {disturbed_ms} ms after it had opened")
            }
            EventBody::GateClosed { gate, reopens_in_ms, class, .. } => {
                format!("The {} gate of {target} closed for {reopens_in_ms} ms: {class}", gate.as_str())
            }
            EventBody::GateOpened { gate, closed_ms } => {
                format!("The {} gate of {target} opened after {closed_ms} ms", gate.as_str())
            }
            EventBody::BudgetExhausted { level, capacity } => {
                format!("The retry budget of {target} is empty ({level:.0} of {capacity:.0} left)")
            }
            EventBody::ReleaseRolledBack { release, to, reason } => {
                format!("Release {release} was rolled back to {to}: {reason}")
            }
            EventBody::ConfigurationReloaded { generation, changed } => reloaded_words(*generation, changed),
            EventBody::ConfigurationRejected { reason, .. } => {
                format!("A new configuration was refused, the old one stays in force: {reason}")
            }
            EventBody::StoreLost { store, reason } => format!("The {store} store is lost: {reason}"),
            EventBody::StoreFound { store, lost_ms } => format!("The {store} store is back after {lost_ms} ms"),
        }
    }
}

/// What a person on call wants to read of an invocation that waits, such as `Waiting 12 s for main: rate limit`.
#[must_use]
pub fn parked_words(target: &str, class: FailureClass, wait_ms: u64, in_line: bool) -> String {
    let why = match class {
        FailureClass::CircuitOpen => "its circuit is open".to_owned(),
        class => class.phrase().to_lowercase(),
    };
    let wait = match wait_ms {
        0..1000 => format!("{wait_ms} ms"),
        _ => format!("{} s", wait_ms.div_ceil(1000)),
    };
    if in_line {
        format!("Waiting in line for {target}, {wait} at most: {why}")
    } else {
        format!("Waiting {wait} for {target}: {why}")
    }
}

fn reloaded_words(generation: u64, changed: &[String]) -> String {
    let named = changed.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let words = match changed.len().checked_sub(MOST_NAMED) {
        _ if changed.is_empty() => String::new(),
        None | Some(0) => format!(": {named}"),
        Some(more) => format!(": {named} and {more} more"),
    };
    format!("A new configuration is in force, number {generation}{words}")
}
