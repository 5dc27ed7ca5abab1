//! The pace at which calls leave a rate gate that opened.
//!
//! All who waited would otherwise pass at once and reach the limit again. While no limit is known
//! twice as many pass in each step, which is as long as a refusal takes to arrive, so that a limit
//! that is gone is found within a second. When it is reached again, the calls that passed since it
//! was last reached show what it lets pass, whatever its burst: calls then pass a little slower than
//! that for a moment, then faster, and beyond twice of it faster and faster.

use std::{f64::consts::LN_2, time::Duration};

use tokio::time::Instant;

use super::probes::WHILE_CALLS_WAIT;

/// Used share of a measured limit: at all of it, it would be reached again by chance.
const UTILISATION: f64 = 0.97;
/// Number of calls that must have passed, and the time for it, to measure a limit.
const SEVERAL: u32 = 3;
const SPAN: Duration = Duration::from_millis(250);
/// Remaining share of a measured limit that was too high and cannot be measured again.
const LOWER: f64 = 0.8;
/// The largest rate, per second.
const MAX_RATE: f64 = 10_000.0;
/// For how long, and for how many calls at least, a measured limit is held; of a slow one, no longer
/// than a closed gate is left unprobed.
const HOLD: Duration = Duration::from_secs(1);
const HOLD_CALLS: f64 = 10.0;
/// After that, the share of itself by which the rate grows in a second, until it has doubled.
const GROWTH: f64 = 0.5;
/// Then the limit is likely gone: from there on the rate doubles in so many steps.
const STEPS_BEYOND: f64 = 4.0;
/// The longest idle or closed time for which a limit is assumed to refill, and which is caught up.
const LAG: Duration = Duration::from_secs(1);
/// Largest lateness of timers.
const TICK: Duration = Duration::from_millis(10);
/// Time for which no caller must have waited before a measured limit is forgotten.
const FORGET: Duration = Duration::from_secs(10);
/// The shortest and the longest step in which the calls that pass double.
const STEP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// After so many steps without a refusal the limit is gone: a thousand calls would have passed.
const STEPS: u32 = 10;

/// Place of a replica among those that share a limit, as the order in which they take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaPlace {
    /// Number of replicas before this one.
    pub rank: u32,
    /// Live replicas, this one included; at least 1.
    pub live: u32,
}

/// The pace of one gate since its limit was reached.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pacer {
    /// Calls per second that the limit lets pass; `None` while that is not measured.
    limit: Option<f64>,
    step: Duration,
    /// Share of a closed time that is caught up: less if the burst is small.
    catch_up: f64,
    opened: Instant,
    /// The closed time before that in which the limit filled up.
    filled: Duration,
    /// Time at which the next call would pass if all had passed evenly.
    next: Instant,
    /// Time at which a caller last had to wait.
    bound_at: Instant,
    /// Calls since the limit was measured last, and in which time.
    passed: u32,
    refused: u32,
    span: Duration,
    /// Time at which it was reached again; calls in flight then are still counted.
    reached: Option<Instant>,
    place: ReplicaPlace,
}

// === impl ReplicaPlace ===

impl Default for ReplicaPlace {
    /// Alone.
    fn default() -> Self {
        Self { rank: 0, live: 1 }
    }
}

impl ReplicaPlace {
    fn live(self) -> f64 {
        f64::from(self.live.max(1))
    }

    /// Share of the time between two calls of this replica for which those before it have the turn.
    fn turn(self) -> f64 {
        f64::from(self.rank) / self.live()
    }
}

// === impl Pacer ===

impl Pacer {
    /// The pace of a gate that closes now; `took`: how long the refusal took.
    pub(super) fn new(now: Instant, took: Duration, place: ReplicaPlace) -> Self {
        Self {
            place,
            limit: None,
            step: (took * 2).clamp(STEP.0, STEP.1),
            catch_up: 1.0,
            opened: now,
            filled: Duration::ZERO,
            next: now,
            bound_at: now,
            passed: 0,
            refused: 0,
            span: Duration::ZERO,
            reached: Some(now),
        }
    }

    /// Shares what it lets pass with other replicas from now on. A limit that was measured here is
    /// that of this replica's calls, whose share of all changes.
    pub(super) fn share(&mut self, place: ReplicaPlace) {
        let share = self.place.live() / place.live();
        self.limit = self.limit.map(|limit| limit * share);
        self.place = place;
    }

    /// Returns how long a refusal took, as far as it counts.
    pub(super) fn took(&self) -> Duration {
        self.step / 2
    }

    /// Returns the step in which calls double, and the shortest time between two probes.
    pub(super) const fn step(&self) -> Duration {
        self.step
    }

    /// The gate closes again: its limit is reached.
    pub(super) fn limited(&mut self, now: Instant, took: Duration) {
        self.step = (took * 2).clamp(STEP.0, STEP.1);
        self.reached = Some(now);
        self.bound_at = now;
    }

    /// A call that passed was refused.
    pub(super) const fn refused(&mut self) {
        self.refused = self.refused.saturating_add(1);
    }

    /// The gate opens: by now it is known which of the calls that passed were accepted.
    pub(super) fn opens(&mut self, now: Instant) {
        let Some(reached) = self.reached.take() else {
            return;
        };
        let open = reached.saturating_duration_since(self.opened);
        if self.limit.is_some() && open < SPAN && self.filled > open {
            // By calls that caught up: the limit refilled by less than that, which shows nothing of
            // its rate.
            self.catch_up /= 2.0;
        } else {
            self.span += open + self.filled;
            self.measure();
        }
        let closed = now.saturating_duration_since(reached);
        self.filled = closed.min(LAG).mul_f64(self.catch_up);
        (self.opened, self.bound_at) = (now, now);
        let caught_up = self.limit.map_or(Duration::ZERO, |_| self.filled);
        self.next = now.checked_sub(caught_up).unwrap_or(now);
        // Replicas return in turn, and not all at once.
        let turn = self.ready_after(now, self.place.turn()) - now.max(self.next);
        self.next += turn;
    }

    /// Measures the limit by what passed since it was measured last, once that is enough.
    fn measure(&mut self) {
        let allowed = self.passed.saturating_sub(self.refused);
        if allowed >= SEVERAL && self.span >= SPAN {
            let rate = f64::from(allowed) / self.span.as_secs_f64() * UTILISATION;
            self.limit = Some(rate.min(MAX_RATE));
            (self.passed, self.refused, self.span) = (0, 0, Duration::ZERO);
        } else {
            self.limit = self.limit.map(|rate| rate * LOWER);
        }
    }

    /// Returns whether calls pass as they come.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let over_at = match self.limit {
            Some(_) => self.bound_at + FORGET,
            None => self.opened + self.step * STEPS,
        };
        self.reached.is_none() && now >= over_at
    }

    /// Returns the time at which the next call may pass, with so many before it; growth included,
    /// because a limit may be gone.
    pub(super) fn ready_at(&self, now: Instant, before: u32) -> Instant {
        self.ready_after(now, f64::from(before))
    }

    /// Returns the time at which this number of calls passed, and parts of one.
    fn ready_after(&self, now: Instant, calls: f64) -> Instant {
        let begins = self.next.max(now);
        let mut past = begins.saturating_duration_since(self.opened).as_secs_f64();
        let (mut rate, mut left, mut wait) = (self.rate_at(begins), calls, 0.0);
        for (lasts, growth) in self.stages() {
            let time = (lasts - past).max(0.0);
            past = (past - lasts).max(0.0);
            // As good as none, and divisible by.
            let growth = growth.max(f64::EPSILON);
            let needed = (growth * left / rate).ln_1p() / growth;
            if needed <= time {
                wait += needed;
                break;
            }
            left -= rate * (growth * time).exp_m1() / growth;
            rate *= (growth * time).exp();
            wait += time;
        }
        begins + Duration::try_from_secs_f64(wait).unwrap_or(FORGET)
    }

    /// Passes a call if it is time.
    ///
    /// # Errors
    /// How long the next one has to wait.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if self.next > now {
            self.bound_at = self.bound_at.max(now);
            return Err(self.next - now);
        }
        self.pass(now);
        Ok(())
    }

    /// Counts a call that passes, in its turn or not.
    pub(super) fn pass(&mut self, now: Instant) {
        self.passed = self.passed.saturating_add(1);
        let even = if self.place.live > 1 {
            // Exact, since a replica's first calls are far apart while the rate grows.
            self.ready_after(now, 1.0) - self.next.max(now)
        } else {
            Duration::from_secs_f64(1.0 / self.rate_at(now))
        };
        // Of a limit that is not known nothing is caught up but what timers are late by.
        let lag = if self.limit.is_some() { LAG } else { TICK };
        self.next = self.next.max(now.checked_sub(lag).unwrap_or(now)) + even;
    }

    fn rate_at(&self, now: Instant) -> f64 {
        let mut left = now.saturating_duration_since(self.opened).as_secs_f64();
        let mut grown = 0.0;
        for (lasts, growth) in self.stages() {
            grown += growth * left.min(lasts);
            left = (left - lasts).max(0.0);
        }
        (self.limit.unwrap_or(self.doubling() / self.place.live()) * grown.exp()).min(MAX_RATE)
    }

    /// Returns the stages since it opened: how many seconds each lasts, and by which share of
    /// itself the rate grows in a second of it.
    fn stages(&self) -> [(f64, f64); 3] {
        match self.limit {
            None => [(f64::INFINITY, self.doubling()), (0.0, 0.0), (0.0, 0.0)],
            Some(limit) => [
                (
                    (HOLD_CALLS / limit).clamp(HOLD.as_secs_f64(), WHILE_CALLS_WAIT.as_secs_f64()),
                    0.0,
                ),
                (LN_2 / GROWTH, GROWTH),
                (f64::INFINITY, self.doubling() / STEPS_BEYOND),
            ],
        }
    }

    /// Returns the growth that doubles the rate in each step.
    fn doubling(&self) -> f64 {
        LN_2 / self.step.as_secs_f64()
    }
}

#[cfg(test)]
mod tests;
