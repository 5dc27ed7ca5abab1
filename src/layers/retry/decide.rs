//! What follows a failed attempt: has the policy decide, pays for what it allows, and prepares it.

use tokio::time::Instant;

use super::RetryLoop;
use crate::{
    domain::{
        completion::{Exactness, estimated_tokens},
        event::{EventBody, recovery_words},
        failure::{Failure, FailureClass, Wait},
        fold::StreamStep,
        ids::TargetId,
        invocation::{AttemptCause, AttemptRecord, RecoveryStrategy},
        message::{ModelCall, ResponseFormat},
    },
    layers::{BoxFuture, targets::Reserved},
    policy::{
        continuation::MAX_BREAKS,
        inject::Finding,
        retry::{Candidate, Decision, Relayed, Situation, StopReason, larger_window_first, plan},
        retry_budget::Settled,
        rng::SeededRng,
    },
};

/// Next step after a failure.
pub(super) enum AfterFailure {
    Stop(StreamStep),
    Park {
        pending_events: Vec<StreamStep>,
        until: Instant,
        changed: BoxFuture<()>,
    },
    Again(Vec<StreamStep>),
    /// Nothing: the content that followers hold, with these, is the completion.
    Complete(Vec<StreamStep>),
}

/// State of the phase that judges: what was decided so far, and of what.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Target of the last failure.
    pub(super) last: Option<TargetId>,
    /// Class of the last failure.
    pub(super) after: Option<FailureClass>,
    /// Last failure that was no refusal of Relight's own.
    pub(super) upstream: Option<Failure>,
    /// Times of the first such failure and of the last one.
    pub(super) failed_from_to: Option<(Instant, Instant)>,
    /// Refusals of Relight's own since then.
    pub(super) refusals: u32,
    /// Payment for the next attempt, until it is known how that went.
    pub(super) reserved: Option<Reserved>,
    /// Nothing that may be tried would help.
    pub(super) impossible: bool,
    /// Fault of the completion that is passed on all the same.
    pub(super) passed_on: Option<String>,
    /// The local refusal that ended recovery after a real failure.
    pub(super) stopped_by: Option<FailureClass>,
}

/// The breaks after content was delivered.
#[derive(Debug, Default)]
pub(super) struct StreamBreaks {
    made: usize,
    /// Bytes that followers held at most.
    reached: usize,
    /// `true` if followers held more at the last break than at any before it.
    advanced: bool,
}

impl<S> RetryLoop<S> {
    /// Takes up the counts of an earlier owner, whose last attempt is yet to be decided upon.
    pub(super) fn recount(&mut self, before: &[AttemptRecord]) {
        let decided = before.split_last().map_or(&[][..], |(_, decided)| decided);
        self.read.breaks.made = decided
            .iter()
            .filter(|record| {
                record.failure.is_some()
                    && record.first_token.is_some()
                    && !record.lost_with_replica
            })
            .count();
        self.read.extension.made = before
            .iter()
            .filter(|record| record.cause == AttemptCause::Extend)
            .count();
    }

    /// Returns whether the attempt that failed had started to respond.
    fn broke(&self, failure: &Failure) -> bool {
        let began = self
            .scope
            .attempts()
            .last()
            .is_some_and(|record| record.first_token.is_some());
        began && !failure.class.is_local_refusal() && self.read.assembler.bytes() > 0
    }

    /// Returns the failure of an attempt that says something else than what was sent and cannot be
    /// taken back.
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

    /// Returns whether no further attempt of this kind mends a completion of which something was sent
    /// that cannot be taken back: what was sent is the fault itself, or the last call is left for
    /// its rest, which another request asks for.
    fn is_beyond_mending(&self, failure: &Failure) -> bool {
        let is_last = self.scope.sent_attempts() >= self.scope.plan.retry.max_retries;
        Finding::of(failure).is_some_and(|finding| finding.is_of_the_text())
            || (self.read.diverged && is_last && self.scope.append_only().is_continued())
    }

    /// Decides by the policy what to do about a failure, and prepares it.
    pub(super) fn decide(&mut self, failure: Failure) -> AfterFailure {
        if failure.class.is_local_refusal() {
            self.verdict.refusals += 1;
        } else {
            self.verdict.refusals = 0;
            self.verdict.last.clone_from(&failure.target);
            self.verdict.after = Some(failure.class);
            self.verdict.upstream = Some(failure.clone());
            let now = Instant::now();
            let first = self.verdict.failed_from_to.map_or(now, |(first, _)| first);
            self.verdict.failed_from_to = Some((first, now));
        }
        self.read.relayed = if self.read.assembler.has_content() {
            Relayed::Rewindable
        } else {
            Relayed::Nothing
        };
        if self.broke(&failure) {
            // An attempt that says something else is not a break of a completion that could be
            // repeated.
            if self.read.breaks.one_more(self.read.assembler.bytes()) && !self.read.diverged {
                return self.stopped(failure, &StopReason::AttemptsUsedUp);
            }
            if self.scope.append_only().has_sent() && self.read.breaks.advanced {
                self.read.relayed = Relayed::AppendOnly;
            }
        }
        if self.scope.append_only().has_sent() && self.is_beyond_mending(&failure) {
            self.read.relayed = Relayed::Irrevocable;
        }
        let now = Instant::now();
        if let Some(next) = self.rotate(&failure, now) {
            return next;
        }
        let mut candidates = self.targets.candidates(&self.scope, now);
        let note_refused = self
            .scope
            .attempts()
            .last()
            .is_some_and(|record| record.injection.refused);
        self.request.adapted = note_refused && !failure.class.is_local_refusal();
        if self.request.adapted {
            self.record_change(&failure, "the note about earlier failures was left out");
        }
        if self.changes_for(&failure, &candidates) || self.shorten_for(&failure, &candidates) {
            self.request.adapted = true;
            candidates = self.targets.candidates(&self.scope, now);
        }
        if let Some(step) = &self.request.step {
            self.request.adapted = step.adapts;
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
            let Some(payer) = hint.clone().or_else(|| self.verdict.last.clone()) else {
                return self.again(&failure, wait, strategy, hint);
            };
            self.verdict.reserved = self.targets.reserve(&payer, cost, now);
            if self.verdict.reserved.is_some() {
                return self.again(&failure, wait, strategy, hint);
            }
            let (level, capacity) = self.targets.budget(&payer, now);
            let exhausted = EventBody::BudgetExhausted { level, capacity };
            self.scope.publish(0, Some(&payer), exhausted);
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
            || self
                .request
                .changes
                .iter()
                .any(|(_, made)| made.same_kind(change))
        {
            return false;
        }
        self.request.changes.push((target.clone(), change.clone()));
        self.record_change(failure, &change.to_string());
        true
    }

    /// Records what is changed because of a failure, of the attempt that failed.
    pub(super) fn record_change(&self, failure: &Failure, words: &str) {
        if let Some(number) = self.failed_record(failure).map(|record| record.number) {
            self.scope.amend(number, |record| {
                record.adaptation = Some(words.to_owned());
            });
        }
    }

    /// Returns the last attempt on the target that failed; of two in a race, that may not be the
    /// last one.
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
        let limited = if self.scope.plan.retry.uniform_waits {
            0
        } else {
            let limited = attempts.iter().filter(|record| {
                was_limited(record) && !matches!(record.cause, AttemptCause::Rotate(_))
            });
            u32::try_from(limited.count()).unwrap_or(u32::MAX)
        };
        let mut rng = SeededRng::new(
            self.scope.plan.seed,
            &self.scope.invocation.id,
            self.scope.next_number(),
        );
        let (failing_since, failed_at) = self.verdict.failed_from_to.unwrap_or((now, now));
        let situation = Situation {
            now,
            deadline: self.scope.invocation.deadline,
            failure: word,
            decisive: self
                .verdict
                .upstream
                .as_ref()
                .filter(|_| word.class.is_local_refusal()),
            failed_target: word.target.as_ref(),
            retries_made: self
                .scope
                .sent_attempts()
                .saturating_sub(limited)
                .saturating_sub(1),
            unsent_made: self.scope.unsent_attempts(),
            limited_made: limited,
            refusals: self.verdict.refusals,
            failed_at,
            failing_since,
            previous_wait: self.waits.previous,
            relayed: self.read.relayed,
            adapted: self.request.adapted,
            given: self.request.step.as_ref().map(|step| step.options),
            candidates,
            first_attempt_tokens: expected_tokens(&self.request.call, &attempts),
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
    ) -> AfterFailure {
        // A local refusal failed no attempt: there is nothing to be announced, or it was announced
        // before.
        let refused = failure.class.is_local_refusal();
        let steps = if refused {
            Vec::new()
        } else {
            self.announce(failure, strategy, wait)
        };
        self.waits.previous = Some(wait.duration);
        self.waits.next = Some(wait);
        self.request.hint = hint;
        AfterFailure::Again(steps)
    }

    /// Returns the steps that followers receive of a failed attempt that is made again after a
    /// wait, whatever is waited for.
    pub(super) fn announce(
        &mut self,
        failure: &Failure,
        strategy: RecoveryStrategy,
        wait: Wait,
    ) -> Vec<StreamStep> {
        if let Some(whole) = self.read.deltas.take() {
            // Its target responded, but not so that it is of use; that end comes before what
            // follows it.
            self.scope.reject(failure.clone());
            drop(whole);
        }
        let adapts = strategy == RecoveryStrategy::Adapt;
        let adaptation = adapts
            .then(|| self.failed_record(failure)?.adaptation)
            .flatten();
        let mut steps =
            vec![self.report_recovery(failure, strategy, wait, adaptation.as_deref(), None)];
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
    ) -> StreamStep {
        let class = failure.class;
        let error = failure.phrase();
        let operation = &self.scope.invocation.operation;
        let attempt = self.scope.next_number() - 1;
        let (retry, max_retries) = self.count();
        let decided = EventBody::RecoveryAttempted {
            error: error.to_owned(),
            class,
            recovery_hint: failure.recovery_hint.clone(),
            retry,
            max_retries,
            strategy,
            wait,
            adaptation: adaptation.map(str::to_owned),
            going_on: going_on.map(str::to_owned),
        };
        self.scope
            .publish(attempt, failure.target.as_ref(), decided);
        let display = if let (RecoveryStrategy::Chunk, Some(reason)) = (strategy, adaptation) {
            format!("Splitting {operation}: {reason}")
        } else {
            let count = (retry, max_retries);
            recovery_words(operation.as_str(), error, count, adaptation, going_on)
        };
        let target = failure.target.as_ref().or(self.verdict.last.as_ref());
        StreamStep::Recovery {
            attempt,
            class,
            strategy,
            wait,
            display,
            budget_left: target.map_or(0.0, |target| {
                self.targets.budget_share(target, Instant::now())
            }),
            adaptation: adaptation.map(str::to_owned),
        }
    }

    /// Abandons what the last attempt delivered.
    pub(super) fn abandon(&mut self, failure: &Failure) -> Vec<StreamStep> {
        // A completion that is unusable for what it says is not continued.
        let is_text = self.request.call.response_format == ResponseFormat::Text;
        let seamless = is_text && Finding::of(failure).is_none() && !self.read.diverged;
        self.read
            .assembler
            .abandon(self.scope.next_number() - 1, failure.class, seamless)
    }

    /// Returns the number of the recovery that starts now, and how many are allowed. Attempts that
    /// were sent and those that were not have an allowance each, of the same size; the number is
    /// that of the one that is used up further.
    pub(super) fn count(&self) -> (u32, u32) {
        let allowed = self.scope.plan.retry.max_retries;
        let made = self.scope.sent_attempts().max(self.scope.unsent_attempts());
        (made.min(allowed), allowed)
    }

    pub(super) fn settle(&mut self, how: Settled) {
        if let Some(reserved) = self.verdict.reserved.take() {
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

/// Returns whether an attempt was only told to come later.
fn was_limited(record: &AttemptRecord) -> bool {
    record
        .failure
        .as_ref()
        .is_some_and(|failure| failure.class == FailureClass::RateLimited && !failure.never_sent)
}

/// Returns the expected cost of the first attempt: its actual cost if that is known, else by the
/// length of the prompt (four bytes a token, as is usual for English) and the output limit, or that of
/// the costliest attempt, since an answer may be cut at any length.
fn expected_tokens(call: &ModelCall, attempts: &[AttemptRecord]) -> u64 {
    let known = attempts
        .first()
        .map(|record| record.usage)
        .filter(|usage| usage.exactness == Exactness::Exact);
    if let Some(usage) = known {
        return usage.input_tokens + usage.output_tokens;
    }
    let estimate =
        estimated_tokens(call.text_bytes()) + u64::from(call.max_output_tokens.unwrap_or(1024));
    let costs = attempts
        .iter()
        .map(|record| record.usage.input_tokens + record.usage.output_tokens);
    costs.fold(estimate, u64::max)
}
