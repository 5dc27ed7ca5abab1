//! The wait before an attempt.

use std::{sync::Arc, time::Duration};

use futures_util::future::select_all;
use tokio::time::Instant;

use super::{RetryLoop, parked::ReportedWait};
use crate::{
    domain::failure::{FailureClass, Wait, WaitSource},
    layers::{spans::AttemptTrace, targets::TargetState},
    policy::{retry::MIN_ATTEMPT_TIME, rng::SeededRng},
};

/// The time in which those who waited for a target come back once it has recovered.
const COME_BACK_WITHIN: Duration = Duration::from_millis(500);

/// Time within which others probe a target that fails, if there are any.
const PROBED_WITHIN: Duration = Duration::from_secs(2);

/// State of the phase that waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Wait that is planned before the next attempt.
    pub(super) next: Option<Wait>,
    /// The wait since the last attempt.
    pub(super) waited: Option<Wait>,
    /// Time for which it was parked since the last attempt.
    pub(super) parked: Duration,
    /// Last wait that was planned.
    pub(super) previous: Option<Duration>,
    pub(super) parked_rounds: u32,
    pub(super) reported: Option<ReportedWait>,
}

// === impl Waits ===

impl Waits {
    /// An attempt was made after them.
    pub(super) fn spend(&mut self) {
        (self.waited, self.parked) = (None, Duration::ZERO);
    }
}

impl<S> RetryLoop<S> {
    /// Waits as was planned before the next attempt.
    pub(super) async fn wait(&mut self, trace: &AttemptTrace) {
        let Some(wait) = self.waits.next.take() else {
            return;
        };
        self.waits.waited = Some(wait);
        if !wait.duration.is_zero() {
            let backoff = trace.backoff(wait);
            let (awaited, turn) = self.recoveries_awaited(wait);
            let recovered = wait_or_recovered(wait.duration, &awaited, turn).await;
            if !recovered && self.scope.sent_attempts() >= self.scope.plan.retry.max_retries {
                self.let_others_probe(&awaited, turn).await;
            }
            backoff.finish();
        }
    }

    /// Returns the targets whose recovery from failures in a row ends a wait that Relight alone
    /// chose, and how long after it: those who wait then come one after the other.
    fn recoveries_awaited(&self, wait: Wait) -> (Vec<Arc<TargetState>>, Duration) {
        let plan = &self.scope.plan;
        let is_own = wait.source == WaitSource::Backoff
            && self.verdict.after != Some(FailureClass::RateLimited)
            && !plan.retry.uniform_waits;
        if !is_own || wait.duration <= COME_BACK_WITHIN {
            return (Vec::new(), Duration::ZERO);
        }
        let number = self.scope.next_number();
        let mut rng = SeededRng::new(plan.seed, &self.scope.invocation.id, number);
        let candidates = self.targets.candidates(&self.scope, Instant::now());
        let usable = candidates.iter().filter(|one| !one.ruled_out);
        let states = usable.filter_map(|one| self.targets.state(&one.target));
        (states.collect(), COME_BACK_WITHIN.mul_f64(rng.unit()))
    }

    /// Waits on before the last attempt while calls that have more of them fail at each of these
    /// targets: their success will show that one is back.
    async fn let_others_probe(&mut self, awaited: &[Arc<TargetState>], turn: Duration) {
        loop {
            let now = Instant::now();
            let failed = awaited
                .iter()
                .map(|state| state.observed.health().failed_last());
            let Some(Some(failed)) = failed.min() else {
                return;
            };
            let candidates = self.targets.candidates(&self.scope, now);
            let first_tokens = candidates.iter().map(|one| one.first_token_p50);
            let room = first_tokens.max().unwrap_or_default().max(MIN_ATTEMPT_TIME);
            let latest = self.scope.invocation.deadline.checked_sub(room);
            let until = latest.unwrap_or(now).min(failed + PROBED_WITHIN);
            let wait = until.saturating_duration_since(now);
            if wait.is_zero() || wait_or_recovered(wait, awaited, turn).await {
                return;
            }
        }
    }
}

/// Waits, but not longer than until one of these targets has recovered and a turn has come; returns
/// whether one has.
async fn wait_or_recovered(wait: Duration, awaited: &[Arc<TargetState>], turn: Duration) -> bool {
    let ends = Instant::now() + wait;
    if awaited.is_empty() {
        tokio::time::sleep_until(ends).await;
        return false;
    }
    let recoveries = awaited
        .iter()
        .map(|state| Box::pin(state.notices.recovered.notified()));
    tokio::select! {
        biased;
        () = tokio::time::sleep_until(ends) => false,
        _ = select_all(recoveries) => {
            tokio::time::sleep_until(ends.min(Instant::now() + turn)).await;
            true
        }
    }
}
