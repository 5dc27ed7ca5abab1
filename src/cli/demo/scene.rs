//! One scene of the demo: the request that is made while something fails, its result, and how
//! promises are checked.

use super::wires::Wires;
use crate::{
    cli::{invoke::answer_text, terminal::one_line, words},
    grpc::v1::{self, FailureClass, invoke_with_recovery_response::Outcome, recovery_event::Body},
};
use relight_lab::wire_server::Request;

/// One way to break a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    /// Thing that breaks.
    pub(super) title: &'static str,
    /// Things that are going to be seen.
    pub(super) story: &'static str,
    /// Things that were seen, if it went as promised.
    pub(super) moral: &'static str,
    /// Name in tables.
    pub(super) name: &'static str,
    /// The route of the demo's configuration that it is played on.
    pub(super) route: &'static str,
    /// The question to the model.
    pub(super) question: &'static str,
    /// If set, the model may call a tool.
    pub(super) with_tool: bool,
    /// The requested output limit, in tokens.
    pub(super) max_output_tokens: Option<u32>,
    /// Number of calls.
    pub(super) calls: usize,
    /// Sets the wires up, if it is played on any.
    pub(super) prepare: fn(&Wires),
    /// Checks the promise; an error describes what was not as promised.
    pub(super) promise: fn(&Played) -> Result<(), String>,
}

/// The tool that a model may call.
pub(super) const TOOL: &str = "get_weather";

/// The result of a scene.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// Responses that the callers got, in order.
    pub(super) responses: Vec<v1::InvokeWithRecoveryResponse>,
    /// The events that a watcher received.
    pub(super) events: Vec<v1::RecoveryEvent>,
    /// Requests that the wire that breaks saw, if the scene was played on one.
    pub(super) requests: Vec<Request>,
    /// Number of requests that the spare wire saw.
    pub(super) spare_requests: usize,
    /// Time it took.
    pub(super) took_ms: u64,
}

// === impl Played ===

impl Played {
    /// Returns whether a watcher received such an event.
    pub(super) fn saw(&self, wanted: impl Fn(&Body) -> bool) -> bool {
        self.events
            .iter()
            .filter_map(|event| event.body.as_ref())
            .any(wanted)
    }

    /// Returns whether a watcher received the end of this invocation.
    pub(super) fn has_ended(&self, invocation: &str) -> bool {
        let ended = |body: &Body| {
            matches!(
                body,
                Body::InvocationSucceeded(_)
                    | Body::InvocationRecovered(_)
                    | Body::InvocationFailed(_)
            )
        };
        self.events.iter().any(|event| {
            event.invocation_id == invocation && event.body.as_ref().is_some_and(ended)
        })
    }

    /// Returns the notes that went into prompts.
    pub(super) fn notes(&self) -> Vec<String> {
        let attempts = self
            .responses
            .iter()
            .flat_map(|response| &response.attempts);
        attempts
            .map(|attempt| one_line(&attempt.injected_note))
            .filter(|note| !note.is_empty())
            .collect()
    }

    /// Returns the changes in requests that make the model take them.
    pub(super) fn adaptations(&self) -> Vec<String> {
        let attempts = self
            .responses
            .iter()
            .flat_map(|response| &response.attempts);
        attempts
            .map(|attempt| one_line(&attempt.adaptation))
            .filter(|words| !words.is_empty())
            .collect()
    }

    /// Attempts of all calls.
    pub(super) fn attempts(&self) -> usize {
        self.responses
            .iter()
            .map(|response| response.attempts.len())
            .sum()
    }

    /// Number of calls that succeeded.
    pub(super) fn answered(&self) -> usize {
        self.responses
            .iter()
            .filter(|response| matches!(response.outcome, Some(Outcome::Completion(_))))
            .count()
    }

    /// Number of calls that succeeded after a failure.
    pub(super) fn recovered(&self) -> usize {
        let recovered = |response: &&v1::InvokeWithRecoveryResponse| {
            response.attempts.len() > 1 && matches!(response.outcome, Some(Outcome::Completion(_)))
        };
        self.responses.iter().filter(recovered).count()
    }

    /// Returns the steps taken for the calls, each once.
    pub(super) fn recovered_by(&self) -> String {
        let mut applied: Vec<i32> = Vec::new();
        for strategy in self
            .responses
            .iter()
            .flat_map(|response| &response.recovery_applied)
        {
            if !applied.contains(strategy) {
                applied.push(*strategy);
            }
        }
        if applied.len() > 1 {
            applied.retain(|strategy| *strategy != v1::RecoveryStrategy::None as i32);
        }
        words::strategies(&applied)
    }

    /// Returns the response that the last caller got.
    pub(super) fn last_reply(&self) -> String {
        self.responses.last().map(reply).unwrap_or_default()
    }
}

/// Returns the response that a caller got, in one line.
pub(super) fn reply(response: &v1::InvokeWithRecoveryResponse) -> String {
    one_line(&match &response.outcome {
        Some(Outcome::Completion(completion)) => answer_text(completion),
        Some(Outcome::Failure(failure)) => failure.user_message.clone(),
        None => String::new(),
    })
}

/// Returns whether the second attempt started at least a second after the first, as long as the
/// wires state. The wait that the second names may be shorter: part of the stated one may have
/// passed when it was decided.
pub(super) fn stated_second_passed(
    first: &v1::Attempt,
    second: &v1::Attempt,
) -> Result<(), String> {
    let began = |attempt: &v1::Attempt| {
        attempt
            .started_at
            .map(|at| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos))
    };
    let apart = began(second)
        .zip(began(first))
        .map(|(second, first)| second - first);
    ensure(
        apart >= Some(1_000_000_000),
        "it did not wait as long as the provider stated",
    )
}

/// Returns the two attempts of the one call that succeeded.
pub(super) fn two_attempts(played: &Played) -> Result<[&v1::Attempt; 2], String> {
    all_answered(played)?;
    match played.responses.as_slice() {
        [v1::InvokeWithRecoveryResponse { attempts, .. }] => match attempts.as_slice() {
            [first, second] => Ok([first, second]),
            other => Err(format!("it took {} attempts in place of 2", other.len())),
        },
        other => Err(format!("there were {} calls in place of 1", other.len())),
    }
}

/// Checks that every call succeeded.
pub(super) fn all_answered(played: &Played) -> Result<(), String> {
    ensure(
        played.answered() == played.responses.len(),
        "a call was not answered",
    )
}

/// Returns whether an attempt failed with this class.
pub(super) fn failed_by(attempt: &v1::Attempt, class: FailureClass) -> bool {
    attempt.failure_class == i32::from(class)
}

/// Fails with `otherwise` if a condition does not hold.
pub(super) fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}
