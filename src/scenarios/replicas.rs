//! The replicas of a scenario: in one process, with a store in memory whose faults are scripted.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use relight_fleet::{FleetMember, MemoryStore, memory::StoreFaults};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    arrivals::ExpectedCall,
    call::CallResult,
    load::LoadGenerator,
    observed::{Observed, listen},
    spec::{Scenario, StoreDoes, StoreFault},
    upstream::World,
};
use crate::{domain::ids::Cursor, events::EventBus, fleet::Replicas};

/// A store that is well: it is one host away.
const WELL: StoreFaults = StoreFaults {
    away: false,
    delay: Duration::from_millis(2),
    silent: false,
    full: false,
    ahead: Duration::ZERO,
};
/// Time between two moments at which a forgetful store forgets.
const FORGETS: Duration = Duration::from_secs(1);

/// The replicas of a run.
pub(super) struct SimulatedReplicas {
    scenario: Arc<Scenario>,
    seed: u64,
    began: Instant,
    world: World,
    /// `None` if each is alone.
    store: Option<MemoryStore>,
    observed: Arc<Mutex<Observed>>,
    /// Those that calls come to.
    current: Mutex<Vec<ReplicaProcess>>,
    /// The callers of all that were ever started.
    all: Mutex<Vec<Arc<LoadGenerator>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// One process of a replica.
struct ReplicaProcess {
    callers: Arc<LoadGenerator>,
    /// What connects it with the others ends with it.
    _joined: JoinSet<()>,
}

// === impl SimulatedReplicas ===

impl SimulatedReplicas {
    /// Starts all of them, with or without a store.
    pub(super) async fn start(
        scenario: &Arc<Scenario>,
        seed: u64,
        world: World,
        is_shared: bool,
    ) -> Arc<Self> {
        let store = (is_shared && scenario.replicas > 1).then(MemoryStore::default);
        let replicas = Arc::new(Self {
            scenario: Arc::clone(scenario),
            seed,
            began: Instant::now(),
            world,
            store,
            observed: Arc::default(),
            current: Mutex::default(),
            all: Mutex::default(),
            tasks: Mutex::default(),
        });
        if let Some(store) = &replicas.store {
            store.set_faults(WELL);
            let faults = scenario.store.clone();
            let script = play(store.clone(), faults, replicas.began + scenario.warm);
            replicas.tasks.lock().spawn(script);
        }
        let processes = (0..scenario.replicas).map(|number| replicas.process(number));
        let processes = join_all(processes).await;
        *replicas.current.lock() = processes;
        for restart in &scenario.restarts {
            let at = replicas.began + scenario.warm + restart.to;
            let replica = restart.replica;
            let among = Arc::clone(&replicas);
            replicas.tasks.lock().spawn(async move {
                sleep_until(at).await;
                let new = among.process(replica).await;
                if let Some(old) = among.current.lock().get_mut(replica) {
                    *old = new;
                }
            });
        }
        replicas
    }

    /// Starts a process of a replica.
    async fn process(&self, replica: usize) -> ReplicaProcess {
        let number = self.all.lock().len();
        let id = format!("replica-{replica:02}-{number:02}");
        let events = EventBus::new(4096);
        let world = self.world.at(replica);
        let callers = LoadGenerator::new(&self.scenario, self.seed, &id, events.clone(), world);
        let callers = Arc::new(callers);
        self.all.lock().push(Arc::clone(&callers));
        let reader = events.reader(Cursor(0));
        {
            let mut tasks = self.tasks.lock();
            tasks.spawn(listen(
                reader,
                replica,
                self.began,
                Arc::clone(&self.observed),
            ));
            tasks.spawn(Arc::clone(&callers).reload(self.began));
        }
        let mut joined = JoinSet::new();
        if let Some(store) = &self.store {
            let me = FleetMember {
                name: id.clone(),
                id,
                ..FleetMember::default()
            };
            let host = Arc::clone(&callers);
            Replicas::at(Arc::new(store.clone()), host, me, &mut joined).await;
        }
        ReplicaProcess {
            callers,
            _joined: joined,
        }
    }

    /// Makes a call at its replica.
    pub(super) async fn call(&self, arrival: ExpectedCall, number: usize) -> CallResult {
        let callers = {
            let current = self.current.lock();
            // A run at one replica has the calls of all.
            let place = arrival.replica.min(current.len().saturating_sub(1));
            current
                .get(place)
                .map(|process| Arc::clone(&process.callers))
        };
        match callers {
            Some(callers) => callers.call(arrival, number, self.began).await,
            None => CallResult::gone(number, self.began),
        }
    }

    /// Ends all of them; returns what was observed, and the number of reports that came too late to
    /// count.
    pub(super) async fn end(&self) -> (Observed, u64) {
        let stale = self.all.lock().iter().map(|callers| callers.stale()).sum();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.shutdown().await;
        self.current.lock().clear();
        (std::mem::take(&mut *self.observed.lock()), stale)
    }
}

/// Plays the faults of the store, one after the other.
async fn play(store: MemoryStore, faults: Vec<StoreFault>, start: Instant) {
    for fault in faults {
        sleep_until(start + fault.from).await;
        match fault.does {
            StoreDoes::Away => store.set_faults(StoreFaults { away: true, ..WELL }),
            StoreDoes::Slow { delay } => store.set_faults(StoreFaults { delay, ..WELL }),
            StoreDoes::Clock { ahead } => store.set_faults(StoreFaults { ahead, ..WELL }),
            StoreDoes::Forget => {
                while Instant::now() < start + fault.to {
                    store.forget();
                    sleep(FORGETS).await;
                }
            }
        }
        sleep_until(start + fault.to).await;
        store.set_faults(WELL);
    }
}
