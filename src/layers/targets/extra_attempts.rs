//! Amount of attempts beyond the first ones of their calls that a target may have: retries by its
//! budget, and hedges by their share of its calls.

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::policy::{
    hedge::HedgeShare,
    retry_budget::{BudgetPolicy, RetryBudget},
};

/// The retry budget of a target and the share of its hedges.
#[derive(Debug)]
pub struct ExtraAttempts {
    budget: Mutex<RetryBudget>,
    hedges: Mutex<HedgeShare>,
}

// === impl ExtraAttempts ===

impl ExtraAttempts {
    /// A full budget, and no hedges yet.
    pub(super) fn new(budget: BudgetPolicy, now: Instant) -> Self {
        Self {
            budget: Mutex::new(RetryBudget::new(budget, now)),
            hedges: Mutex::new(HedgeShare::new(now)),
        }
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, RetryBudget> {
        self.budget.lock()
    }

    /// Returns the rest of the budget, in tokens.
    pub fn budget_left(&self, now: Instant) -> f64 {
        self.budget().level(now)
    }

    /// Returns the size of the full budget, in tokens.
    pub fn budget_capacity(&self) -> f64 {
        self.budget().capacity()
    }

    /// Counts a call, as the base of the share of hedges.
    pub fn called(&self, now: Instant) {
        self.hedges.lock().call_started(now);
    }

    /// Counts a hedge if it is within the share of calls that may have one, and returns whether it
    /// is.
    pub fn may_hedge(&self, now: Instant, max_share: f64) -> bool {
        self.hedges.lock().try_hedge(now, max_share)
    }
}
