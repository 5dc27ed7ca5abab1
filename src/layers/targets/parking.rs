//! Invocations that wait for a target which none can call now: how many may, and until what.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::Instant;

use super::{TargetTable, Targets};
use crate::{
    domain::ids::TargetId,
    layers::{BoxFuture, invocation::InvocationScope},
    policy::circuit::Peek,
};

/// A parked invocation.
pub enum Parked {
    /// It waits for the stated time, or until something changes.
    Until(BoxFuture<()>),
    /// It is in the wait queue: leaving the queue for a time would lose its place.
    InLine {
        /// When there is too little time left for an answer.
        until: Instant,
        /// Its turn.
        turn: BoxFuture<()>,
    },
}

/// A place among the parked invocations.
struct ParkingPlace {
    shared: Arc<TargetTable>,
}

// === impl Targets ===

impl Targets {
    /// Parks an invocation until something changes at a target; `None` when too many are parked
    /// already, or the time is too short to wait in line. The place is held by the future.
    pub fn park(
        &self,
        scope: &Arc<InvocationScope>,
        target: &TargetId,
        now: Instant,
    ) -> Option<Parked> {
        let place = ParkingPlace::take(&self.shared, scope.plan.retry.park.max_parked)?;
        let state = self.state(target)?;
        // What is closed is waited for: a place in line is of no use while the circuit is open.
        if !state.has_line(now) || matches!(state.peek(now), Peek::Wait { .. }) {
            return Some(Parked::Until(Box::pin(async move {
                let _place = place;
                state.changed.notified().await;
            })));
        }
        // A place in a line that is too long for all is for those to whom it is of use.
        let needed = state
            .whole()
            .p95(now)
            .unwrap_or_default()
            .max(scope.plan.retry.min_attempt_time);
        let until = scope
            .invocation
            .deadline
            .checked_sub(needed)
            .filter(|until| *until > now)?;
        let scope = Arc::clone(scope);
        let turn: BoxFuture<()> = Box::pin(async move {
            let _place = place;
            state.rate.pass_in_turn().await;
            scope.grant_turn(&state.target.id);
        });
        Some(Parked::InLine { until, turn })
    }

    /// How many invocations are parked.
    pub fn parked(&self) -> usize {
        self.shared.parked.load(Ordering::Relaxed)
    }
}

// === impl ParkingPlace ===

impl ParkingPlace {
    fn take(shared: &Arc<TargetTable>, max: u32) -> Option<Self> {
        let taken = shared.parked.fetch_add(1, Ordering::Relaxed);
        let place = Self {
            shared: Arc::clone(shared),
        };
        (taken < max as usize).then_some(place)
    }
}

impl Drop for ParkingPlace {
    fn drop(&mut self) {
        self.shared.parked.fetch_sub(1, Ordering::Relaxed);
    }
}
