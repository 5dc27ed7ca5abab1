//! The absolute end of an invocation: it covers admission, parking, backoff and every attempt.
//!
//! When it comes, or when somebody wants it to come, everything below is dropped (which cancels it
//! upstream) and the caller gets a `timeout` or `cancelled` failure that lists the attempts, while
//! there is still time to send it.

use std::{sync::Arc, task::Poll};

use async_stream::stream;
use futures_util::StreamExt as _;
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

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, scope: Arc<InvocationScope>) -> Self::Future {
        let inner = self.inner.clone();
        Box::pin(async move {
            let mut steps = Some(inner.oneshot(Arc::clone(&scope)).await?);
            let end = tokio::time::sleep_until(scope.invocation.deadline);
            Ok(Box::pin(stream! {
                tokio::pin!(end);
                while let Some(below) = steps.as_mut() {
                    tokio::select! {
                        biased;
                        reason = scope.cancel().cancelled() => {
                            steps = None;
                            yield cancelled(&scope, reason);
                        }
                        step = below.next() => match step {
                            Some(step) => yield step,
                            None => break,
                        },
                        () = &mut end => {
                            // Dropping what is below comes first: the attempts' records are then
                            // complete.
                            steps = None;
                            yield too_late(&scope);
                        }
                    }
                }
            }) as StepStream)
        })
    }
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

/// The same failure, in the words of a tool where one was called; one that ran until now and is
/// executed at most once may have done what it was called for.
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
