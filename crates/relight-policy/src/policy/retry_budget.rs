//! The retry budget: what attempts beyond the first cost, so that retries cannot overwhelm a
//! failing provider.
//!
//! The bucket refunds: a retry pays before its wait and gets its price back when it succeeds.
//! Independent faults thus pay for themselves (50 % of failures keep 95 % success), while a total
//! outage drains the bucket once and then adds 4 % load; budgets that grow with traffic added 41 %
//! and did not let an overloaded provider recover. One bucket per target, paid by the attempts at
//! that target. It neither waits nor judges failures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// The price of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cost {
    /// Nothing: the first attempt, the first retry of a request that was never sent, one after
    /// parking (which the circuit's probes and stages meter already), or one after an unusable
    /// answer: its target is well.
    Free,
    /// A retry after a passing fault.
    Transient,
    /// A retry after the target signalled overload.
    Throttle,
    /// A second attempt beside a slow one.
    Hedge,
}

/// Tokens that a retry or hedge pays.
const COST: f64 = 5.0;
/// Tokens that a success at the first try adds: as much as eight failed retries take, so that
/// independent failures are retried up to the share at which the circuit opens, and an outage is
/// not (scenarios 02c and 03).
const FIRST_TRY_CREDIT: f64 = 40.0;
/// Tokens that each second adds, so that an idle service recovers.
const REFILL_PER_SECOND: f64 = 0.5;

/// Payment for a target's retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetPolicy {
    /// If set, retries are paid for; default true. Without it an outage is multiplied by every
    /// retry.
    pub enabled: bool,
    /// Tokens that the full bucket holds. A number from 1 to 1 000 000; default 500. A retry or
    /// hedge takes 5 of them, which come back if it succeeds: so a hundred can fail, or be under
    /// way, at once before the bucket is empty. A success at the first try adds 40, and each second
    /// half a one.
    pub capacity: f64,
}

/// The token bucket of one target.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryBudget {
    policy: BudgetPolicy,
    level: f64,
    filled_at: Instant,
    /// Part of the full bucket that is this replica's, above 0, to 1.
    share: f64,
}

/// Tokens taken for one attempt; pass it to `settle`. Dropping it means that the retry failed.
#[derive(Debug, PartialEq)]
#[must_use = "a reservation that is not settled is lost, as if the retry had failed"]
pub struct Reservation {
    tokens: f64,
}

/// The result of an attempt that had paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settled {
    /// It brought a first token: its price comes back.
    Succeeded,
    /// It failed: its price is gone.
    Failed,
    /// It was not sent (cancelled, refused locally, out of time): its price is refunded.
    NotUsed,
}

// === impl BudgetPolicy ===

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            capacity: 500.0,
        }
    }
}

impl BudgetPolicy {
    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !(1.0..=1_000_000.0).contains(&self.capacity) {
            let words = format!("must be from 1 to 1000000, not {}", self.capacity);
            faults.push(("capacity", words));
        }
        faults
    }

    fn price(&self, cost: Cost) -> f64 {
        match cost {
            Cost::Free => 0.0,
            Cost::Transient | Cost::Throttle | Cost::Hedge if !self.enabled => 0.0,
            Cost::Transient | Cost::Throttle | Cost::Hedge => COST,
        }
    }
}

// === impl RetryBudget ===

impl RetryBudget {
    /// A full bucket.
    #[must_use]
    pub fn new(policy: BudgetPolicy, now: Instant) -> Self {
        Self {
            level: policy.capacity,
            policy,
            filled_at: now,
            share: 1.0,
        }
    }

    /// Reserves the price of an attempt, before its wait; `None` when the bucket does not hold it.
    #[must_use = "no reservation means no attempt"]
    pub fn reserve(&mut self, now: Instant, cost: Cost) -> Option<Reservation> {
        self.fill(now);
        let tokens = self.policy.price(cost);
        if tokens > self.level {
            return None;
        }
        self.level -= tokens;
        Some(Reservation { tokens })
    }

    /// Ends a reservation: the price comes back unless the attempt failed.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a reservation is settled once"
    )]
    pub fn settle(&mut self, reservation: Reservation, settled: Settled, now: Instant) {
        self.fill(now);
        match settled {
            Settled::Succeeded | Settled::NotUsed => self.add(reservation.tokens),
            Settled::Failed => {}
        }
    }

    /// An invocation succeeded at its first try: the target is well, and retries are affordable.
    pub fn first_try_succeeded(&mut self, now: Instant) {
        self.fill(now);
        self.add(FIRST_TRY_CREDIT);
    }

    /// Tokens that the full bucket holds.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.policy.capacity * self.share
    }

    /// Shares the bucket with so many replicas, this one included: all together hold what one alone
    /// would. What is in it becomes less or more in the same proportion.
    pub fn share_with(&mut self, replicas: u32, now: Instant) {
        self.fill(now);
        let share = 1.0 / f64::from(replicas.max(1));
        self.level *= share / self.share;
        self.share = share;
    }

    /// Tokens in the bucket, 0 to `capacity`.
    #[must_use]
    pub fn level(&self, now: Instant) -> f64 {
        let refill =
            now.saturating_duration_since(self.filled_at).as_secs_f64() * REFILL_PER_SECOND;
        (self.level + refill * self.share).min(self.capacity())
    }

    /// Other numbers from now on (a reload): what is in the bucket stays, as far as it still fits.
    pub fn reconfigure(&mut self, policy: BudgetPolicy, now: Instant) {
        self.fill(now);
        self.policy = policy;
        self.level = self.level.min(self.capacity());
    }

    fn fill(&mut self, now: Instant) {
        self.level = self.level(now);
        self.filled_at = self.filled_at.max(now);
    }

    fn add(&mut self, tokens: f64) {
        self.level = (self.level + tokens).min(self.capacity());
    }
}

#[cfg(test)]
mod tests;
