//! The planner loop: ask, judge, decide, wait, ask again; one loop for every way to recover.
//!
//! It sits outside the circuit, so that the circuit sees every wire attempt, and inside the deadline, so that a
//! fallback never starts a new clock. It decides nothing itself: `policy::retry` does. It never sleeps after the
//! last attempt, never past the deadline, and never lets a local refusal hide a real failure.

use std::{sync::Arc, task::Poll, time::Duration};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::{sync::mpsc, time::Instant};
use tower::{Service, ServiceExt as _};

use super::{
    BoxFuture, Deltas, ProgressStream,
    attempt::Try,
    delivery::Delivery,
    scope::Scope,
    spans::AttemptTrace,
    targets::{Reserved, Targets},
};
use crate::{
    domain::{
        completion::Exactness,
        event::EventBody,
        failure::{Failure, FailureClass, Wait, WaitSource},
        fold::Progress,
        ids::TargetId,
        invocation::{AttemptCause, AttemptRecord, Call, HistoryPatch, RecoveryStrategy},
        message::{ModelCall, ResponseFormat},
    },
    policy::{
        dice::Dice,
        inject,
        retry::{Candidate, Cost, Decision, Relayed, Situation, StopReason, plan, remedies},
        retry_budget::Settled,
    },
};

/// Wraps a service of attempts into a service of invocations.
#[derive(Debug, Clone)]
pub struct RetryLayer {
    targets: Targets,
}

/// See [`RetryLayer`].
#[derive(Debug, Clone)]
pub struct Retry<S> {
    inner: S,
    targets: Targets,
}

// === impl RetryLayer ===

impl RetryLayer {
    /// Plans over these targets.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }
}

impl<S> tower::Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry { inner, targets: self.targets.clone() }
    }
}

// === impl Retry ===

impl<S> Service<Arc<Scope>> for Retry<S>
where
    S: Service<Try, Response = Deltas, Error = Failure> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = ProgressStream;
    type Error = Failure;
    type Future = BoxFuture<Result<ProgressStream, Failure>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, scope: Arc<Scope>) -> Self::Future {
        let course = Course::new(self.inner.clone(), self.targets.clone(), scope);
        Box::pin(async move { Ok(course.run()) })
    }
}

/// The course of one invocation.
struct Course<S> {
    inner: S,
    targets: Targets,
    scope: Arc<Scope>,
    call: Arc<ModelCall>,
    delivery: Delivery,
    impossible: bool,
    last: Option<TargetId>,
    hint: Option<TargetId>,
    after: Option<FailureClass>,
    wait: Option<Wait>,
    previous_wait: Option<Duration>,
    semantic_made: u32,
    parked_rounds: u32,
    reserved: Option<Reserved>,
    refusals: u32,
    adapted: bool,
    real: Option<Failure>,
}

/// How often one invocation may be refused locally before it is told so: a bound on pathological ping-pong.
const MAX_PARKED_ROUNDS: u32 = 256;

impl<S> Course<S>
where
    S: Service<Try, Response = Deltas, Error = Failure> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    fn new(inner: S, targets: Targets, scope: Arc<Scope>) -> Self {
        let call = match &scope.invocation.call {
            Call::Model(call) => Arc::new(inject::repair(call).into_owned()),
            Call::Tool(_) => Arc::default(),
        };
        Self {
            inner,
            targets,
            scope,
            call,
            delivery: Delivery::default(),
            impossible: false,
            last: None,
            hint: None,
            after: None,
            wait: None,
            previous_wait: None,
            semantic_made: 0,
            parked_rounds: 0,
            reserved: None,
            refusals: 0,
            adapted: false,
            real: None,
        }
    }

    fn run(mut self) -> ProgressStream {
        Box::pin(stream! {
            let Some(mut steps) = self.scope.take_steps() else {
                yield self.failed(Failure::local(FailureClass::State, "the invocation runs already"), "it runs already");
                return;
            };
            let before = self.scope.take_before();
            let orphaned = before.attempts.into_iter().next_back().and_then(|record| record.failure);
            self.delivery = Delivery::after(before.blocks, before.last_block);
            if let Some(failure) = orphaned {
                match self.decide(failure) {
                    Next::Stop(terminal) => { yield terminal; return; }
                    Next::Park { until, changed } => parked(until, changed).await,
                    Next::Again(said) => for step in said { yield step; },
                }
            }
            loop {
                let span = self.scope.trace.attempt(self.scope.next_number(), self.cause());
                let trace = span.trace();
                if let Some(wait) = self.wait.filter(|wait| !wait.duration.is_zero()) {
                    let backoff = trace.backoff(wait);
                    tokio::time::sleep(wait.duration).await;
                    backoff.finish();
                }
                let attempt = self.next_try(trace);
                self.delivery.begin_attempt();
                let opening = self.inner.clone().oneshot(attempt);
                tokio::pin!(opening);
                let opened = loop {
                    tokio::select! {
                        biased;
                        Some(step) = steps.recv() => yield step,
                        opened = &mut opening => break opened,
                    }
                };
                let mut failure = None;
                match opened {
                    Err(refused) => failure = Some(refused),
                    Ok(mut deltas) => loop {
                        tokio::select! {
                            biased;
                            Some(step) = steps.recv() => yield step,
                            item = deltas.next() => match item {
                                Some(Ok(delta)) => {
                                    if delta.is_content() { self.settle(Settled::Succeeded); }
                                    let number = self.scope.next_number() - 1;
                                    for step in self.delivery.push(number, delta) { yield step; }
                                }
                                Some(Err(broken)) => { failure = Some(broken); break; }
                                None => break,
                            }
                        }
                    },
                }
                while let Some(step) = said(&mut steps) { yield step; }
                let Some(failure) = failure else {
                    span.finish_ok(true);
                    for step in self.delivery.commit() { yield step; }
                    yield self.succeeded();
                    return;
                };
                span.finish_failed(&failure, !failure.never_sent);
                let cancelled = failure.class == FailureClass::Cancelled;
                let unused = failure.class.is_local_refusal() || cancelled;
                self.settle(if unused { Settled::NotUsed } else { Settled::Failed });
                match self.decide(failure) {
                    Next::Stop(terminal) => {
                        for step in self.delivery.flush() { yield step; }
                        yield terminal;
                        return;
                    }
                    Next::Park { until, changed } => parked(until, changed).await,
                    Next::Again(said) => for step in said { yield step; },
                }
            }
        })
    }

    /// Why the next attempt is made, as far as it is known before its target is chosen.
    fn cause(&self) -> AttemptCause {
        match (self.after, &self.hint) {
            (None, _) => AttemptCause::Initial,
            (Some(class), _) if self.adapted => AttemptCause::Adapt(class),
            (Some(class), Some(hint)) if Some(hint) != self.last.as_ref() => AttemptCause::Fallback(class),
            (Some(class), _) => AttemptCause::Retry(class),
        }
    }

    fn next_try(&mut self, trace: AttemptTrace) -> Try {
        let policy = &self.scope.plan.retry;
        let avoid_last = self.real.as_ref().is_some_and(|failure| remedies(policy, failure).other_first);
        Try {
            scope: Arc::clone(&self.scope),
            call: Arc::clone(&self.call),
            after: self.after,
            last: self.last.clone(),
            avoid_last,
            adapted: self.adapted,
            hint: self.hint.take(),
            wait: self.wait.take(),
            trace,
        }
    }

    /// What else could be tried, in words.
    fn alternatives(&self, reason: &StopReason) -> Vec<String> {
        let mut words = Vec::new();
        if self.scope.plan.targets.len() < 2 {
            words.push("Add a second target to the route, so that there is somewhere to fall back to.".to_owned());
        }
        match reason {
            StopReason::DeadlineTooClose { .. } => words.push("Give the invocation a longer deadline.".to_owned()),
            StopReason::NoTarget { retry_in: Some(_) } => {
                words.push("Come back when a target is available.".to_owned())
            }
            StopReason::AttemptsUsedUp => words.push("Allow more retries.".to_owned()),
            StopReason::Disabled => words.push("Enable retries for this operation.".to_owned()),
            StopReason::NotRetryable
            | StopReason::Irrevocable
            | StopReason::SemanticUsedUp
            | StopReason::BudgetEmpty
            | StopReason::NoTarget { retry_in: None }
            | StopReason::TokensUsedUp => {}
        }
        words
    }

    /// Asks the policy what to do about a failure, and makes ready for it.
    fn decide(&mut self, failure: Failure) -> Next {
        if failure.class.is_local_refusal() {
            self.refusals += 1;
        } else {
            self.refusals = 0;
            self.last.clone_from(&failure.target);
            self.after = Some(failure.class);
            self.real = Some(failure.clone());
        }
        let now = Instant::now();
        let mut candidates = self.targets.candidates(&self.scope, now);
        let note_refused = self.scope.attempts().last().is_some_and(|record| record.note_refused);
        self.adapted = note_refused && !failure.class.is_local_refusal();
        let mut word = failure.clone();
        // Each round rules out one target whose budget is empty, so there are no more rounds than targets.
        loop {
            let decision = self.plan(&word, &candidates, now);
            let (wait, strategy, hint, cost) = match decision {
                Decision::Stop(_) if word.class == FailureClass::BudgetEmpty => {
                    return self.stopped(failure, &StopReason::BudgetEmpty);
                }
                Decision::Stop(reason) => return self.stopped(failure, &reason),
                Decision::Park { until, target } => return self.park(failure, until, &target),
                Decision::Again { wait, strategy, target_hint, cost } => (wait, strategy, target_hint, cost),
            };
            let Some(payer) = hint.clone().or_else(|| self.last.clone()) else {
                return self.again(&failure, wait, strategy, hint, cost);
            };
            self.reserved = self.targets.reserve(&payer, cost, now);
            if self.reserved.is_some() {
                return self.again(&failure, wait, strategy, hint, cost);
            }
            let level = self.targets.budget_level(&payer, now);
            self.scope.publish(0, Some(&payer), EventBody::BudgetExhausted { level });
            let poor = candidates.iter_mut().find(|candidate| candidate.target == payer && !candidate.ruled_out);
            let Some(poor) = poor else { return self.stopped(failure, &StopReason::BudgetEmpty) };
            poor.ruled_out = true;
            word = Failure::local(FailureClass::BudgetEmpty, "the retry budget is empty");
            word.target = Some(payer);
        }
    }

    /// Asks the policy once.
    fn plan(&self, word: &Failure, candidates: &[Candidate], now: Instant) -> Decision {
        let attempts = self.scope.attempts();
        let counted = self.scope.counted_attempts();
        let mut dice = Dice::new(self.scope.plan.seed, &self.scope.invocation.id, self.scope.next_number());
        let situation = Situation {
            now,
            deadline: self.scope.invocation.deadline,
            failure: word,
            decisive: self.real.as_ref().filter(|_| word.class.is_local_refusal()),
            failed_target: word.target.as_ref(),
            retries_made: counted.saturating_sub(1).saturating_sub(self.semantic_made),
            semantic_made: self.semantic_made,
            refusals: self.refusals,
            previous_wait: self.previous_wait,
            relayed: if self.delivery.has_content() { Relayed::Rewindable } else { Relayed::Nothing },
            adapted: self.adapted,
            candidates,
            first_attempt_tokens: estimated_tokens(&self.call, attempts.first()),
            spent_tokens: attempts.iter().map(|record| record.usage.input_tokens + record.usage.output_tokens).sum(),
        };
        plan(&self.scope.plan.retry, &situation, &mut dice)
    }

    fn again(
        &mut self,
        failure: &Failure,
        wait: Wait,
        strategy: RecoveryStrategy,
        hint: Option<TargetId>,
        cost: Cost,
    ) -> Next {
        if cost == Cost::Semantic {
            self.semantic_made += 1;
        }
        let number = self.scope.next_number() - 1;
        let (retry, max_retries) = self.count();
        let body = EventBody::RecoveryAttempted {
            error: failure.class.phrase().to_owned(),
            class: failure.class,
            retry,
            max_retries,
            strategy,
            wait,
        };
        let display = format!(
            "Retrying {} (attempt {retry}/{max_retries}): {}",
            self.scope.invocation.operation,
            failure.class.phrase()
        );
        self.scope.publish(number, failure.target.as_ref(), body);
        let mut steps = vec![Progress::Recovery { attempt: number, class: failure.class, strategy, wait, display }];
        let seamless = self.call.response_format == ResponseFormat::Text;
        steps.extend(self.delivery.abandon(number, failure.class, seamless));
        self.previous_wait = Some(wait.duration);
        self.wait = Some(wait);
        self.hint = hint;
        Next::Again(steps)
    }

    fn park(&mut self, failure: Failure, until: Instant, target: &TargetId) -> Next {
        self.parked_rounds += 1;
        if self.parked_rounds > MAX_PARKED_ROUNDS {
            let retry_in = until.saturating_duration_since(Instant::now());
            return self.stopped(failure, &StopReason::NoTarget { retry_in: Some(retry_in) });
        }
        let Some(parked) = self.targets.park(target) else {
            let retry_in = until.saturating_duration_since(Instant::now());
            return self.stopped(failure, &StopReason::NoTarget { retry_in: Some(retry_in) });
        };
        Next::Park { until, changed: parked }
    }

    /// The number of the recovery that begins now, and how many are allowed.
    fn count(&self) -> (u32, u32) {
        let retry = self.scope.counted_attempts();
        (retry, self.scope.plan.retry.max_retries.max(retry))
    }

    fn settle(&mut self, how: Settled) {
        if let Some(reserved) = self.reserved.take() {
            reserved.settle(how);
        } else if matches!(how, Settled::Succeeded) && self.scope.counted_attempts() == 1 {
            if let Some(target) = self.scope.attempts().first().and_then(|record| record.target.clone()) {
                self.targets.first_try_succeeded(&target);
            }
        }
    }

    fn succeeded(&mut self) -> Progress {
        let attempts = self.scope.attempts();
        let winner = attempts.iter().rev().find(|record| record.failure.is_none() && record.winner);
        let winner = winner.or_else(|| attempts.iter().rev().find(|record| record.failure.is_none()));
        let asked = winner.map(|record| record.model.clone()).unwrap_or_default();
        let target = winner.and_then(|record| record.target.clone());
        let Some(completion) = self.delivery.completion(&asked) else {
            return self.failed(
                Failure::local(FailureClass::StreamInterrupted, "the answer ended without its end mark"),
                "the answer was not whole",
            );
        };
        let reasoning = match (attempts.len(), self.after) {
            (0 | 1, _) | (_, None) => "Answered at the first attempt.".to_owned(),
            (count, Some(class)) => format!("Answered by attempt {count}, after {}.", class.phrase().to_lowercase()),
        };
        let history_patch = match (&self.scope.invocation.call, self.scope.sent()) {
            (Call::Model(asked), Some(sent)) => inject::history_patch(&sent, asked, &completion.message),
            (Call::Model(_) | Call::Tool(_), _) => HistoryPatch::default(),
        };
        self.terminal(Ok(completion), reasoning, Vec::new(), history_patch, target)
    }

    fn stopped(&mut self, failure: Failure, reason: &StopReason) -> Next {
        let sentence = reason.sentence();
        let alternatives = self.alternatives(reason);
        let mut decisive = match self.real.take() {
            Some(real) if failure.class.is_local_refusal() => real,
            _ => failure,
        };
        if let StopReason::NoTarget { retry_in: Some(retry_in) } = reason {
            if decisive.retry_after.is_none() {
                decisive = decisive.with_retry_after(*retry_in, WaitSource::Parked);
            }
        }
        let target = decisive.target.clone();
        self.impossible = matches!(reason, StopReason::NotRetryable);
        Next::Stop(self.terminal(Err(decisive), sentence, alternatives, HistoryPatch::default(), target))
    }

    fn failed(&mut self, failure: Failure, reasoning: &str) -> Progress {
        let target = failure.target.clone();
        self.terminal(Err(failure), reasoning.to_owned(), Vec::new(), HistoryPatch::default(), target)
    }

    fn terminal(
        &mut self,
        result: Result<crate::domain::completion::Completion, Failure>,
        reasoning: String,
        alternatives: Vec<String>,
        history_patch: HistoryPatch,
        target: Option<TargetId>,
    ) -> Progress {
        let mut outcome = self.scope.outcome(result, reasoning, target);
        if self.impossible {
            outcome.recovery_applied.push(RecoveryStrategy::Impossible);
        }
        outcome.alternatives = alternatives;
        outcome.history_patch = history_patch;
        Progress::Terminal(Box::new(outcome))
    }
}

/// What comes after a failure.
enum Next {
    Stop(Progress),
    Park { until: Instant, changed: BoxFuture<()> },
    Again(Vec<Progress>),
}

/// What the first attempt was expected to cost: what it did cost where that is known, else by the length of the prompt
/// (four bytes a token, as is usual for English) and the output limit.
fn estimated_tokens(call: &ModelCall, first: Option<&AttemptRecord>) -> u64 {
    let known = first.map(|record| record.usage).filter(|usage| usage.exactness == Exactness::Exact);
    if let Some(usage) = known {
        return usage.input_tokens + usage.output_tokens;
    }
    let prompt: usize = call.messages.iter().map(|message| message.joined_text().len()).sum();
    (prompt as u64).div_ceil(4) + u64::from(call.max_output_tokens.unwrap_or(1024))
}

/// Waits until then, or until something changed.
async fn parked(until: Instant, changed: BoxFuture<()>) {
    tokio::select! {
        () = tokio::time::sleep_until(until) => {}
        () = changed => {}
    }
}

fn said(steps: &mut mpsc::UnboundedReceiver<Progress>) -> Option<Progress> {
    steps.try_recv().ok()
}
