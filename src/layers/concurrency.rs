//! A slot per attempt: how many a target may have at once, learnt from its back-pressure.
//!
//! The slot is taken in `call` after a bounded wait and held until the stream ends. It sits inside the planner's
//! loop, so that waits between attempts occupy no slot.

use std::{sync::Arc, task::Poll, time::Duration};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::Instant;
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, Deltas, attempt::Attempt};
use crate::domain::failure::{Failure, FailureClass, TransportFault, WaitSource};

/// A slot that was there sooner was not queued for.
const QUEUED_AFTER: Duration = Duration::from_millis(1);

/// Limits how many attempts a target has at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLayer;

/// See [`ConcurrencyLayer`].
#[derive(Debug, Clone)]
pub struct Concurrency<S> {
    inner: S,
}

impl<S> tower::Layer<S> for ConcurrencyLayer {
    type Service = Concurrency<S>;

    fn layer(&self, inner: S) -> Concurrency<S> {
        Concurrency { inner }
    }
}

// === impl Concurrency ===

impl<S> Service<Attempt> for Concurrency<S>
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
            let (slots, waiting_since) = (attempt.state.slots.clone(), Instant::now());
            let slot = slots.take(&attempt.scope.invocation.tenant, attempt.deadline).await.map_err(|retry_in| {
                let mut refused = Failure::local(FailureClass::Shed, "all slots of the target are taken");
                refused.target = Some(attempt.target.id.clone());
                refused.with_retry_after(retry_in, WaitSource::Parked)
            })?;
            if waiting_since.elapsed() >= QUEUED_AFTER {
                attempt.trace.queued(waiting_since);
            }
            let began = Instant::now();
            let state = Arc::clone(&attempt.state);
            let learn = move |failure: &Failure| {
                if is_back_pressure(failure) {
                    let now = Instant::now();
                    let p50 = state.latency().p50(now).unwrap_or(Duration::from_secs(1));
                    state.slots.pushed_back(began, p50);
                }
            };
            let mut deltas = inner.oneshot(attempt).await.inspect_err(&learn)?;
            Ok(Box::pin(stream! {
                let slot = slot;
                // Told at the first token, as failures are: answers take longer, and would be counted too late.
                let mut silent = true;
                while let Some(item) = deltas.next().await {
                    match &item {
                        Ok(delta) if silent && delta.is_content() => {
                            silent = false;
                            slot.succeeded(began);
                        }
                        Ok(_) => {}
                        Err(failure) => learn(failure),
                    }
                    yield item;
                }
            }) as Deltas)
        })
    }
}

/// Whether a failure says that fewer attempts at once would do better. One that hangs says nothing about the others.
fn is_back_pressure(failure: &Failure) -> bool {
    let own_end = matches!(failure.fault, Some(TransportFault::Deadline | TransportFault::Cancelled));
    matches!(failure.class, FailureClass::RateLimited | FailureClass::Overloaded) && !own_end
}
