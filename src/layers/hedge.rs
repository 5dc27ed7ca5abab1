//! A second attempt beside a silent first: the one that sends a token first is kept, the other is
//! cancelled.
//!
//! Two things start it: the soft first-token timer, when another target is ready, and hedging by
//! measured latency, if the route enables it. Both draw on the invocation's one allowance and on
//! the retry budget. An error never wins while the other attempt lives.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{Stream, StreamExt as _, stream::iter};
use tokio::time::Instant;

use super::{
    BoxFuture, Deltas,
    attempt::{Attempt, AttemptRequest, CalledTarget, SentRequest},
    event::Preparation,
    guarded::NextLayer,
    spans::AttemptSpan,
    targets::{Parked, Reserved, Targets},
};
use crate::{
    domain::{
        adaptation::DialectOverrides,
        completion::Delta,
        event::{EventBody, millis},
        failure::{Failure, FailureClass},
        invocation::AttemptCause,
    },
    policy::{
        hedge::retry_wait,
        retry::{Availability, Cost, HARD_CAP_ATTEMPTS},
        retry_budget::Settled,
        rng::SeededRng,
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
#[derive(Debug)]
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
        Hedge {
            inner,
            targets: self.targets.clone(),
        }
    }
}

// === impl Hedge ===

impl<S> NextLayer<Arc<Attempt>> for Hedge<S>
where
    S: NextLayer<Arc<Attempt>, Error = Failure>,
    S::Out: Stream<Item = Result<Delta, Box<Failure>>> + Unpin + 'static,
{
    type Out = Deltas;
    type Error = Failure;

    async fn call(&self, attempt: Arc<Attempt>) -> Result<Deltas, Failure> {
        let delays = hedge_delays(&self.targets, &attempt);
        let Some(first) = delays.first() else {
            return Ok(Box::pin(self.inner.call(attempt).await?));
        };
        // Set once, here.
        let _ = attempt.sent.raced_after.set(first.delay);
        let race = Race {
            inner: &self.inner,
            targets: &self.targets,
            attempt,
            began: Instant::now(),
        };
        // Boxed, because most attempts have no second one beside them.
        Box::pin(race.run(delays)).await
    }
}

/// A first attempt that may stay silent, and the attempts beside it.
struct Race<'a, S> {
    inner: &'a S,
    targets: &'a Targets,
    attempt: Arc<Attempt>,
    began: Instant,
}

/// Next step beside a silent first attempt.
enum Beside {
    /// Another attempt, now.
    Start(Box<HedgeAttempt>),
    /// Nothing before this is over.
    Wait(BoxFuture<()>),
    /// Nothing.
    Nothing,
}

// === impl Race ===

impl<S> Race<'_, S>
where
    S: NextLayer<Arc<Attempt>, Error = Failure>,
    S::Out: Stream<Item = Result<Delta, Box<Failure>>> + Unpin + 'static,
{
    /// Returns the completion of the attempt whose first token comes first. One that failed beside the
    /// first is retried when it may be, while the first continues.
    async fn run(self, delays: Vec<HedgeDelay>) -> Result<Deltas, Failure> {
        let primary = speak(self.inner, Arc::clone(&self.attempt));
        tokio::pin!(primary);
        let mut retry_at = None;
        for hedge in delays {
            let mut wait: BoxFuture<()> =
                Box::pin(tokio::time::sleep_until(self.began + hedge.delay));
            loop {
                tokio::select! {
                    biased;
                    first_token = &mut primary => return first_token.map(FirstToken::deltas),
                    () = &mut wait => {}
                }
                let second = match self.next(hedge.is_measured, retry_at) {
                    Beside::Start(second) => second,
                    Beside::Wait(until) => {
                        wait = until;
                        continue;
                    }
                    Beside::Nothing => break,
                };
                let beside = speak(self.inner, Arc::clone(&second.attempt));
                tokio::pin!(beside);
                let failure = tokio::select! {
                    biased;
                    first_token = &mut primary => return match first_token {
                        Ok(first_token) => Ok(first_token.deltas()),
                        Err(_) => second.relay(beside.await),
                    },
                    first_token = &mut beside => match first_token {
                        Ok(first_token) => return second.relay(Ok(first_token)),
                        Err(failure) => failure,
                    },
                };
                retry_at = retry_time(&second.attempt, &failure);
                second.over(Some(&failure));
                // Of hedges there is one at most.
                if failure.class.is_local_refusal() || hedge.is_measured {
                    break;
                }
                wait = Box::pin(std::future::ready(()));
            }
        }
        primary.await.map(FirstToken::deltas)
    }

    /// Returns the next step; `retry_at`: time from which targets that failed beside the first may
    /// be called again.
    fn next(&self, is_measured: bool, retry_at: Option<Instant>) -> Beside {
        let first = &self.attempt;
        let scope = &first.scope;
        let allowed = scope
            .plan
            .retry
            .max_retries
            .saturating_add(1)
            .min(HARD_CAP_ATTEMPTS);
        // A first attempt that waits for a slot has not begun, and is made all the same.
        let to_come = u32::from(first.number.get().is_none());
        if scope.counted_attempts().saturating_add(to_come) >= allowed {
            return Beside::Nothing;
        }
        let now = Instant::now();
        let retries = retry_at.is_some_and(|at| at <= now);
        let mut candidates = self.targets.candidates(scope, now);
        for candidate in &mut candidates {
            let is_failed = candidate.failed_silent || candidate.attempts > 0;
            if candidate.target == first.target().id || (is_failed && !retries) {
                candidate.availability = Availability::Never;
            }
        }
        let mut rng = SeededRng::new(scope.plan.seed, &scope.invocation.id, scope.next_number());
        match (
            choose(
                &scope.plan.selection.policy,
                &candidates,
                None,
                None,
                None,
                &mut rng,
            ),
            retry_at,
        ) {
            (Choice::Target(index), _) => {
                let second = HedgeAttempt::start(
                    self.targets,
                    first,
                    index,
                    self.began.elapsed(),
                    is_measured,
                );
                second.map_or(Beside::Nothing, |second| Beside::Start(Box::new(second)))
            }
            (_, Some(at)) if !retries => Beside::Wait(Box::pin(tokio::time::sleep_until(at))),
            // A measured delay is about slowness, and a closed target is not quicker.
            (Choice::WaitUntil(until, index), _) if !is_measured => {
                self.wait_for(index, until, now)
            }
            (Choice::WaitUntil(..) | Choice::None, _) => Beside::Nothing,
        }
    }

    /// Waits until a target may be called: its turn if calls pass one after the other.
    fn wait_for(&self, index: usize, until: Instant, now: Instant) -> Beside {
        let scope = &self.attempt.scope;
        let Some(target) = scope
            .plan
            .targets
            .get(index)
            .filter(|_| scope.plan.retry.park.enabled)
        else {
            return Beside::Nothing;
        };
        let (by, ready) = match self.targets.park(scope, &target.id, now) {
            Some(Parked::Until(changed)) => (until, changed),
            Some(Parked::InLine { until, turn }) => (until, turn),
            None => return Beside::Nothing,
        };
        Beside::Wait(Box::pin(async move {
            let _ = tokio::time::timeout_at(by, ready).await;
        }))
    }
}

/// Returns the time at which the target of an attempt that failed beside the first may be called
/// again; `None` if that is of no use.
fn retry_time(failed: &Attempt, failure: &Failure) -> Option<Instant> {
    let scope = &failed.scope;
    let made = scope
        .attempts()
        .iter()
        .filter(|record| record.target.as_ref() == Some(&failed.target().id))
        .count();
    let made = u32::try_from(made).unwrap_or(u32::MAX);
    let sample = SeededRng::new(scope.plan.seed, &scope.invocation.id, failed.number()).unit();
    let now = Instant::now();
    let time_left = failed.deadline().saturating_duration_since(now);
    Some(now + retry_wait(&scope.plan.retry, failure, made, time_left, sample)?)
}

/// Time for which the first attempt may be silent before another starts.
struct HedgeDelay {
    delay: Duration,
    /// `true` if it follows from measured latency, so that the hedge counts against the share of
    /// calls that may have one.
    is_measured: bool,
}

/// Returns the silences of the first attempt after which another may start, the shortest first;
/// none if none may.
fn hedge_delays(targets: &Targets, attempt: &Attempt) -> Vec<HedgeDelay> {
    let plan = &attempt.scope.plan;
    // A response that is read on is there already, and a second one is to be saved; a tool is not
    // called twice at once.
    if attempt.is_attached() || attempt.calls_tool() {
        return Vec::new();
    }
    if plan.targets.len() < 2 || plan.retry.max_retries == 0 || !plan.retry.enabled {
        return Vec::new();
    }
    let now = Instant::now();
    let ready = targets.alternative_returns(&attempt.scope, &attempt.target().id, now);
    let remaining = attempt.deadline().saturating_duration_since(now);
    let soft = plan.timers.for_attempt(ready, remaining, None).soft;
    let (measured, usual) = {
        let latency = attempt.at.state.observed.latency();
        let p95 = latency.p95(now);
        let samples = latency.samples(now);
        (
            plan.hedge.delay(p95, samples),
            latency.p50(now).filter(|_| samples >= USUAL_SAMPLES),
        )
    };
    let soft = soft.map(|soft| {
        let circuit = attempt.at.state.circuit();
        let slow_threshold = circuit.degraded().then(|| circuit.policy().slow_threshold);
        TimersPolicy::hedge_delay(soft, usual, slow_threshold)
    });
    let measured = measured.map(|delay| HedgeDelay {
        delay,
        is_measured: true,
    });
    let soft = soft.map(|delay| HedgeDelay {
        delay,
        is_measured: false,
    });
    let mut delays: Vec<HedgeDelay> = measured.into_iter().chain(soft).collect();
    delays.sort_by_key(|hedge| hedge.delay);
    delays
}

/// Answer that has started.
struct FirstToken<T> {
    begun: Vec<Result<Delta, Box<Failure>>>,
    rest: T,
}

impl<T> FirstToken<T>
where
    T: Stream<Item = Result<Delta, Box<Failure>>> + Send + Unpin + 'static,
{
    fn deltas(self) -> Deltas {
        Box::pin(iter(self.begun).chain(self.rest))
    }
}

/// Runs an attempt up to its first content, which is what a race is about.
async fn speak<S>(inner: &S, attempt: Arc<Attempt>) -> Result<FirstToken<S::Out>, Failure>
where
    S: NextLayer<Arc<Attempt>, Error = Failure>,
    S::Out: Stream<Item = Result<Delta, Box<Failure>>> + Unpin,
{
    let mut rest = inner.call(attempt).await?;
    let mut begun = Vec::new();
    while let Some(item) = rest.next().await {
        match item {
            Err(failure) => return Err(*failure),
            Ok(delta) => {
                let content = delta.is_content();
                begun.push(Ok(delta));
                if content {
                    break;
                }
            }
        }
    }
    Ok(FirstToken { begun, rest })
}

/// The second attempt, what was paid for it, and its span.
struct HedgeAttempt {
    attempt: Arc<Attempt>,
    reserved: Reserved,
    span: AttemptSpan,
}

impl HedgeAttempt {
    fn start(
        targets: &Targets,
        first: &Attempt,
        index: usize,
        after: Duration,
        is_measured: bool,
    ) -> Option<Self> {
        let scope = &first.scope;
        let now = Instant::now();
        let target = Arc::clone(scope.plan.targets.get(index)?);
        let state = targets.state(&target.id)?;
        let key = state.key_for(scope, now, false)?;
        // Counted only when it starts: a call that is quick enough uses nothing of the share.
        if is_measured
            && !first
                .at
                .state
                .extra
                .may_hedge(now, scope.plan.hedge.max_share)
        {
            return None;
        }
        let reserved = targets.reserve(&target.id, Cost::Hedge, now)?;
        let cause = AttemptCause::Hedge;
        let span = scope.trace.attempt();
        let led_by = EventBody::HedgeStarted {
            beside: first.target().id.clone(),
            after_ms: millis(after),
        };
        let prepared = Preparation {
            events: vec![led_by],
            ..Preparation::default()
        };
        let trace = span.trace();
        state.trace_choice(&trace, now, "the first target is silent");
        let attempt = Attempt {
            scope: Arc::clone(scope),
            number: OnceLock::new(),
            cause,
            at: CalledTarget { state, key },
            request: AttemptRequest {
                wording: DialectOverrides::default(),
                ..first.request.clone()
            },
            sent: SentRequest::default(),
            prepared,
            trace,
        };
        Some(Self {
            attempt: Arc::new(attempt),
            reserved,
            span,
        })
    }

    /// Relays the second attempt's answer, or its failure: then both have failed.
    fn relay<T>(self, first_token: Result<FirstToken<T>, Failure>) -> Result<Deltas, Failure>
    where
        T: Stream<Item = Result<Delta, Box<Failure>>> + Send + Unpin + 'static,
    {
        let deltas = match first_token {
            Ok(first_token) => first_token.deltas(),
            Err(failure) => {
                self.over(Some(&failure));
                return Err(failure);
            }
        };
        let mut second = Some(self);
        Ok(Box::pin(deltas.inspect(move |item| {
            let over = matches!(item, Err(_) | Ok(Delta::Finish { .. }));
            if let Some(second) = second.take_if(|_| over) {
                second.over(item.as_ref().err().map(AsRef::as_ref));
            }
        })))
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
