//! An answer that the model's output limit cut: continued, requested again but shorter, or passed
//! on as it is.
//!
//! Continuing is no recovery of a failure: it draws on no budget, but on the hard cap of attempts
//! and on the deadline. An extension that fails loses nothing: the answer then stays as long as it
//! was.

use tokio::time::Instant;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        completion::FinishReason,
        failure::{Failure, FailureClass},
        fold::StreamStep,
    },
    policy::{
        continuation::{MAX_EXTENSIONS, OnLength, cut_off, way},
        inject::Finding,
        retry::HARD_CAP_ATTEMPTS,
    },
};

/// How far an answer was extended.
#[derive(Debug, Default)]
pub(super) struct Extension {
    pub(super) made: usize,
    /// The finish of the answer that is being extended, and its length.
    of: Option<((FinishReason, String), usize)>,
}

// === impl Extension ===

impl Extension {
    /// Whether the next attempt only continues the answer.
    pub(super) fn is_under_way(&self) -> bool {
        self.of.is_some()
    }
}

impl<S> RetryLoop<S> {
    /// What is done about a complete answer that its output limit cut: `None` where it is passed
    /// on. With a failure, the answer counts as too long.
    pub(super) fn cut_by_length(&mut self) -> Option<(Option<Failure>, AfterFailure)> {
        let grown = self.extension.of.take().map_or(0, |(_, length)| length);
        let (blocks, finish) = self.assembler.finished()?;
        let text = cut_off(blocks, finish, &self.call)?.text.clone();
        let retry = &self.scope.plan.retry;
        match retry.on_length {
            _ if !retry.enabled => None,
            OnLength::Accept => None,
            OnLength::Continue if text.len() <= grown => None,
            OnLength::Continue => self
                .extend(&text)
                .map(|pending_events| (None, AfterFailure::Again(pending_events))),
            OnLength::Shorten => self.shorten().map(|(failure, next)| (Some(failure), next)),
        }
    }

    /// What follows a failure of an extension; `None` where it was none.
    pub(super) fn after_extension(&mut self, failure: &Failure) -> Option<AfterFailure> {
        if failure.class == FailureClass::Cancelled {
            return None;
        }
        let (finish, length) = self.extension.of.take()?;
        let (again, number) = (
            failure.class == FailureClass::StreamInterrupted,
            self.scope.next_number() - 1,
        );
        let mut pending_events = if again {
            self.assembler.abandon(number, failure.class, true)
        } else {
            Vec::new()
        };
        if let Some(held) = self
            .assembler
            .held_text()
            .filter(|held| again && held.len() > length && self.may_extend(held))
        {
            self.extension.made += 1;
            self.extension.of = Some((finish, held.len()));
            return Some(AfterFailure::Again(pending_events));
        }
        pending_events.extend(self.assembler.settle(finish));
        Some(AfterFailure::Complete(pending_events))
    }

    fn extend(&mut self, text: &str) -> Option<Vec<StreamStep>> {
        if !self.may_extend(text) {
            return None;
        }
        let finish = self.assembler.reopen(self.scope.next_number() - 1)?;
        self.extension.made += 1;
        self.extension.of = Some((finish, text.len()));
        Some(self.assembler.flush())
    }

    /// Whether the target can continue the answer, and may.
    fn may_extend(&mut self, text: &str) -> bool {
        let attempts = self.scope.attempts();
        let many =
            attempts.len() >= HARD_CAP_ATTEMPTS as usize || self.extension.made >= MAX_EXTENSIONS;
        let time_left = self
            .scope
            .invocation
            .deadline
            .saturating_duration_since(Instant::now());
        let answered = attempts.last().and_then(|record| record.target.clone());
        let target = self
            .scope
            .plan
            .targets
            .iter()
            .find(|target| Some(&target.id) == answered.as_ref());
        let prompt_allowed = self.scope.invocation.overrides.allow_continuation_prompt;
        let can = target
            .and_then(|target| way(text, &self.call, &target.capabilities, prompt_allowed))
            .is_some();
        if many || !can || time_left < self.scope.plan.retry.min_attempt_time {
            return false;
        }
        self.hint = answered;
        self.wait = None;
        true
    }

    /// Has the answer generated again, where the policy of unusable answers allows it.
    fn shorten(&mut self) -> Option<(Failure, AfterFailure)> {
        let target = self.scope.running().and_then(|record| record.target);
        let mut failure = Failure::local(
            FailureClass::MalformedResponse,
            "the answer was cut at the output limit",
        );
        (
            failure.retryable,
            failure.fallback_helps,
            failure.never_sent,
            failure.target,
        ) = (true, true, false, target);
        Finding::OutputLimit.mark(&mut failure);
        let (last_upstream_failure, after) = (self.last_upstream_failure.clone(), self.after);
        match self.decide(failure.clone()) {
            AfterFailure::Stop(_) | AfterFailure::Complete(_) => {
                (self.last_upstream_failure, self.after, self.impossible) =
                    (last_upstream_failure, after, false);
                None
            }
            next @ (AfterFailure::Again(_) | AfterFailure::Park { .. }) => Some((failure, next)),
        }
    }
}
