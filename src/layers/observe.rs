//! The outermost layer: one span and one outcome event per invocation, whatever happens below.
//!
//! It gives the invocation its scope, and replaces a failure's texts by the operator's own. It
//! changes nothing else: what it observes is what the caller gets.

use std::{sync::Arc, task::Poll};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{
    BoxFuture, StepStream,
    event::InvocationEvent,
    invocation::{InvocationContext, InvocationScope},
    refusals::Refusals,
    spans::{InvocationSpan, Spans},
};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        fold::StreamStep,
        invocation::Outcome,
    },
    events::EventBus,
};

/// The reasoning of an invocation that ends before it began.
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

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, incoming: InvocationContext) -> Self::Future {
        let span = self.spans.invocation(incoming.entry, &incoming.invocation);
        let scope = Arc::new(InvocationScope::new(
            incoming,
            span.trace(),
            self.events.clone(),
        ));
        let (inner, refusals) = (self.inner.clone(), self.refusals.clone());
        Box::pin(async move {
            let max_retries = scope.plan.retry.max_retries;
            let time_left = scope
                .invocation
                .deadline
                .saturating_duration_since(Instant::now());
            scope.report(
                0,
                None,
                &InvocationEvent::Started {
                    time_left,
                    max_retries,
                },
            );
            let watched = InvocationSpanGuard {
                scope: Arc::clone(&scope),
                span: Some(span),
                has_content: false,
                refusals,
            };
            match inner.oneshot(scope).await {
                Ok(steps) => Ok(watch(watched, steps)),
                Err(mut refused) => {
                    watched.scope.word(&mut refused);
                    watched.end_refused(&refused);
                    Err(refused)
                }
            }
        })
    }
}

fn watch(mut watched: InvocationSpanGuard, mut steps: StepStream) -> StepStream {
    Box::pin(stream! {
        while let Some(mut step) = steps.next().await {
            watched.has_content |= matches!(step, StreamStep::BlockDelta { .. });
            if let StreamStep::Terminal(outcome) = &mut step {
                let outcome = Arc::make_mut(outcome);
                if let Err(failure) = &mut outcome.result {
                    watched.scope.word(failure);
                }
                watched.end(outcome);
            }
            yield step;
        }
    })
}

/// Ensures that an invocation has exactly one end, even when its caller disconnects or its record
/// cannot be written.
struct InvocationSpanGuard {
    scope: Arc<InvocationScope>,
    span: Option<InvocationSpan>,
    /// Whether a piece of an answer came.
    has_content: bool,
    refusals: Refusals,
}

impl InvocationSpanGuard {
    fn end(&mut self, outcome: &Outcome) {
        let Some(span) = self.span.take() else { return };
        if outcome.is_refused_call() {
            self.refusals.count(outcome.target.as_ref());
        }
        let duration = self.scope.started.elapsed();
        self.scope.report(
            0,
            outcome.target.as_ref(),
            &InvocationEvent::Ended { outcome, duration },
        );
        let is_stream = self.scope.invocation.overrides.rewind_mode.is_some();
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
                self.scope.word(&mut failure);
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
