//! How long an attempt may be silent: until its first token, and between tokens after it.
//!
//! Where a floor is set, an answer that drips below it is given up, too.
//!
//! There is no total timeout per attempt but the deadline. The clocks run only while somebody asks for the next
//! delta, so a caller that is slow to read is never mistaken for a provider that is slow to write.

use std::{sync::Arc, task::Poll, time::Duration};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, attempt::Attempt, targets::Targets};
use crate::{
    domain::{
        completion::Delta,
        failure::{ProviderError, TransportFault},
        units,
        wire::{DeltaStream, ProviderRequest},
    },
    policy::timers::TimersPolicy,
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

/// How long an answer is waited for before its bytes are compared with the floor.
const THROUGHPUT_WINDOW: Duration = Duration::from_secs(3);

/// The bytes of an answer that came in the current window, against a floor where there is one.
#[derive(Debug)]
struct Throughput {
    floor: Option<u64>,
    /// Time of this window in which somebody waited for the answer.
    waited: Duration,
    bytes: u64,
}

/// Bytes per second of an answer that came below the floor.
#[derive(Debug, PartialEq)]
struct Drips(f64);

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
    S: Service<ProviderRequest, Response = DeltaStream, Error = ProviderError> + Clone + Send + 'static,
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
        let next = attempt.scope.may_try_again().then(|| TimersPolicy::usual(attempt.state.latency().p50(now)));
        let timers = attempt.scope.plan.timers.for_attempt(other_ready, remaining, next);
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
                let words = format!("no first token after {}", units::spoken_duration(timers.first_token));
                ProviderError::transport(family, fault, words)
            };
            let call = wire_call(attempt, timers.idle);
            let opened = timeout_at(first_token_by, inner.oneshot(call)).await;
            let mut deltas = opened.map_err(|_| silent(Arc::clone(&family)))??;
            Ok(Box::pin(stream! {
                let mut first = true;
                let mut by = first_token_by;
                let mut throughput = Throughput::new(timers.min_bytes_per_second);
                loop {
                    let asked = Instant::now();
                    let measured_by = if first { None } else { throughput.window_ends(asked) };
                    let waited = timeout_at(measured_by.map_or(by, |ends| by.min(ends)), deltas.next()).await;
                    if !first {
                        let bytes = match &waited {
                            Ok(Some(Ok(Delta::BlockDelta { text, .. }))) => text.len(),
                            _ => 0,
                        };
                        if let Err(Drips(rate)) = throughput.add(asked.elapsed(), bytes) {
                            let floor = timers.min_bytes_per_second.unwrap_or_default();
                            let words = format!("{rate:.0} bytes per second came, fewer than {floor}");
                            yield Err(ProviderError::transport(family, TransportFault::IdleTimeout, words));
                            return;
                        }
                    }
                    match waited {
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
                        // Only the window of the throughput is over, and enough came in it.
                        Err(_) if Instant::now() < by => {}
                        Err(_) if first => {
                            yield Err(silent(family));
                            return;
                        }
                        Err(_) => {
                            let words = format!("no token for {}", units::spoken_duration(timers.idle));
                            yield Err(ProviderError::transport(family, TransportFault::IdleTimeout, words));
                            return;
                        }
                    }
                }
            }) as DeltaStream)
        })
    }
}

// === impl Throughput ===

impl Throughput {
    const fn new(floor: Option<u64>) -> Self {
        Self { floor, waited: Duration::ZERO, bytes: 0 }
    }

    /// When the current window ends if it is waited for from `now` on; `None` without a floor.
    fn window_ends(&self, now: Instant) -> Option<Instant> {
        self.floor.map(|_| now + THROUGHPUT_WINDOW.saturating_sub(self.waited))
    }

    /// Adds what came after this wait, and judges a window that is over.
    fn add(&mut self, waited: Duration, bytes: usize) -> Result<(), Drips> {
        self.waited += waited;
        self.bytes += bytes as u64;
        let Some(floor) = self.floor.filter(|_| self.waited >= THROUGHPUT_WINDOW) else { return Ok(()) };
        #[expect(clippy::cast_precision_loss, reason = "a rate in words and in a comparison of whole bytes")]
        let (rate, floor) = (self.bytes as f64 / self.waited.as_secs_f64(), floor as f64);
        (self.waited, self.bytes) = (Duration::ZERO, 0);
        if rate < floor { Err(Drips(rate)) } else { Ok(()) }
    }
}

fn wire_call(attempt: Attempt, idle: Duration) -> ProviderRequest {
    ProviderRequest {
        invocation: attempt.scope.invocation.id.clone(),
        attempt: attempt.number(),
        target: attempt.target,
        call: attempt.call,
        wording: attempt.wording,
        deadline: attempt.deadline,
        idle: Some(idle),
        trace: attempt.outgoing,
        sent_to: attempt.sent_to,
        background: attempt.scope.background().clone(),
        attach: attempt.attach,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_the_answer_is_waited_for_counts_and_each_window_counts_anew() {
        let second = Duration::from_secs(1);
        let mut throughput = Throughput::new(Some(10));
        let now = Instant::now();
        assert_eq!(throughput.window_ends(now), Some(now + 3 * second));
        assert_eq!(throughput.add(second, 0), Ok(()));
        assert_eq!(throughput.window_ends(now), Some(now + 2 * second));
        assert_eq!(throughput.add(Duration::ZERO, 1), Ok(()), "what is there already takes no time");
        assert_eq!(throughput.add(2 * second, 29), Ok(()));
        assert_eq!(throughput.add(3 * second, 29), Err(Drips(29.0 / 3.0)));
        assert_eq!(Throughput::new(None).add(100 * second, 0), Ok(()));
    }
}
