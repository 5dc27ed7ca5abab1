//! The gates of a target, shared with the targets that use the same credential, and everything that
//! moves them.

use std::{
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;

use super::{shared_gate::SharedGate, state::TargetState};
use crate::{
    domain::{
        circuit::GateKind,
        event::{EventBody, millis},
        failure::{Failure, FailureClass, WaitSource},
    },
    policy::gates::{Gate, GateChange},
};

// === impl TargetState: its gates ===

impl TargetState {
    /// The gates with their kinds.
    pub(super) fn gates(&self) -> [(GateKind, &Arc<SharedGate>); 3] {
        [
            (GateKind::Rate, &self.rate),
            (GateKind::Credential, &self.credential),
            (GateKind::Configuration, &self.configuration),
        ]
    }

    /// Looks through a gate: how long it stays closed, if it is.
    pub fn gate_closed_for(&self, kind: GateKind, now: Instant) -> Option<Duration> {
        self.gate(kind).peek(now).err()
    }

    /// What closed the gate that is closed, if one is.
    pub fn closed_for(&self, now: Instant) -> Option<FailureClass> {
        let closed = self
            .gates()
            .into_iter()
            .find(|(kind, _)| self.gate_closed_for(*kind, now).is_some())?;
        closed.1.lock().class()
    }

    /// A gate. The lock is held briefly and not across an await.
    pub fn gate(&self, kind: GateKind) -> MutexGuard<'_, Gate> {
        self.shared_gate(kind).lock()
    }

    pub(super) fn shared_gate(&self, kind: GateKind) -> &Arc<SharedGate> {
        match kind {
            GateKind::Rate => &self.rate,
            GateKind::Credential => &self.credential,
            GateKind::Configuration => &self.configuration,
        }
    }

    /// The failure that a caller gets whom the credential or configuration gate refuses: the one
    /// that closed it.
    pub fn refusal(&self, now: Instant) -> Option<Failure> {
        let refused = [GateKind::Credential, GateKind::Configuration]
            .map(|kind| self.gate(kind).refusal(now));
        let refused = refused.into_iter().flatten().next()?;
        Some(Failure {
            target: Some(self.target.id.clone()),
            ..refused
        })
    }

    /// The failure of a caller that the rate gate refuses, with the time until it opens.
    pub fn rate_limit(&self, now: Instant) -> Option<Failure> {
        let reopens_in = self.gate_closed_for(GateKind::Rate, now)?;
        let class = self
            .gate(GateKind::Rate)
            .class()
            .unwrap_or(FailureClass::RateLimited);
        let refused = Failure::local(
            class,
            "an earlier call reached the rate limit of the target",
        );
        let refused = refused.with_retry_after(reopens_in, WaitSource::Gate);
        Some(Failure {
            target: Some(self.target.id.clone()),
            retryable: true,
            ..refused
        })
    }

    /// The credential or configuration gate that is closed, why, and since when.
    pub fn closed_gate(&self) -> Option<(GateKind, FailureClass, Timestamp)> {
        [GateKind::Credential, GateKind::Configuration]
            .into_iter()
            .find_map(|kind| {
                let gate = self.gate(kind);
                Some((kind, gate.class()?, self.wall_time(gate.closed_since()?)))
            })
    }

    /// Whether callers pass the rate gate one at a time, and are queued before it.
    pub(super) fn has_line(&self, now: Instant) -> bool {
        self.rate.lock().is_paced(now)
    }

    /// Whether, and how long, a new caller has to wait before the rate gate.
    pub(super) fn line_for(&self, now: Instant) -> Option<Duration> {
        let waiting = self.rate.waiting.load(Ordering::Relaxed);
        self.rate.lock().peek_after(now, waiting).err()
    }

    /// Publishes how a gate moved and why, and wakes the invocations that wait for it.
    pub fn gate_moved(
        self: &Arc<Self>,
        gate: GateKind,
        change: Option<GateChange>,
        class: FailureClass,
        source: WaitSource,
    ) {
        let shared = self.shared_gate(gate);
        let mut closed_by = shared
            .closed_by
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (target, body) = match change {
            None => return,
            Some(GateChange::Closed { reopens_in }) => {
                let target = closed_by
                    .get_or_insert_with(|| self.target.id.clone())
                    .clone();
                (
                    target,
                    EventBody::GateClosed {
                        gate,
                        reopens_in_ms: millis(reopens_in),
                        source,
                        class,
                    },
                )
            }
            Some(GateChange::Opened { closed_for }) => {
                let target = closed_by.take().unwrap_or_else(|| self.target.id.clone());
                (
                    target,
                    EventBody::GateOpened {
                        gate,
                        closed_ms: millis(closed_for),
                    },
                )
            }
        };
        drop(closed_by);
        shared.sooner.notify_waiters();
        self.events.publish(None, 0, Some(target), body);
        self.changed.notify_waiters();
        if gate == GateKind::Rate && matches!(change, Some(GateChange::Closed { .. })) {
            self.reopen_in_time();
        }
    }

    /// The provider took a call: its limit is not reached now.
    pub fn accepted_by_limit(&self) {
        self.gate(GateKind::Rate).accepted(Instant::now());
        self.rate.sooner.notify_waiters();
    }

    /// Opens the rate gate when its time is over, so that all waiting callers are informed, not
    /// only the next one.
    fn reopen_in_time(self: &Arc<Self>) {
        let mut reopening = self
            .rate
            .reopening
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while reopening.try_join_next().is_some() {}
        if !reopening.is_empty() {
            return;
        }
        let state = Arc::clone(self);
        reopening.spawn(async move {
            while let Some(wait) = state.gate_closed_for(GateKind::Rate, Instant::now()) {
                tokio::time::sleep(wait).await;
            }
            let change = state.gate(GateKind::Rate).expire(Instant::now());
            state.gate_moved(
                GateKind::Rate,
                change,
                FailureClass::RateLimited,
                WaitSource::Gate,
            );
        });
    }

    /// Opens gates whatever was stated: an operator, or new settings, removed the cause.
    pub(super) fn open_gates(self: &Arc<Self>, kinds: &[GateKind]) {
        for kind in kinds {
            let change = self.gate(*kind).open(Instant::now());
            self.gate_moved(*kind, change, FailureClass::Unknown, WaitSource::Gate);
        }
    }
}
