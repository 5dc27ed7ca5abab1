//! Admission: bounds the work in flight and shares it fairly among tenants.
//!
//! Refusing early with a retry time costs everyone less than timing out late. While there is room,
//! every tenant is admitted. When room becomes scarce, a tenant that has more than its share is
//! refused first, so that the rest is left to those who have less. Running work is not ended in
//! favour of other work.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::domain::ids::TenantId;

/// Limits on the work in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionPolicy {
    /// Invocations in flight, of all tenants, per process. A number from 1 to 1 000 000;
    /// default 1024.
    pub max_in_flight: u32,
}

/// The work in flight, by tenant.
#[derive(Debug, Clone)]
pub struct Admission {
    policy: AdmissionPolicy,
    in_flight: u32,
    tenants: HashMap<TenantId, TenantLoad>,
}

/// A refusal because of too much work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// Time after which the caller may come back.
    pub retry_in: Duration,
    /// Limit that was reached.
    pub reason: ShedReason,
}

/// Reason for which an invocation was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ShedReason {
    /// Everything is taken.
    Full,
    /// Room is scarce, and this tenant has its share of it.
    OverShare,
}

#[derive(Debug, Clone, Copy)]
struct TenantLoad {
    in_flight: u32,
    last_seen: Instant,
}

/// Part of `max_in_flight` from which on a tenant is held to its fair share.
const FAIR_FROM: f64 = 0.8;
/// Time after which a refused caller may come back.
const RETRY_IN: Duration = Duration::from_secs(1);
/// Time for which a tenant keeps its claim to a share after it last came, in multiples of
/// `RETRY_IN`.
const CLAIM_ROUNDS: u32 = 3;
/// Idle tenants that are remembered before the forgotten ones are swept out.
const SWEEP_AT: usize = 1024;

// === impl AdmissionPolicy ===

impl Default for AdmissionPolicy {
    fn default() -> Self {
        Self {
            max_in_flight: 1024,
        }
    }
}

impl AdmissionPolicy {
    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !(1..=1_000_000).contains(&self.max_in_flight) {
            faults.push((
                "max_in_flight",
                format!("must be from 1 to 1000000, not {}", self.max_in_flight),
            ));
        }
        faults
    }
}

// === impl ShedReason ===

impl ShedReason {
    /// Returns the reason's name in snake case, as in metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl Admission ===

impl Admission {
    /// With nothing in flight.
    #[must_use]
    pub fn new(policy: AdmissionPolicy) -> Self {
        Self {
            policy,
            in_flight: 0,
            tenants: HashMap::new(),
        }
    }

    /// Admits one invocation of the tenant; end it with `leave`.
    ///
    /// # Errors
    /// Returns `Shed`, with the time to retry, if there is no room for this tenant.
    pub fn try_enter(&mut self, tenant: &TenantId, now: Instant) -> Result<(), Shed> {
        self.sweep(now);
        let presence = self.tenants.entry(tenant.clone()).or_insert(TenantLoad {
            in_flight: 0,
            last_seen: now,
        });
        presence.last_seen = now;
        let own = presence.in_flight;
        if let Some(reason) = self.refusal(own, now) {
            return Err(Shed {
                retry_in: RETRY_IN,
                reason,
            });
        }
        if let Some(presence) = self.tenants.get_mut(tenant) {
            presence.in_flight += 1;
        }
        self.in_flight += 1;
        Ok(())
    }

    /// One invocation of the tenant ended. Without one in flight, nothing happens.
    pub fn leave(&mut self, tenant: &TenantId) {
        if let Entry::Occupied(mut entry) = self.tenants.entry(tenant.clone())
            && entry.get().in_flight > 0
        {
            entry.get_mut().in_flight -= 1;
            self.in_flight -= 1;
        }
    }

    /// Invocations in flight, of all tenants.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Applies new settings (a reload); admitted work stays admitted.
    pub fn reconfigure(&mut self, policy: AdmissionPolicy) {
        self.policy = policy;
    }

    /// Returns the reason for which a tenant with `own` in flight may not come in now.
    fn refusal(&self, own: u32, now: Instant) -> Option<ShedReason> {
        if self.in_flight >= self.policy.max_in_flight {
            return Some(ShedReason::Full);
        }
        let scarce = f64::from(self.in_flight) >= f64::from(self.policy.max_in_flight) * FAIR_FROM;
        if scarce && own >= self.share(now) {
            return Some(ShedReason::OverShare);
        }
        None
    }

    /// Returns the share of each tenant that is there, or was refused a short while ago.
    fn share(&self, now: Instant) -> u32 {
        let claiming = self
            .tenants
            .values()
            .filter(|presence| presence.claims(now))
            .count();
        let claiming = u32::try_from(claiming).unwrap_or(u32::MAX).max(1);
        (self.policy.max_in_flight / claiming).max(1)
    }

    /// Forgets tenants that have nothing in flight and no claim, once there are many.
    fn sweep(&mut self, now: Instant) {
        if self.tenants.len() >= SWEEP_AT {
            self.tenants.retain(|_, presence| presence.claims(now));
        }
    }
}

// === impl TenantLoad ===

impl TenantLoad {
    /// Returns whether the tenant has work in flight, or was refused a short while ago and may
    /// return after the stated wait.
    fn claims(&self, now: Instant) -> bool {
        self.in_flight > 0
            || now.saturating_duration_since(self.last_seen) <= RETRY_IN * CLAIM_ROUNDS
    }
}

#[cfg(test)]
mod tests;
