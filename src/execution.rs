//! Running invocations: they belong to this replica, not to the call that started them.
//!
//! An invocation is started once, numbered step by step, recorded in the journal, and followed by
//! any number of clients at their own pace: the first one, one that repeats its request id, one
//! that comes back after its connection broke, also to another replica. When the last client
//! leaves, the invocation is cancelled, unless it was to continue. When its replica dies, another
//! one takes it over. Unary calls and streams are the same here.
//!
//! This module does not know gRPC, and never decides how to recover: the engine below does.

mod abandoned;
mod append_only;
mod checkpoint;
mod delivery_filter;
mod driver;
mod find;
mod follower;
mod idle_timer;
mod journal_health;
mod journal_queue;
mod journal_use;
mod launch;
mod leases;
mod live;
mod lost;
mod maintenance;
mod recorder;
mod rejoin;
mod releases;
mod replay_buffer;
mod replica_tasks;
mod run;
mod start;
mod steadiness;
mod takeover;
mod thread_queue;
mod tool_memory;
mod upstream;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;

pub use self::{
    follower::{Follower, StreamItem},
    idle_timer::IdleTimer,
    journal_health::JournalHealth,
    lost::Lost,
    releases::Releases,
    start::{Disposition, Started},
};
use self::{
    journal_use::JournalUse, leases::Leases, live::Execution, replica_tasks::ReplicaTasks,
    thread_queue::ThreadQueues,
};
use crate::{
    domain::ids::{InvocationId, RequestId},
    engine::Engine,
    journal::{
        CancelWish, Compacted, Held, Journal, JournalConfig, JournalError, JournalMode, LEASE,
        Owner, Record, Stats, StoreHealth,
    },
};

/// Time for which a taken-over invocation waits for its client to come back: a crash is not the
/// client's wish to leave.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(30);

/// Time for which the last steps of what still runs may be written when this replica ends.
const LEFT_WITHIN: Duration = Duration::from_millis(500);

/// Usual interval at which the journal's retention is applied.
const COMPACT_EVERY: Duration = Duration::from_mins(1);

/// Settings of how executions are kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Owner of the executions here; never the name of another process.
    pub owner: Owner,
    /// In what the journal is kept: `memory`, `sqlite` or `postgres`.
    pub store: &'static str,
    /// Mode of the journal: decides whether steps are recorded before they are published.
    pub mode: JournalMode,
    /// Time for which a lease is valid; renewed three times as often.
    pub lease: Duration,
    /// Time for which the events of a finished invocation are kept; zero if they are not.
    pub events_kept: Duration,
    /// Steps of all invocations that may wait to be recorded at once; at least 1.
    pub queue: usize,
    /// Bytes of the newest steps that a running invocation keeps for its readers.
    pub tail_bytes: usize,
    /// Invocations that may wait here for one thread on which another one runs; 0 refuses them at
    /// once.
    pub thread_queue: usize,
    /// Interval at which the journal's retention is applied.
    pub compact_every: Duration,
}

/// Amount that these executions hold at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExecutionLevels {
    /// Invocations that run here.
    pub running: usize,
    /// Steps that wait to be recorded.
    pub waiting: usize,
    /// Steps that were delivered but not recorded, since the start.
    pub dropped: u64,
    /// Invocations without a record because the journal was away, since the beginning.
    pub unrecorded: u64,
    /// Steps that are kept in memory for readers.
    pub tail_steps: usize,
    /// Roughly what they take, in bytes.
    pub tail_bytes: usize,
    /// Content of the journal after its newest compaction.
    pub kept: Stats,
    /// Total that all compactions removed since the start.
    pub removed: Compacted,
}

/// The running invocations of this replica; cheap to clone.
#[derive(Debug, Clone)]
pub struct Executions {
    shared: Arc<ExecutionShared>,
}

#[derive(Debug)]
struct ExecutionShared {
    engine: Engine,
    journal: Arc<dyn Journal>,
    releases: Releases,
    settings: Settings,
    running: Mutex<HashMap<InvocationId, Arc<Execution>>>,
    queues: Arc<ThreadQueues>,
    leases: Leases,
    journal_use: JournalUse,
    tasks: ReplicaTasks,
}

/// Name by which a caller refers to an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvocationName {
    /// By its id.
    Id(InvocationId),
    /// By its caller's id for it.
    Request(RequestId),
}

/// Result of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was uttered; the end follows.
    Accepted,
    /// It had ended before.
    Ended,
    /// There is no such invocation.
    Unknown,
}

// === impl Settings ===

impl Settings {
    /// The usual settings of a replica.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        let journal = JournalConfig::default();
        Self {
            owner,
            store: "memory",
            mode: journal.mode,
            lease: LEASE,
            events_kept: crate::journal::EVENTS_KEPT,
            queue: journal.queue,
            tail_bytes: usize::try_from(journal.tail_bytes).unwrap_or(usize::MAX),
            thread_queue: journal.thread_queue,
            compact_every: COMPACT_EVERY,
        }
    }
}

// === impl Executions ===

impl Executions {
    /// No executions yet.
    pub fn new(engine: Engine, journal: Arc<dyn Journal>, settings: Settings) -> Self {
        let shared = ExecutionShared {
            releases: Releases::new(engine.clone(), Arc::clone(&journal)),
            leases: Leases::new(settings.lease),
            journal_use: JournalUse::new(settings.queue),
            engine,
            journal,
            settings,
            running: Mutex::default(),
            queues: Arc::default(),
            tasks: ReplicaTasks::default(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns whether the journal can be reached, and since when.
    pub fn journal_standing(&self) -> JournalHealth {
        self.shared.journal_use.health()
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Returns the amount that the executions hold at this moment.
    pub fn levels(&self) -> ExecutionLevels {
        let running = self.shared.all();
        let tails = running.iter().map(|execution| execution.replay.held());
        let (tail_steps, tail_bytes) =
            tails.fold((0, 0), |sum, held| (sum.0 + held.0, sum.1 + held.1));
        let journal_use = &self.shared.journal_use;
        let (kept, removed) = journal_use.kept_and_removed();
        ExecutionLevels {
            kept,
            removed,
            running: running.len(),
            waiting: journal_use.queue.waiting(),
            dropped: journal_use.queue.dropped(),
            unrecorded: journal_use.unrecorded() + self.shared.journal.unrecorded(),
            tail_steps,
            tail_bytes,
        }
    }

    /// Renews leases, takes over what others left, applies the journal's retention, and judges
    /// releases, until it is dropped.
    pub async fn keep(self) {
        tokio::join!(maintenance::keep(&self.shared), self.shared.releases.keep());
    }

    /// Returns the releases of all subjects.
    pub fn releases(&self) -> &Releases {
        &self.shared.releases
    }

    /// Follows an invocation that the journal knows, after the step (epoch, number) that the
    /// follower has.
    pub fn follow(&self, record: &Record, after: Option<(u64, u64)>) -> Started {
        let mut started = self.shared.of_record(record);
        started.follower = Follower::new(Arc::clone(&self.shared), record.id.clone(), after);
        started
    }

    /// Requests an invocation's end, wherever it runs. `reason` is in plain words.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn cancel(&self, id: &InvocationId, reason: &str) -> Result<Cancelled, JournalError> {
        if let Some(execution) = self.shared.execution(id) {
            execution.links.cancel.cancel(reason);
            return Ok(Cancelled::Accepted);
        }
        match self.shared.journal.request_cancel(id).await? {
            CancelWish::Recorded => {
                // One that no replica executes is ended here.
                self.shared.take_over_orphan(id).await?;
                Ok(Cancelled::Accepted)
            }
            CancelWish::Finished => Ok(Cancelled::Ended),
            CancelWish::Unknown => Ok(Cancelled::Unknown),
        }
    }

    /// Stops whatever still runs without ending it, so that another replica continues it at once.
    pub async fn hand_over(&self) {
        self.shared.tasks.close();
        let held = self.shared.held();
        if let Err(error) = self.shared.synchronize_learning().await {
            tracing::debug!(%error, "what was learnt about tools last could not be kept");
        }
        for execution in self.shared.all() {
            self.shared.fence(&execution);
        }
        let mut tasks = self.shared.tasks.take();
        let left = async { while tasks.join_next().await.is_some() {} };
        if timeout(LEFT_WITHIN, left).await.is_err() {
            tasks.shutdown().await;
        }
        if let Err(error) = self
            .shared
            .journal
            .release(&self.shared.settings.owner, &held)
            .await
        {
            tracing::warn!(%error, "leases could not be released; another replica takes over when they expire");
        }
    }
}

// === impl ExecutionShared ===

impl ExecutionShared {
    fn running(&self) -> MutexGuard<'_, HashMap<InvocationId, Arc<Execution>>> {
        self.running.lock()
    }

    fn execution(&self, id: &InvocationId) -> Option<Arc<Execution>> {
        self.running().get(id).cloned()
    }

    /// Takes an execution off the list, then wakes its followers, which read the journal from now
    /// on. Does nothing to another execution of the same invocation.
    fn fence(&self, execution: &Arc<Execution>) {
        let mut running = self.running();
        if running
            .get(&execution.id)
            .is_some_and(|listed| Arc::ptr_eq(listed, execution))
        {
            running.remove(&execution.id);
        }
        drop(running);
        execution.mark_fenced();
    }

    fn all(&self) -> Vec<Arc<Execution>> {
        self.running().values().cloned().collect()
    }

    /// Everything whose lease this replica renews: what runs here, and what is about to.
    fn held(&self) -> Vec<Held> {
        let claimed = self.leases.claimed();
        let running = self.running();
        let recorded = running
            .values()
            .filter(|execution| execution.commitments.is_recorded && !execution.has_lost_record());
        let recorded = recorded.map(|execution| Held {
            id: execution.id.clone(),
            epoch: execution.epoch,
        });
        // One that has just begun may be in both.
        recorded
            .chain(claimed)
            .collect::<HashSet<_>>()
            .into_iter()
            .collect()
    }

    /// Returns whether steps are published before they are recorded. An owner that slept longer than
    /// its lease must not publish anything before it knows that it still is one, unless nothing was
    /// promised beyond this call: then no other replica takes it over by itself.
    fn publishes_first(&self, execution: &Execution) -> bool {
        self.settings.mode == JournalMode::Fast
            && (self.leases.are_good() || !execution.commitments.is_promised)
    }

    /// Notes that the journal has no record of an execution any more, as after its file was
    /// removed. Returns whether it continues without one, which is counted; if not, it ends here,
    /// and its followers learn why.
    fn continues_without_record(&self, execution: &Arc<Execution>) -> bool {
        let continues = self.publishes_first(execution);
        if execution.lose_record() {
            tracing::warn!(invocation = %execution.id, continues, "the journal lost the record of an invocation that runs");
            if continues {
                self.journal_use.runs_unrecorded();
            }
        }
        if !continues {
            self.fence(execution);
        }
        continues
    }

    /// Returns whether the journal is known to be away.
    fn journal_is_away(&self) -> bool {
        self.journal
            .health()
            .is_some_and(|health| *health.borrow() != StoreHealth::Up)
    }

    /// Notes whether the journal was available; an event is emitted when that changes.
    fn journal_was(&self, failure: Option<&JournalError>) {
        if let Some(body) = self.journal_use.was(failure) {
            self.engine.events().publish(None, 0, None, body);
        }
    }
}

#[cfg(test)]
mod tests;
