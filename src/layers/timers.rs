//! How long an attempt may be silent: until its first token, and between tokens after it.
//!
//! There is no total timeout per attempt but the deadline. The clocks run only while somebody asks for the next
//! delta, so a caller that is slow to read is never mistaken for a provider that is slow to write.

use std::{sync::Arc, task::Poll, time::Duration};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, attempt::Attempt, targets::Targets};
use crate::domain::{
    completion::Delta,
    failure::{ProviderError, TransportFault},
    wire::{DeltaStream, WireCall},
};

/// Times attempts.
#[derive(Debug, Clone)]
pub struct TimersLayer {
    targets: Targets,
}

/// See [`TimersLayer`].
#[derive(Debug, Clone)]
pub struct Timers<S> {
    inner: S,
    targets: Targets,
}

// === impl TimersLayer ===

impl TimersLayer {
    /// Looks for other targets here: one that has no alternative is given more time.
    pub fn new(targets: Targets) -> Self {
        Self { targets }
    }
}

impl<S> tower::Layer<S> for TimersLayer {
    type Service = Timers<S>;

    fn layer(&self, inner: S) -> Timers<S> {
        Timers { inner, targets: self.targets.clone() }
    }
}

// === impl Timers ===

impl<S> Service<Attempt> for Timers<S>
where
    S: Service<WireCall, Response = DeltaStream, Error = ProviderError> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = DeltaStream;
    type Error = ProviderError;
    type Future = BoxFuture<Result<DeltaStream, ProviderError>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> Poll<Result<(), ProviderError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, attempt: Attempt) -> Self::Future {
        let inner = self.inner.clone();
        let now = Instant::now();
        let other_ready = self.targets.alternative_healthy(&attempt.scope, &attempt.target.id, now);
        let remaining = attempt.deadline.saturating_duration_since(now);
        let timers = attempt.scope.plan.timers.for_attempt(other_ready, remaining);
        Box::pin(async move {
            let family = Arc::clone(&attempt.target.family);
            let first_token_by = now + timers.first_token;
            // A caller who has little time left says nothing about the target: its silence is then the caller's deadline.
            let fault = if first_token_by < attempt.deadline {
                TransportFault::FirstTokenTimeout
            } else {
                TransportFault::Deadline
            };
            let silent = move |family: Arc<str>| {
                let words = format!("no first token after {} s", timers.first_token.as_secs_f64());
                ProviderError::transport(family, fault, words)
            };
            let call = wire_call(attempt, timers.idle);
            let opened = timeout_at(first_token_by, inner.oneshot(call)).await;
            let mut deltas = opened.map_err(|_| silent(Arc::clone(&family)))??;
            Ok(Box::pin(stream! {
                let mut first = true;
                let mut by = first_token_by;
                loop {
                    match timeout_at(by, deltas.next()).await {
                        Ok(Some(item)) => {
                            first = first && !matches!(&item, Ok(delta) if delta.is_content());
                            let over = matches!(item, Err(_) | Ok(Delta::Finish { .. }));
                            // That a silent answer is read on ends no silence.
                            let is_heard = !matches!(item, Ok(Delta::ReadOn(_)));
                            yield item;
                            if over { return; }
                            if is_heard && !first { by = Instant::now() + timers.idle; }
                        }
                        Ok(None) => return,
                        Err(_) if first => {
                            yield Err(silent(family));
                            return;
                        }
                        Err(_) => {
                            let words = format!("no token for {} s", timers.idle.as_secs_f64());
                            yield Err(ProviderError::transport(family, TransportFault::IdleTimeout, words));
                            return;
                        }
                    }
                }
            }) as DeltaStream)
        })
    }
}

fn wire_call(attempt: Attempt, idle: Duration) -> WireCall {
    WireCall {
        invocation: attempt.scope.invocation.id.clone(),
        attempt: attempt.number,
        target: attempt.target,
        call: attempt.call,
        wording: attempt.wording,
        deadline: attempt.deadline,
        idle: Some(idle),
        trace: attempt.outgoing,
        tether: attempt.scope.tether().clone(),
        attach: attempt.attach,
    }
}
