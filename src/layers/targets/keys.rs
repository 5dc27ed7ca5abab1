//! The keys of a target, each with its own gates: one, or as many as the pool of its provider has.
//!
//! A key is refused, used up or limited by itself; the circuit, the slots and the latencies are the
//! target's. What is known of a key that stays is kept when a new configuration names others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::shared_gate::SharedGate;
use crate::{
    domain::{
        circuit::GateKind,
        failure::{Failure, FailureClass},
        ids::{TargetId, TenantId},
        invocation::AttemptRecord,
        target::Target,
    },
    layers::invocation::InvocationScope,
    policy::{gates::Gate, retry::Availability, select::rest_of_a_key},
};

/// The place of a call before a rate gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceInLine {
    /// Its turn came: it passed.
    Passed,
    /// It had its turn before, and need not queue again.
    Ahead,
    /// Behind those who wait.
    Behind,
}

/// One key of a target, with its gates.
#[derive(Debug)]
pub struct KeyState {
    /// The target as it is called with this key.
    pub target: Arc<Target>,
    /// Label by which people know the key; `None` if the target has one key.
    pub label: Option<Arc<str>>,
    /// In the order of `GateKind::ALL`.
    pub(super) gates: [Arc<SharedGate>; 3],
    /// Time until which other keys come first, because it was refused.
    pub(super) rests_until: Mutex<Option<Instant>>,
}

/// The keys of a target; never empty.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) all: ArcSwap<Vec<Arc<KeyState>>>,
    /// Number of calls that took a key in turn.
    pub(super) turns: AtomicUsize,
}

/// What attempts of one invocation found of the keys.
#[derive(Debug, Clone, Copy)]
pub struct KeyHistory<'a> {
    attempts: &'a [AttemptRecord],
}

// === impl PlaceInLine ===

impl PlaceInLine {
    /// Returns the place of an invocation's next call of a target.
    pub(super) fn of(scope: &InvocationScope, target: &TargetId) -> Self {
        if scope.has_turn(target) {
            Self::Passed
        } else if scope.goes_ahead() {
            Self::Ahead
        } else {
            Self::Behind
        }
    }
}

// === impl Keys ===

impl Keys {
    pub(super) fn new(all: Vec<Arc<KeyState>>) -> Self {
        Self {
            all: ArcSwap::from_pointee(all),
            turns: AtomicUsize::new(0),
        }
    }

    /// Takes over the keys of a new configuration; those that stay are kept as they are.
    pub(super) fn replace(&self, all: Vec<Arc<KeyState>>) {
        let before = self.all.load();
        let known = |key: Arc<KeyState>| {
            let same = before
                .iter()
                .find(|one| one.is(&key) && one.target == key.target);
            same.map_or(key, Arc::clone)
        };
        let all = all.into_iter().map(known).collect();
        self.all.store(Arc::new(all));
    }
}

// === impl KeyState ===

impl KeyState {
    /// A key that is not known to be refused.
    pub(super) fn new(
        target: Arc<Target>,
        label: Option<Arc<str>>,
        gates: [Arc<SharedGate>; 3],
    ) -> Self {
        Self {
            target,
            label,
            gates,
            rests_until: Mutex::default(),
        }
    }

    /// Returns a gate. The lock is held briefly and not across an await.
    pub fn gate(&self, kind: GateKind) -> MutexGuard<'_, Gate> {
        self.shared_gate(kind).lock()
    }

    pub(super) fn shared_gate(&self, kind: GateKind) -> &Arc<SharedGate> {
        let [rate, credential, configuration] = &self.gates;
        match kind {
            GateKind::Rate => rate,
            GateKind::Credential => credential,
            GateKind::Configuration => configuration,
        }
    }

    /// Returns whether it is the same key at the same target, by its gates.
    pub fn is(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Arc<SharedGate>, &Arc<SharedGate>)| Arc::ptr_eq(one, other);
        self.gates.iter().zip(&other.gates).all(is_same)
    }

    /// Returns the class of the failure that closed a gate of it, if one is closed.
    pub fn closed_for(&self) -> Option<FailureClass> {
        self.gates.iter().find_map(|gate| gate.lock().class())
    }

    /// Returns whether calls of a tenant pass its rate gate one at a time.
    pub(super) fn has_line(&self, now: Instant, tenant: &TenantId) -> bool {
        self.gate(GateKind::Rate).is_paced(now, tenant)
    }

    /// Returns the failure that a caller gets whom its credential or configuration gate refuses.
    pub(super) fn refusal(&self, now: Instant, tenant: &TenantId) -> Option<Failure> {
        [GateKind::Credential, GateKind::Configuration]
            .into_iter()
            .find_map(|kind| self.gate(kind).refusal(now, tenant))
    }

    pub(super) fn availability(
        &self,
        now: Instant,
        tenant: &TenantId,
        place: PlaceInLine,
        keys: usize,
    ) -> Availability {
        // Time does not mend a refused key, a used-up quota or a model that does not exist.
        if self.refusal(now, tenant).is_some() {
            return Availability::Never;
        }
        match self.line_for(now, tenant, place, keys) {
            None => Availability::Now,
            Some(wait) => Availability::At(now + wait),
        }
    }

    /// Returns the wait, if any, of a call of a tenant at this place before the rate gate.
    fn line_for(
        &self,
        now: Instant,
        tenant: &TenantId,
        place: PlaceInLine,
        keys: usize,
    ) -> Option<Duration> {
        let rate = self.shared_gate(GateKind::Rate);
        let gate = rate.lock();
        match place {
            PlaceInLine::Passed => None,
            PlaceInLine::Ahead => gate.peek_ahead(now, tenant).err(),
            PlaceInLine::Behind => {
                // Who waits for a pool is in the line of each key, and passes one of them.
                let keys = u32::try_from(keys).unwrap_or(u32::MAX);
                let waiting = rate.waiting.load(Ordering::Relaxed).div_ceil(keys);
                gate.peek_after(now, tenant, waiting).err()
            }
        }
    }

    /// An attempt with it failed this way.
    pub fn failed(&self, now: Instant, failure: &Failure) {
        if self.label.is_some() && is_of_the_key(failure.class) {
            let stated = failure.retry_after.map(|wait| wait.duration);
            *self.rests_until.lock() = Some(now + rest_of_a_key(stated));
        }
    }

    /// An attempt with it is answered.
    pub fn answered(&self) {
        if self.label.is_some() {
            *self.rests_until.lock() = None;
        }
    }
}

// === impl KeyHistory ===

impl<'a> KeyHistory<'a> {
    /// The keys that these attempts used.
    pub fn new(attempts: &'a [AttemptRecord]) -> Self {
        Self { attempts }
    }

    /// Returns the classes of the failures for which a key was refused.
    pub(super) fn refusals(self, key: &KeyState) -> impl Iterator<Item = FailureClass> {
        let label = key.label.as_deref();
        let of_key = self.attempts.iter().filter(move |record| {
            label.is_some() && record.key.as_deref() == label && !record.refused_locally()
        });
        of_key
            .filter_map(|record| Some(record.failure.as_ref()?.class))
            .filter(|class| is_of_the_key(*class))
    }

    pub(super) fn is_refused(self, key: &KeyState) -> bool {
        self.refusals(key)
            .any(|class| class != FailureClass::RateLimited)
    }
}

/// Returns whether a failure may be of the key alone: another key of the same account or of another
/// one may do.
pub fn is_of_the_key(class: FailureClass) -> bool {
    matches!(
        class,
        FailureClass::RateLimited | FailureClass::Authentication | FailureClass::QuotaExceeded
    )
}
