//! The end of an invocation: a completion, or the first upstream failure and other options to try.

use std::sync::Arc;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        failure::{Failure, FailureClass, WaitSource, words},
        fold::StreamStep,
        ids::TargetId,
        invocation::{AttemptRecord, Call, HistoryPatch, RecoveryStrategy},
    },
    policy::{inject, retry::StopReason},
};

impl<S> RetryLoop<S> {
    pub(super) fn succeeded(&mut self) -> StreamStep {
        let attempts = self.scope.attempts();
        let winner = attempts
            .iter()
            .rev()
            .find(|record| record.failure.is_none() && record.winner);
        let winner = winner.or_else(|| {
            attempts
                .iter()
                .rev()
                .find(|record| record.failure.is_none())
        });
        let asked = winner
            .map(|record| record.model.clone())
            .unwrap_or_default();
        let target = winner.and_then(|record| record.target.clone());
        let Some(completion) = self.read.assembler.completion(&asked) else {
            return self.failed(
                Failure::local(
                    FailureClass::StreamInterrupted,
                    "the answer ended without its end mark",
                ),
                "the answer was not whole",
            );
        };
        let reasoning = match (attempts.len(), self.verdict.after) {
            _ if self.read.extension.made > 0 => {
                format!(
                    "Cut by the output limit of the model, and gone on with {} time(s).",
                    self.read.extension.made
                )
            }
            _ if winner.is_some_and(|record| record.cause.reads_existing_response()) => {
                "Read on from the provider, where it was being made for a replica that went away."
                    .to_owned()
            }
            (0 | 1, _) => "Answered at the first attempt.".to_owned(),
            (_, None) => match winner
                .filter(|winner| winner.number > 1 && self.scope.counted_attempts() > 1)
            {
                Some(second) => {
                    let name = second
                        .target
                        .as_ref()
                        .map_or("another target", TargetId::as_str);
                    format!(
                        "Answered by attempt {}, by {name}: the one before was slow.",
                        second.number
                    )
                }
                None => "Answered at the first attempt.".to_owned(),
            },
            (count, Some(class)) => format!(
                "Answered by attempt {count}, after {}.",
                self.phrase(class).to_lowercase()
            ),
        };
        let reasoning = match attempts
            .iter()
            .flat_map(AttemptRecord::changes)
            .cloned()
            .collect::<Vec<_>>()
        {
            changes if changes.is_empty() => reasoning,
            changes => format!("{reasoning} To fit the model, {}.", changes.join(", and ")),
        };
        let reasoning = match &self.verdict.passed_on {
            Some(words) => format!("{reasoning} It is passed on as it is, though {words}."),
            None => reasoning,
        };
        let history_patch = match (&self.scope.invocation.call, self.scope.sent()) {
            (Call::Model(asked), Some(sent)) => {
                inject::history_patch(&sent, asked, &completion.message)
            }
            (Call::Model(_) | Call::Tool(_), _) => HistoryPatch::default(),
        };
        self.terminal(Ok(completion), reasoning, Vec::new(), history_patch, target)
    }

    /// Relight's own phrase for the class of a failure of this call.
    fn phrase(&self, class: FailureClass) -> &'static str {
        match &self.scope.invocation.call {
            Call::Model(_) => class.phrase(),
            Call::Tool(_) => words::phrase_of_tool(class),
        }
    }

    pub(super) fn stopped(&mut self, failure: Failure, reason: &StopReason) -> AfterFailure {
        let sentence = reason.sentence();
        let alternatives = self.alternatives(reason);
        let refusal = match reason {
            StopReason::NoTarget { retry_in: None } => self.targets.refusal(&self.scope),
            StopReason::NoTarget { retry_in: Some(_) } => self.targets.rate_limit(&self.scope),
            _ => None,
        };
        let (mut decisive, refused_before) = match (self.verdict.upstream.take(), refusal) {
            _ if !failure.class.is_local_refusal() => (failure, false),
            (Some(last_upstream_failure), _) => (last_upstream_failure, false),
            (None, Some(refusal)) => (refusal, true),
            (None, None) => (failure, false),
        };
        let sentence = if refused_before {
            refused_sentence(&decisive)
        } else {
            sentence
        };
        if let StopReason::NoTarget {
            retry_in: Some(retry_in),
        } = reason
            && decisive.retry_after.is_none()
        {
            decisive = decisive.with_retry_after(*retry_in, WaitSource::Parked);
        }
        let target = decisive.target.clone();
        let for_good = refused_before && decisive.class != FailureClass::RateLimited;
        self.verdict.impossible = for_good || matches!(reason, StopReason::NotRetryable);
        self.verdict.stopped_by = reason.refusal().filter(|_| !refused_before);
        AfterFailure::Stop(self.terminal(
            Err(decisive),
            sentence,
            alternatives,
            HistoryPatch::default(),
            target,
        ))
    }

    pub(super) fn failed(&mut self, failure: Failure, reasoning: &str) -> StreamStep {
        let target = failure.target.clone();
        self.terminal(
            Err(failure),
            reasoning.to_owned(),
            Vec::new(),
            HistoryPatch::default(),
            target,
        )
    }

    pub(super) fn terminal(
        &mut self,
        result: Result<crate::domain::completion::Completion, Failure>,
        reasoning: String,
        alternatives: Vec<String>,
        history_patch: HistoryPatch,
        target: Option<TargetId>,
    ) -> StreamStep {
        let mut outcome = self.scope.outcome(result, reasoning, target);
        if self.verdict.impossible {
            outcome.recovery_applied.push(RecoveryStrategy::Impossible);
        }
        outcome.stopped_by = self.verdict.stopped_by;
        outcome.alternatives = alternatives;
        outcome.history_patch = history_patch;
        StreamStep::Terminal(Arc::new(outcome))
    }

    /// Returns other options to try, in words.
    pub(super) fn alternatives(&self, reason: &StopReason) -> Vec<String> {
        let mut words = Vec::new();
        if self.scope.plan.targets.len() < 2 {
            words.push(
                "Add a second target to the route, so that there is somewhere to fall back to."
                    .to_owned(),
            );
        }
        match reason {
            StopReason::DeadlineTooClose { .. } => {
                words.push("Give the invocation a longer deadline.".to_owned());
            }
            StopReason::NoTarget { retry_in: Some(_) } => {
                words.push("Come back when a target is available.".to_owned());
            }
            StopReason::AttemptsUsedUp => words.push("Allow more retries.".to_owned()),
            StopReason::Disabled => words.push("Enable retries for this operation.".to_owned()),
            StopReason::NotRetryable
            | StopReason::Irrevocable
            | StopReason::BudgetEmpty
            | StopReason::NoTarget { retry_in: None }
            | StopReason::TokensUsedUp => {}
        }
        words
    }
}

/// Returns the reason why a call was refused without an attempt, because the same failed for
/// everybody just before.
fn refused_sentence(failure: &Failure) -> String {
    let again = failure.retry_after.map(|wait| wait.duration.as_secs() + 1);
    let again = again
        .map(|seconds| format!(" It is tried again in {seconds} s."))
        .unwrap_or_default();
    format!("The target refused an earlier call in the same way, so this one was not sent.{again}")
}
