//! Those who hear of a target's moves: watchers, parked invocations, and other replicas.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{
    domain::{event::EventBody, ids::TargetId},
    events::EventBus,
};

/// Those who hear of the moves of one target.
#[derive(Debug)]
pub struct TargetNotices {
    /// Notified at the first success after failures in a row.
    pub recovered: Notify,
    /// Notified whenever the circuit or a gate moved.
    pub(super) changed: Notify,
    /// Notified whenever something moved that replicas share; one for all targets.
    moved: Arc<Notify>,
    events: EventBus,
}

// === impl TargetNotices ===

impl TargetNotices {
    /// Emits events here, and notifies `moved` for other replicas.
    pub(super) fn new(events: EventBus, moved: Arc<Notify>) -> Self {
        Self {
            recovered: Notify::new(),
            changed: Notify::new(),
            moved,
            events,
        }
    }

    /// Publishes a move of the circuit or of a gate, and wakes the invocations that wait for one.
    pub(super) fn publish(&self, target: TargetId, body: EventBody) {
        self.events.publish(None, 0, Some(target), body);
        self.changed.notify_waiters();
        self.to_replicas();
    }

    /// Has the other replicas learn what moved.
    pub(super) fn to_replicas(&self) {
        self.moved.notify_one();
    }
}
