//! Replicas with real circuits and gates, in one process and in virtual time.

mod evidence;
mod faults;
mod shared_gates;
mod versions;
mod words;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use relight_policy::{
    domain::{
        circuit::GateKind,
        failure::{Failure, FailureClass, Wait, WaitSource},
    },
    policy::{
        circuit::{
            Circuit, CircuitPolicy, CircuitState, FailKind, Forced, ReportContext, SharedPhase,
            Signal,
        },
        gates::{Gate, GatePolicy},
    },
};
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use crate::{
    core::{FleetEffect, LocalCircuit, LocalFact},
    exchange::{Exchange, Fleet, FleetStatus, LocalReplica},
    fact::{FactSubject, FleetMember, OperatorOrder, OperatorWord},
    memory::MemoryStore,
};

/// Time within which every replica knows (F3).
const KNOWN: Duration = Duration::from_millis(500);

/// One target and one account, as one replica has them.
#[derive(Debug)]
struct PlayedFleet {
    circuit: Mutex<Circuit>,
    gate: Mutex<Gate>,
    moved: Arc<Notify>,
    words: Mutex<Vec<OperatorWord>>,
    statuses: Mutex<Vec<FleetStatus>>,
}

/// A replica; its task ends with it.
struct Replica {
    world: Arc<PlayedFleet>,
    fleet: Fleet,
    _task: JoinSet<()>,
}

fn target() -> FactSubject {
    FactSubject("circuit:target".to_owned())
}

fn account() -> FactSubject {
    FactSubject("gate:credential:account".to_owned())
}

impl PlayedFleet {
    fn settled(&self) -> (Option<SharedPhase>, Duration) {
        let now = Instant::now();
        let circuit = self.circuit.lock();
        let retry_in = circuit.snapshot(now).retry_in.unwrap_or_default();
        (circuit.shared_phase(), retry_in)
    }
}

impl LocalReplica for PlayedFleet {
    fn facts(&self, now: Instant) -> Vec<LocalFact> {
        let (phase, retry_in) = self.settled();
        let policy = Arc::new(self.circuit.lock().policy().clone());
        let window = self.circuit.lock().shared_window(now);
        vec![
            LocalFact::Gate {
                subject: account(),
                closing: self.gate.lock().shared(now),
            },
            LocalFact::Circuit(LocalCircuit {
                subject: target(),
                policy,
                phase,
                retry_in,
                window,
            }),
        ]
    }

    fn apply(&self, effect: FleetEffect, now: Instant) {
        match effect {
            FleetEffect::CloseGate(_, closing) => drop(self.gate.lock().close_as(now, &closing)),
            FleetEffect::StayBack(_, back) => self.gate.lock().stay_back(back),
            FleetEffect::OpenGate(_) => drop(self.gate.lock().open_as(now)),
            FleetEffect::OpenCircuit(_, together, retry_in) => {
                drop(self.circuit.lock().open_with(now, 0.5, together, retry_in));
            }
            FleetEffect::StayOpen(_, wait) => self.circuit.lock().stay_open(now + wait),
            FleetEffect::Recover(_, phase) => drop(self.circuit.lock().recover_as(phase, now)),
            FleetEffect::Operate(_, word) => {
                if let OperatorOrder::Force(forced) = word.order {
                    self.circuit.lock().force(forced, now);
                } else {
                    self.circuit.lock().reset(now);
                }
                self.words.lock().push(word);
            }
        }
        self.moved.notify_one();
    }

    fn moved(&self) -> Arc<Notify> {
        Arc::clone(&self.moved)
    }

    fn changed(&self, status: &FleetStatus) {
        self.statuses.lock().push(status.clone());
    }
}

impl Replica {
    fn start(name: &str, store: &MemoryStore) -> Self {
        Self::with(name, store, CircuitPolicy::default())
    }

    fn with(name: &str, store: &MemoryStore, policy: CircuitPolicy) -> Self {
        let gate = Gate::new(GateKind::Credential, Arc::new(GatePolicy::default()));
        let world = Arc::new(PlayedFleet {
            circuit: Mutex::new(Circuit::new(Arc::new(policy))),
            gate: Mutex::new(gate),
            moved: Arc::default(),
            words: Mutex::default(),
            statuses: Mutex::default(),
        });
        let me = FleetMember {
            id: name.to_owned(),
            name: name.to_owned(),
            ..FleetMember::default()
        };
        let (exchange, fleet) = Exchange::new(
            Arc::new(store.clone()),
            me,
            Arc::clone(&world) as Arc<dyn LocalReplica>,
        );
        let mut task = JoinSet::new();
        task.spawn(exchange.run());
        Self {
            world,
            fleet,
            _task: task,
        }
    }

    fn state(&self) -> CircuitState {
        self.world.circuit.lock().state()
    }

    fn gate_is_closed(&self) -> bool {
        self.world.gate.lock().closed_since().is_some()
    }

    /// A call; returns whether it reached the target, which is well or not.
    fn call(&self, is_well: bool) -> bool {
        let now = Instant::now();
        let admitted = self.world.circuit.lock().admit(now, 0.5);
        let Ok(permit) = admitted else {
            return false;
        };
        let signal = if is_well {
            Signal::FirstToken
        } else {
            Signal::Failed {
                kind: FailKind::Fast,
                retry_after: None,
                local_origin: false,
            }
        };
        let context = ReportContext {
            now,
            rng: 0.5,
            alternative_healthy: false,
        };
        self.world.circuit.lock().report(&permit, signal, context);
        self.world.moved.notify_one();
        true
    }

    /// A call by the account; returns whether it reached the provider, which takes it or not.
    fn call_by_account(&self, is_taken: bool, wait: Option<Duration>) -> bool {
        let now = Instant::now();
        let passed = self.world.gate.lock().admit(now, &"t".into(), false);
        let Ok(pass) = passed else { return false };
        if is_taken {
            self.world.gate.lock().succeeded(now, pass.call);
        } else {
            let failure = Failure {
                retry_after: wait.map(|duration| Wait {
                    duration,
                    source: WaitSource::RetryAfter,
                }),
                ..Failure::local(FailureClass::Authentication, "refused")
            };
            self.world.gate.lock().refused(now, pass.call, &failure);
        }
        self.world.moved.notify_one();
        true
    }

    fn say(&self, order: OperatorOrder) {
        if let OperatorOrder::Force(forced) = order {
            self.world.circuit.lock().force(forced, Instant::now());
        }
        let word = OperatorWord {
            id: uuid::Uuid::now_v7().to_string(),
            epoch: 0,
            order,
            operator: None,
            reason: "a test".to_owned(),
        };
        self.fleet.say(target(), word);
    }
}

/// Three replicas that know each other.
async fn three(store: &MemoryStore) -> [Replica; 3] {
    let replicas = ["a", "b", "c"].map(|name| Replica::start(name, store));
    tokio::time::sleep(KNOWN).await;
    for replica in &replicas {
        assert_eq!(replica.fleet.status().live.len(), 3);
    }
    replicas
}

fn by_state(replicas: &[Replica]) -> BTreeMap<CircuitState, usize> {
    let mut states = BTreeMap::new();
    for replica in replicas {
        *states.entry(replica.state()).or_default() += 1;
    }
    states
}
