//! A complete completion that is not yet taken: one that the model's output limit cut is continued,
//! requested again but shorter, or passed on as it is; one whose tool calls do not fit is requested
//! again, or passed on for the caller to have the model correct them.
//!
//! Continuing is not a recovery of a failure: it draws on no budget, but on `max_retries`, as every
//! call does, and on the deadline. An extension that fails loses nothing: the completion then stays as
//! long as it was.

use tokio::time::Instant;

use super::{RetryLoop, decide::AfterFailure};
use crate::{
    domain::{
        completion::FinishReason,
        failure::{Failure, FailureClass},
        fold::StreamStep,
        invocation::AttemptCause,
    },
    layers::spans::AttemptSpan,
    policy::{
        continuation::{MAX_EXTENSIONS, OnLength, cut_off, way},
        inject::Finding,
        retry::MIN_ATTEMPT_TIME,
    },
};

/// Extent to which a completion was extended.
#[derive(Debug, Default)]
pub(super) struct Extension {
    pub(super) made: usize,
    /// Finish of the completion that is being extended, and its length.
    of: Option<((FinishReason, String), usize)>,
}

// === impl Extension ===

impl Extension {
    /// Returns whether the next attempt only continues the completion.
    pub(super) fn is_under_way(&self) -> bool {
        self.of.is_some()
    }
}

impl<S> RetryLoop<S> {
    /// Returns what follows a whole answer.
    pub(super) fn judge_answer(&mut self, span: AttemptSpan) -> AfterFailure {
        let other = self.cut_by_length().or_else(|| {
            self.unfit_calls()
                .map(|(failure, next)| (Some(failure), next))
        });
        self.read.deltas = None;
        match other {
            Some((Some(unusable), next)) => {
                span.finish_failed(&unusable, true);
                next
            }
            Some((None, next)) => {
                span.finish_ok(true);
                next
            }
            None => {
                self.end_answered(span);
                AfterFailure::Complete(self.read.assembler.commit())
            }
        }
    }

    /// Ends the span of an attempt whose turn succeeded: by it, or by the hedge beside it.
    fn end_answered(&self, span: AttemptSpan) {
        let attempts = self.scope.attempts();
        match attempts.last_chunk::<2>() {
            Some([first, hedge]) if hedge.cause == AttemptCause::Hedge && hedge.winner => {
                match &first.failure {
                    Some(failure) if failure.class != FailureClass::Cancelled => {
                        span.finish_failed(failure, first.sent);
                    }
                    _ => span.finish_cancelled(),
                }
            }
            _ => span.finish_ok(true),
        }
    }

    /// Decides on a complete completion that its output limit cut: `None` if it is passed on. With a
    /// failure, the completion counts as too long.
    fn cut_by_length(&mut self) -> Option<(Option<Failure>, AfterFailure)> {
        let grown = self
            .read
            .extension
            .of
            .take()
            .map_or(0, |(_, length)| length);
        let (blocks, finish) = self.read.assembler.finished()?;
        let text = cut_off(blocks, finish, &self.request.call)?.text.clone();
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

    /// Returns the step that follows a failure of an extension; `None` if it was not one.
    pub(super) fn after_extension(&mut self, failure: &Failure) -> Option<AfterFailure> {
        if failure.class == FailureClass::Cancelled {
            return None;
        }
        let (finish, length) = self.read.extension.of.take()?;
        let again = failure.class == FailureClass::StreamInterrupted;
        let number = self.scope.next_number() - 1;
        let mut pending_events = if again {
            self.read.assembler.abandon(number, failure.class, true)
        } else {
            Vec::new()
        };
        if let Some(held) = self
            .read
            .assembler
            .held_text()
            .filter(|held| again && held.len() > length && self.may_extend(held))
        {
            self.read.extension.made += 1;
            self.read.extension.of = Some((finish, held.len()));
            return Some(AfterFailure::Again(pending_events));
        }
        pending_events.extend(self.read.assembler.settle(finish));
        Some(AfterFailure::Complete(pending_events))
    }

    fn extend(&mut self, text: &str) -> Option<Vec<StreamStep>> {
        if !self.may_extend(text) {
            return None;
        }
        let finish = self.read.assembler.reopen(self.scope.next_number() - 1)?;
        self.read.extension.made += 1;
        self.read.extension.of = Some((finish, text.len()));
        Some(self.read.assembler.flush())
    }

    /// Returns whether the target can continue the completion, and may.
    fn may_extend(&mut self, text: &str) -> bool {
        let attempts = self.scope.attempts();
        let many = !self.scope.may_try_again() || self.read.extension.made >= MAX_EXTENSIONS;
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
            .and_then(|target| {
                way(
                    text,
                    &self.request.call,
                    &target.capabilities,
                    prompt_allowed,
                )
            })
            .is_some();
        if many || !can || time_left < MIN_ATTEMPT_TIME {
            return false;
        }
        self.request.hint = answered;
        self.waits.next = None;
        true
    }

    /// Has the completion generated again, if the policy of unusable completions allows it.
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
        self.instead_of_the_answer(failure)
    }

    /// Decides on a complete completion whose tool calls do not fit: `None` if it is passed on, because
    /// no attempt is left or what was sent with it cannot be taken back.
    fn unfit_calls(&mut self) -> Option<(Failure, AfterFailure)> {
        let failure = self.scope.unfit.take()?;
        let words = failure.message.clone();
        let next = if self.scope.append_only().has_sent() {
            None
        } else {
            self.instead_of_the_answer(failure)
        };
        if next.is_none() {
            let number = self.scope.running().map_or(0, |record| record.number);
            let reason = "its tool calls do not fit, and were passed on as they are";
            self.scope
                .amend(number, |record| record.unchecked = Some(reason.to_owned()));
            self.scope.unfit.pass_on();
            self.verdict.passed_on = Some(words);
        }
        next
    }

    /// Returns another attempt in place of a complete completion; `None` if there is none, and the
    /// answer stays.
    fn instead_of_the_answer(&mut self, failure: Failure) -> Option<(Failure, AfterFailure)> {
        let last_upstream_failure = self.verdict.upstream.clone();
        let last = self.verdict.last.clone();
        let after = self.verdict.after;
        let refusals = self.verdict.refusals;
        match self.decide(failure.clone()) {
            AfterFailure::Stop(_) | AfterFailure::Complete(_) => {
                (self.verdict.upstream, self.verdict.last) = (last_upstream_failure, last);
                (self.verdict.after, self.verdict.refusals) = (after, refusals);
                (self.verdict.impossible, self.verdict.stopped_by) = (false, None);
                None
            }
            next @ (AfterFailure::Again(_) | AfterFailure::Park { .. }) => Some((failure, next)),
        }
    }
}
