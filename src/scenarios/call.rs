//! One call of a scenario: its request, and its result.

use std::time::Duration;

use tokio::time::Instant;

use super::upstream;
use crate::domain::{
    failure::FailureClass,
    fold::AnswerState,
    invocation::Outcome,
    message::{Message, ModelCall, Role},
};

/// The result of one call.
#[derive(Debug, Clone)]
pub(super) struct CallResult {
    /// Its number among the arrivals.
    pub(super) call: usize,
    /// Time at which it was over, from the start of the run.
    pub(super) ended: Duration,
    /// `true` if it succeeded.
    pub(super) answered: bool,
    /// Class of its failure.
    pub(super) class: Option<FailureClass>,
    /// `true` if the caller holds exactly the completion of one attempt (or nothing, if it failed).
    pub(super) sound: bool,
    /// `true` if its deadline came while it waited, and nothing was under way.
    pub(super) doomed: bool,
    /// Number of attempts that were reported to it, refused ones included.
    pub(super) records: usize,
}

impl CallResult {
    /// Returns a call that ends now, without a response.
    pub(super) fn gone(call: usize, began: Instant) -> Self {
        let class = Some(FailureClass::Cancelled);
        Self {
            call,
            ended: began.elapsed(),
            answered: false,
            class,
            sound: true,
            doomed: false,
            records: 0,
        }
    }

    /// Reads what became of it, and what its caller holds.
    pub(super) fn read(&mut self, fold: Option<&AnswerState>, outcome: &Outcome) {
        self.records = outcome.attempts.len();
        let held: Option<String> = fold.map(|fold| fold.message().joined_text().into_owned());
        match &outcome.result {
            Ok(completion) => {
                self.answered = true;
                self.class = None;
                let whole = |number| upstream::text(&outcome.invocation, number);
                let text = completion.message.joined_text().into_owned();
                self.sound = held.as_ref() == Some(&text)
                    && outcome
                        .attempts
                        .iter()
                        .any(|attempt| whole(attempt.number) == text);
            }
            Err(failure) => {
                self.class = Some(failure.class);
                self.sound = held.is_some();
                let under_way = outcome.attempts.last().is_some_and(|attempt| {
                    attempt
                        .failure
                        .as_ref()
                        .is_some_and(|failure| failure.class == FailureClass::Cancelled)
                });
                self.doomed = outcome.reasoning == "The deadline was reached." && !under_way;
            }
        }
    }
}

/// Returns the request of every call.
pub(super) fn request() -> ModelCall {
    ModelCall {
        messages: vec![Message::text(Role::User, "What is the answer?")],
        ..ModelCall::default()
    }
}
