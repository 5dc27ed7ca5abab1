//! How many attempts a target may have at once: additive increase, multiplicative decrease.
//!
//! Only what the target says itself (rate limited, overloaded) and silence lower the limit, never the time an answer
//! took: that depends on its length. This is the number only; the layer holds the slots, queues for them and gives
//! them back when a stream ends.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::domain::units;

/// How many attempts a target may have at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyPolicy {
    /// Whether attempts are limited at all; default true.
    pub enabled: bool,
    /// The limit at the start. A number from `min` to `max`; default 16.
    pub start: u32,
    /// The least limit. A number from 1; default 1.
    pub min: u32,
    /// The largest limit. A number up to 100 000; default 1024.
    pub max: u32,
    /// What the limit is multiplied with on back-pressure. A ratio from 0.1 to 0.95; default 0.7.
    pub decrease: f64,
    /// How many attempts may wait for a slot of one target. A number up to 100 000; default 256. Further ones are
    /// refused locally, and another target is asked.
    pub max_queued: u32,
    /// The longest wait for a slot. A duration from `0ms` to `10m`; default `10s`. The deadline counts where that is
    /// sooner.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_queue_wait: Duration,
}

/// The limit of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Limiter {
    policy: ConcurrencyPolicy,
    limit: u32,
    successes: u32,
    settles_at: Option<Instant>,
    degraded: bool,
}

// === impl ConcurrencyPolicy ===

impl Default for ConcurrencyPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            start: 16,
            min: 1,
            max: 1024,
            decrease: 0.7,
            max_queued: 256,
            max_queue_wait: Duration::from_secs(10),
        }
    }
}

impl ConcurrencyPolicy {
    /// What is wrong with it: the field and why.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.min == 0 {
            faults.push(("min", "must be at least 1".to_owned()));
        }
        if self.max < self.min || self.max > 100_000 {
            faults.push(("max", "must be from min to 100000".to_owned()));
        }
        if self.start < self.min || self.start > self.max {
            faults.push(("start", "must be from min to max".to_owned()));
        }
        if !(0.1..=0.95).contains(&self.decrease) {
            faults.push(("decrease", format!("must be from 0.1 to 0.95, not {}", self.decrease)));
        }
        if self.max_queued > 100_000 {
            faults.push(("max_queued", "must be at most 100000".to_owned()));
        }
        if self.max_queue_wait > Duration::from_mins(10) {
            faults.push(("max_queue_wait", "must be at most 10m".to_owned()));
        }
        faults
    }
}

// === impl Limiter ===

impl Limiter {
    /// At the policy's start.
    #[must_use]
    pub fn new(policy: ConcurrencyPolicy) -> Self {
        Self { limit: policy.start, policy, successes: 0, settles_at: None, degraded: false }
    }

    /// How many attempts the target may have at once now; half while it is degraded, `u32::MAX` when not enabled.
    #[must_use]
    pub fn limit(&self) -> u32 {
        if !self.policy.enabled {
            return u32::MAX;
        }
        let limit = if self.degraded { self.limit / 2 } else { self.limit };
        limit.max(self.policy.min)
    }

    /// An attempt succeeded; `limit_reached` says whether all slots were taken while it ran. One more slot for each
    /// limit-many such successes: a limit that is not reached proves nothing about a larger one, and neither does an
    /// attempt from before the last decrease.
    pub fn on_success(&mut self, now: Instant, limit_reached: bool) {
        if !limit_reached || self.is_settling(now) {
            return;
        }
        self.successes = self.successes.saturating_add(1);
        if self.successes >= self.limit() {
            self.successes = 0;
            self.limit = self.limit.saturating_add(1).min(self.policy.max);
        }
    }

    /// The target said that it is too much. Within one median first token (`p50`) after that, further such words are
    /// about the same moment, and change nothing.
    pub fn on_back_pressure(&mut self, now: Instant, p50: Duration) {
        if self.is_settling(now) {
            return;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a ratio of a u32 is within u32")]
        let lowered = (f64::from(self.limit) * self.policy.decrease) as u32;
        self.limit = lowered.max(self.policy.min);
        self.successes = 0;
        self.settles_at = Some(now + p50);
    }

    /// Whether the target's circuit is degraded: half the limit until it is not.
    pub fn set_degraded(&mut self, degraded: bool) {
        self.degraded = degraded;
    }

    /// Other numbers from now on (a reload): what was learned stays, within the new bounds.
    pub fn reconfigure(&mut self, policy: ConcurrencyPolicy) {
        self.limit = self.limit.min(policy.max).max(policy.min);
        self.policy = policy;
    }

    fn is_settling(&self, now: Instant) -> bool {
        self.settles_at.is_some_and(|at| now < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(mut limiter: Limiter, times: u64, p50: Duration) -> Vec<u32> {
        let start = Instant::now();
        (0..times)
            .map(|step| {
                limiter.on_back_pressure(start + p50 * u32::try_from(step).unwrap(), p50);
                limiter.limit()
            })
            .collect()
    }

    #[test]
    fn back_pressure_lowers_the_limit_by_three_tenths_down_to_the_minimum() {
        let limiter = Limiter::new(ConcurrencyPolicy::default());
        assert_eq!(limiter.limit(), 16);
        assert_eq!(limits(limiter, 7, Duration::from_secs(1)), [11, 7, 4, 2, 1, 1, 1]);
        let limiter = Limiter::new(ConcurrencyPolicy { min: 4, ..ConcurrencyPolicy::default() });
        assert_eq!(limits(limiter, 4, Duration::from_secs(1)), [11, 7, 4, 4]);
    }

    #[test]
    fn back_pressure_counts_at_most_once_per_median_first_token() {
        let start = Instant::now();
        let p50 = Duration::from_secs(1);
        let mut limiter = Limiter::new(ConcurrencyPolicy::default());
        for millis in [0, 1, 500, 999] {
            limiter.on_back_pressure(start + Duration::from_millis(millis), p50);
            assert_eq!(limiter.limit(), 11, "after {millis} ms");
        }
        limiter.on_back_pressure(start + p50, p50);
        assert_eq!(limiter.limit(), 7);
    }

    #[test]
    fn limit_many_successes_at_the_limit_add_one_slot() {
        let now = Instant::now();
        let mut limiter = Limiter::new(ConcurrencyPolicy::default());
        for _ in 0..1000 {
            limiter.on_success(now, false);
        }
        assert_eq!(limiter.limit(), 16, "the limit was never reached");
        for _ in 0..15 {
            limiter.on_success(now, true);
        }
        assert_eq!(limiter.limit(), 16);
        limiter.on_success(now, true);
        assert_eq!(limiter.limit(), 17);
        for _ in 0..16 {
            limiter.on_success(now, true);
        }
        assert_eq!(limiter.limit(), 17);
        limiter.on_success(now, true);
        assert_eq!(limiter.limit(), 18);
    }

    #[test]
    fn back_pressure_forgets_the_successes_before_it() {
        let now = Instant::now();
        let mut limiter = Limiter::new(ConcurrencyPolicy::default());
        for _ in 0..10 {
            limiter.on_success(now, true);
        }
        limiter.on_back_pressure(now, Duration::from_secs(1));
        for _ in 0..100 {
            limiter.on_success(now + Duration::from_millis(999), true);
        }
        assert_eq!(limiter.limit(), 11, "these began before the decrease");
        let now = now + Duration::from_secs(1);
        for _ in 0..10 {
            limiter.on_success(now, true);
        }
        assert_eq!(limiter.limit(), 11);
        limiter.on_success(now, true);
        assert_eq!(limiter.limit(), 12);
    }

    #[test]
    fn the_limit_never_exceeds_the_maximum_and_is_halved_while_degraded() {
        let now = Instant::now();
        let mut limiter = Limiter::new(ConcurrencyPolicy { max: 17, ..ConcurrencyPolicy::default() });
        for _ in 0..1000 {
            limiter.on_success(now, true);
        }
        assert_eq!(limiter.limit(), 17);
        limiter.set_degraded(true);
        assert_eq!(limiter.limit(), 8);
        limiter.set_degraded(false);
        assert_eq!(limiter.limit(), 17);
        limiter.reconfigure(ConcurrencyPolicy { start: 1, max: 1, ..ConcurrencyPolicy::default() });
        limiter.set_degraded(true);
        assert_eq!(limiter.limit(), 1, "never below the minimum");
        limiter.reconfigure(ConcurrencyPolicy { enabled: false, ..ConcurrencyPolicy::default() });
        assert_eq!(limiter.limit(), u32::MAX);
    }

    #[test]
    fn nonsense_is_named_by_its_field() {
        let policy = ConcurrencyPolicy {
            min: 0,
            start: 9,
            max: 8,
            decrease: 1.0,
            max_queued: 100_001,
            max_queue_wait: Duration::from_secs(601),
            ..ConcurrencyPolicy::default()
        };
        let fields: Vec<_> = policy.validate().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["min", "start", "decrease", "max_queued", "max_queue_wait"]);
        let policy = ConcurrencyPolicy { min: 20, start: 20, max: 19, ..ConcurrencyPolicy::default() };
        let fields: Vec<_> = policy.validate().into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["max", "start"]);
        assert!(ConcurrencyPolicy::default().validate().is_empty());
    }
}
