//! The way back: probe leases while half-open, and the stages in which a recovering circuit admits
//! more and more calls.

use tokio::time::Instant;

use super::setting::CircuitPolicy;

/// The probes in flight, and the results of the others.
#[derive(Debug, Default)]
pub(super) struct HalfOpenProbes {
    leases: Vec<Lease>,
    /// Successes so far.
    pub(super) successes: u32,
    inconclusive: u32,
    last_granted: Option<Instant>,
}

#[derive(Debug)]
struct Lease {
    seq: u64,
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
    /// The estimated time of the next probe.
    pub(super) fn next_at(&self, now: Instant, policy: &CircuitPolicy) -> Instant {
        if self.leases.len() >= policy.probes_at_once() as usize {
            return self
                .leases
                .iter()
                .map(|lease| lease.expires)
                .min()
                .unwrap_or(now);
        }
        match self.last_granted {
            Some(granted) if self.inconclusive >= policy.inconclusive_probes => {
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

    /// A probe brought no verdict.
    pub(super) fn probe_was_neutral(&mut self) {
        self.inconclusive = self.inconclusive.saturating_add(1);
    }

    /// Whether a probe has been out for too long.
    pub(super) fn any_expired(&self, now: Instant) -> bool {
        self.leases.iter().any(|lease| now >= lease.expires)
    }

    /// How many are out.
    pub(super) fn outstanding(&self) -> u32 {
        u32::try_from(self.leases.len()).unwrap_or(u32::MAX)
    }
}

// === impl RecoveryRamp ===

impl RecoveryRamp {
    pub(super) fn new(now: Instant, policy: &CircuitPolicy) -> Self {
        let mut ramp = Self {
            stage: 0,
            began: now,
            outcomes: 0,
            answered: false,
            credit: 0,
        };
        ramp.prime(policy);
        ramp
    }

    /// The share of calls that are admitted, in percent.
    pub(super) fn percent(&self, policy: &CircuitPolicy) -> u32 {
        policy
            .recovering_percent
            .get(self.stage)
            .copied()
            .unwrap_or(100)
            .clamp(1, 100)
    }

    /// Whether this call is within the share: a counter, not dice, so that the share is exact; the
    /// first call of a stage always is.
    pub(super) fn admits(&mut self, policy: &CircuitPolicy) -> bool {
        self.credit += self.percent(policy);
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

    /// Whether the stage has lasted long enough: in time with a success, or in outcomes.
    pub(super) fn stage_is_over(&self, now: Instant, policy: &CircuitPolicy) -> bool {
        let long_enough = now.saturating_duration_since(self.began) >= policy.stage_time;
        self.answered && (long_enough || self.outcomes >= policy.stage_outcomes)
    }

    /// Enters the next stage; false when there is none.
    pub(super) fn next_stage(&mut self, now: Instant, policy: &CircuitPolicy) -> bool {
        self.stage += 1;
        self.began = now;
        self.outcomes = 0;
        self.answered = false;
        self.prime(policy);
        self.stage < policy.recovering_percent.len()
    }

    /// When the stage has lasted its time.
    pub(super) fn ends_at(&self, policy: &CircuitPolicy) -> Instant {
        self.began + policy.stage_time
    }

    fn prime(&mut self, policy: &CircuitPolicy) {
        self.credit = 100 - self.percent(policy);
    }
}
