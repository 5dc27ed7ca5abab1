//! What is known of every target: one registry, shared by all callers of the process.
//!
//! Circuits, gates, budgets, slots and latencies live here and are looked up by target, so that
//! five callers share one circuit. Gates are shared by all targets with the same credential. Every
//! move is published once, here.

mod candidates;
mod causes;
mod extra_attempts;
mod gates;
mod key_choice;
mod keys;
mod notices;
mod observations;
mod parking;
mod probe_lease;
mod refusal;
mod shared_gate;
mod slots;
mod state;

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicUsize},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use self::{
    extra_attempts::ExtraAttempts, keys::Keys, notices::TargetNotices, observations::Observations,
    shared_gate::SharedGate, slots::Slots,
};
pub use self::{
    gates::GateTrouble,
    keys::{KeyHistory, KeyState, PlaceInLine, is_of_the_key},
    parking::Parked,
    probe_lease::{LeasedProbe, SharedProbes},
    slots::Slot,
    state::TargetState,
};
use crate::{
    domain::{circuit::GateKind, clock, ids::TargetId, target::Target},
    events::EventBus,
    policy::{
        circuit::{Circuit, CircuitPolicy},
        concurrency::ConcurrencyPolicy,
        gates::{Gate, GatePolicy, ReplicaPlace},
        retry::Cost,
        retry_budget::{BudgetPolicy, Reservation, Settled},
    },
};

/// Settings with which a target is created.
#[derive(Debug, Clone)]
pub struct TargetSpec {
    /// The target.
    pub target: Arc<Target>,
    /// Its circuit's policy.
    pub circuit: Arc<CircuitPolicy>,
    /// Number of attempts that it may have at once.
    pub concurrency: ConcurrencyPolicy,
    /// Fingerprint of the settings of its provider and credential: if it changes, their gates open.
    pub settings: u64,
    /// Keys of its provider's pool; empty if it has the one that the target names.
    pub pool: Vec<KeySpec>,
}

/// A key of a provider's pool.
#[derive(Debug, Clone)]
pub struct KeySpec {
    /// Label by which people know it, and name of the credential that it is.
    pub label: Arc<str>,
    /// Fingerprint of it and its provider: if it changes, its gates open.
    pub settings: u64,
}

/// Policies that all targets share.
#[derive(Debug, Clone, Default)]
pub struct SharedPolicies {
    /// Cost of attempts beyond the first.
    pub budget: BudgetPolicy,
    /// Until when a target must not be called.
    pub gates: Arc<GatePolicy>,
}

/// The part that this replica has of what the live ones share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplicaPart {
    /// Its place among them: they share slots and the return of a rate limit.
    pub place: ReplicaPlace,
    /// If set, its probes are not shared, and it has a whole retry budget to pay for them.
    pub probes_alone: bool,
}

/// Every target of the process; cheap to clone.
#[derive(Debug, Clone)]
pub struct Targets {
    shared: Arc<TargetTable>,
}

#[derive(Debug)]
struct TargetTable {
    states: ArcSwap<HashMap<TargetId, Arc<TargetState>>>,
    /// Those that came into use after the start, the earliest first.
    added: Mutex<VecDeque<TargetId>>,
    events: EventBus,
    parked: AtomicUsize,
    /// Notified whenever something moved that replicas share.
    moved: Arc<Notify>,
    /// The part that this replica has of what the live ones share.
    part: Mutex<ReplicaPart>,
    /// Probes that replicas share; unset if this one is alone.
    probes: OnceLock<Arc<dyn SharedProbes>>,
}

/// Gates that exist, by their kind and key.
struct KnownGates(HashMap<(GateKind, String), Arc<SharedGate>>);

/// Targets that came into use after the start and are kept at most.
const MAX_ADDED: usize = 2_000;

// === impl KnownGates ===

impl KnownGates {
    fn of(states: &HashMap<TargetId, Arc<TargetState>>) -> Self {
        let gates = states.values().flat_map(|state| {
            let of_key = |key: Arc<KeyState>| {
                GateKind::ALL.map(|kind| {
                    let name = gate_key(kind, &key.target);
                    ((kind, name), Arc::clone(key.shared_gate(kind)))
                })
            };
            let keys = Arc::unwrap_or_clone(state.keys());
            keys.into_iter().flat_map(of_key)
        });
        Self(gates.collect())
    }

    fn known_or_new(
        &mut self,
        kind: GateKind,
        target: &Target,
        settings: u64,
        shared: &SharedPolicies,
    ) -> Arc<SharedGate> {
        let new = || {
            let gate = Gate::new(kind, Arc::clone(&shared.gates));
            Arc::new(SharedGate::new(gate, settings))
        };
        let known = self.0.entry((kind, gate_key(kind, target)));
        Arc::clone(known.or_insert_with(new))
    }

    /// Returns the keys of a target, with the gates of those that are known.
    fn keys_of(&mut self, spec: &TargetSpec, shared: &SharedPolicies) -> Vec<Arc<KeyState>> {
        let key = |(target, label): (Arc<Target>, Option<Arc<str>>)| {
            let gates = GateKind::ALL.map(|kind| {
                let settings = spec.settings_of(kind, label.as_deref());
                self.known_or_new(kind, &target, settings, shared)
            });
            Arc::new(KeyState::new(target, label, gates))
        };
        spec.keys().into_iter().map(key).collect()
    }
}

// === impl Targets ===

impl Targets {
    /// A registry of these targets.
    pub fn new(events: EventBus, specs: &[TargetSpec], shared: &SharedPolicies) -> Self {
        let states = ArcSwap::default();
        let added = Mutex::default();
        let parked = AtomicUsize::new(0);
        let targets = Self {
            shared: Arc::new(TargetTable {
                states,
                added,
                events,
                parked,
                moved: Arc::default(),
                part: Mutex::default(),
                probes: OnceLock::new(),
            }),
        };
        targets.update(specs, shared);
        targets
    }

    /// Takes over a new configuration. The known state of a target that stays is kept; calls in
    /// flight on one that is removed keep what they hold.
    pub fn update(&self, specs: &[TargetSpec], shared: &SharedPolicies) {
        let mut added = self.shared.added.lock();
        let old = self.shared.states.load_full();
        let now = Instant::now();
        let mut gates = KnownGates::of(&old);
        for gate in gates.0.values() {
            gate.set_policy(&shared.gates);
        }
        let states = specs.iter().map(|spec| {
            let target = &spec.target;
            let state = match old.get(&target.id) {
                Some(known) if known.target == *target => {
                    known.circuit().set_policy(Arc::clone(&spec.circuit));
                    known.extra.budget().reconfigure(shared.budget.clone(), now);
                    known.slots.set_policy(&spec.concurrency);
                    known.keys.replace(gates.keys_of(spec, shared));
                    // Keys that are new do not know it yet.
                    known.share_with(*self.shared.part.lock(), now);
                    Arc::clone(known)
                }
                _ => self.new_state(spec, shared, &mut gates),
            };
            (target.id.clone(), state)
        });
        let states: HashMap<_, _> = states.collect();
        added.retain(|id| states.contains_key(id));
        self.shared.states.store(Arc::new(states.clone()));
        drop(added);
        for spec in specs {
            let Some(state) = states.get(&spec.target.id) else {
                continue;
            };
            for key in state.keys().iter() {
                let is_changed = |kind: &GateKind| {
                    let settings = spec.settings_of(*kind, key.label.as_deref());
                    key.shared_gate(*kind).is_changed_by(settings)
                };
                let changed: Vec<_> = GateKind::ALL.into_iter().filter(is_changed).collect();
                state.open_gates(key, &changed);
            }
        }
    }

    /// Makes targets known that come into use after the start, as tools do. Where that are too
    /// many, those go that came first and have no circuit to remember.
    pub fn ensure(&self, specs: &[TargetSpec], shared: &SharedPolicies) {
        let is_new = |spec: &&TargetSpec| {
            self.state(&spec.target.id)
                .is_none_or(|known| known.target != spec.target)
        };
        if !specs.iter().any(|spec| is_new(&spec)) {
            return;
        }
        let mut added = self.shared.added.lock();
        let mut states = HashMap::clone(&self.shared.states.load());
        let mut gates = KnownGates::of(&states);
        for spec in specs.iter().filter(is_new) {
            let id = spec.target.id.clone();
            if states
                .insert(id.clone(), self.new_state(spec, shared, &mut gates))
                .is_none()
            {
                added.push_back(id);
            }
        }
        for _ in MAX_ADDED..added.len() {
            let Some(first) = added.pop_front() else {
                break;
            };
            let is_needed = states
                .get(&first)
                .is_some_and(|state| !state.circuit().state().is_closed())
                || specs.iter().any(|spec| spec.target.id == first);
            if is_needed {
                added.push_back(first);
            } else {
                states.remove(&first);
            }
        }
        self.shared.states.store(Arc::new(states));
    }

    fn new_state(
        &self,
        spec: &TargetSpec,
        shared: &SharedPolicies,
        gates: &mut KnownGates,
    ) -> Arc<TargetState> {
        let now = Instant::now();
        let state = TargetState {
            target: Arc::clone(&spec.target),
            slots: Slots::new(&spec.concurrency),
            observed: Observations::new(spec.target.dialect),
            extra: ExtraAttempts::new(shared.budget.clone(), now),
            notices: TargetNotices::new(self.shared.events.clone(), Arc::clone(&self.shared.moved)),
            circuit: Mutex::new(Circuit::new(Arc::clone(&spec.circuit))),
            causes: Mutex::default(),
            keys: Keys::new(gates.keys_of(spec, shared)),
            known_since: (now, clock::wall_now()),
            probing: AtomicU32::new(0),
        };
        state.share_with(*self.shared.part.lock(), now);
        Arc::new(state)
    }

    /// Returns the known state of a target.
    pub fn state(&self, target: &TargetId) -> Option<Arc<TargetState>> {
        self.shared.states.load().get(target).map(Arc::clone)
    }

    /// Returns every target, by name.
    pub fn all(&self) -> Vec<Arc<TargetState>> {
        let mut all: Vec<_> = self.shared.states.load().values().map(Arc::clone).collect();
        all.sort_by(|a, b| a.target.id.cmp(&b.target.id));
        all
    }

    /// Returns the notice that something moved that replicas share.
    pub fn moved(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.moved)
    }

    /// Shares the retry budget, the slots and the return of a rate limit of each target with the
    /// other live replicas.
    pub fn share_with(&self, part: ReplicaPart) {
        *self.shared.part.lock() = part;
        let now = Instant::now();
        for state in self.all() {
            state.share_with(part, now);
        }
    }

    /// Pays for an attempt beyond the first; `None` when the budget is empty.
    pub fn reserve(&self, payer: &TargetId, cost: Cost, now: Instant) -> Option<Reserved> {
        let state = self.state(payer)?;
        let reservation = state.extra.budget().reserve(now, cost)?;
        Some(Reserved {
            state,
            reservation: Some(reservation),
        })
    }

    /// Credits a first attempt that succeeded.
    pub fn first_try_succeeded(&self, target: &TargetId) {
        if let Some(state) = self.state(target) {
            state.extra.budget().first_try_succeeded(Instant::now());
        }
    }

    /// Returns the rest of a target's budget and its full size, in tokens.
    pub fn budget(&self, target: &TargetId, now: Instant) -> (f64, f64) {
        self.state(target).map_or((0.0, 0.0), |state| {
            (state.extra.budget_left(now), state.extra.budget_capacity())
        })
    }

    /// Returns the rest of a target's budget, as a share of its full size.
    pub fn budget_share(&self, target: &TargetId, now: Instant) -> f64 {
        let (left, capacity) = self.budget(target, now);
        if capacity > 0.0 { left / capacity } else { 0.0 }
    }

    /// Returns the rest of every target's budget, in tokens.
    pub fn budgets(&self) -> Vec<(TargetId, f64)> {
        let now = Instant::now();
        self.all()
            .iter()
            .map(|state| (state.target.id.clone(), state.extra.budget_left(now)))
            .collect()
    }
}

/// Price paid for one attempt. If it is dropped without a word, the attempt was never made and the
/// price comes back.
#[derive(Debug)]
pub struct Reserved {
    state: Arc<TargetState>,
    reservation: Option<Reservation>,
}

impl Reserved {
    /// Says what became of the attempt.
    pub fn settle(mut self, how: Settled) {
        self.end(how);
    }

    fn end(&mut self, how: Settled) {
        if let Some(reservation) = self.reservation.take() {
            self.state
                .extra
                .budget()
                .settle(reservation, how, Instant::now());
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.end(Settled::NotUsed);
    }
}

// === impl TargetSpec ===

impl TargetSpec {
    /// Returns the target as it is called with each of its keys, and the label of the key.
    fn keys(&self) -> Vec<(Arc<Target>, Option<Arc<str>>)> {
        if self.pool.is_empty() {
            return vec![(Arc::clone(&self.target), None)];
        }
        let keyed = |key: &KeySpec| {
            let target = Target {
                credential: Arc::clone(&key.label),
                ..Target::clone(&self.target)
            };
            (Arc::new(target), Some(Arc::clone(&key.label)))
        };
        self.pool.iter().map(keyed).collect()
    }

    /// Returns the settings that decide whether what closed a gate is gone: of the credential, and
    /// of what model it is used for.
    fn settings_of(&self, kind: GateKind, label: Option<&str>) -> u64 {
        let mut hasher = DefaultHasher::new();
        let key = self.pool.iter().find(|key| Some(&*key.label) == label);
        if kind == GateKind::Configuration {
            (self.settings, &self.target.model, &self.target.endpoint).hash(&mut hasher);
        } else {
            key.map_or(self.settings, |key| key.settings)
                .hash(&mut hasher);
        }
        hasher.finish()
    }
}

fn gate_key(kind: GateKind, target: &Target) -> String {
    match kind {
        // What one tool of a server is limited in says nothing of the others.
        GateKind::Rate if target.tool().is_some() => target.id.to_string(),
        GateKind::Rate => format!("{}/{}/{}", target.provider, target.credential, target.model),
        GateKind::Credential => format!("{}/{}", target.provider, target.credential),
        GateKind::Configuration => target.id.to_string(),
    }
}
