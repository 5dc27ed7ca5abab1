//! The absolute end of an invocation: it covers admission, parking, backoff and every attempt.
//!
//! When it comes, or when somebody wants it to come, everything below is dropped (which cancels it
//! upstream) and the caller gets a `timeout` or `cancelled` failure that lists the attempts, while
//! there is still time to send it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::Stream;
use tokio::time::{Instant, sleep_until};
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, StepStream, invocation::InvocationScope};
use crate::{
    domain::{
        event::millis,
        failure::{Failure, FailureClass},
        fold::StreamStep,
        invocation::Call,
    },
    policy::tool_recovery::effects::outcome_unknown,
};

/// Ends invocations in time.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeadlineLayer;

/// See [`DeadlineLayer`].
#[derive(Debug, Clone)]
pub struct Deadline<S> {
    inner: S,
}

impl<S> tower::Layer<S> for DeadlineLayer {
    type Service = Deadline<S>;

    fn layer(&self, inner: S) -> Deadline<S> {
        Deadline { inner }
    }
}

// === impl Deadline ===

impl<S> Service<Arc<InvocationScope>> for Deadline<S>
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

    fn call(&mut self, scope: Arc<InvocationScope>) -> Self::Future {
        let inner = self.inner.clone();
        Box::pin(async move {
            let steps = Some(inner.oneshot(Arc::clone(&scope)).await?);
            Ok(Box::pin(StepsInTime {
                steps,
                scope,
                early_end: None,
                is_late: false,
            }) as StepStream)
        })
    }
}

/// Steps of an invocation until it ends, or must.
struct StepsInTime {
    /// `None` once it is over.
    steps: Option<StepStream>,
    scope: Arc<InvocationScope>,
    /// The deadline, or the reason of a cancellation before it; waited for since the first time
    /// that no step was there.
    early_end: Option<BoxFuture<Option<String>>>,
    /// The deadline passed while steps were always there.
    is_late: bool,
}

// === impl StepsInTime ===

impl StepsInTime {
    /// Drops what is below, so that the attempts' records are complete, and returns the end: the
    /// cancellation for this reason, or the deadline.
    fn end(&mut self, cancelled_for: Option<String>) -> StreamStep {
        self.steps = None;
        match cancelled_for {
            Some(reason) => cancelled(&self.scope, reason),
            None => too_late(&self.scope),
        }
    }
}

impl Stream for StepsInTime {
    type Item = StreamStep;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<StreamStep>> {
        let this = &mut *self;
        let Some(steps) = &mut this.steps else {
            return Poll::Ready(None);
        };
        // A response whose next step is always ready keeps what is below from being looked at.
        let reason = this.scope.cancel().reason().map(str::to_owned);
        if this.is_late || reason.is_some() {
            return Poll::Ready(Some(this.end(reason)));
        }
        if let Poll::Ready(next) = steps.as_mut().poll_next(cx) {
            let is_last = matches!(next, Some(StreamStep::Terminal(_)));
            this.is_late = !is_last && Instant::now() > this.scope.invocation.deadline;
            if next.is_none() {
                this.steps = None;
            }
            return Poll::Ready(next);
        }
        let scope = &this.scope;
        let early_end = this.early_end.get_or_insert_with(|| wait_for_end(scope));
        early_end
            .as_mut()
            .poll(cx)
            .map(|cancelled_for| Some(this.end(cancelled_for)))
    }
}

/// Waits for the deadline, or for the reason of a cancellation before it.
fn wait_for_end(scope: &InvocationScope) -> BoxFuture<Option<String>> {
    let cancel = scope.cancel().clone();
    let deadline = scope.invocation.deadline;
    Box::pin(async move {
        tokio::select! {
            biased;
            reason = cancel.cancelled() => Some(reason),
            () = sleep_until(deadline) => None,
        }
    })
}

fn cancelled(scope: &InvocationScope, reason: String) -> StreamStep {
    let target = scope
        .attempts()
        .last()
        .and_then(|record| record.target.clone());
    let failure = Failure::local(FailureClass::Cancelled, reason);
    let outcome = scope.outcome(Err(failure), "It was cancelled.", target);
    StreamStep::Terminal(Arc::new(outcome))
}

fn too_late(scope: &InvocationScope) -> StreamStep {
    let after = millis(scope.started.elapsed());
    let attempts = scope.counted_attempts();
    let message = format!("the deadline was reached after {after} ms and {attempts} attempt(s)");
    let mut failure = Failure::local(FailureClass::Timeout, message);
    failure.retryable = true;
    failure.fallback_helps = true;
    "The answer took too long.".clone_into(&mut failure.user_message);
    "Raise the deadline, shorten the task, or add a faster target."
        .clone_into(&mut failure.recovery_hint);
    failure.target = scope
        .attempts()
        .last()
        .and_then(|record| record.target.clone());
    let target = failure.target.clone();
    let failure = of_call(scope, failure);
    StreamStep::Terminal(Arc::new(scope.outcome(
        Err(failure),
        "The deadline was reached.",
        target,
    )))
}

/// Returns the same failure, in the words of a tool if one was called; one that ran until now and
/// is executed at most once may have done what it was called for.
fn of_call(scope: &InvocationScope, failure: Failure) -> Failure {
    let Call::Tool(call) = &scope.invocation.call else {
        return failure;
    };
    let failure = failure.of_tool(&call.name);
    let attempts = scope.attempts();
    let running = attempts.last().filter(|record| {
        record.sent
            && record
                .failure
                .as_ref()
                .is_some_and(|failure| failure.class == FailureClass::Cancelled)
    });
    let offer = running.and_then(|record| scope.plan.tool.as_ref()?.offer(record.target.as_ref()?));
    match offer {
        Some(offer) if !offer.effects.repeatable => outcome_unknown(failure),
        Some(_) | None => failure,
    }
}
