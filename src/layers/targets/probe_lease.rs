//! Probes of an open circuit, of which all replicas together send no more than one circuit would.
//!
//! Only a call that would be a probe comes here: one whose circuit is closed costs a look at its
//! state.

use std::{fmt, sync::Arc, time::Duration};

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
pub struct LeasedProbe(Option<Box<dyn FnOnce() + Send + Sync>>);

// === impl LeasedProbe ===

impl LeasedProbe {
    /// A place that is given back by this.
    pub fn new(give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(give_back)))
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
            give_back();
        }
    }
}

// === impl Targets ===

impl Targets {
    /// Has all probes from now on take a place among those of other replicas.
    pub fn share_probes(&self, probes: Arc<dyn SharedProbes>) {
        // The first one stays: replicas are joined once.
        let _ = self.shared.probes.set(probes);
    }

    /// Takes a place for a call that would be a probe; `None` if it needs none.
    ///
    /// # Errors
    /// The refusal of its circuit while other replicas probe.
    pub(in crate::layers) async fn lease_probe(
        &self,
        state: &TargetState,
    ) -> Result<Option<LeasedProbe>, Failure> {
        let Some(probes) = self.shared.probes.get() else {
            return Ok(None);
        };
        let Some((places, lifetime)) = state.circuit().next_is_probe(Instant::now()) else {
            return Ok(None);
        };
        match probes.lease(&state.target, places, lifetime).await {
            None => Ok(None),
            Some(Ok(probe)) => Ok(Some(probe)),
            Some(Err(free_in)) => {
                let now = Instant::now();
                let retry_in = {
                    let mut circuit = state.circuit();
                    // A probe usually ends long before its time is over.
                    let retry_in = free_in.min(circuit.policy().open_base);
                    circuit.stay_open(now + retry_in);
                    retry_in
                };
                Err(state.refused_by_circuit(now, Some(retry_in)))
            }
        }
    }
}
