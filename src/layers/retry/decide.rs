//! What follows a failed attempt: has the policy decide, pays for what it allows, and prepares it.

use std::sync::Arc;

use tokio::time::Instant;

use super::RetryLoop;
use crate::layers::{
    BoxFuture, attempt::PendingAttempt, event::InvocationEvent, spans::AttemptTrace,
};
use crate::{
    domain::{
        completion::{Exactness, estimated_tokens},
        failure::{Failure, FailureClass, Wait},
        fold::StreamStep,
        ids::TargetId,
        invocation::{AttemptCause, AttemptRecord, RecoveryStrategy},
        message::{ModelCall, ResponseFormat},
    },
    policy::{
        continuation::MAX_BREAKS,
        inject::Finding,
        retry::{
            Candidate, Cost, Counter, Decision, Relayed, Situation, StopReason,
            larger_window_first, plan, recovery_options,
        },
        retry_budget::Settled,
        rng::SeededRng,
    },
};

/// What comes after a failure.
pub(super) enum AfterFailure {
    Stop(StreamStep),
    Park {
        pending_events: Vec<StreamStep>,
        until: Instant,
        changed: BoxFuture<()>,
    },
    Again(Vec<StreamStep>),
    /// Nothing: what followers hold, with these, is the answer.
    Complete(Vec<StreamStep>),
}

/// The breaks after content was delivered.
#[derive(Debug, Default)]
pub(super) struct StreamBreaks {
    made: usize,
    /// Bytes that followers held at most.
    reached: usize,
    /// Whether followers held more at the last break than at any before it.
    advanced: bool,
}

impl<S> RetryLoop<S> {
    /// Takes up the counts of an earlier owner, whose last attempt is yet to be decided upon.
    pub(super) fn recount(&mut self, before: &[AttemptRecord]) {
        let decided = before.split_last().map_or(&[][..], |(_, decided)| decided);
        // A request that was changed for its target counts as an unusable answer does.
        let semantic = |record: &&AttemptRecord| {
            let counter = record
                .failure
                .as_ref()
                .map(|failure| recovery_options(&self.scope.plan.retry, failure).counter);
            counter == Some(Counter::Semantic) || record.adaptation.is_some()
        };
        self.semantic_made =
            u32::try_from(decided.iter().filter(semantic).count()).unwrap_or(u32::MAX);
        self.breaks.made = decided
            .iter()
            .filter(|record| {
                record.failure.is_some()
                    && record.first_token.is_some()
                    && !record.lost_with_replica
            })
            .count();
        self.extension.made = before
            .iter()
            .filter(|record| record.cause == AttemptCause::Extend)
            .count();
    }

    pub(super) fn next_attempt(&mut self, trace: AttemptTrace) -> PendingAttempt {
        self.diverged = false;
        let policy = &self.scope.plan.retry;
        let avoid_last = self
            .last_upstream_failure
            .as_ref()
            .is_some_and(|failure| recovery_options(policy, failure).other_first);
        let parked = Wait {
            duration: self.parked,
            source: self.parked_source(),
        };
        let parked = Some(parked).filter(|wait| !wait.duration.is_zero());
        PendingAttempt {
            scope: Arc::clone(&self.scope),
            call: Arc::clone(&self.call),
            after: self.after,
            last: self.last.clone(),
            avoid_last,
            adapted: self.adapted,
            changes: self.changes.clone(),
            hint: self.hint.take(),
            wait: self.waited.or(parked),
            extends: self.extension.is_under_way(),
            held: self.assembler.held_text(),
            attach: self.attach.clone(),
            tool: None,
            trace,
        }
    }

    /// Whether the attempt that failed had begun to answer.
    fn broke(&self, failure: &Failure) -> bool {
        let began = self
            .scope
            .attempts()
            .last()
            .is_some_and(|record| record.first_token.is_some());
        began && !failure.class.is_local_refusal() && self.assembler.bytes() > 0
    }

    /// The failure of an attempt that says something else than what was sent and cannot be taken
    /// back.
    pub(super) fn diverged_from_what_was_sent(&self) -> Failure {
        let words = "the new answer does not begin with the text that was sent already";
        let mut failure = Failure::local(FailureClass::StreamInterrupted, words);
        (
            failure.retryable,
            failure.fallback_helps,
            failure.never_sent,
        ) = (true, true, false);
        self.scope.reject(failure)
    }

    /// Decides by the policy what to do about a failure, and prepares it.
    pub(super) fn decide(&mut self, failure: Failure) -> AfterFailure {
        if failure.class.is_local_refusal() {
            self.refusals += 1;
        } else {
            self.refusals = 0;
            self.last.clone_from(&failure.target);
            self.after = Some(failure.class);
            self.last_upstream_failure = Some(failure.clone());
        }
        self.relayed = if self.assembler.has_content() {
            Relayed::Rewindable
        } else {
            Relayed::Nothing
        };
        if self.broke(&failure) {
            // An attempt that says something else is no break of an answer that could be repeated.
            if self.breaks.one_more(self.assembler.bytes()) && !self.diverged {
                return self.stopped(failure, &StopReason::AttemptsUsedUp);
            }
            if self.scope.append_only().has_sent() && self.breaks.advanced {
                self.relayed = Relayed::AppendOnly;
            }
        }
        let now = Instant::now();
        let mut candidates = self.targets.candidates(&self.scope, now);
        let note_refused = self
            .scope
            .attempts()
            .last()
            .is_some_and(|record| record.note_refused);
        self.adapted = note_refused && !failure.class.is_local_refusal();
        if self.adapted {
            self.report_change(&failure, "the note about earlier failures was left out");
        }
        if self.changes_for(&failure, &candidates) {
            self.adapted = true;
            candidates = self.targets.candidates(&self.scope, now);
        }
        if let Some(step) = &self.step {
            self.adapted = step.adapts;
            for candidate in &mut candidates {
                candidate.ruled_out = candidate.target != step.target;
            }
        }
        let mut word = failure.clone();
        // Each round rules out one target whose budget is empty, so there are no more rounds than
        // targets.
        loop {
            let decision = self.plan(&word, &candidates, now);
            let (wait, strategy, hint, cost) = match decision {
                Decision::Stop(_) if word.class == FailureClass::BudgetEmpty => {
                    return self.stopped(failure, &StopReason::BudgetEmpty);
                }
                Decision::Stop(reason) => return self.stopped(failure, &reason),
                Decision::Park {
                    until,
                    target,
                    strategy,
                } => return self.park(failure, until, &target, strategy),
                Decision::Again {
                    wait,
                    strategy,
                    target_hint,
                    cost,
                } => (wait, strategy, target_hint, cost),
            };
            let Some(payer) = hint.clone().or_else(|| self.last.clone()) else {
                return self.again(&failure, wait, strategy, hint, cost);
            };
            self.reserved = self.targets.reserve(&payer, cost, now);
            if self.reserved.is_some() {
                return self.again(&failure, wait, strategy, hint, cost);
            }
            let (level, capacity) = self.targets.budget(&payer, now);
            self.scope.report(
                0,
                Some(&payer),
                &InvocationEvent::BudgetExhausted { level, capacity },
            );
            let poor = candidates
                .iter_mut()
                .find(|candidate| candidate.target == payer && !candidate.ruled_out);
            let Some(poor) = poor else {
                return self.stopped(failure, &StopReason::BudgetEmpty);
            };
            poor.ruled_out = true;
            word = Failure::local(FailureClass::BudgetEmpty, "the retry budget is empty");
            word.target = Some(payer);
        }
    }

    /// Notes the change of the request that a failure calls for, at most once per kind, so that its
    /// target may be called again.
    fn changes_for(&mut self, failure: &Failure, candidates: &[Candidate]) -> bool {
        let (Some(change), Some(target)) = (&failure.adaptation, &failure.target) else {
            return false;
        };
        if larger_window_first(failure, candidates)
            || self.changes.iter().any(|(_, made)| made.same_kind(change))
        {
            return false;
        }
        self.changes.push((target.clone(), change.clone()));
        self.report_change(failure, &change.to_string());
        true
    }

    /// Reports what is changed because of a failure, of the attempt that failed.
    pub(super) fn report_change(&self, failure: &Failure, words: &str) {
        if let Some(number) = self.failed_record(failure).map(|record| record.number) {
            self.scope.report(
                number,
                failure.target.as_ref(),
                &InvocationEvent::RequestChanged { words },
            );
        }
    }

    /// The last attempt on the target that failed; of two in a race, that may not be the last one.
    fn failed_record(&self, failure: &Failure) -> Option<AttemptRecord> {
        self.scope
            .attempts()
            .iter()
            .rev()
            .find(|record| record.target == failure.target)
            .cloned()
    }

    /// One decision of the policy.
    pub(super) fn plan(&self, word: &Failure, candidates: &[Candidate], now: Instant) -> Decision {
        let attempts = self.scope.attempts();
        let counted = self.scope.counted_attempts();
        let unsent = self.scope.unsent_attempts();
        let mut rng = SeededRng::new(
            self.scope.plan.seed,
            &self.scope.invocation.id,
            self.scope.next_number(),
        );
        let situation = Situation {
            now,
            deadline: self.scope.invocation.deadline,
            failure: word,
            decisive: self
                .last_upstream_failure
                .as_ref()
                .filter(|_| word.class.is_local_refusal()),
            failed_target: word.target.as_ref(),
            retries_made: counted
                .saturating_sub(unsent)
                .saturating_sub(1)
                .saturating_sub(self.semantic_made),
            unsent_made: unsent,
            semantic_made: self.semantic_made,
            refusals: self.refusals,
            previous_wait: self.previous_wait,
            relayed: self.relayed,
            adapted: self.adapted,
            given: self.step.as_ref().map(|step| step.options),
            candidates,
            first_attempt_tokens: expected_tokens(&self.call, attempts.first()),
            spent_tokens: attempts
                .iter()
                .map(|record| record.usage.input_tokens + record.usage.output_tokens)
                .sum(),
        };
        plan(&self.scope.plan.retry, &situation, &mut rng)
    }

    pub(super) fn again(
        &mut self,
        failure: &Failure,
        wait: Wait,
        strategy: RecoveryStrategy,
        hint: Option<TargetId>,
        cost: Cost,
    ) -> AfterFailure {
        if cost == Cost::Semantic {
            self.semantic_made += 1;
        }
        // A local refusal failed no attempt: there is nothing to be announced, or it was announced
        // before.
        let refused = failure.class.is_local_refusal();
        let steps = if refused {
            Vec::new()
        } else {
            self.announce(failure, strategy, wait)
        };
        self.previous_wait = Some(wait.duration);
        self.wait = Some(wait);
        self.hint = hint;
        AfterFailure::Again(steps)
    }

    /// What followers receive of a failed attempt that is made again after a wait, whatever is
    /// waited for.
    pub(super) fn announce(
        &mut self,
        failure: &Failure,
        strategy: RecoveryStrategy,
        wait: Wait,
    ) -> Vec<StreamStep> {
        if let Some(whole) = self.answer.take() {
            // Its target answered, but not so that it is of use; that end comes before what follows
            // it.
            self.scope.reject(failure.clone());
            drop(whole);
        }
        let adapts = strategy == RecoveryStrategy::Adapt;
        let adaptation = adapts
            .then(|| self.failed_record(failure)?.adaptation)
            .flatten();
        let mut steps = Vec::from_iter(self.report_recovery(
            failure,
            strategy,
            wait,
            adaptation.as_deref(),
            None,
        ));
        steps.extend(self.abandon(failure));
        steps
    }

    /// Reports what follows a failure, and returns the step that shows it to followers. `going_on`
    /// is what is done in place of a retry after a crash of Relight.
    pub(super) fn report_recovery(
        &self,
        failure: &Failure,
        strategy: RecoveryStrategy,
        wait: Wait,
        adaptation: Option<&str>,
        going_on: Option<&'static str>,
    ) -> Option<StreamStep> {
        let target = failure.target.as_ref().or(self.last.as_ref());
        let decided = InvocationEvent::RecoveryDecided {
            operation: &self.scope.invocation.operation,
            class: failure.class,
            count: self.count(),
            strategy,
            wait,
            adaptation,
            going_on,
            budget_left: target.map_or(0.0, |target| {
                self.targets.budget_share(target, Instant::now())
            }),
        };
        self.scope.report(
            self.scope.next_number() - 1,
            failure.target.as_ref(),
            &decided,
        )
    }

    /// Abandons what the last attempt delivered.
    pub(super) fn abandon(&mut self, failure: &Failure) -> Vec<StreamStep> {
        // An answer that is unusable for what it says is not gone on with.
        let is_text = self.call.response_format == ResponseFormat::Text;
        let seamless = is_text && Finding::of(failure).is_none() && !self.diverged;
        self.assembler
            .abandon(self.scope.next_number() - 1, failure.class, seamless)
    }

    /// The number of the recovery that starts now, and how many are allowed.
    pub(super) fn count(&self) -> (u32, u32) {
        let retry = self.scope.counted_attempts();
        (retry, self.scope.plan.retry.max_retries.max(retry))
    }

    pub(super) fn settle(&mut self, how: Settled) {
        if let Some(reserved) = self.reserved.take() {
            reserved.settle(how);
        } else if matches!(how, Settled::Succeeded)
            && self.scope.counted_attempts() == 1
            && let Some(target) = self
                .scope
                .attempts()
                .first()
                .and_then(|record| record.target.clone())
        {
            self.targets.first_try_succeeded(&target);
        }
    }
}

// === impl StreamBreaks ===

impl StreamBreaks {
    /// Counts a break after which followers hold so many bytes, and returns whether it is one too
    /// many.
    fn one_more(&mut self, bytes: usize) -> bool {
        self.made += 1;
        self.advanced = bytes > self.reached;
        self.reached = self.reached.max(bytes);
        self.made > MAX_BREAKS
    }
}

/// What the first attempt was expected to cost: what it did cost where that is known, else by the
/// length of the prompt (four bytes a token, as is usual for English) and the output limit.
fn expected_tokens(call: &ModelCall, first: Option<&AttemptRecord>) -> u64 {
    let known = first
        .map(|record| record.usage)
        .filter(|usage| usage.exactness == Exactness::Exact);
    if let Some(usage) = known {
        return usage.input_tokens + usage.output_tokens;
    }
    estimated_tokens(call.text_bytes()) + u64::from(call.max_output_tokens.unwrap_or(1024))
}
