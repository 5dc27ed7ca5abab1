//! Leases by which the other replicas take this one to be alive, and its invocations to be its own.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};

use super::{ExecutionShared, steadiness::Steadiness};
use crate::{domain::upstream::BackgroundResponses, journal::Held};

/// The leases of this replica.
#[derive(Debug)]
pub(super) struct Leases {
    /// Time for which a lease is valid once it was renewed.
    lease: Duration,
    /// Until when they are good for sure.
    good_until: watch::Sender<Instant>,
    steadiness: Mutex<Steadiness>,
    /// Invocations that this replica owns and does not run yet.
    claims: Mutex<HashSet<Held>>,
}

/// Has the lease of an invocation renewed until it runs, or is given up.
pub(super) struct Claim {
    shared: Arc<ExecutionShared>,
    held: Held,
}

// === impl Leases ===

impl Leases {
    /// Leases that are good for this time from now on.
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            good_until: watch::Sender::new(Instant::now() + lease),
            steadiness: Mutex::new(Steadiness::new(lease)),
            claims: Mutex::default(),
        }
    }

    /// Returns whether the others take this replica to be alive.
    pub(super) fn are_good(&self) -> bool {
        Instant::now() < *self.good_until.borrow()
    }

    /// Notes a renewal that succeeded, or not, and was sent at `asked_at`.
    pub(super) fn renewed(&self, asked_at: Instant, succeeded: bool) {
        let mut steadiness = self.steadiness.lock();
        if succeeded {
            steadiness.renewed(asked_at, Instant::now());
            self.good_until.send_replace(asked_at + self.lease);
        } else {
            steadiness.failed();
        }
    }

    /// Returns whether an expired lease means that its owner is gone.
    pub(super) fn may_take_over(&self) -> bool {
        self.steadiness.lock().may_take_over(Instant::now())
    }

    /// Returns the invocations that this replica owns and does not run yet.
    pub(super) fn claimed(&self) -> HashSet<Held> {
        self.claims.lock().clone()
    }

    /// Returns the link between an invocation of this replica and completions that are made in the
    /// background.
    pub(super) fn background(&self) -> BackgroundResponses {
        BackgroundResponses::leased(self.good_until.subscribe())
    }
}

// === impl Claim ===

impl Claim {
    /// Has the lease of an invocation renewed that is this replica's and does not run yet.
    pub(super) fn new(shared: Arc<ExecutionShared>, held: Held) -> Self {
        shared.leases.claims.lock().insert(held.clone());
        Self { shared, held }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.leases.claims.lock().remove(&self.held);
    }
}
