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
    /// When it was over, from the start of the run.
    pub(super) ended: Duration,
    /// Whether it succeeded.
    pub(super) answered: bool,
    /// How it failed.
    pub(super) class: Option<FailureClass>,
    /// Whether the caller holds exactly the answer of one attempt (or nothing, where it failed).
    pub(super) sound: bool,
    /// Whether its deadline came while it waited, and nothing was under way.
    pub(super) doomed: bool,
    /// How many attempts were reported to it, refused ones included.
    pub(super) records: usize,
}

impl CallResult {
    /// A call that ends now, without an answer.
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

/// The request of every call.
pub(super) fn request() -> ModelCall {
    ModelCall {
        messages: vec![Message::text(Role::User, "What is the answer?")],
        ..ModelCall::default()
    }
}
