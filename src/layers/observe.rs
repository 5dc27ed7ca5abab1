//! The outermost layer: one span and one outcome event per invocation, whatever happens below.
//!
//! It gives the invocation its scope, and replaces a failure's texts by the operator's own. It
//! changes nothing else: what it observes is what the caller gets.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{
    BoxFuture, StepStream,
    event::ended,
    invocation::{InvocationContext, InvocationScope},
    refusals::Refusals,
    spans::{InvocationSpan, Spans},
    tools::minted_call_id,
};
use crate::{
    domain::{
        event::{EventBody, millis},
        failure::{Failure, FailureClass},
        fold::StreamStep,
        invocation::{Call, Outcome},
    },
    events::EventBus,
    policy::tool_recovery::told,
};

/// Reasoning of an invocation that ends before it started.
const REFUSED: &str = "Refused before any attempt.";

/// The layer that observes invocations.
#[derive(Debug, Clone)]
pub struct ObserveLayer {
    spans: Spans,
    events: EventBus,
    refusals: Refusals,
}

/// The service of [`ObserveLayer`].
#[derive(Debug, Clone)]
pub struct Observe<S> {
    inner: S,
    spans: Spans,
    events: EventBus,
    refusals: Refusals,
}

// === impl ObserveLayer ===

impl ObserveLayer {
    /// Opens spans here and publishes there.
    pub fn new(spans: Spans, events: EventBus) -> Self {
        let refusals = Refusals::new(events.clone());
        Self {
            spans,
            events,
            refusals,
        }
    }
}

impl<S> tower::Layer<S> for ObserveLayer {
    type Service = Observe<S>;

    fn layer(&self, inner: S) -> Observe<S> {
        let Self {
            spans,
            events,
            refusals,
        } = self.clone();
        Observe {
            inner,
            spans,
            events,
            refusals,
        }
    }
}

// === impl Observe ===

impl<S> Service<InvocationContext> for Observe<S>
where
    S: Service<Arc<InvocationScope>, Response = StepStream, Error = Failure>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = StepStream;
    type Error = Failure;
    type Future = BoxFuture<Result<StepStream, Failure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, incoming: InvocationContext) -> Self::Future {
        let span = self.spans.invocation(incoming.entry, &incoming.invocation);
        let scope = Arc::new(InvocationScope::new(
            incoming,
            span.trace(),
            self.events.clone(),
        ));
        let inner = self.inner.clone();
        let refusals = self.refusals.clone();
        Box::pin(async move {
            let max_retries = scope.plan.retry.max_retries;
            let time_left = scope
                .invocation
                .deadline
                .saturating_duration_since(Instant::now());
            let started = EventBody::InvocationStarted {
                deadline_ms: millis(time_left),
                max_retries,
            };
            scope.publish(0, None, started);
            let watched = InvocationSpanGuard {
                scope: Arc::clone(&scope),
                span: Some(span),
                has_content: false,
                refusals,
            };
            match inner.oneshot(scope).await {
                Ok(steps) => Ok(Box::pin(WatchedSteps { steps, watched }) as StepStream),
                Err(mut refused) => {
                    word(&watched.scope, &mut refused);
                    watched.end_refused(&refused);
                    Err(refused)
                }
            }
        })
    }
}

/// Steps of an invocation, up to its end. What is below is dropped first: the attempts' records are
/// then complete.
struct WatchedSteps {
    steps: StepStream,
    watched: InvocationSpanGuard,
}

impl Stream for WatchedSteps {
    type Item = StreamStep;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StreamStep>> {
        let mut next = self.steps.as_mut().poll_next(cx);
        if let Poll::Ready(Some(step)) = &mut next {
            self.watched.watch(step);
        }
        next
    }
}

/// Puts a failure into the words that people read: of a tool, if one was called, whatever ended the
/// call, and the operator's own.
fn word(scope: &InvocationScope, failure: &mut Failure) {
    if let Call::Tool(call) = &scope.invocation.call
        && failure.tool.name.is_none()
    {
        *failure = failure.clone().of_tool(&call.name);
    }
    scope.word(failure);
}

/// Puts the result of a tool call that failed into its history, in the words that people read.
fn tell(call: &Call, outcome: &mut Outcome) {
    if let (Call::Tool(call), Err(failure)) = (call, &outcome.result) {
        outcome.history_patch.messages =
            told::failed_messages(call, minted_call_id(), failure, outcome);
    }
}

/// Ensures that an invocation has exactly one end, even when its caller disconnects or its record
/// cannot be written.
struct InvocationSpanGuard {
    scope: Arc<InvocationScope>,
    span: Option<InvocationSpan>,
    /// `true` if a piece of a completion came.
    has_content: bool,
    refusals: Refusals,
}

impl InvocationSpanGuard {
    /// Observes a step; the end of the invocation is put into the words that people read.
    fn watch(&mut self, step: &mut StreamStep) {
        self.has_content |= matches!(step, StreamStep::BlockDelta { .. });
        if let StreamStep::Terminal(outcome) = step {
            let outcome = Arc::make_mut(outcome);
            if let Err(failure) = &mut outcome.result {
                word(&self.scope, failure);
            }
            tell(&self.scope.invocation.call, outcome);
            self.end(outcome);
        }
    }

    fn end(&mut self, outcome: &Outcome) {
        let Some(span) = self.span.take() else { return };
        if outcome.is_refused_call() {
            self.refusals.count(outcome.target.as_ref());
        }
        let duration = self.scope.started.elapsed();
        self.scope
            .publish(0, outcome.target.as_ref(), ended(outcome, duration));
        let is_stream = self.scope.invocation.is_streamed();
        span.answered_over_http(outcome, is_stream && self.has_content);
        span.finish(outcome);
    }

    fn end_refused(mut self, refused: &Failure) {
        let outcome = self.scope.outcome(Err(refused.clone()), REFUSED, None);
        self.end(&outcome);
    }
}

impl Drop for InvocationSpanGuard {
    fn drop(&mut self) {
        if self.span.is_none() {
            return;
        }
        let (failure, reasoning) = match self.scope.cancel().not_begun().cloned() {
            Some(mut failure) => {
                word(&self.scope, &mut failure);
                (failure, REFUSED)
            }
            None => (
                Failure::local(FailureClass::Cancelled, "the caller went away"),
                "The caller went away.",
            ),
        };
        let outcome = self.scope.outcome(Err(failure), reasoning, None);
        self.end(&outcome);
    }
}
