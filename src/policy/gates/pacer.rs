//! The rate at which calls pass a rate gate after a limit was reached.
//!
//! When a gate opens, all who waited would pass at once and reach the limit again. One call passes
//! first: its refusal shows that the limit is still in force, but nothing of its rate. While no
//! refusal comes, twice as many pass in each step, which is as long as a refusal takes to arrive,
//! so that a limit that is gone is detected within a second. Only where several calls passed before
//! the limit was reached again is its rate measured: as many as it refilled by, whatever its burst.
//! Then calls pass a little slower than that for a while, and then faster and faster. A stated wait
//! is not shortened: before the gate opens, no call passes.

use std::time::Duration;

use tokio::time::Instant;

/// What is used of the rate at which a limit fills up: at all of it, it would be reached again by
/// chance.
const UTILISATION: f64 = 0.95;
/// How many calls must have passed, beside those that were refused, to measure a rate.
const SEVERAL: u32 = 3;
/// The largest rate, per second.
const MAX_RATE: f64 = 10_000.0;
/// For how long a measured rate is held: each search for more costs one stated wait where there is
/// not more, and each second without a search is lost where there is.
const HOLD: Duration = Duration::from_millis(2500);
/// For how many calls it is held at least: of slow limits, one call in so many may be refused.
const HOLD_CALLS: f64 = 10.0;
/// After that, the share of itself by which the rate grows in a second.
const GROWTH: f64 = 0.5;
/// What is left of a measured rate that was too high and cannot be measured again.
const LOWER: f64 = 0.8;
/// The share of an idle time that is caught up: limits refill meanwhile.
const CATCH_UP: f64 = 0.5;
/// The longest idle time for which a limit is assumed to refill, and which is caught up.
const LAG: Duration = Duration::from_secs(1);
/// How late timers are at most.
const TICK: Duration = Duration::from_millis(10);
/// The least time in which calls must have passed to measure a rate.
const SPAN: Duration = Duration::from_millis(250);
/// How long no caller must have waited before a measured rate is forgotten.
const FORGET: Duration = Duration::from_secs(10);
/// The shortest and the longest step in which the calls that pass double while nothing is measured.
const STEP: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// After so many steps without a refusal the limit is gone: a thousand calls would have passed.
const STEPS: u32 = 10;

/// The rate of one gate after its limit was reached.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pacer {
    /// Calls per second that the limit lets pass; `None` while that is not measured.
    rate: Option<f64>,
    /// The highest rate that was measured.
    highest: f64,
    /// In which time the calls that pass double while nothing is measured, and from when on.
    step: Duration,
    doubling_from: Instant,
    passes: Passes,
    catch_up: f64,
    /// No call passes before; a measured rate is held from then on.
    opens: Instant,
    /// When the next call would pass if all had passed evenly; before now while there is something
    /// to catch up.
    next: Instant,
    /// When a caller last had to wait.
    bound_at: Instant,
}

/// The calls that passed between two moments at which the limit was reached.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Passes {
    since: Instant,
    passed: u32,
    refused: u32,
    accepted: u32,
    /// When it was reached again, and how long calls passed or it filled up until then.
    ended: Option<(Instant, Duration)>,
}

// === impl Passes ===

impl Passes {
    fn new(since: Instant) -> Self {
        Self {
            since,
            passed: 0,
            refused: 0,
            accepted: 0,
            ended: None,
        }
    }

    /// The rate that they show, if they show one.
    fn rate(&self) -> Option<f64> {
        let allowed = self.passed.saturating_sub(self.refused);
        let (_, span) = self.ended.filter(|(_, span)| *span >= SPAN)?;
        let shown = self.accepted > 0 && allowed >= SEVERAL;
        shown.then(|| (f64::from(allowed) / span.as_secs_f64() * UTILISATION).min(MAX_RATE))
    }
}

// === impl Pacer ===

impl Pacer {
    /// Creates a pacer after a limit was reached, by a call whose refusal took so long; no call
    /// passes before `until`.
    pub(super) fn new(now: Instant, took: Duration, until: Instant) -> Self {
        let mut pacer = Self {
            rate: None,
            highest: 0.0,
            step: STEP.0,
            doubling_from: until,
            passes: Passes::new(now),
            catch_up: CATCH_UP,
            opens: now,
            next: now,
            bound_at: now,
        };
        pacer.step_by(took);
        pacer.hold(now, until);
        pacer
    }

    /// The limit was reached again, by a call whose refusal took so long; no call passes before
    /// `until`.
    pub(super) fn limited(&mut self, now: Instant, took: Duration, until: Instant) {
        self.passes.refused += 1;
        self.step_by(took);
        let just_opened = now.saturating_duration_since(self.opens) < LAG / 4;
        match self.rate {
            // By calls that caught up: the limit refills less than assumed, which shows nothing of
            // its rate.
            Some(rate) if just_opened && rate * self.catch_up >= 1.0 => {
                self.catch_up /= 2.0;
                self.passes = Passes::new(now);
            }
            Some(rate) if self.passes.passed <= SEVERAL => {
                self.rate = Some(rate * LOWER);
                self.passes = Passes::new(now);
            }
            Some(_) | None => {
                let closed = self.opens.saturating_duration_since(self.passes.since);
                let filled = closed.min(LAG).mul_f64(self.catch_up / CATCH_UP);
                let open = now
                    .saturating_duration_since(self.passes.since)
                    .saturating_sub(closed);
                self.passes.ended = Some((now, open + filled));
            }
        }
        self.hold(now, until);
    }

    /// A call that was in flight when the limit was reached was refused as well; no call passes
    /// before `until`.
    pub(super) fn limited_too(&mut self, now: Instant, until: Instant) {
        // Of those that passed before the limit was reached for the first time, nothing is counted.
        self.passes.refused = (self.passes.refused + 1).min(self.passes.passed);
        self.hold(now, until);
    }

    /// Whether a limit explains that the call which passed then is refused. It refuses none at the
    /// rate that was measured, once calls were accepted at that rate, and none at less than half of
    /// the highest one.
    pub(super) fn explains_refusal(&self, passed_at: Instant) -> bool {
        let is_held = passed_at >= self.opens + LAG / 4 && passed_at < self.held_until();
        let is_measured = is_held && self.passes.accepted >= SEVERAL;
        self.rate.is_none() || !(is_measured || self.rate_at(passed_at) < self.highest / 2.0)
    }

    /// A call was accepted: the limit is not reached now.
    pub(super) fn accepted(&mut self, now: Instant) {
        self.passes.accepted += 1;
        if self.rate.is_none() && now >= self.opens && self.step > STEP.0 {
            self.step = STEP.0;
            self.doubling_from = now;
            self.next = now;
        }
    }

    fn hold(&mut self, now: Instant, until: Instant) {
        let held = until
            .saturating_duration_since(now)
            .mul_f64(self.catch_up)
            .min(LAG);
        self.opens = self.opens.max(until);
        self.doubling_from = self.opens;
        self.bound_at = self.bound_at.max(until);
        self.next = self.next.max(until.checked_sub(held).unwrap_or(until));
    }

    fn step_by(&mut self, took: Duration) {
        self.step = (took * 2).clamp(STEP.0, STEP.1);
    }

    /// Whether calls pass as they come.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let is_measured = self.rate.is_some() || self.passes.ended.is_some();
        let over_at = if is_measured {
            self.bound_at + FORGET
        } else {
            self.doubling_from + self.step * STEPS
        };
        now >= over_at
    }

    /// When the next call may pass, with so many before it; growth included, because a limit may be
    /// gone.
    pub(super) fn ready_at(&self, now: Instant, before: u32) -> Instant {
        let begins = self.opens.max(self.next).max(now);
        let held = self
            .held_until()
            .saturating_duration_since(begins)
            .as_secs_f64();
        let (rate, before) = (self.rate_at(begins), f64::from(before));
        let beyond = before - held * rate;
        let wait = if beyond <= 0.0 {
            before / rate
        } else {
            held + (1.0 + self.growth() * beyond / rate).ln() / self.growth()
        };
        begins + Duration::try_from_secs_f64(wait).unwrap_or(FORGET)
    }

    /// Passes a call if it is time.
    ///
    /// # Errors
    /// How long the next one has to wait.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if now >= self.opens {
            self.measure();
        }
        let at = self.opens.max(self.next);
        if at > now {
            self.bound_at = self.bound_at.max(now);
            return Err(at - now);
        }
        self.pass(now);
        Ok(())
    }

    /// Counts a call that passes, in its turn or not.
    pub(super) fn pass(&mut self, now: Instant) {
        self.passes.passed += 1;
        let even = Duration::from_secs_f64(1.0 / self.rate_at(now));
        // Of a rate that is not known nothing is caught up but what timers are late by.
        let lag = now
            .saturating_duration_since(self.next)
            .min(if self.rate.is_some() { LAG } else { TICK });
        self.next = self.next.max(now.checked_sub(lag).unwrap_or(now)) + even;
    }

    /// Measures the rate from the calls that passed before the limit was reached: by now it is
    /// known which were accepted.
    fn measure(&mut self) {
        if let Some((reached, _)) = self.passes.ended {
            self.rate = self.passes.rate().or(self.rate);
            self.highest = self.highest.max(self.rate.unwrap_or_default());
            self.passes = Passes::new(reached);
        }
    }

    fn held_until(&self) -> Instant {
        let Some(rate) = self.rate else {
            return self.doubling_from;
        };
        self.opens + HOLD.max(Duration::from_secs_f64(HOLD_CALLS / rate))
    }

    fn rate_at(&self, now: Instant) -> f64 {
        let grown = now
            .saturating_duration_since(self.held_until())
            .as_secs_f64();
        (self.rate.unwrap_or(self.growth()) * (self.growth() * grown).exp()).min(MAX_RATE)
    }

    /// The share of itself by which the rate grows in a second.
    fn growth(&self) -> f64 {
        if self.rate.is_some() {
            GROWTH
        } else {
            std::f64::consts::LN_2 / self.step.as_secs_f64()
        }
    }
}

#[cfg(test)]
mod tests;
