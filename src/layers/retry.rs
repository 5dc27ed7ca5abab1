//! The retry loop: wait, open, read, judge, end; one loop for every way to recover.
//!
//! It sits outside the circuit, so that the circuit sees every wire attempt, and inside the
//! deadline, so that a fallback never starts a new clock. It decides nothing itself:
//! `policy::retry` does. It never sleeps after the last attempt, never past the deadline, and never
//! lets a local refusal hide a real failure.
//!
//! A call reads from top to bottom in [`RetryLoop::run`]. Each phase has its state:
//! [`Waits`], [`NextRequest`], [`Reading`] and [`Verdict`]. A model's answer is read as it comes, and
//! a tool's result is awaited; all else is the same for both.

mod attach;
mod decide;
mod ending;
mod extend;
mod overflow;
mod parked;
mod reading;
mod request;
mod rotate;
mod steps;
mod tool;
mod waits;

use std::{
    future::{Ready, ready},
    sync::Arc,
    task::Poll,
};

use futures_util::{StreamExt as _, stream};
use tower::Service;

use self::{
    decide::{AfterFailure, Verdict},
    reading::Reading,
    request::NextRequest,
    steps::{CallSteps, Given},
    tool::ToolCallState,
    waits::Waits,
};
use super::{
    Deltas, StepStream,
    attempt::PendingAttempt,
    guarded::NextLayer,
    invocation::{Beginning, InvocationScope, PreviousRun},
    spans::{AttemptSpan, AttemptTrace},
    targets::Targets,
};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        fold::StreamStep,
    },
    policy::retry_budget::Settled,
};

/// Wraps a service of attempts into a service of invocations.
#[derive(Debug, Clone)]
pub struct RetryLayer {
    targets: Targets,
}

/// See [`RetryLayer`].
#[derive(Debug)]
pub struct Retry<S> {
    inner: Arc<S>,
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
        Retry {
            inner: Arc::new(inner),
            targets: self.targets.clone(),
        }
    }
}

// === impl Retry ===

impl<S> Clone for Retry<S> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            targets: self.targets.clone(),
        }
    }
}

impl<S> Service<Arc<InvocationScope>> for Retry<S>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    type Response = StepStream;
    type Error = Failure;
    type Future = Ready<Result<StepStream, Failure>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, scope: Arc<InvocationScope>) -> Self::Future {
        let recovery = RetryLoop::new(Arc::clone(&self.inner), self.targets.clone(), scope);
        ready(Ok(recovery.start()))
    }
}

/// One call, from its first attempt to its end. Its state is kept by the phase that owns it.
struct RetryLoop<S> {
    inner: Arc<S>,
    targets: Targets,
    scope: Arc<InvocationScope>,
    waits: Waits,
    request: NextRequest,
    read: Reading,
    verdict: Verdict,
}

/// Kind of a call: how it is attempted, and how an attempt is judged.
enum Strategy {
    Model,
    Tool(Box<ToolCallState>),
}

// === impl RetryLoop ===

impl<S> RetryLoop<S>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    fn new(inner: Arc<S>, targets: Targets, scope: Arc<InvocationScope>) -> Self {
        Self {
            inner,
            targets,
            waits: Waits::default(),
            request: NextRequest::first(&scope),
            read: Reading::default(),
            verdict: Verdict::default(),
            scope,
        }
    }

    /// Returns the steps of the call, whose end is the last one.
    fn start(mut self) -> StepStream {
        let Some(Beginning { before, steps }) = self.scope.begin_loop() else {
            let failure = Failure::local(FailureClass::State, "the invocation runs already");
            let end = self.failed(failure, "it runs already");
            return Box::pin(stream::iter([end]));
        };
        Box::pin(CallSteps::new(steps, self.run(before)))
    }

    /// Makes attempts until one of them, or the policy, ends the call. Returns the end.
    async fn run(mut self, before: PreviousRun) -> StreamStep {
        let mut strategy = match ToolCallState::of(&self.scope) {
            Some(tool_call) => Strategy::Tool(Box::new(tool_call)),
            None => Strategy::Model,
        };
        self.recount(&before.attempts);
        let mut next = match &mut strategy {
            Strategy::Model => {
                self.fit_windows();
                self.begin_answer(before)
            }
            Strategy::Tool(tool_call) => Box::pin(self.begin_execution(tool_call, before)).await,
        };
        loop {
            match next {
                AfterFailure::Again(steps) => self.give_all(steps).await,
                AfterFailure::Park {
                    pending_events,
                    until,
                    changed,
                } => {
                    self.give_all(pending_events).await;
                    self.wait_parked(until, changed).await;
                }
                AfterFailure::Complete(steps) => {
                    self.give_all(steps).await;
                    return self.succeeded();
                }
                AfterFailure::Stop(end) => {
                    let held = self.read.assembler.flush();
                    self.give_all(held).await;
                    return end;
                }
            }
            let span = self.scope.trace.attempt();
            self.wait(&span.trace()).await;
            next = match &mut strategy {
                Strategy::Model => {
                    let opened = self.open(span.trace()).await;
                    let failure = self.read(opened).await;
                    self.judge(span, failure)
                }
                Strategy::Tool(tool_call) => {
                    let executed = self.execute(tool_call, span.trace()).await;
                    Box::pin(self.judge_execution(tool_call, span, executed)).await
                }
            };
        }
    }

    /// Sends the request to the target that is selected now.
    async fn open(&mut self, trace: AttemptTrace) -> Result<Deltas, Failure> {
        let attempt = self.next_attempt(trace);
        self.read.assembler.begin_attempt();
        let inner = Arc::clone(&self.inner);
        // Boxed, so that a completion that runs does not keep the room that its start took.
        Box::pin(inner.call(attempt)).await
    }

    /// Passes the answer on as it comes; returns the failure that ended it, if any.
    async fn read(&mut self, opened: Result<Deltas, Failure>) -> Option<Failure> {
        match opened {
            Ok(deltas) => self.read.deltas = Some(deltas),
            Err(refused) => return Some(refused),
        }
        let mut has_content = false;
        while let Some(deltas) = &mut self.read.deltas {
            let delta = match deltas.next().await? {
                Ok(delta) => delta,
                Err(broken) => {
                    self.read.deltas = None;
                    return Some(*broken);
                }
            };
            if !has_content && delta.is_content() {
                has_content = true;
                self.settle(Settled::Succeeded);
            }
            let number = self.scope.next_number() - 1;
            for step in self.read.assembler.push(number, delta) {
                self.give(step).await;
                if self.scope.append_only().take_divergence() {
                    self.read.diverged = true;
                    let failure = self.diverged_from_what_was_sent();
                    self.read.deltas = None;
                    return Some(failure);
                }
            }
        }
        None
    }

    /// Returns what follows an attempt that ended this way: a whole answer may still be too short
    /// or unusable, and a failure is decided upon by the policy.
    fn judge(&mut self, span: AttemptSpan, failure: Option<Failure>) -> AfterFailure {
        let attached = self.request.attach.take();
        let Some(failure) = failure else {
            self.waits.spend();
            return self.judge_answer(span);
        };
        let refused = failure.class.is_local_refusal();
        self.close_failed(span, &failure);
        let next = self
            .after_extension(&failure)
            .unwrap_or_else(|| self.decide(failure));
        // One that was not let out yet is still to be made; one that was is never made again.
        self.request.attach =
            attached.filter(|_| refused && matches!(next, AfterFailure::Park { .. }));
        next
    }

    /// Ends the span of an attempt that failed, what was paid for it, and its wait. An attempt that
    /// Relight refused itself never started: its wait is a part of the next one's.
    fn close_failed(&mut self, span: AttemptSpan, failure: &Failure) {
        let refused = failure.class.is_local_refusal();
        if !refused {
            self.waits.spend();
        }
        span.finish_failed(failure, !failure.never_sent);
        let unused = refused || failure.class == FailureClass::Cancelled;
        self.settle(if unused {
            Settled::NotUsed
        } else {
            Settled::Failed
        });
    }

    /// Passes a step on; to be awaited, so that no more is read than is taken.
    fn give(&self, step: StreamStep) -> Given {
        self.scope.emit(step);
        Given::default()
    }

    async fn give_all(&mut self, steps: Vec<StreamStep>) {
        for step in steps {
            self.give(step).await;
        }
    }
}
