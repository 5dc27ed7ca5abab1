//! One outcome per attempt: its record, its events and its span, whatever happens below.

use std::task::Poll;

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, Deltas, attempt::Attempt, observe::millis};

use crate::domain::{
    completion::{Break, Delta, Usage},
    event::EventBody,
    failure::{Failure, FailureClass},
    invocation::AttemptCause,
};

/// Observes attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObserveAttemptLayer;

/// See [`ObserveAttemptLayer`].
#[derive(Debug, Clone)]
pub struct ObserveAttempt<S> {
    inner: S,
}

impl<S> tower::Layer<S> for ObserveAttemptLayer {
    type Service = ObserveAttempt<S>;

    fn layer(&self, inner: S) -> ObserveAttempt<S> {
        ObserveAttempt { inner }
    }
}

// === impl ObserveAttempt ===

impl<S> Service<Attempt> for ObserveAttempt<S>
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
        Box::pin(async move {
            let mut watched = AttemptSpanGuard::begin(&attempt);
            let mut deltas = match inner.oneshot(attempt).await {
                Ok(deltas) => deltas,
                Err(failure) => {
                    watched.failed(&failure);
                    return Err(failure);
                }
            };
            Ok(Box::pin(stream! {
                while let Some(item) = deltas.next().await {
                    watched.see(&item);
                    yield item;
                }
            }) as Deltas)
        })
    }
}

/// Sees to it that an attempt has exactly one end.
struct AttemptSpanGuard {
    attempt: Attempt,
    began: Instant,
    first: bool,
    usage: Usage,
    /// Bytes of the answer so far.
    answered_bytes: usize,
    over: bool,
}

impl AttemptSpanGuard {
    fn begin(attempt: &Attempt) -> Self {
        attempt.begin();
        if attempt.cause != AttemptCause::Hedge {
            attempt.state.called(Instant::now());
        }
        let (model, wait) = (attempt.target.model.to_string(), attempt.prepared.wait);
        let body = EventBody::AttemptStarted { cause: attempt.cause, model, wait };
        attempt.scope.publish(attempt.number(), Some(&attempt.target.id), body);
        let (began, usage) = (Instant::now(), Usage::default());
        Self { attempt: attempt.clone(), began, first: true, usage, answered_bytes: 0, over: false }
    }

    fn see(&mut self, item: &Result<Delta, Failure>) {
        match item {
            Ok(delta) => {
                if self.first && delta.is_content() {
                    self.first = false;
                    self.first_token();
                }
                match delta {
                    Delta::Usage(usage) => self.usage = *usage,
                    Delta::ReadOn(cut) => self.read_on(*cut),
                    Delta::Finish { .. } => self.succeeded(),
                    Delta::Start { headers, .. } => self.attempt.learn_request_id(headers),
                    Delta::BlockDelta { text, .. } => self.answered_bytes += text.len(),
                    Delta::BlockStart { .. } | Delta::BlockStop { .. } => {}
                }
            }
            Err(failure) => self.failed(failure),
        }
    }

    fn first_token(&self) {
        let after = self.began.elapsed();
        let (Attempt { scope, target, .. }, number) = (&self.attempt, self.attempt.number());
        scope.learn(number, |record| record.first_token = Some(after));
        scope.publish(number, Some(&target.id), EventBody::FirstToken { after_ms: millis(after) });
    }

    fn read_on(&self, cut: Break) {
        let (Attempt { scope, target, .. }, number) = (&self.attempt, self.attempt.number());
        let body = EventBody::AttemptReadOn { reason: cut.words().to_owned(), requests: cut.requests };
        scope.publish(number, Some(&target.id), body);
    }

    fn succeeded(&mut self) {
        self.over = true;
        let (duration, usage) = (self.began.elapsed(), self.usage);
        let (Attempt { scope, target, .. }, number) = (&self.attempt, self.attempt.number());
        scope.learn(number, |record| {
            record.duration = duration;
            record.usage = usage;
            record.sent = true;
            record.winner = true;
        });
        let body = EventBody::AttemptSucceeded { duration_ms: millis(duration), usage };
        scope.publish(number, Some(&target.id), body);
    }

    fn failed(&mut self, failure: &Failure) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        // Providers count at the end, which a cut answer has not; what came of it was paid for all the same.
        let usage = if self.first { self.usage } else { self.usage.at_least(&self.attempt.call, self.answered_bytes) };
        let duration = self.began.elapsed();
        let sent = !failure.class.is_local_refusal() && !failure.never_sent;
        let (Attempt { scope, target, .. }, number) = (&self.attempt, self.attempt.number());
        scope.learn(number, |record| {
            record.duration = duration;
            record.usage = usage;
            record.sent = sent;
            record.failure = Some(failure.clone());
        });
        let body = EventBody::AttemptFailed {
            class: failure.class,
            detail: failure.detail,
            message: failure.own_words().into_owned(),
            retryable: failure.retryable,
            retry_after: failure.retry_after,
            status: failure.status,
            duration_ms: millis(duration),
            sent,
            usage,
        };
        scope.publish(number, Some(&target.id), body);
    }
}

impl Drop for AttemptSpanGuard {
    fn drop(&mut self) {
        if !self.over {
            let mut gone = Failure::local(FailureClass::Cancelled, "the attempt was cancelled");
            gone.target = Some(self.attempt.target.id.clone());
            gone.never_sent = false;
            self.failed(&gone);
        }
    }
}
