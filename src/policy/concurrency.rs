//! The concurrency limit of a target: additive increase, multiplicative decrease.
//!
//! There is no limit but `max` until the target signals overload (rate limited, overloaded); then
//! the limit is derived from the attempts in flight. Neither the duration of an answer lowers it,
//! which depends on its length, nor a call that hangs, which shows nothing about the others. An
//! overload counts only where it can concern concurrency: a target that answers most calls fails by
//! chance, one with few calls does not have too many, and what was derived during an outage is
//! undone when the circuit opens. Otherwise a minute of failures would cost several minutes of
//! queueing after it, since an answer takes seconds and the limit grows by one slot a round. This
//! computes the number only; the layer holds the slots, queues for them and returns them when a
//! stream ends.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::domain::{
    failure::{Failure, FailureClass, TransportFault},
    units,
};

/// Limits on the number of concurrent attempts at a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConcurrencyPolicy {
    /// Whether attempts are limited at all; default true.
    pub enabled: bool,
    /// The limit at the start. A number from `min` to `max`; unset by default: only `max` applies
    /// until the target first signals overload, and then the number in flight.
    pub start: Option<u32>,
    /// The least limit. A number from 1; default 1.
    pub min: u32,
    /// The largest limit. A number up to 100 000; default 1024.
    pub max: u32,
    /// What the limit is multiplied with on back-pressure. A ratio from 0.1 to 0.95; default 0.7.
    pub decrease: f64,
    /// How many attempts may wait for a slot of one target. A number up to 100 000; default 256.
    /// Further ones are refused locally and go to another target.
    pub max_queued: u32,
    /// The longest wait for a slot. A duration from `0ms` to `10m`; default `10s`. The deadline
    /// counts where that is sooner.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_queue_wait: Duration,
}

/// The concurrency limit of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Limiter {
    policy: ConcurrencyPolicy,
    limit: u32,
    successes: u32,
    settles_at: Option<Instant>,
    /// Limit up to which it grows as fast as answers come, because no overload was seen below it.
    fast_below: u32,
    /// Of the last outcomes, how many were successes, and how many overloads.
    recent: (u32, u32),
    /// What was known before the decreases of a short while ago.
    before: Option<BeforeDecrease>,
}

/// An attempt's overload signal and its circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverloadSignal {
    /// When it was sent.
    pub began: Instant,
    /// How many attempts are in flight.
    pub in_flight: u32,
}

/// The state before a series of decreases with the same cause.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BeforeDecrease {
    limit: u32,
    fast_below: u32,
    /// When the last of the decreases was.
    last: Instant,
}

/// Concurrency this low is not what a target signals overload about. Growth after an outage begins
/// here.
const FEW: u32 = 16;
/// How many slots an answer adds while growth is fast: where answers slow down eightfold, slots
/// must multiply within a few answers.
const FAST: u32 = 2;
/// Minimum overloads per success; with more successes than that, the overloads are chance.
const MIN_OVERLOADS_PER_SUCCESS: u32 = 4;
/// The share of itself by which a limit grows for each limit-many successes.
const ROUND_SHARE: u32 = 16;
/// How many outcomes are remembered at least.
const RECENT: u32 = 32;
/// Decreases that follow each other within this time are about the same trouble.
const SAME_TROUBLE: Duration = Duration::from_secs(30);

// === impl ConcurrencyPolicy ===

impl Default for ConcurrencyPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            start: None,
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
        if self
            .start
            .is_some_and(|start| start < self.min || start > self.max)
        {
            faults.push(("start", "must be from min to max".to_owned()));
        }
        if !(0.1..=0.95).contains(&self.decrease) {
            faults.push((
                "decrease",
                format!("must be from 0.1 to 0.95, not {}", self.decrease),
            ));
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
    /// At the policy's start, or without a limit below `max`.
    #[must_use]
    pub fn new(policy: ConcurrencyPolicy) -> Self {
        Self {
            limit: policy.start.unwrap_or(policy.max),
            policy,
            successes: 0,
            settles_at: None,
            fast_below: u32::MAX,
            recent: (0, 0),
            before: None,
        }
    }

    /// How many attempts the target may have at once now; `u32::MAX` when not enabled.
    #[must_use]
    pub fn limit(&self) -> u32 {
        if !self.policy.enabled {
            return u32::MAX;
        }
        self.limit.max(self.policy.min)
    }

    /// An attempt that began then succeeded; `limit_reached` is whether all slots were taken while
    /// it ran: a limit that is not reached proves nothing about a larger one. Up to where overload
    /// last began each such success adds two slots; beyond, each limit-many of them add one, or a
    /// sixteenth.
    pub fn on_success(&mut self, began: Instant, limit_reached: bool) {
        self.remember(1, 0);
        if !limit_reached || self.is_old(began) {
            return;
        }
        self.successes = self.successes.saturating_add(1);
        let fast = self.limit < self.fast_below;
        if fast || self.successes >= self.limit() {
            self.successes = 0;
            let more = if fast {
                FAST
            } else {
                (self.limit / ROUND_SHARE).max(1)
            };
            self.limit = self.limit.saturating_add(more).min(self.policy.max);
        }
    }

    /// The target signalled overload. That changes nothing when the attempt began before the last
    /// decrease had lasted for a median first token (`p50`), when less than half of the limit is in
    /// use, or when the target answers one call in five: such errors are chance. The first time,
    /// the limit becomes the number in flight.
    pub fn on_back_pressure(&mut self, now: Instant, p50: Duration, word: OverloadSignal) {
        self.remember(0, 1);
        let (answers, words) = self.recent;
        let by_chance = words < answers.saturating_mul(MIN_OVERLOADS_PER_SUCCESS);
        let is_first = self.fast_below == u32::MAX;
        let limit = if is_first {
            self.limit.min(word.in_flight.max(FEW))
        } else {
            self.limit
        };
        if self.is_old(word.began) || by_chance || word.in_flight.saturating_mul(2) < limit {
            return;
        }
        let before = self.before_trouble(now).unwrap_or(BeforeDecrease {
            limit: self.limit,
            fast_below: self.fast_below,
            last: now,
        });
        self.before = Some(BeforeDecrease {
            last: now,
            ..before
        });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio of a u32 is within u32"
        )]
        let lowered = (f64::from(limit) * self.policy.decrease) as u32;
        self.limit = lowered.max(self.policy.min);
        self.successes = 0;
        self.fast_below = self.limit;
        self.settles_at = Some(now + p50);
    }

    /// The circuit opened. On errors: recent signals were about an outage, and not about
    /// concurrency; the circuit itself meters the way back. On silence of nearly all calls, which a
    /// queue causes: growth begins anew, fast up to half of where it had led.
    pub fn on_outage(&mut self, now: Instant, silence: bool) {
        self.recent = (0, 0);
        let before = self.before_trouble(now);
        self.before = None;
        if silence {
            let led = before.map_or(self.limit, |before| before.limit.max(self.limit));
            let start = self.policy.start.unwrap_or(FEW);
            self.fast_below = (led / 2).max(start);
            self.limit = self.limit.min(start);
            self.successes = 0;
            self.settles_at = Some(now);
        } else if let Some(before) = before {
            self.limit = self.limit.max(before.limit);
            self.fast_below = self.fast_below.max(before.fast_below);
            self.settles_at = None;
        }
    }

    /// Applies new settings (a reload): the current limit stays, within the new bounds.
    pub fn reconfigure(&mut self, policy: ConcurrencyPolicy) {
        let untouched = self.fast_below == u32::MAX;
        let limit = if untouched {
            policy.start.unwrap_or(policy.max)
        } else {
            self.limit
        };
        self.limit = limit.min(policy.max).max(policy.min);
        self.policy = policy;
    }

    fn remember(&mut self, answers: u32, words: u32) {
        self.recent.0 += answers;
        self.recent.1 += words;
        if self.recent.0 + self.recent.1 >= 2 * RECENT {
            self.recent = (self.recent.0 / 2, self.recent.1 / 2);
        }
    }

    /// What was known before the decreases that are about the same trouble as now.
    fn before_trouble(&self, now: Instant) -> Option<BeforeDecrease> {
        self.before
            .filter(|before| now.saturating_duration_since(before.last) < SAME_TROUBLE)
    }

    /// Whether an attempt began before the last decrease had taken effect.
    fn is_old(&self, began: Instant) -> bool {
        self.settles_at.is_some_and(|at| began < at)
    }
}

/// Whether a failure indicates too many concurrent attempts. One that was ended from this side
/// indicates nothing.
#[must_use]
pub fn is_back_pressure(failure: &Failure) -> bool {
    let own_end = matches!(
        failure.fault,
        Some(TransportFault::Deadline | TransportFault::Cancelled)
    );
    matches!(
        failure.class,
        FailureClass::RateLimited | FailureClass::Overloaded
    ) && !own_end
}

#[cfg(test)]
mod tests;
