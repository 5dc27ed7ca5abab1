//! A slot per attempt: the number of concurrent attempts at a target, derived from its overload
//! signals.
//!
//! The slot is taken in `call` after a bounded wait and held until the stream ends. The layer is
//! inside the planner's loop, so that waits between attempts occupy no slot.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    attempt::Attempt,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
    targets::Slot,
};
use crate::{
    domain::{
        completion::Delta,
        failure::{Failure, FailureClass, WaitSource},
    },
    policy::concurrency::is_back_pressure,
};

/// A slot that was there sooner was not queued for.
const QUEUED_AFTER: Duration = Duration::from_millis(1);

/// The layer that limits the number of concurrent attempts at a target.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLayer;

/// The slot of an attempt.
#[derive(Debug)]
pub struct HeldSlot {
    slot: Slot,
    began: Instant,
    attempt: Arc<Attempt>,
    /// Nothing of the response came yet. Success is reported at the first token, as failures are:
    /// whole responses take longer, and would be counted too late.
    silent: bool,
}

// === impl ConcurrencyLayer ===

impl<S> tower::Layer<S> for ConcurrencyLayer {
    type Service = Guarded<Self, S>;

    fn layer(&self, inner: S) -> Guarded<Self, S> {
        Guarded::new(*self, inner)
    }
}

impl AdmitAttempt for ConcurrencyLayer {
    type Guard = HeldSlot;

    async fn admit(&self, attempt: &Arc<Attempt>) -> Result<HeldSlot, Failure> {
        let waiting_since = Instant::now();
        let slots = &attempt.at.state.slots;
        let slot = slots
            .take(&attempt.scope.invocation.tenant, attempt.deadline())
            .await
            .map_err(|retry_in| {
                let mut refused =
                    Failure::local(FailureClass::Shed, "all slots of the target are taken");
                refused.target = Some(attempt.target().id.clone());
                refused.with_retry_after(retry_in, WaitSource::Parked)
            })?;
        if waiting_since.elapsed() >= QUEUED_AFTER {
            attempt.trace.queued(waiting_since);
        }
        Ok(HeldSlot {
            slot,
            began: Instant::now(),
            attempt: Arc::clone(attempt),
            silent: true,
        })
    }
}

// === impl HeldSlot ===

impl AttemptGuard for HeldSlot {
    fn on_delta(&mut self, delta: &Delta) {
        if self.silent && delta.is_content() {
            self.silent = false;
            self.slot.succeeded(self.began);
        }
    }

    fn on_failure(&mut self, failure: &Failure) {
        let Attempt { at, sent, .. } = &*self.attempt;
        if is_back_pressure(failure) && sent.own_failure.get().is_none() {
            let p50 = at
                .state
                .observed
                .latency()
                .p50(Instant::now())
                .unwrap_or(Duration::from_secs(1));
            at.state.slots.pushed_back(self.began, p50);
        }
    }
}
