//! Invocations that wait for a target which none can call now: how many may, and until what.

use std::sync::{Arc, atomic::Ordering};

use futures_util::future::select_all;
use tokio::time::Instant;

use super::{KeyState, TargetState, TargetTable, Targets};
use crate::{
    domain::{
        circuit::GateKind,
        failure::{FailureClass, WaitSource},
        ids::{TargetId, TenantId},
    },
    layers::{BoxFuture, invocation::InvocationScope},
    policy::{
        circuit::Peek,
        gates::GatePass,
        retry::{MAX_PARKED, MIN_ATTEMPT_TIME},
    },
};

/// A parked invocation.
pub enum Parked {
    /// It waits for the stated time, or until something changes.
    Until(BoxFuture<()>),
    /// It is in the wait queue: leaving the queue for a time would lose its place.
    InLine {
        /// Time from which too little time is left for a completion.
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
        let place = ParkingPlace::take(&self.shared)?;
        let state = self.state(target)?;
        // What is closed is waited for: a place in line is of no use while the circuit is open.
        if !state.has_line(now, &scope.invocation.tenant)
            || matches!(state.peek(now), Peek::Wait { .. })
        {
            return Some(Parked::Until(Box::pin(async move {
                let _place = place;
                state.notices.changed.notified().await;
            })));
        }
        // A place in a line that is too long for all is for those to whom it is of use.
        let needed = state
            .observed
            .whole()
            .p95(now)
            .unwrap_or_default()
            .max(MIN_ATTEMPT_TIME);
        let until = scope
            .invocation
            .deadline
            .checked_sub(needed)
            .filter(|until| *until > now)?;
        let scope = Arc::clone(scope);
        let turn: BoxFuture<()> = Box::pin(async move {
            let _place = place;
            let keys = state.keys();
            // It waits in the line of each key; who passes one leaves the others.
            let passes = keys.iter().map(|key| {
                let pass = pass_in_turn(&state, key, &scope.invocation.tenant);
                Box::pin(async move { (key, pass.await) })
            });
            let ((key, pass), ..) = select_all(passes).await;
            scope.grant_turn(key, pass);
        });
        Some(Parked::InLine { until, turn })
    }

    /// Returns the number of parked invocations.
    pub fn parked(&self) -> usize {
        self.shared.parked.load(Ordering::Relaxed)
    }
}

/// Waits in the line before the rate gate of a key, and passes it.
async fn pass_in_turn(
    state: &Arc<TargetState>,
    key: &Arc<KeyState>,
    tenant: &TenantId,
) -> GatePass {
    let moved = |change| {
        let class = FailureClass::Unknown;
        let source = WaitSource::Gate;
        state.gate_moved(key, GateKind::Rate, change, class, source);
    };
    let gate = key.shared_gate(GateKind::Rate);
    gate.pass_in_turn(tenant, moved).await
}

// === impl ParkingPlace ===

impl ParkingPlace {
    fn take(shared: &Arc<TargetTable>) -> Option<Self> {
        let taken = shared.parked.fetch_add(1, Ordering::Relaxed);
        let place = Self {
            shared: Arc::clone(shared),
        };
        (taken < MAX_PARKED).then_some(place)
    }
}

impl Drop for ParkingPlace {
    fn drop(&mut self) {
        self.shared.parked.fetch_sub(1, Ordering::Relaxed);
    }
}
