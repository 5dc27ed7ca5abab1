//! Places for probes, leased from the store that replicas share.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use relight_fleet::{Fleet, ProbeLease, exchange::POLL};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::identity::Identities;
use crate::{
    domain::target::Target,
    layers::targets::{LeasedProbe, SharedProbes},
};

/// Leases places for probes.
#[derive(Debug)]
pub(super) struct LeasedProbes {
    fleet: Fleet,
    identities: Arc<Identities>,
    runtime: Handle,
}

// === impl LeasedProbes ===

impl LeasedProbes {
    /// Needs a runtime, in which places are given back.
    pub(super) fn new(fleet: Fleet, identities: Arc<Identities>) -> Self {
        Self {
            fleet,
            identities,
            runtime: Handle::current(),
        }
    }
}

impl SharedProbes for LeasedProbes {
    fn lease<'a>(
        &'a self,
        target: &'a Target,
        places: u32,
        lifetime: Duration,
    ) -> BoxFuture<'a, Option<Result<LeasedProbe, Duration>>> {
        Box::pin(async move {
            let subjects = self.identities.of(target)?;
            let lease = place_among(subjects.circuit.to_string(), places, lifetime);
            let taken = self.fleet.lease(&lease).await;
            let fleet = self.fleet.clone();
            let runtime = self.runtime.clone();
            // One that is not given back is free when its time is over. One circuit admits no probe
            // after one that failed: until the others know, all places are taken.
            let give_back = move |has_failed: bool| {
                runtime.spawn(async move {
                    if has_failed {
                        for _ in 1..lease.places {
                            let other = place_among(lease.name.clone(), lease.places, POLL);
                            fleet.lease(&other).await;
                        }
                        tokio::time::sleep(POLL).await;
                    }
                    fleet.release(&lease).await;
                });
            };
            match taken {
                // It may have been taken all the same.
                None => {
                    give_back(false);
                    None
                }
                Some(taken) => Some(taken.map(|()| LeasedProbe::new(give_back))),
            }
        })
    }
}

/// Returns one of so many places for probes, of a holder of its own.
fn place_among(name: String, places: u32, lifetime: Duration) -> ProbeLease {
    ProbeLease {
        name,
        holder: Uuid::now_v7().to_string(),
        places,
        lifetime,
    }
}
