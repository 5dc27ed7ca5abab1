//! What is known of every target: one registry, shared by all callers of the process.
//!
//! Circuits, gates, budgets, slots and latencies live here and are looked up by target, so that
//! five callers share one circuit. Gates are shared by all targets with the same credential. Every
//! move is published once, here.

mod candidates;
mod gates;
mod parking;
mod refusal;
mod shared_gate;
mod slots;
mod state;

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
};

use arc_swap::ArcSwap;
use tokio::{sync::Notify, time::Instant};

pub use self::{parking::Parked, slots::Slot, state::TargetState};
use self::{shared_gate::SharedGate, slots::Slots};
use crate::{
    domain::{circuit::GateKind, clock, ids::TargetId, target::Target},
    events::EventBus,
    policy::{
        circuit::{Circuit, CircuitPolicy},
        concurrency::ConcurrencyPolicy,
        gates::{Gate, GatePolicy},
        hedge::HedgeShare,
        latency::Latency,
        retry::Cost,
        retry_budget::{BudgetPolicy, Reservation, RetryBudget, Settled},
    },
};

/// What a target is created with.
#[derive(Debug, Clone)]
pub struct TargetSpec {
    /// The target.
    pub target: Arc<Target>,
    /// Its circuit's policy.
    pub circuit: Arc<CircuitPolicy>,
    /// How many attempts it may have at once.
    pub concurrency: ConcurrencyPolicy,
    /// A fingerprint of the settings of its provider and credential: where it changes, their gates
    /// open.
    pub settings: u64,
}

/// What all targets share.
#[derive(Debug, Clone, Default)]
pub struct SharedPolicies {
    /// What attempts beyond the first cost.
    pub budget: BudgetPolicy,
    /// Until when a target must not be called.
    pub gates: Arc<GatePolicy>,
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
}

/// Gates that exist, by their kind and key.
struct KnownGates(HashMap<(GateKind, String), Arc<SharedGate>>);

/// Targets that came into use after the start and are kept at most.
const MAX_ADDED: usize = 2_000;

// === impl KnownGates ===

impl KnownGates {
    fn of(states: &HashMap<TargetId, Arc<TargetState>>) -> Self {
        let gates = states.values().flat_map(|state| {
            let key = |kind| (kind, gate_key(kind, &state.target));
            state
                .gates()
                .into_iter()
                .map(move |(kind, gate)| (key(kind), Arc::clone(gate)))
        });
        Self(gates.collect())
    }

    fn known_or_new(
        &mut self,
        kind: GateKind,
        spec: &TargetSpec,
        shared: &SharedPolicies,
    ) -> Arc<SharedGate> {
        let new = || {
            Arc::new(SharedGate::new(
                Gate::new(kind, Arc::clone(&shared.gates)),
                settings_of(kind, spec),
            ))
        };
        Arc::clone(
            self.0
                .entry((kind, gate_key(kind, &spec.target)))
                .or_insert_with(new),
        )
    }
}

// === impl Targets ===

impl Targets {
    /// A registry of these targets.
    pub fn new(events: EventBus, specs: &[TargetSpec], shared: &SharedPolicies) -> Self {
        let (states, added, parked) = (ArcSwap::default(), Mutex::default(), AtomicUsize::new(0));
        let targets = Self {
            shared: Arc::new(TargetTable {
                states,
                added,
                events,
                parked,
            }),
        };
        targets.update(specs, shared);
        targets
    }

    /// Takes over a new configuration. What is known of a target that stays is kept; calls in
    /// flight on one that goes keep what they hold.
    pub fn update(&self, specs: &[TargetSpec], shared: &SharedPolicies) {
        let mut added = self
            .shared
            .added
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let old = self.shared.states.load_full();
        let now = Instant::now();
        for gate in old.values().flat_map(|state| state.gates()) {
            gate.1.set_policy(&shared.gates);
        }
        let mut gates = KnownGates::of(&old);
        let states = specs.iter().map(|spec| {
            let target = &spec.target;
            let state = match old.get(&target.id) {
                Some(known) if known.target == *target => {
                    known.circuit().set_policy(Arc::clone(&spec.circuit));
                    known.budget().reconfigure(shared.budget.clone(), now);
                    known.slots.set_policy(&spec.concurrency);
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
            let is_changed = |kind: &GateKind| {
                state
                    .shared_gate(*kind)
                    .is_changed_by(settings_of(*kind, spec))
            };
            let changed: Vec<_> = [
                GateKind::Rate,
                GateKind::Credential,
                GateKind::Configuration,
            ]
            .into_iter()
            .filter(is_changed)
            .collect();
            state.open_gates(&changed);
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
        let mut added = self
            .shared
            .added
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
        let mut gate = |kind: GateKind| gates.known_or_new(kind, spec, shared);
        Arc::new(TargetState {
            target: Arc::clone(&spec.target),
            slots: Slots::new(&spec.concurrency),
            circuit: Mutex::new(Circuit::new(Arc::clone(&spec.circuit))),
            rate: gate(GateKind::Rate),
            credential: gate(GateKind::Credential),
            configuration: gate(GateKind::Configuration),
            budget: Mutex::new(RetryBudget::new(shared.budget.clone(), now)),
            health: Mutex::default(),
            latency: Mutex::new(Latency::new()),
            whole: Mutex::new(Latency::new()),
            hedges: Mutex::new(HedgeShare::new(now)),
            note_refused: AtomicBool::new(false),
            known_since: (now, clock::wall_now()),
            causes: Mutex::default(),
            changed: Notify::new(),
            events: self.shared.events.clone(),
        })
    }

    /// What is known of a target.
    pub fn state(&self, target: &TargetId) -> Option<Arc<TargetState>> {
        self.shared.states.load().get(target).map(Arc::clone)
    }

    /// Every target, by name.
    pub fn all(&self) -> Vec<Arc<TargetState>> {
        let mut all: Vec<_> = self.shared.states.load().values().map(Arc::clone).collect();
        all.sort_by(|a, b| a.target.id.cmp(&b.target.id));
        all
    }

    /// Pays for an attempt beyond the first; `None` when the budget is empty.
    pub fn reserve(&self, payer: &TargetId, cost: Cost, now: Instant) -> Option<Reserved> {
        let state = self.state(payer)?;
        let reservation = state.budget().reserve(now, cost)?;
        Some(Reserved {
            state,
            reservation: Some(reservation),
        })
    }

    /// Credits a first attempt that succeeded.
    pub fn first_try_succeeded(&self, target: &TargetId) {
        if let Some(state) = self.state(target) {
            state.budget().first_try_succeeded(Instant::now());
        }
    }

    /// What is left in a target's budget and what it holds when it is full, in tokens.
    pub fn budget(&self, target: &TargetId, now: Instant) -> (f64, f64) {
        self.state(target).map_or((0.0, 0.0), |state| {
            (state.budget_left(now), state.budget_capacity())
        })
    }

    /// What is left in a target's budget, as a share of what it holds when it is full.
    pub fn budget_share(&self, target: &TargetId, now: Instant) -> f64 {
        let (left, capacity) = self.budget(target, now);
        if capacity > 0.0 { left / capacity } else { 0.0 }
    }

    /// What is left in every target's budget, in tokens.
    pub fn budgets(&self) -> Vec<(TargetId, f64)> {
        let now = Instant::now();
        self.all()
            .iter()
            .map(|state| (state.target.id.clone(), state.budget_left(now)))
            .collect()
    }
}

/// What was paid for one attempt. Dropped without a word, the attempt was never made and the price
/// comes back.
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
            self.state.budget().settle(reservation, how, Instant::now());
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.end(Settled::NotUsed);
    }
}

/// The settings that decide whether what closed a gate is gone: of the credential, and of what
/// model it is used for.
fn settings_of(kind: GateKind, spec: &TargetSpec) -> u64 {
    let mut hasher = DefaultHasher::new();
    spec.settings.hash(&mut hasher);
    if kind == GateKind::Configuration {
        (&spec.target.model, &spec.target.endpoint).hash(&mut hasher);
    }
    hasher.finish()
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
