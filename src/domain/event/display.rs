//! Events in one line each, for people.

use super::{Event, EventBody};
use crate::domain::ids::TargetId;

impl Event {
    /// One line for people, such as `Retrying executor (attempt 1/2): Request timeout`.
    #[must_use]
    pub fn display(&self) -> String {
        let operation = self.scope.as_ref().map_or("invocation", |scope| scope.operation.as_str());
        let target = self.target.as_ref().map_or("-", TargetId::as_str);
        match &self.body {
            EventBody::InvocationStarted { deadline_ms } => format!("{operation} started ({deadline_ms} ms to answer)"),
            EventBody::InvocationSucceeded { duration_ms, .. } => format!("{operation} answered in {duration_ms} ms"),
            EventBody::InvocationRecovered { duration_ms, attempts, .. } => {
                format!("{operation} recovered: answered by attempt {attempts} after {duration_ms} ms")
            }
            EventBody::InvocationFailed { attempts, message, class, .. } => {
                let tries = if *attempts == 1 { "attempt" } else { "attempts" };
                format!("{operation} failed after {attempts} {tries}: {class}: {message}")
            }
            EventBody::AttemptStarted { cause, model } => {
                format!("Attempt {} on {target} ({model}): {}", self.attempt, cause.label())
            }
            EventBody::FirstToken { after_ms } => format!("First token from {target} after {after_ms} ms"),
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
            EventBody::ContextInjected { vehicle } => {
                format!("Told the model what went wrong (attempt {}, {vehicle})", self.attempt)
            }
            EventBody::ContextInjectionSkipped { reason } => format!("Did not tell the model: {reason}"),
            EventBody::FallbackChosen { from, class } => format!("Falling back from {from} to {target}: {class}"),
            EventBody::HedgeStarted { beside, after_ms } => {
                format!("Asking {target} too: {beside} is silent after {after_ms} ms")
            }
            EventBody::CircuitOpened { evidence, retry_in_ms, reason } => format!(
                "Circuit of {target} opened: {reason} ({} of {} failed); probing in {retry_in_ms} ms",
                evidence.failures, evidence.committed
            ),
            EventBody::CircuitHalfOpen => format!("Circuit of {target} is half-open: probing"),
            EventBody::CircuitRecovering { admitted_percent } => {
                format!("Circuit of {target} is recovering: {admitted_percent} % admitted")
            }
            EventBody::CircuitClosed => format!("Circuit of {target} closed"),
            EventBody::GateClosed { gate, reopens_in_ms, class } => {
                format!("The {} gate of {target} closed for {reopens_in_ms} ms: {class}", gate.as_str())
            }
            EventBody::GateOpened { gate } => format!("The {} gate of {target} opened", gate.as_str()),
            EventBody::BudgetExhausted { level } => format!("The retry budget of {target} is empty ({level} left)"),
            EventBody::ReleaseRolledBack { release, to, reason } => {
                format!("Release {release} was rolled back to {to}: {reason}")
            }
            EventBody::ConfigurationReloaded => "A new configuration is in force".to_owned(),
            EventBody::ConfigurationRejected { reason } => {
                format!("A new configuration was refused, the old one stays in force: {reason}")
            }
            EventBody::StoreLost { store, reason } => format!("The {store} store is lost: {reason}"),
            EventBody::StoreFound { store } => format!("The {store} store is back"),
        }
    }
}
