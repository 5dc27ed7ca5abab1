//! The gates of a target, shared with the targets that use the same credential, and everything that
//! moves them.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{keys::KeyState, state::TargetState};
use crate::{
    domain::{
        circuit::GateKind,
        event::{EventBody, millis},
        failure::{Failure, FailureClass, WaitSource},
        ids::TenantId,
    },
    policy::gates::GateChange,
};

/// A credential or configuration gate at which calls are refused.
#[derive(Debug, Clone)]
pub struct GateTrouble {
    /// Kind of the gate.
    pub kind: GateKind,
    /// Label of the key; `None` if the target has one key.
    pub key: Option<Arc<str>>,
    /// Whether it is closed; else the last call was refused, and too few were to close it.
    pub is_closed: bool,
    /// Reason for which calls are refused.
    pub class: FailureClass,
    /// Time at which it closed, or of the first refusal since the last success.
    pub since: Timestamp,
}

// === impl TargetState: its gates ===

impl TargetState {
    /// Returns the class of the failure that closed a gate of the target, if one is closed: with
    /// several keys, if one of each is.
    pub fn closed_for(&self) -> Option<FailureClass> {
        let keys = self.keys();
        let closed: Option<Vec<_>> = keys.iter().map(|key| key.closed_for()).collect();
        closed?.first().copied()
    }

    /// Returns the failure that a caller gets whom the credential or configuration gates of all keys
    /// refuse: the one that closed the first.
    pub fn refusal(&self, now: Instant, tenant: &TenantId) -> Option<Failure> {
        let keys = self.keys();
        let refusals: Option<Vec<_>> = keys.iter().map(|key| key.refusal(now, tenant)).collect();
        Some(Failure {
            target: Some(self.target.id.clone()),
            ..refusals?.into_iter().next()?
        })
    }

    /// Returns the failure of a caller that the rate gate refuses, with the time until one opens.
    pub fn rate_limit(&self, now: Instant) -> Option<Failure> {
        let keys = self.keys();
        let closed = keys.iter().filter_map(|key| {
            let gate = key.gate(GateKind::Rate);
            let reopens_in = gate.reopens_in(now)?;
            Some((
                reopens_in,
                gate.class().unwrap_or(FailureClass::RateLimited),
            ))
        });
        let (reopens_in, class) = closed.min_by_key(|(reopens_in, _)| *reopens_in)?;
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

    /// Returns the credential or configuration gates that are closed or in doubt, one of each key.
    pub fn gate_troubles(&self) -> Vec<GateTrouble> {
        let kinds = [GateKind::Credential, GateKind::Configuration];
        let keys = self.keys();
        let troubles = keys
            .iter()
            .filter_map(|key| kinds.into_iter().find_map(|kind| self.trouble(key, kind)));
        troubles.collect()
    }

    /// Returns the keys of a pool that reached their limit and did not answer since.
    pub fn limited_keys(&self) -> Vec<GateTrouble> {
        let keys = self.keys();
        let pool = keys.iter().filter(|key| key.label.is_some());
        pool.filter_map(|key| self.trouble(key, GateKind::Rate))
            .collect()
    }

    fn trouble(&self, key: &KeyState, kind: GateKind) -> Option<GateTrouble> {
        let gate = key.gate(kind);
        let closed = gate.class().zip(gate.closed_since());
        let (class, since) = closed.or_else(|| gate.in_doubt())?;
        Some(GateTrouble {
            kind,
            key: key.label.clone(),
            is_closed: closed.is_some(),
            class,
            since: self.wall_time(since),
        })
    }

    /// Returns whether the calls of a tenant are queued before the rate gate: while it is closed
    /// for it, and while they pass one at a time.
    pub(super) fn has_line(&self, now: Instant, tenant: &TenantId) -> bool {
        self.keys().iter().all(|key| key.has_line(now, tenant))
    }

    /// Publishes how a gate moved and why, and wakes the invocations that wait for it.
    pub fn gate_moved(
        self: &Arc<Self>,
        key: &Arc<KeyState>,
        gate: GateKind,
        change: Option<GateChange>,
        class: FailureClass,
        source: WaitSource,
    ) {
        let Some(change) = change else { return };
        let shared = key.shared_gate(gate);
        let label = key.label.as_deref().map(str::to_owned);
        let mut closed_by = shared.closed_by.lock();
        let (target, body) = match change {
            GateChange::Closed { reopens_in } => {
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
                        key: label,
                    },
                )
            }
            GateChange::Opened { closed_for } => {
                let target = closed_by.take().unwrap_or_else(|| self.target.id.clone());
                (
                    target,
                    EventBody::GateOpened {
                        gate,
                        key: label,
                        closed_ms: millis(closed_for),
                    },
                )
            }
        };
        drop(closed_by);
        shared.sooner.notify_waiters();
        self.notices.publish(target, body);
        if gate == GateKind::Rate && matches!(change, GateChange::Closed { .. }) {
            self.reopen_in_time(key);
        }
    }

    /// Opens the rate gate to which nobody comes any more, so that it is not shown as closed.
    fn reopen_in_time(self: &Arc<Self>, key: &Arc<KeyState>) {
        let mut reopening = key.shared_gate(GateKind::Rate).reopening.lock();
        while reopening.try_join_next().is_some() {}
        if !reopening.is_empty() {
            return;
        }
        let state = Arc::clone(self);
        let key = Arc::clone(key);
        reopening.spawn(async move {
            loop {
                let expired = key.gate(GateKind::Rate).expire(Instant::now());
                let change = match expired {
                    Ok(change) => Some(change),
                    Err(Some(wait)) => {
                        tokio::time::sleep(wait).await;
                        continue;
                    }
                    Err(None) => return,
                };
                let class = FailureClass::RateLimited;
                let source = WaitSource::Gate;
                state.gate_moved(&key, GateKind::Rate, change, class, source);
            }
        });
    }

    /// Opens gates whatever was stated: an operator, or new settings, removed the cause.
    pub(super) fn open_gates(self: &Arc<Self>, key: &Arc<KeyState>, kinds: &[GateKind]) {
        if !kinds.is_empty() {
            key.answered();
        }
        for kind in kinds {
            let change = key.gate(*kind).open(Instant::now());
            self.gate_moved(key, *kind, change, FailureClass::Unknown, WaitSource::Gate);
        }
    }
}
