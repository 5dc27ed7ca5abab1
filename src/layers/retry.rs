//! The retry loop: call, classify, decide, wait, call again; one loop for every way to recover.
//!
//! It sits outside the circuit, so that the circuit sees every wire attempt, and inside the
//! deadline, so that a fallback never starts a new clock. It decides nothing itself:
//! `policy::retry` does. It never sleeps after the last attempt, never past the deadline, and never
//! lets a local refusal hide a real failure.

mod attach;
mod decide;
mod ending;
mod extend;
mod parked;
mod tool;

use std::{borrow::Cow, sync::Arc, task::Poll, time::Duration};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tower::Service;

use self::{
    decide::{AfterFailure, StreamBreaks},
    extend::Extension,
};
use super::{
    BoxFuture, Deltas, StepStream,
    assembler::DeltaAssembler,
    attempt::PendingAttempt,
    guarded::NextLayer,
    invocation::InvocationScope,
    spans::{AttemptSpan, AttemptTrace},
    targets::{Reserved, Targets},
};
use crate::{
    domain::{
        adaptation::Adaptation,
        failure::{Failure, FailureClass, Wait},
        fold::StreamStep,
        ids::TargetId,
        invocation::{AttemptCause, Call},
        message::ModelCall,
        upstream::UpstreamHandle,
    },
    policy::{inject, retry::Relayed, retry_budget::Settled},
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
    type Future = BoxFuture<Result<StepStream, Failure>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, scope: Arc<InvocationScope>) -> Self::Future {
        let recovery = RetryLoop::new(Arc::clone(&self.inner), self.targets.clone(), scope);
        Box::pin(async move { Ok(recovery.run_call()) })
    }
}

/// The course of one invocation.
struct RetryLoop<S> {
    inner: Arc<S>,
    targets: Targets,
    scope: Arc<InvocationScope>,
    call: Arc<ModelCall>,
    assembler: DeltaAssembler,
    impossible: bool,
    /// The local refusal that ended recovery after a real failure.
    stopped_by: Option<FailureClass>,
    last: Option<TargetId>,
    hint: Option<TargetId>,
    after: Option<FailureClass>,
    wait: Option<Wait>,
    /// The wait since the last attempt.
    waited: Option<Wait>,
    /// How long it was parked since the last attempt.
    parked: Duration,
    previous_wait: Option<Duration>,
    semantic_made: u32,
    parked_rounds: u32,
    reported_wait: Option<parked::ReportedWait>,
    reserved: Option<Reserved>,
    refusals: u32,
    adapted: bool,
    changes: Vec<(TargetId, Adaptation)>,
    last_upstream_failure: Option<Failure>,
    extension: Extension,
    breaks: StreamBreaks,
    /// The answer that is read, until it is decided how its attempt ended; that is reported when it
    /// is dropped.
    answer: Option<Deltas>,
    /// What of the last attempt was seen.
    relayed: Relayed,
    /// The last attempt was given up because it said something else than what was sent.
    diverged: bool,
    /// The answer that the next attempt continues to read, instead of requesting one.
    attach: Option<UpstreamHandle>,
    /// The step that the ladder of tools decided upon; `None` where a model is called.
    step: Option<tool::LadderStep>,
}

impl<S> RetryLoop<S>
where
    S: NextLayer<PendingAttempt, Out = Deltas, Error = Failure>,
{
    fn new(inner: Arc<S>, targets: Targets, scope: Arc<InvocationScope>) -> Self {
        let call = match &scope.invocation.call {
            Call::Model(call) => match inject::repair(call) {
                Cow::Borrowed(_) => Arc::clone(call),
                Cow::Owned(repaired) => {
                    scope.repairs(inject::changes(call, &repaired));
                    Arc::new(repaired)
                }
            },
            Call::Tool(_) => Arc::default(),
        };
        Self {
            inner,
            targets,
            scope,
            call,
            assembler: DeltaAssembler::default(),
            impossible: false,
            stopped_by: None,
            last: None,
            hint: None,
            after: None,
            wait: None,
            waited: None,
            parked: Duration::ZERO,
            previous_wait: None,
            semantic_made: 0,
            parked_rounds: 0,
            reported_wait: None,
            reserved: None,
            refusals: 0,
            adapted: false,
            changes: Vec::new(),
            last_upstream_failure: None,
            extension: Extension::default(),
            breaks: StreamBreaks::default(),
            answer: None,
            relayed: Relayed::Nothing,
            diverged: false,
            attach: None,
            step: None,
        }
    }

    fn run_call(self) -> StepStream {
        match tool::ToolCallState::of(&self.scope) {
            Some(tool_call) => self.run_tool(tool_call),
            None => self.run(),
        }
    }

    fn run(mut self) -> StepStream {
        Box::pin(stream! {
            let Some(mut steps) = self.scope.take_steps() else {
                yield self.failed(Failure::local(FailureClass::State, "the invocation runs already"), "it runs already");
                return;
            };
            let before = self.scope.take_before();
            self.recount(&before.attempts);
            let orphaned = before.attempts.into_iter().next_back().and_then(|record| record.failure);
            self.assembler = DeltaAssembler::after(before.blocks, before.last_block);
            if let Some(next) = self.take_up(orphaned, before.upstream) {
                match next {
                    AfterFailure::Stop(terminal) => { yield terminal; return; }
                    AfterFailure::Complete(_) => {}
                    AfterFailure::Park { pending_events, until, changed } => { for step in pending_events { yield step; } self.wait_parked(until, changed).await; }
                    AfterFailure::Again(pending_events) => for step in pending_events { yield step; },
                }
            }
            loop {
                let span = self.scope.trace.attempt();
                let trace = span.trace();
                self.wait_out(&trace).await;
                let attempt = self.next_attempt(trace);
                self.assembler.begin_attempt();
                let opened = {
                    let inner = Arc::clone(&self.inner);
                    // Boxed, so that an answer that runs does not keep the room that its begin
                    // took.
                    let mut opening = Box::pin(inner.call(attempt));
                    loop {
                        tokio::select! {
                            biased;
                            Some(step) = steps.recv() => yield step,
                            opened = &mut opening => break opened,
                        }
                    }
                };
                let (mut failure, mut has_spoken) = (None, false);
                match opened {
                    Err(refused) => failure = Some(refused),
                    Ok(deltas) => self.answer = Some(deltas),
                }
                'answer: while let Some(deltas) = &mut self.answer {
                    tokio::select! {
                        biased;
                        Some(step) = steps.recv() => yield step,
                        item = deltas.next() => match item {
                            Some(Ok(delta)) => {
                                if !has_spoken && delta.is_content() {
                                    has_spoken = true;
                                    self.settle(Settled::Succeeded);
                                }
                                let number = self.scope.next_number() - 1;
                                for step in self.assembler.push(number, delta) {
                                    yield step;
                                    if self.scope.append_only().take_divergence() {
                                        self.diverged = true;
                                        break 'answer;
                                    }
                                }
                            }
                            Some(Err(broken)) => { failure = Some(broken); break; }
                            None => break,
                        }
                    }
                }
                if self.diverged {
                    failure = Some(self.diverged_from_what_was_sent());
                }
                if failure.is_some() {
                    self.answer = None;
                }
                while let Some(step) = pending_events(&mut steps) { yield step; }
                let next = self.judge(span, failure);
                match next {
                    AfterFailure::Stop(terminal) => {
                        for step in self.assembler.flush() { yield step; }
                        yield terminal;
                        return;
                    }
                    AfterFailure::Complete(pending_events) => {
                        for step in pending_events { yield step; }
                        yield self.succeeded();
                        return;
                    }
                    AfterFailure::Park { pending_events, until, changed } => { for step in pending_events { yield step; } self.wait_parked(until, changed).await; }
                    AfterFailure::Again(pending_events) => for step in pending_events { yield step; },
                }
            }
        })
    }

    /// Waits as was planned before the next attempt.
    async fn wait_out(&mut self, trace: &AttemptTrace) {
        let Some(wait) = self.wait.take() else { return };
        self.waited = Some(wait);
        if !wait.duration.is_zero() {
            let backoff = trace.backoff(wait);
            tokio::time::sleep(wait.duration).await;
            backoff.finish();
        }
    }

    /// Ends the span of an attempt when its turn is answered: by it, or by the hedge beside it.
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

    /// What follows an attempt that ended so.
    fn judge(&mut self, span: AttemptSpan, failure: Option<Failure>) -> AfterFailure {
        let attached = self.attach.take();
        if !failure
            .as_ref()
            .is_some_and(|failure| failure.class.is_local_refusal())
        {
            // An attempt that Relight refused itself never began: its wait is a part of the next
            // one's.
            (self.waited, self.parked) = (None, Duration::ZERO);
        }
        let Some(failure) = failure else {
            let cut = self.cut_by_length();
            self.answer = None;
            return match cut {
                Some((Some(too_long), next)) => {
                    span.finish_failed(&too_long, true);
                    next
                }
                Some((None, next)) => {
                    span.finish_ok(true);
                    next
                }
                None => {
                    self.end_answered(span);
                    AfterFailure::Complete(self.assembler.commit())
                }
            };
        };
        let refused = failure.class.is_local_refusal();
        self.close_failed(span, &failure);
        let next = self
            .after_extension(&failure)
            .unwrap_or_else(|| self.decide(failure));
        // One that was not let out yet is still to be made; one that was is never made again.
        self.attach = attached.filter(|_| refused && matches!(next, AfterFailure::Park { .. }));
        next
    }

    /// Ends the span of an attempt that failed, and what was paid for it.
    fn close_failed(&mut self, span: AttemptSpan, failure: &Failure) {
        span.finish_failed(failure, !failure.never_sent);
        let unused = failure.class.is_local_refusal() || failure.class == FailureClass::Cancelled;
        self.settle(if unused {
            Settled::NotUsed
        } else {
            Settled::Failed
        });
    }
}

fn pending_events(steps: &mut mpsc::UnboundedReceiver<StreamStep>) -> Option<StreamStep> {
    steps.try_recv().ok()
}
