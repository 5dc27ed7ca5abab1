//! The circuits and gates of the running engine, as the fleet sees and moves them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use relight_fleet::{
    FactSubject, FleetEffect, FleetMember, FleetStatus, LocalFact, LocalReplica, OperatorOrder,
    OperatorWord,
};
use tokio::{sync::Notify, time::Instant};

use super::{
    FleetHost,
    identity::{Identities, SubjectPart},
    store_event,
};
use crate::{
    domain::{
        circuit::GateKind,
        clock,
        failure::{FailureClass, WaitSource},
    },
    layers::targets::{KeyState, ReplicaPart, TargetState},
    policy::{circuit::Transition, gates::ReplicaPlace},
};

/// The targets of this replica.
pub(super) struct LocalTargets {
    host: Arc<dyn FleetHost>,
    /// Id of this replica.
    id: Arc<str>,
    identities: Arc<Identities>,
    reported: Mutex<Reported>,
    /// Time at which the store was last lost or found.
    since: Arc<Mutex<Option<Timestamp>>>,
    /// Words about targets that are not in use here yet.
    pending: Mutex<HashMap<FactSubject, OperatorWord>>,
}

/// State that was reported last.
#[derive(Debug, Default)]
struct Reported {
    trouble_since: Option<Instant>,
    is_away: bool,
    is_slow: bool,
    live: Vec<FleetMember>,
    part: ReplicaPart,
}

// === impl LocalTargets ===

impl LocalTargets {
    pub(super) fn new(
        host: Arc<dyn FleetHost>,
        id: Arc<str>,
        identities: Arc<Identities>,
        since: Arc<Mutex<Option<Timestamp>>>,
    ) -> Self {
        Self {
            host,
            id,
            identities,
            reported: Mutex::default(),
            since,
            pending: Mutex::default(),
        }
    }

    fn states(&self, subject: &FactSubject) -> Vec<(Arc<TargetState>, SubjectPart)> {
        let parts = self.identities.targets(subject).into_iter();
        parts
            .filter_map(|part| Some((self.host.targets().state(&part.target)?, part)))
            .collect()
    }

    fn on_gates(
        &self,
        subject: &FactSubject,
        act: impl Fn(&Arc<TargetState>, &Arc<KeyState>, GateKind),
    ) {
        for (state, part) in self.states(subject) {
            let keys = state.keys();
            let key = keys
                .iter()
                .find(|key| key.target.credential == part.credential);
            if let (Some(key), Some(kind)) = (key, part.gate) {
                act(&state, key, kind);
            }
        }
    }

    fn on_circuits(
        &self,
        subject: &FactSubject,
        act: impl Fn(&Arc<TargetState>) -> Vec<Transition>,
    ) {
        for (state, _) in self.states(subject) {
            let transitions = act(&state);
            state.moved(transitions, None);
        }
    }
}

impl LocalReplica for LocalTargets {
    fn facts(&self, now: Instant) -> Vec<LocalFact> {
        let mut gates = BTreeMap::new();
        let mut circuits = Vec::new();
        let mut seen = BTreeSet::new();
        for state in self.host.targets().all() {
            for key in state.keys().iter() {
                let Some(subjects) = self.identities.of(&key.target) else {
                    continue;
                };
                let word = self.pending.lock().remove(&subjects.word);
                if let Some(word) = word {
                    operate(&state, &word);
                }
                for (kind, subject) in GateKind::ALL.into_iter().zip(&subjects.gates) {
                    let closing = key.gate(kind).shared(now);
                    // Targets of one account share a gate, which is looked at once; if one of
                    // several is closed, that counts.
                    let known = gates.entry(subject.clone()).or_insert(None);
                    *known = known.take().or(closing);
                }
                if seen.insert(subjects.circuit.clone()) {
                    circuits.push(state.shared_circuit(subjects.circuit.clone(), now));
                }
            }
        }
        let gates = gates
            .into_iter()
            .map(|(subject, closing)| LocalFact::Gate { subject, closing });
        gates.chain(circuits).collect()
    }

    fn apply(&self, effect: FleetEffect, now: Instant) {
        match effect {
            FleetEffect::CloseGate(subject, closing) => {
                self.on_gates(&subject, |state, key, kind| {
                    let change = key.gate(kind).close_as(now, &closing);
                    state.gate_moved(key, kind, change, closing.class, WaitSource::Gate);
                });
            }
            FleetEffect::StayBack(subject, back) => {
                self.on_gates(&subject, |_, key, kind| key.gate(kind).stay_back(back));
            }
            FleetEffect::OpenGate(subject) => self.on_gates(&subject, |state, key, kind| {
                let change = key.gate(kind).open_as(now);
                state.gate_moved(key, kind, change, FailureClass::Unknown, WaitSource::Gate);
            }),
            FleetEffect::OpenCircuit(subject, together, retry_in) => {
                self.on_circuits(&subject, |state| {
                    let mut circuit = state.circuit();
                    circuit.open_with(now, self.host.dice(), together, retry_in)
                });
            }
            FleetEffect::StayOpen(subject, wait) => self.on_circuits(&subject, |state| {
                state.circuit().stay_open(now + wait);
                state.observed.health().failed_elsewhere(now);
                Vec::new()
            }),
            FleetEffect::Recover(subject, phase) => {
                self.on_circuits(&subject, |state| state.circuit().recover_as(phase, now));
            }
            FleetEffect::Operate(subject, word) => self.operate(subject, word),
        }
    }

    fn moved(&self) -> Arc<Notify> {
        self.host.targets().moved()
    }

    fn changed(&self, status: &FleetStatus) {
        let mut reported = self.reported.lock();
        let now = Instant::now();
        reported.log_store(status);
        let lost_for = match (status.trouble(), reported.trouble_since) {
            (Some(_), None) => {
                reported.trouble_since = Some(now);
                Some(Duration::ZERO)
            }
            (None, Some(at)) => {
                reported.trouble_since = None;
                Some(now - at)
            }
            (Some(_), Some(_)) | (None, None) => None,
        };
        if let Some(lost_for) = lost_for {
            *self.since.lock() = Some(clock::wall_now());
            let event = store_event(status, lost_for);
            self.host.events().publish(None, 0, None, event);
        }
        let place = place_of(&self.id, &status.live);
        let part = ReplicaPart {
            place,
            probes_alone: status.probes_alone(),
        };
        if reported.part != part {
            self.host.targets().share_with(part);
            reported.part = part;
        }
        if reported.live != status.live {
            let replicas = place.live;
            self.host.share_limits(1.0 / f64::from(replicas));
            tracing::info!(replicas, "the live replicas of the fleet");
            reported.live.clone_from(&status.live);
        }
    }
}

impl Reported {
    /// Logs that the store was lost or found, or became slow or quick.
    fn log_store(&mut self, status: &FleetStatus) {
        if self.is_away != status.away.is_some() {
            self.is_away = status.away.is_some();
            if let Some(reason) = &status.away {
                tracing::warn!(
                    reason,
                    "the store of the fleet is away: this replica decides alone"
                );
            } else {
                tracing::info!("the store of the fleet is back");
            }
        }
        if self.is_slow != status.is_slow {
            self.is_slow = status.is_slow;
            if self.is_slow {
                tracing::warn!("the store of the fleet is slow: this replica probes alone");
            } else {
                tracing::info!("the store of the fleet is quick again");
            }
        }
    }
}

impl LocalTargets {
    fn operate(&self, subject: FactSubject, word: OperatorWord) {
        let states = self.states(&subject);
        for (state, _) in &states {
            operate(state, &word);
        }
        if states.is_empty() {
            self.pending.lock().insert(subject, word);
        }
    }
}

/// Returns the place of this replica among those that live.
fn place_of(id: &str, live: &[FleetMember]) -> ReplicaPlace {
    let rank = live.iter().position(|member| member.id == id);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    ReplicaPlace {
        rank: count(rank.unwrap_or_default()),
        live: count(live.len().max(1)),
    }
}

fn operate(state: &Arc<TargetState>, word: &OperatorWord) {
    tracing::info!(
        target_id = %state.target.id,
        order = ?word.order,
        operator = word.operator.as_deref().unwrap_or("not identified"),
        reason = word.reason,
        "an operator spoke to another replica"
    );
    match word.order {
        OperatorOrder::Force(forced) => {
            state.force(forced, word.operator.as_deref(), &word.reason);
        }
        OperatorOrder::Reset => state.reset(),
    }
}

/// View of a target by the fleet.
trait SharedCircuit {
    /// Returns the state of its circuit.
    fn shared_circuit(&self, subject: FactSubject, now: Instant) -> LocalFact;
}

impl SharedCircuit for TargetState {
    fn shared_circuit(&self, subject: FactSubject, now: Instant) -> LocalFact {
        let mut circuit = self.circuit();
        let window = circuit.shared_window(now);
        LocalFact::Circuit(relight_fleet::core::LocalCircuit {
            subject,
            policy: circuit.shared_policy(),
            phase: circuit.shared_phase(),
            retry_in: circuit.snapshot(now).retry_in.unwrap_or_default(),
            window,
        })
    }
}
