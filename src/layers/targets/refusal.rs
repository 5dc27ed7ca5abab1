//! Why the circuit of a target refuses calls, as text for the refused callers.

use std::time::Duration;

use tokio::time::Instant;

use super::TargetState;
use crate::{
    domain::{
        circuit::CircuitState,
        failure::{Failure, FailureClass, WaitSource, words},
    },
    policy::circuit::opened_words,
};

impl TargetState {
    /// Returns the refusal of a call by the circuit: on what it opened and how long ago, and what
    /// follows; `retry_in` is absent while an operator holds it open.
    pub fn refused_by_circuit(&self, now: Instant, retry_in: Option<Duration>) -> Failure {
        let snapshot = self.circuit().snapshot(now);
        let target = &self.target.id;
        let since = self
            .circuit()
            .since()
            .and_then(|since| words::duration_text(now.saturating_duration_since(since)));
        let since = since.map_or_else(|| "since just now".to_owned(), |time| format!("for {time}"));
        let (message, hint) = match snapshot.opened {
            _ if snapshot.state == CircuitState::ForcedOpen => {
                let by = self.forced_words();
                let message = format!("The circuit of {target} is {by}.");
                (
                    message,
                    format!(
                        "Open {since}; `relight circuits force {target} auto` lets it judge again."
                    ),
                )
            }
            Some((evidence, reason)) => {
                let why = match reason {
                    "failures in a row" => {
                        format!(" after {} consecutive failures", evidence.consecutive)
                    }
                    _ => format!(": {}", opened_words(&evidence, reason)),
                };
                let class = self
                    .circuit_cause()
                    .map(|class| format!(", the last: {class}"))
                    .unwrap_or_default();
                let wait = retry_in
                    .and_then(words::duration_text)
                    .unwrap_or_else(|| "a moment".to_owned());
                let hint = format!(
                    "The circuit of {target} is {} {since}: {}{class}. It lets a call through in {wait}; \
                     `relight circuits reset {target}` closes it at once.",
                    snapshot.state.as_str(),
                    opened_words(&evidence, reason),
                );
                (
                    format!(
                        "Circuit breaker open{why}. Failing fast to prevent cascading failures."
                    ),
                    hint,
                )
            }
            None => (
                format!("The circuit of {target} takes no call now."),
                "See `relight circuits`.".to_owned(),
            ),
        };
        let refused = Failure {
            target: Some(target.clone()),
            recovery_hint: hint,
            ..Failure::local(FailureClass::CircuitOpen, message)
        };
        match retry_in {
            Some(retry_in) => refused.with_retry_after(retry_in, WaitSource::Parked),
            None => refused,
        }
    }
}
