//! The concurrency limit of a target: additive increase, multiplicative decrease.
//!
//! There is no limit but `max` until the target signals overload (rate limited, overloaded); then
//! the limit is derived from the attempts in flight. Neither the duration of a completion lowers it,
//! which depends on its length, nor a call that hangs, which shows nothing about the others. An
//! overload counts only if it can concern concurrency: a target that answers most calls fails by
//! chance, one with few calls does not have too many, and a limit derived while nobody passed is
//! undone: when the circuit opens, or once all that were in flight are refused. Otherwise a minute
//! of failures would cost several minutes of queueing after it, since a completion takes seconds
//! and the limit grows by one slot a round. This computes the number only; the layer holds the
//! slots, queues for them and returns them when a stream ends.

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
    /// If set, attempts are limited; default true.
    pub enabled: bool,
    /// The largest limit, which holds until the target first signals overload; live replicas that
    /// act as one share it, each with at least one slot. A number from 1 to 100 000; default 1024.
    pub max: u32,
    /// Longest wait for a slot; 256 attempts may wait for those of one target, and further ones go
    /// to another. A duration from `0ms` to `10m`; default `10s`. The deadline counts if that is
    /// sooner.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_queue_wait: Duration,
}

/// The concurrency limit of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Limiter {
    policy: ConcurrencyPolicy,
    /// Live replicas that share `max`, this one included.
    replicas: u32,
    limit: u32,
    successes: u32,
    settles_at: Option<Instant>,
    /// Limit up to which it grows as fast as answers come, because no overload was seen below it.
    fast_below: u32,
    /// Of the last outcomes, how many were successes, and how many overloads.
    recent: (u32, u32),
    /// State before the decreases of a short while ago.
    before: Option<BeforeDecrease>,
    /// `true` once all were refused, however few: overloads are about something else until a success.
    is_refusing_all: bool,
}

/// An attempt's overload signal and its circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverloadSignal {
    /// Time at which it was sent.
    pub began: Instant,
    /// Number of attempts in flight.
    pub in_flight: u32,
}

/// The state before a series of decreases with the same cause.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BeforeDecrease {
    limit: u32,
    fast_below: u32,
    /// Time of the last of the decreases.
    last: Instant,
    /// Number of attempts that were in flight then, and how many of these were refused.
    in_flight: u32,
    refused: u32,
}

/// Attempts that may wait for a slot of one target; further ones are refused here and go to
/// another.
pub const MAX_QUEUED: usize = 256;
/// Factor that the limit is multiplied with on back-pressure (scenario 11).
const DECREASE: f64 = 0.7;
/// Concurrency too low for a target to signal overload about. Growth after an outage starts here.
const FEW: u32 = 16;
/// Number of slots that a completion adds while growth is fast: if answers slow down eightfold, slots
/// must multiply within a few answers.
const FAST: u32 = 2;
/// Minimum overloads per success; with more successes than that, the overloads are chance.
const MIN_OVERLOADS_PER_SUCCESS: u32 = 4;
/// The share of itself by which a limit grows for each limit-many successes.
const ROUND_SHARE: u32 = 16;
/// Smallest number of outcomes that are remembered.
const RECENT: u32 = 32;
/// Decreases that follow each other within this time are about the same trouble.
const SAME_TROUBLE: Duration = Duration::from_secs(30);

// === impl ConcurrencyPolicy ===

impl Default for ConcurrencyPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            max: 1024,
            max_queue_wait: Duration::from_secs(10),
        }
    }
}

impl ConcurrencyPolicy {
    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !(1..=100_000).contains(&self.max) {
            faults.push(("max", "must be from 1 to 100000".to_owned()));
        }
        if self.max_queue_wait > Duration::from_mins(10) {
            faults.push(("max_queue_wait", "must be at most 10m".to_owned()));
        }
        faults
    }
}

// === impl Limiter ===

impl Limiter {
    /// Without a limit below `max`.
    #[must_use]
    pub fn new(policy: ConcurrencyPolicy) -> Self {
        Self {
            limit: policy.max,
            policy,
            replicas: 1,
            successes: 0,
            settles_at: None,
            fast_below: u32::MAX,
            recent: (0, 0),
            before: None,
            is_refusing_all: false,
        }
    }

    /// Returns the number of attempts that the target may have at once now; `u32::MAX` if not
    /// enabled.
    #[must_use]
    pub fn limit(&self) -> u32 {
        if !self.policy.enabled {
            return u32::MAX;
        }
        self.limit
    }

    /// Records that an attempt that began then succeeded; `limit_reached` is whether all slots were
    /// taken while it ran: a limit that is not reached proves nothing about a larger one. Up to the
    /// limit at which overload last began each such success adds two slots; beyond, each limit-many
    /// of them add one, or a sixteenth.
    pub fn on_success(&mut self, began: Instant, limit_reached: bool) {
        self.remember(1, 0);
        if self.is_refusing_all {
            self.is_refusing_all = false;
            self.settles_at = self.settles_at.max(Some(began));
        }
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
            self.limit = self.limit.saturating_add(more).min(self.max());
        }
    }

    /// Records that the target signalled overload. That changes nothing if the attempt began before
    /// the last decrease had lasted for a median first token (`p50`), if less than half of the
    /// limit is in use, or if the target answers one call in five: such errors are chance. The
    /// first time, the limit becomes the number in flight. Once all that were in flight then are
    /// refused, or one that is alone, their number was not the reason, and the decreases are undone.
    pub fn on_back_pressure(&mut self, now: Instant, p50: Duration, word: OverloadSignal) {
        self.remember(0, 1);
        if let Some(before) = self.count_refusal(now, word) {
            self.undo(before);
            self.is_refusing_all = true;
        }
        if self.is_refusing_all {
            self.settles_at = Some(now);
            return;
        }
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
        let before = self.before_trouble(now);
        self.before = Some(BeforeDecrease {
            limit: before.map_or(self.limit, |before| before.limit),
            fast_below: before.map_or(self.fast_below, |before| before.fast_below),
            last: now,
            in_flight: word.in_flight,
            refused: 1,
        });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a ratio of a u32 is within u32"
        )]
        let lowered = (f64::from(limit) * DECREASE) as u32;
        self.limit = lowered.max(1);
        self.successes = 0;
        self.fast_below = self.limit;
        self.settles_at = Some(now + p50);
    }

    /// Records that the circuit opened. Recent signals were about an outage then, and not about
    /// concurrency; the circuit itself meters the way back. But if answers grew slow until no more
    /// came, which a queue causes (`queued`), growth starts anew, fast up to half of the limit that
    /// it had led to.
    pub fn on_outage(&mut self, now: Instant, queued: bool) {
        self.recent = (0, 0);
        let before = self.before_trouble(now);
        self.before = None;
        if queued {
            let led = before.map_or(self.limit, |before| before.limit.max(self.limit));
            self.fast_below = (led / 2).max(FEW);
            self.limit = self.limit.min(FEW);
            self.successes = 0;
            self.settles_at = Some(now);
        } else if let Some(before) = before {
            self.undo(before);
        }
    }

    /// Counts the refusal of an attempt; returns the state before the decreases if they were not
    /// about the number of attempts in flight.
    fn count_refusal(&mut self, now: Instant, word: OverloadSignal) -> Option<BeforeDecrease> {
        let mut before = self.before_trouble(now)?;
        before.refused += u32::from(word.began <= before.last);
        self.before = Some(before);
        (before.refused >= before.in_flight || word.in_flight <= 1).then_some(before)
    }

    fn undo(&mut self, before: BeforeDecrease) {
        self.limit = self.limit.max(before.limit).min(self.max());
        self.fast_below = self.fast_below.max(before.fast_below);
        self.settles_at = None;
        self.before = None;
    }

    /// Applies new settings (a reload): the current limit stays, within the new bounds.
    pub fn reconfigure(&mut self, policy: ConcurrencyPolicy) {
        self.policy = policy;
        self.keep_within();
    }

    /// Shares the largest limit with so many replicas, this one included: all together have at most
    /// what one alone may have, but each at least one.
    pub fn share_with(&mut self, replicas: u32) {
        self.replicas = replicas.max(1);
        self.keep_within();
    }

    /// Returns the largest limit of this replica.
    fn max(&self) -> u32 {
        (self.policy.max / self.replicas).max(1)
    }

    /// Without an overload yet the limit is the largest one.
    fn keep_within(&mut self) {
        let untouched = self.fast_below == u32::MAX;
        let max = self.max();
        self.limit = if untouched { max } else { self.limit.min(max) };
    }

    fn remember(&mut self, answers: u32, words: u32) {
        self.recent.0 += answers;
        self.recent.1 += words;
        if self.recent.0 + self.recent.1 >= 2 * RECENT {
            self.recent = (self.recent.0 / 2, self.recent.1 / 2);
        }
    }

    /// Returns the state before the decreases that are about the same trouble as now.
    fn before_trouble(&self, now: Instant) -> Option<BeforeDecrease> {
        self.before
            .filter(|before| now.saturating_duration_since(before.last) < SAME_TROUBLE)
    }

    /// Returns whether an attempt began before the last decrease had taken effect.
    fn is_old(&self, began: Instant) -> bool {
        self.settles_at.is_some_and(|at| began < at)
    }
}

/// Returns whether a failure indicates too many concurrent attempts. One that was ended from this
/// side indicates nothing.
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
