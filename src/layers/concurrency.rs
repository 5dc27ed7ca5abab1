//! A slot per attempt: how many a target may have at once, learnt from its back-pressure.
//!
//! The slot is taken in `call` after a bounded wait and held until the stream ends. It sits inside the planner's
//! loop, so that waits between attempts occupy no slot.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use async_stream::stream;
use futures_util::StreamExt as _;
use tokio::{sync::oneshot, time::Instant};
use tower::{Service, ServiceExt as _};

use super::{BoxFuture, Deltas, attempt::Attempt};
use crate::{
    domain::failure::{Failure, FailureClass, TransportFault, WaitSource},
    policy::concurrency::{ConcurrencyPolicy, Limiter, PushBack},
};

/// Limits how many attempts a target has at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLayer;

/// See [`ConcurrencyLayer`].
#[derive(Debug, Clone)]
pub struct Concurrency<S> {
    inner: S,
}

/// The slots of one target; cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    limiter: Limiter,
    in_flight: u32,
    queue: VecDeque<oneshot::Sender<Slot>>,
    max_queued: usize,
    max_wait: Duration,
}

/// A slot that is held; dropping it hands it to the next in the queue.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    hand_on: bool,
}

// === impl Slots ===

impl Slots {
    /// Slots as the policy says.
    pub fn new(policy: &ConcurrencyPolicy) -> Self {
        let shared = Shared {
            limiter: Limiter::new(policy.clone()),
            in_flight: 0,
            queue: VecDeque::new(),
            max_queued: policy.max_queued as usize,
            max_wait: policy.max_queue_wait,
        };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Takes over a new policy; what was learnt is kept within its bounds.
    pub fn set_policy(&self, policy: &ConcurrencyPolicy) {
        let mut shared = self.lock();
        shared.limiter.reconfigure(policy.clone());
        shared.max_queued = policy.max_queued as usize;
        shared.max_wait = policy.max_queue_wait;
    }

    /// The target's circuit opened, on silence or on errors that came at once: these were about an outage, and not
    /// about its slots.
    pub fn outage(&self, silence: bool) {
        self.lock().limiter.on_outage(Instant::now(), silence);
    }

    /// Attempts in flight.
    pub fn in_flight(&self) -> u32 {
        self.lock().in_flight
    }

    /// How many may be in flight now.
    pub fn limit(&self) -> u32 {
        self.lock().limiter.limit()
    }

    /// Takes a slot, waiting in line where there is none; `Err` when the line is full or the wait too long. Cancel
    /// safe: a slot that nobody waits for any more goes to the next in line.
    async fn take(&self, until: Instant) -> Result<Slot, Duration> {
        let (waiting, give_up) = {
            let mut shared = self.lock();
            if shared.in_flight < shared.limiter.limit() {
                shared.in_flight += 1;
                return Ok(Slot { slots: self.clone(), hand_on: true });
            }
            shared.queue.retain(|waiting| !waiting.is_closed());
            if shared.queue.len() >= shared.max_queued {
                return Err(shared.max_wait);
            }
            let (give, waiting) = oneshot::channel();
            shared.queue.push_back(give);
            (waiting, until.min(Instant::now() + shared.max_wait))
        };
        match tokio::time::timeout_at(give_up, waiting).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(self.lock().max_wait),
        }
    }

    fn succeeded(&self, began: Instant) {
        let mut shared = self.lock();
        let reached = shared.in_flight >= shared.limiter.limit();
        shared.limiter.on_success(began, reached);
        drop(shared);
        self.hand_out();
    }

    fn pushed_back(&self, began: Instant, first_token_p50: Duration, silence: bool) {
        let mut shared = self.lock();
        let word = PushBack { began, in_flight: shared.in_flight, silence };
        shared.limiter.on_back_pressure(Instant::now(), first_token_p50, word);
    }

    /// Gives free slots to those in line. A slot is handed over outside the lock: one whose waiter is gone drops
    /// back here.
    fn hand_out(&self) {
        loop {
            let next = {
                let mut shared = self.lock();
                if shared.in_flight >= shared.limiter.limit() {
                    return;
                }
                let Some(next) = shared.queue.pop_front() else { return };
                if next.is_closed() {
                    continue;
                }
                shared.in_flight += 1;
                next
            };
            if let Err(unwanted) = next.send(Slot { slots: self.clone(), hand_on: true }) {
                unwanted.release();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl Slot {
    /// Gives the slot back without handing it on; the caller goes on handing out.
    fn release(mut self) {
        self.hand_on = false;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut shared = self.slots.lock();
        shared.in_flight = shared.in_flight.saturating_sub(1);
        drop(shared);
        if self.hand_on {
            self.slots.hand_out();
        }
    }
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
            let slots = attempt.state.slots.clone();
            let slot = slots.take(attempt.deadline).await.map_err(|retry_in| {
                let mut refused = Failure::local(FailureClass::Shed, "all slots of the target are taken");
                refused.target = Some(attempt.target.id.clone());
                refused.with_retry_after(retry_in, WaitSource::Parked)
            })?;
            let began = Instant::now();
            let state = Arc::clone(&attempt.state);
            let learn = move |failure: &Failure| {
                if is_back_pressure(failure) {
                    let now = Instant::now();
                    let p50 = state.latency().p50(now).unwrap_or(Duration::from_secs(1));
                    state.slots.pushed_back(began, p50, failure.class == FailureClass::Timeout);
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
                            slot.slots.succeeded(began);
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

/// Whether a failure says that fewer attempts at once would do better. That a caller ran out of time does not.
fn is_back_pressure(failure: &Failure) -> bool {
    let own_end = matches!(failure.fault, Some(TransportFault::Deadline | TransportFault::Cancelled));
    matches!(failure.class, FailureClass::RateLimited | FailureClass::Overloaded | FailureClass::Timeout) && !own_end
}
