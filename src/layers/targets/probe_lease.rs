//! Probes of an open circuit, of which all replicas together send no more than one circuit would.
//!
//! Only a call that would be a probe comes here: one whose circuit is closed costs a look at its
//! state.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{TargetState, Targets};
use crate::domain::{failure::Failure, target::Target};

/// Places for probes that replicas share.
pub trait SharedProbes: fmt::Debug + Send + Sync {
    /// Takes one of so many places for at most this time; `None` if that cannot be known soon, and
    /// this replica decides alone.
    ///
    /// # Errors
    /// Returns the time until a place may be free.
    fn lease<'a>(
        &'a self,
        target: &'a Target,
        places: u32,
        lifetime: Duration,
    ) -> BoxFuture<'a, Option<Result<LeasedProbe, Duration>>>;
}

/// A place for a probe; given back when it is dropped.
pub struct LeasedProbe(Option<Box<dyn FnOnce(bool) + Send + Sync>>);

/// One of the calls of a target that have a place for a probe or ask for one, until it is dropped.
struct AskingCall(Arc<TargetState>);

// === impl LeasedProbe ===

impl LeasedProbe {
    /// A place that is given back by this, which learns whether the probe failed.
    pub fn new(give_back: impl FnOnce(bool) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(give_back)))
    }

    /// Gives the place back after a probe that failed.
    pub fn failed(mut self) {
        if let Some(give_back) = self.0.take() {
            give_back(true);
        }
    }
}

impl fmt::Debug for LeasedProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeasedProbe")
    }
}

impl Drop for LeasedProbe {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back(false);
        }
    }
}

// === impl AskingCall ===

impl AskingCall {
    /// One of so many calls at most; `None` if there are as many.
    fn among(state: &Arc<TargetState>, places: u32) -> Option<Self> {
        let next = |asking: u32| (asking < places).then_some(asking + 1);
        let counted = state
            .probing
            .try_update(Ordering::Relaxed, Ordering::Relaxed, next);
        counted.is_ok().then(|| Self(Arc::clone(state)))
    }

    fn is_alone(&self) -> bool {
        self.0.probing.load(Ordering::Relaxed) == 1
    }
}

impl Drop for AskingCall {
    fn drop(&mut self) {
        self.0.probing.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Targets ===

impl Targets {
    /// Has all probes from now on take a place among those of other replicas.
    pub fn share_probes(&self, probes: Arc<dyn SharedProbes>) {
        // The first one stays: replicas are joined once.
        let _ = self.shared.probes.set(probes);
    }

    /// Takes a place for a call that would be a probe; `None` if it needs none. No more calls of this
    /// replica ask at once than there are places; one that gets none leaves the circuit as it is while
    /// another one has a place or may still get it, or that one could not probe.
    ///
    /// # Errors
    /// The refusal of its circuit while others probe.
    pub(in crate::layers) async fn lease_probe(
        &self,
        state: &Arc<TargetState>,
    ) -> Result<Option<LeasedProbe>, Failure> {
        let Some(probes) = self.shared.probes.get() else {
            return Ok(None);
        };
        let Some((places, lifetime)) = state.circuit().next_is_probe(Instant::now()) else {
            return Ok(None);
        };
        let Some(asking) = AskingCall::among(state, places) else {
            let retry_in = state.circuit().policy().open_base;
            return Err(state.refused_by_circuit(Instant::now(), Some(retry_in)));
        };
        match probes.lease(&state.target, places, lifetime).await {
            None => Ok(None),
            Some(Ok(probe)) => Ok(Some(LeasedProbe::new(move |has_failed| {
                if has_failed {
                    probe.failed();
                }
                drop(asking);
            }))),
            Some(Err(free_in)) => {
                let now = Instant::now();
                let retry_in = {
                    let mut circuit = state.circuit();
                    // A probe usually ends long before its time is over.
                    let retry_in = free_in.min(circuit.policy().open_base);
                    if asking.is_alone() {
                        circuit.stay_open(now + retry_in);
                    }
                    retry_in
                };
                Err(state.refused_by_circuit(now, Some(retry_in)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;
    use crate::{
        domain::{
            event::Evidence,
            target::{Capabilities, Dialect},
        },
        events::EventBus,
        layers::targets::{SharedPolicies, TargetSpec},
        policy::{
            circuit::{CircuitPolicy, Together},
            concurrency::ConcurrencyPolicy,
        },
    };

    /// A store with so many free places, which is slower to give one than to refuse.
    #[derive(Debug)]
    struct FreePlaces(AtomicU32);

    impl SharedProbes for FreePlaces {
        fn lease<'a>(
            &'a self,
            _: &'a Target,
            _: u32,
            lifetime: Duration,
        ) -> BoxFuture<'a, Option<Result<LeasedProbe, Duration>>> {
            let taken = self
                .0
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |free| {
                    free.checked_sub(1)
                });
            Box::pin(async move {
                if taken.is_err() {
                    return Some(Err(lifetime));
                }
                tokio::task::yield_now().await;
                Some(Ok(LeasedProbe::new(|_| ())))
            })
        }
    }

    /// Returns how many of twenty callers probe a circuit whose open time is over, and its target.
    async fn probes_with(free: u32) -> (usize, Arc<TargetState>) {
        let target = Arc::new(Target {
            id: "main".into(),
            provider: "provider".into(),
            family: "openai".into(),
            dialect: Dialect::Scripted,
            model: "model".into(),
            credential: "default".into(),
            endpoint: "scripted://".into(),
            capabilities: Capabilities::default(),
            system_prompt: None,
        });
        let spec = TargetSpec {
            target: Arc::clone(&target),
            circuit: Arc::new(CircuitPolicy::default()),
            concurrency: ConcurrencyPolicy::default(),
            settings: 0,
            pool: Vec::new(),
        };
        let targets = Targets::new(EventBus::new(64), &[spec], &SharedPolicies::default());
        targets.share_probes(Arc::new(FreePlaces(AtomicU32::new(free))));
        let state = targets.state(&target.id).unwrap();
        let failures = Together {
            evidence: Evidence::default(),
            reason: "failures",
        };
        let opened = Instant::now();
        state.circuit().open_with(opened, 0.5, failures, None);
        tokio::time::advance(Duration::from_secs(2)).await;
        let callers = (0..20).map(async |_| {
            let place = targets.lease_probe(&state).await.ok()?;
            let permit = state.admit(Instant::now(), 0.5).ok()?;
            Some((place, permit))
        });
        let admitted = join_all(callers).await.into_iter().flatten().count();
        (admitted, state)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_get_no_place_keep_none_from_probing_that_has_one() {
        for free in [1, 2] {
            assert_eq!(probes_with(free).await.0, free as usize);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_others_have_all_places_the_circuit_stays_open_here() {
        let (admitted, state) = probes_with(0).await;
        assert_eq!(admitted, 0);
        assert_eq!(state.circuit().next_is_probe(Instant::now()), None);
    }
}
