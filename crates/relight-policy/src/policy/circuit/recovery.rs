//! The way back: probe leases while half-open, and the stages in which a recovering circuit admits
//! more and more calls.

use std::time::Duration;

use tokio::time::Instant;

use super::setting::{
    CircuitPolicy, INCONCLUSIVE_PROBES, RECOVERING_PERCENT, STAGE_OUTCOMES, STAGE_TIME,
};

/// The probes in flight, and the results of the others.
#[derive(Debug, Default)]
pub(super) struct HalfOpenProbes {
    leases: Vec<Lease>,
    /// Successes so far.
    pub(super) successes: u32,
    failures: u32,
    inconclusive: u32,
    last_granted: Option<Instant>,
}

#[derive(Debug)]
struct Lease {
    seq: u64,
    granted: Instant,
    expires: Instant,
}

/// A stage of recovery.
#[derive(Debug)]
pub(super) struct RecoveryRamp {
    stage: usize,
    began: Instant,
    outcomes: u32,
    answered: bool,
    credit: u32,
}

// === impl HalfOpenProbes ===

impl HalfOpenProbes {
    /// Returns the estimated time of the next probe; one that has been silent for `patience` keeps
    /// none from being sent.
    pub(super) fn next_at(
        &self,
        now: Instant,
        patience: Duration,
        policy: &CircuitPolicy,
    ) -> Instant {
        let patient = |lease: &Lease| lease.expires.min(lease.granted + patience);
        let waited_for = self.leases.iter().map(patient).filter(|until| *until > now);
        if waited_for.clone().count() >= policy.probes_at_once() as usize {
            return waited_for.min().unwrap_or(now);
        }
        match self.last_granted {
            Some(granted) if self.inconclusive >= INCONCLUSIVE_PROBES => {
                now.max(granted + policy.open_base)
            }
            Some(_) | None => now,
        }
    }

    /// Sends a probe out.
    pub(super) fn grant(&mut self, now: Instant, seq: u64, policy: &CircuitPolicy) {
        self.last_granted = Some(now);
        self.leases.push(Lease {
            seq,
            granted: now,
            expires: now + policy.lease(),
        });
    }

    /// Reclaims a lease, if it is still out.
    pub(super) fn take_back(&mut self, seq: u64) {
        self.leases.retain(|lease| lease.seq != seq);
    }

    /// A probe brought a first token.
    pub(super) fn succeeded(&mut self) {
        self.successes += 1;
        self.inconclusive = 0;
    }

    /// A probe failed, or (`cut`) its answer broke off, which makes its success a failure. Returns
    /// whether the failures outnumber the successes: a target that answers half of its calls serves
    /// more callers than a circuit that is open.
    pub(super) fn failed(&mut self, cut: bool) -> bool {
        self.successes -= u32::from(cut).min(self.successes);
        self.failures += 1;
        self.failures > self.successes
    }

    /// A probe brought no verdict.
    pub(super) fn probe_was_neutral(&mut self) {
        self.inconclusive = self.inconclusive.saturating_add(1);
    }

    /// Gives up the probes that have been out for too long; returns whether these were the last.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.leases.len();
        self.leases.retain(|lease| now < lease.expires);
        before > 0 && self.leases.is_empty()
    }

    /// Returns the number of probes that are out.
    pub(super) fn outstanding(&self) -> u32 {
        u32::try_from(self.leases.len()).unwrap_or(u32::MAX)
    }
}

// === impl RecoveryRamp ===

impl RecoveryRamp {
    pub(super) fn new(now: Instant) -> Self {
        let mut ramp = Self {
            stage: 0,
            began: now,
            outcomes: 0,
            answered: false,
            credit: 0,
        };
        ramp.prime();
        ramp
    }

    /// Returns the share of calls that are admitted, in percent.
    pub(super) fn percent(&self) -> u32 {
        RECOVERING_PERCENT.get(self.stage).copied().unwrap_or(100)
    }

    /// Returns whether this call is within the share: a counter, not dice, so that the share is
    /// exact; the first call of a stage always is.
    pub(super) fn admits(&mut self) -> bool {
        self.credit += self.percent();
        let admitted = self.credit >= 100;
        if admitted {
            self.credit -= 100;
        }
        admitted
    }

    /// Counts a success. It need not be committed: a slow head would delay the recovery, and
    /// successes do not overtake errors.
    pub(super) fn answered(&mut self) {
        self.answered = true;
    }

    /// Counts a committed outcome.
    pub(super) fn committed(&mut self) {
        self.outcomes += 1;
    }

    /// Returns whether the stage has lasted long enough: in time with a success, or in outcomes.
    pub(super) fn stage_is_over(&self, now: Instant) -> bool {
        let long_enough = now.saturating_duration_since(self.began) >= STAGE_TIME;
        self.answered && (long_enough || self.outcomes >= STAGE_OUTCOMES)
    }

    /// Enters the next stage; returns `false` if there is none.
    pub(super) fn next_stage(&mut self, now: Instant) -> bool {
        self.stage += 1;
        self.began = now;
        self.outcomes = 0;
        self.answered = false;
        self.prime();
        self.stage < RECOVERING_PERCENT.len()
    }

    /// Returns the time at which the stage has lasted its time.
    pub(super) fn ends_at(&self) -> Instant {
        self.began + STAGE_TIME
    }

    fn prime(&mut self) {
        self.credit = 100 - self.percent();
    }
}
