//! Connects a core, a store, and a running Relight.
//!
//! One task looks at the state of this replica whenever something moved there, reads the store at
//! each hint and a few times a second, and does what the core decides. Nobody waits for it: a call
//! reads what the task left behind.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use crate::{
    core::{FleetCore, FleetEffect, LocalFact, StepInput, StepOutcome},
    fact::{FactSubject, FleetMember, OperatorWord},
    speed::{PROBE_PATIENCE, StoreSpeed, timed},
    store::{FleetStore, FleetStoreError, ProbeLease, RecordWrite},
};

/// Time between two looks at the store while hints may be lost.
pub const POLL: Duration = Duration::from_millis(250);
/// Time between two looks at this replica's state while something is being published.
const LOOK: Duration = Duration::from_millis(100);
/// Shortest time between two looks, however much moves.
const SHORTEST: Duration = Duration::from_millis(20);
/// Longest time that an operation may take before the store counts as away.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time until the store is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// The running Relight, as its fleet sees it.
pub trait LocalReplica: Send + Sync + 'static {
    /// Returns the state of all gates and circuits.
    fn facts(&self, now: Instant) -> Vec<LocalFact>;

    /// Does what the fleet decided.
    fn apply(&self, effect: FleetEffect, now: Instant);

    /// Returns the notice that something moved.
    fn moved(&self) -> Arc<Notify>;

    /// The store was lost or found again or became slow or quick, or replicas came or went.
    fn changed(&self, status: &FleetStatus);
}

/// Knowledge that this replica has of its fleet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetStatus {
    /// The reason why the store cannot be reached; `None` if it can.
    pub away: Option<String>,
    /// `true` if the store responds later than a probe waits for it, so that probes are decided
    /// alone.
    pub is_slow: bool,
    /// `true` if the store was read at least once.
    pub is_known: bool,
    /// Live replicas by id, this one with them.
    pub live: Vec<FleetMember>,
    /// Replicas that alone cannot reach a target: its subject, and the replica's id.
    pub alone: Vec<(FactSubject, String)>,
}

/// Access to the fleet from the rest of Relight; cheap to clone.
#[derive(Clone)]
pub struct Fleet {
    store: Arc<dyn FleetStore>,
    words: mpsc::UnboundedSender<(FactSubject, OperatorWord)>,
    status: watch::Receiver<FleetStatus>,
}

/// The task that keeps a replica and its store together.
pub struct Exchange {
    core: FleetCore,
    store: Arc<dyn FleetStore>,
    local: Arc<dyn LocalReplica>,
    words: mpsc::UnboundedReceiver<(FactSubject, OperatorWord)>,
    status: watch::Sender<FleetStatus>,
    hinted: Arc<Notify>,
    speed: StoreSpeed,
}

// === impl Exchange ===

impl Exchange {
    /// An exchange that is not running yet, and the access to it.
    pub fn new(
        store: Arc<dyn FleetStore>,
        me: FleetMember,
        local: Arc<dyn LocalReplica>,
    ) -> (Self, Fleet) {
        let (say, words) = mpsc::unbounded_channel();
        let first = FleetStatus {
            live: vec![me.clone()],
            ..FleetStatus::default()
        };
        let (status, seen) = watch::channel(first);
        let fleet = Fleet {
            store: Arc::clone(&store),
            words: say,
            status: seen,
        };
        let exchange = Self {
            core: FleetCore::new(me),
            store,
            local,
            words,
            status,
            hinted: Arc::default(),
            speed: StoreSpeed::default(),
        };
        (exchange, fleet)
    }

    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let hinted = Arc::clone(&self.hinted);
        let store = Arc::clone(&self.store);
        let listening = async move {
            loop {
                let error = store.listen(&|| hinted.notify_one()).await;
                tracing::debug!(%error, "hints from the other replicas do not come");
                tokio::time::sleep(AGAIN).await;
            }
        };
        tokio::select! {
            // In order, so that a simulation can be repeated.
            biased;
            () = listening => {}
            () = self.exchange() => {}
        }
    }

    async fn exchange(&mut self) {
        let moved = self.local.moved();
        let hinted = Arc::clone(&self.hinted);
        let mut read_at = Instant::now();
        loop {
            let now = Instant::now();
            let is_due = now >= read_at;
            let wait = if is_due {
                Duration::ZERO
            } else if self.core.is_busy() {
                LOOK.min(read_at - now)
            } else {
                read_at - now
            };
            let mut word = None;
            let mut is_hint = false;
            tokio::select! {
                biased;
                spoke = self.words.recv() => word = spoke,
                () = hinted.notified() => is_hint = true,
                () = moved.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
            let read = if is_due || is_hint {
                let read = self.read().await;
                read_at = Instant::now() + if read { POLL } else { AGAIN };
                read
            } else {
                true
            };
            let written = self.look(word).await;
            if read && !written {
                read_at = Instant::now() + AGAIN;
            }
            self.show();
            tokio::time::sleep(SHORTEST).await;
        }
    }

    /// Reads the store; returns whether it could be read and, if it was away, written.
    async fn read(&mut self) -> bool {
        let (read, speed) = timed(in_time(self.store.snapshot())).await;
        match read {
            Ok(records) => {
                self.speed.count(speed);
                let now = Instant::now();
                let outcome = self.core.step(StepInput::Snapshot(records), now);
                if self.status.borrow().away.is_some() {
                    return self.find(outcome, now).await;
                }
                self.found();
                self.finish(outcome).await
            }
            Err(error) => {
                self.lost(error);
                false
            }
        }
    }

    /// Publishes anew at a store that can be read again. One that is full or may only be read is
    /// away still.
    async fn find(&mut self, learnt: StepOutcome, now: Instant) -> bool {
        self.apply(learnt.effects);
        let own = self.core.step(StepInput::Local(self.local.facts(now)), now);
        self.apply(own.effects);
        let writes = [learnt.writes, own.writes].concat();
        let is_written = self.write(&writes, true).await;
        if is_written {
            self.found();
        }
        is_written
    }

    /// Looks at this replica's state, and publishes what is news; returns whether it could.
    async fn look(&mut self, word: Option<(FactSubject, OperatorWord)>) -> bool {
        let mut is_written = true;
        if let Some((subject, word)) = word {
            let outcome = self
                .core
                .step(StepInput::Operator(subject, word), Instant::now());
            is_written &= self.finish(outcome).await;
        }
        let now = Instant::now();
        let facts = self.local.facts(now);
        let outcome = self.core.step(StepInput::Local(facts), now);
        is_written & self.finish(outcome).await
    }

    /// Does what a step decided; returns whether its records were written.
    async fn finish(&mut self, outcome: StepOutcome) -> bool {
        self.apply(outcome.effects);
        if self.status.borrow().away.is_some() {
            return true;
        }
        self.write(&outcome.writes, outcome.is_news).await
    }

    /// Writes records; returns whether they are known to be kept.
    async fn write(&mut self, writes: &[RecordWrite], is_news: bool) -> bool {
        if writes.is_empty() {
            return true;
        }
        let (written, speed) = timed(in_time(self.store.publish(writes, is_news))).await;
        match written {
            Ok(()) => {
                self.speed.count(speed);
                true
            }
            Err(error) => {
                self.lost(error);
                false
            }
        }
    }

    fn apply(&self, effects: Vec<FleetEffect>) {
        let now = Instant::now();
        for effect in effects {
            tracing::debug!(?effect, "the other replicas decide");
            // Whoever probes alone does so at a moment of its own: all would be due at one.
            let effect = match effect {
                FleetEffect::StayOpen(..) if self.speed.is_slow() => continue,
                FleetEffect::OpenCircuit(subject, together, _) if self.speed.is_slow() => {
                    FleetEffect::OpenCircuit(subject, together, None)
                }
                effect => effect,
            };
            self.local.apply(effect, now);
        }
    }

    fn found(&mut self) {
        let was_away = self.status.borrow().away.is_some();
        self.status.send_if_modified(|status| {
            let is_news = was_away || !status.is_known;
            status.away = None;
            status.is_known = true;
            is_news
        });
        if was_away {
            self.local.changed(&self.status.borrow().clone());
        }
    }

    fn lost(&mut self, error: FleetStoreError) {
        let outcome = self.core.step(StepInput::Lost, Instant::now());
        self.apply(outcome.effects);
        let was_away = self.status.borrow().away.is_some();
        self.status.send_modify(|status| {
            status.away = Some(error.0);
            status.alone.clear();
            status.live = self.core.live().cloned().collect();
        });
        if !was_away {
            self.local.changed(&self.status.borrow().clone());
        }
    }

    /// Shows who lives and whether the store is slow, if that changed.
    fn show(&mut self) {
        let live: Vec<FleetMember> = self.core.live().cloned().collect();
        let alone: Vec<(FactSubject, String)> = self
            .core
            .alone()
            .map(|(subject, id)| (subject.clone(), id.to_owned()))
            .collect();
        let is_slow = self.speed.is_slow();
        let is_news = self.status.send_if_modified(|status| {
            let is_news = status.live != live || status.alone != alone || status.is_slow != is_slow;
            status.live = live;
            status.alone = alone;
            status.is_slow = is_slow;
            is_news
        });
        if is_news {
            self.local.changed(&self.status.borrow().clone());
        }
    }
}

// === impl FleetStatus ===

impl FleetStatus {
    /// Returns whether this replica decides its probes alone, and so pays for all of them.
    pub fn probes_alone(&self) -> bool {
        self.is_slow || self.away.is_some()
    }

    /// Returns what is wrong with the store, if anything is.
    pub fn trouble(&self) -> Option<String> {
        let slow = || format!("it responds later than the {PROBE_PATIENCE:?} that a probe waits");
        self.away.clone().or_else(|| self.is_slow.then(slow))
    }
}

// === impl Fleet ===

impl Fleet {
    /// Tells the other replicas what an operator demanded, and those that start later.
    pub fn say(&self, subject: FactSubject, word: OperatorWord) {
        // Without its task the process ends.
        let _ = self.words.send((subject, word));
    }

    /// Returns what is known of the fleet.
    pub fn status(&self) -> FleetStatus {
        self.status.borrow().clone()
    }

    /// Returns what is known of the fleet, now and as it changes.
    pub fn watch(&self) -> watch::Receiver<FleetStatus> {
        self.status.clone()
    }

    /// Returns the name of the store's engine.
    pub fn engine(&self) -> &'static str {
        self.store.engine()
    }

    /// Waits until the words of operators are known, or until this time is over.
    pub async fn known(&self, patience: Duration) {
        let mut status = self.status.clone();
        let known = status.wait_for(|status| status.is_known);
        let _ = tokio::time::timeout(patience, known).await;
    }

    /// Takes a place for a probe; `None` if the store does not respond in time: the caller then
    /// decides alone.
    pub async fn lease(&self, lease: &ProbeLease) -> Option<Result<(), Duration>> {
        if self.status.borrow().probes_alone() {
            return None;
        }
        let taken = tokio::time::timeout(PROBE_PATIENCE, self.store.lease(lease)).await;
        taken.ok()?.ok()
    }

    /// Gives a place back.
    pub async fn release(&self, lease: &ProbeLease) {
        // It is free when its time is over, at the latest.
        let _ = in_time(self.store.release(lease)).await;
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet")
            .field("engine", &self.engine())
            .field("status", &*self.status.borrow())
            .finish_non_exhaustive()
    }
}

async fn in_time<T>(
    operation: impl Future<Output = Result<T, FleetStoreError>>,
) -> Result<T, FleetStoreError> {
    tokio::time::timeout(PATIENCE, operation)
        .await
        .unwrap_or_else(|_| Err(FleetStoreError(format!("no response within {PATIENCE:?}"))))
}
