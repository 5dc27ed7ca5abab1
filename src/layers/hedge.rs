//! A second attempt beside a silent first: whoever speaks first is kept, the other is cancelled before that.
//!
//! Two things start it: the soft first-token timer, when another target is ready, and hedging by measured latency,
//! where the route asks for it. Both draw on the invocation's one allowance and on the retry budget. An error never
//! wins while the other attempt lives.

use std::{sync::Arc, task::Poll, time::Duration};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{
    BoxFuture, Deltas,
    attempt::Attempt,
    observe::millis,
    spans::AttemptSpan,
    targets::{Reserved, Targets},
};
use crate::{
    domain::{
        adaptation::Wording,
        completion::Delta,
        event::EventBody,
        failure::{Failure, FailureClass},
        invocation::AttemptCause,
    },
    policy::{
        dice::Dice,
        retry::{Availability, Cost, HARD_CAP_ATTEMPTS},
        retry_budget::Settled,
        select::{Choice, choose},
        timers::{TimersPolicy, USUAL_SAMPLES},
    },
};

/// Starts second attempts.
#[derive(Debug, Clone)]
pub struct HedgeLayer {
    targets: Targets,
}

/// See [`HedgeLayer`].
#[derive(Debug, Clone)]
pub struct Hedge<S> {
    inner: S,
    targets: Targets,
}

// === impl HedgeLayer ===

impl HedgeLayer {
    /// Looks for the second target here.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }
}

impl<S> tower::Layer<S> for HedgeLayer {
    type Service = Hedge<S>;

    fn layer(&self, inner: S) -> Hedge<S> {
        Hedge { inner, targets: self.targets.clone() }
    }
}

// === impl Hedge ===

impl<S> Service<Attempt> for Hedge<S>
where
    S: Service<Attempt, Response = Deltas, Error = Failure> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Deltas;
    type Error = Failure;
    type Future = BoxFuture<Result<Deltas, Failure>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, attempt: Attempt) -> Self::Future {
        let inner = self.inner.clone();
        let targets = self.targets.clone();
        Box::pin(async move {
            let delays = hedge_delays(&targets, &attempt);
            if delays.is_empty() {
                return inner.oneshot(attempt).await;
            }
            let began = Instant::now();
            let primary = speak(inner.clone(), attempt.clone());
            tokio::pin!(primary);
            let mut started = None;
            for HedgeDelay { delay, is_measured } in delays {
                tokio::select! {
                    biased;
                    spoken = &mut primary => return spoken.map(Spoken::deltas),
                    () = tokio::time::sleep_until(began + delay) => {}
                }
                started = Second::start(&targets, &attempt, delay, is_measured);
                if started.is_some() {
                    break;
                }
            }
            let Some(second) = started else {
                return primary.await.map(Spoken::deltas);
            };
            let beside = speak(inner, second.attempt.clone());
            tokio::pin!(beside);
            tokio::select! {
                biased;
                spoken = &mut primary => match spoken {
                    Ok(spoken) => Ok(spoken.deltas()),
                    Err(_) => second.relay(beside.await),
                },
                spoken = &mut beside => match spoken {
                    Ok(spoken) => second.relay(Ok(spoken)),
                    Err(failure) => {
                        second.over(Some(&failure));
                        primary.await.map(Spoken::deltas)
                    }
                },
            }
        })
    }
}

/// How long the first attempt may be silent before another starts.
struct HedgeDelay {
    delay: Duration,
    /// Whether it follows from measured latency, so that the hedge counts against the share of calls that may have one.
    is_measured: bool,
}

/// After which silences of the first attempt another may start, the shortest first; none where none may.
fn hedge_delays(targets: &Targets, attempt: &Attempt) -> Vec<HedgeDelay> {
    let plan = &attempt.scope.plan;
    // What is read on is there already, and a second answer is what is to be saved.
    if attempt.attach.is_some() {
        return Vec::new();
    }
    if plan.targets.len() < 2 || plan.retry.max_retries == 0 || !plan.retry.enabled {
        return Vec::new();
    }
    let now = Instant::now();
    let ready = targets.alternative_healthy(&attempt.scope, &attempt.target.id, now);
    let remaining = attempt.deadline.saturating_duration_since(now);
    let soft = plan.timers.for_attempt(ready, remaining, None).soft;
    let (measured, usual) = {
        let latency = attempt.state.latency();
        let (p95, samples) = (latency.p95(now), latency.samples(now));
        (plan.hedge.delay(p95, samples), latency.p50(now).filter(|_| samples >= USUAL_SAMPLES))
    };
    let soft = soft.map(|soft| {
        let circuit = attempt.state.circuit();
        // Of a target that is known to be slow, what is usual is not what is wanted.
        if circuit.degraded() { soft.min(circuit.policy().slow_threshold) } else { TimersPolicy::patience(soft, usual) }
    });
    let measured = measured.map(|delay| HedgeDelay { delay, is_measured: true });
    let soft = soft.map(|delay| HedgeDelay { delay, is_measured: false });
    let mut delays: Vec<HedgeDelay> = measured.into_iter().chain(soft).collect();
    delays.sort_by_key(|hedge| hedge.delay);
    delays
}

/// An answer that has begun.
struct Spoken {
    begun: Vec<Result<Delta, Failure>>,
    rest: Deltas,
}

impl Spoken {
    fn deltas(self) -> Deltas {
        let Self { begun, mut rest } = self;
        Box::pin(stream! {
            for item in begun {
                yield item;
            }
            while let Some(item) = rest.next().await {
                yield item;
            }
        })
    }
}

/// Runs an attempt up to its first content, which is what a race is about.
async fn speak<S>(inner: S, attempt: Attempt) -> Result<Spoken, Failure>
where
    S: Service<Attempt, Response = Deltas, Error = Failure>,
{
    let mut rest = inner.oneshot(attempt).await?;
    let mut begun = Vec::new();
    while let Some(item) = rest.next().await {
        match item {
            Err(failure) => return Err(failure),
            Ok(delta) => {
                let content = delta.is_content();
                begun.push(Ok(delta));
                if content {
                    break;
                }
            }
        }
    }
    Ok(Spoken { begun, rest })
}

/// The second attempt, what was paid for it, and its span.
struct Second {
    attempt: Attempt,
    reserved: Reserved,
    span: AttemptSpan,
}

impl Second {
    fn start(targets: &Targets, first: &Attempt, delay: Duration, is_measured: bool) -> Option<Self> {
        let scope = &first.scope;
        let allowed = scope.plan.retry.max_retries.saturating_add(1).min(HARD_CAP_ATTEMPTS);
        if scope.counted_attempts() >= allowed {
            return None;
        }
        let now = Instant::now();
        let mut candidates = targets.candidates(scope, now);
        for candidate in &mut candidates {
            if candidate.target == first.target.id || candidate.failed_silent || candidate.attempts > 0 {
                candidate.availability = Availability::Never;
            }
        }
        let mut dice = Dice::new(scope.plan.seed, &scope.invocation.id, scope.next_number());
        let Choice::Target(index) = choose(&scope.plan.select, &candidates, None, None, &mut dice) else {
            return None;
        };
        let target = Arc::clone(scope.plan.targets.get(index)?);
        let state = targets.state(&target.id)?;
        // Counted only when it starts: a call that is quick enough uses nothing of the share.
        if is_measured && !first.state.may_hedge(now, scope.plan.hedge.max_share) {
            return None;
        }
        let reserved = targets.reserve(&target.id, Cost::Hedge, now)?;
        let cause = AttemptCause::Hedge;
        let number = scope.begin(cause, &target, None);
        let span = scope.trace.attempt(number, cause);
        let body = EventBody::HedgeStarted { beside: first.target.id.clone(), after_ms: millis(delay) };
        scope.publish(number, Some(&target.id), body);
        let trace = span.trace();
        scope.learn(number, |record| record.span_id = trace.span_id());
        state.say_chosen(&trace, now, "the first target is silent");
        let attempt = Attempt { number, cause, target, state, trace, wording: Wording::default(), ..first.clone() };
        Some(Self { attempt, reserved, span })
    }

    /// Relays the second attempt's answer, or its failure: then both have failed.
    fn relay(self, spoken: Result<Spoken, Failure>) -> Result<Deltas, Failure> {
        let mut deltas = match spoken {
            Ok(spoken) => spoken.deltas(),
            Err(failure) => {
                self.over(Some(&failure));
                return Err(failure);
            }
        };
        Ok(Box::pin(stream! {
            let mut second = Some(self);
            while let Some(item) = deltas.next().await {
                let over = matches!(&item, Err(_) | Ok(Delta::Finish { .. }));
                if let Some(second) = second.take_if(|_| over) {
                    second.over(item.as_ref().err());
                }
                yield item;
            }
        }))
    }

    fn over(self, failure: Option<&Failure>) {
        match failure {
            None => {
                self.reserved.settle(Settled::Succeeded);
                self.span.finish_ok(true);
            }
            Some(failure) if failure.class == FailureClass::Cancelled => {
                self.reserved.settle(Settled::NotUsed);
                self.span.finish_cancelled();
            }
            Some(failure) => {
                self.reserved.settle(Settled::Failed);
                self.span.finish_failed(failure, !failure.never_sent);
            }
        }
    }
}
