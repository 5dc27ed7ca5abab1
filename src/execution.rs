//! Running invocations: they belong to this replica, not to the call that began them.
//!
//! An invocation is started once, numbered step by step, recorded in the journal, and followed by any number of
//! clients at their own pace: the first one, one that repeats its request id, one that comes back after its connection
//! broke, also to another replica. When the last client goes, the invocation is cancelled, unless it was asked to go
//! on. When its replica dies, another one takes it over. Unary calls and streams are the same here.
//!
//! It knows nothing of gRPC, and it never decides how to recover: the engine below does.

mod adopt;
mod checkpoint;
mod follower;
mod live;
mod outlet;
mod recorder;
mod run;
mod start;
mod tail;
mod tenure;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use self::live::Execution;
pub use self::{
    follower::{Follower, Lost, Told},
    start::{Disposition, StartError, Started},
};
use crate::{
    config::observe::JournalMode,
    domain::{
        clock,
        ids::{InvocationId, RequestId, TenantId},
    },
    engine::Engine,
    journal::{CancelWish, Held, Journal, JournalError, LEASE, Owner, Record, Thread, ThreadError, ThreadKey},
};

/// How long a taken-over invocation waits for its client to come back: a crash is not the client's wish to leave.
pub const RECONNECT_GRACE: Duration = Duration::from_secs(30);

/// How executions are kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who executes here; never the name of another process.
    pub owner: Owner,
    /// Whether what is told is recorded before.
    pub mode: JournalMode,
    /// How long a lease is good; renewed three times as often.
    pub lease: Duration,
    /// How long the events of a finished invocation are kept; zero where they are not.
    pub events_kept: Duration,
}

/// The running invocations of this replica; cheap to clone.
#[derive(Debug, Clone)]
pub struct Executions {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Engine,
    journal: Arc<dyn Journal>,
    settings: Settings,
    running: Mutex<HashMap<InvocationId, Arc<Execution>>>,
    tasks: Mutex<JoinSet<()>>,
    /// Until when the leases of this replica are good for sure.
    leased_until: Mutex<Instant>,
    closing: AtomicBool,
}

/// An invocation as somebody names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// By its id.
    Id(InvocationId),
    /// By its caller's id for it.
    Request(RequestId),
}

/// What became of a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was uttered; the end follows.
    Asked,
    /// It had ended before.
    Ended,
    /// There is none.
    Unknown,
}

// === impl Settings ===

impl Settings {
    /// The usual settings of a replica.
    #[must_use]
    pub fn new(owner: Owner) -> Self {
        Self { owner, mode: JournalMode::Fast, lease: LEASE, events_kept: crate::journal::EVENTS_KEPT }
    }
}

// === impl Executions ===

impl Executions {
    /// No executions yet.
    pub fn new(engine: Engine, journal: Arc<dyn Journal>, settings: Settings) -> Self {
        let leased_until = Mutex::new(Instant::now() + settings.lease);
        let shared = Shared {
            engine,
            journal,
            settings,
            running: Mutex::default(),
            tasks: Mutex::default(),
            leased_until,
            closing: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Renews leases, takes over what others left, and applies the journal's retention, until it is dropped.
    pub async fn keep(self) {
        tenure::keep(&self.shared).await;
    }

    /// The invocation of a tenant, by name.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn find(&self, tenant: &TenantId, name: &Name) -> Result<Option<Record>, JournalError> {
        let found = match name {
            Name::Id(id) => self.shared.journal.get(id).await?,
            Name::Request(request) => self.shared.journal.get_by_request(tenant, request).await?,
        };
        Ok(found.filter(|record| record.tenant == *tenant))
    }

    /// Follows an invocation that the journal knows, after the step (epoch, number) that the follower has.
    pub fn follow(&self, record: &Record, after: Option<(u64, u64)>) -> Started {
        let mut started = self.shared.of_record(record);
        started.follower = Follower::new(Arc::clone(&self.shared), record.id.clone(), after);
        started
    }

    /// The recorded steps of an invocation, at most `limit`.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn steps(&self, id: &InvocationId, limit: usize) -> Result<Vec<crate::journal::Entry>, JournalError> {
        Ok(self.shared.journal.read(id, 0, limit).await?.map(|page| page.entries).unwrap_or_default())
    }

    /// Asks for an invocation's end, wherever it runs. `reason` is in plain words.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn cancel(&self, id: &InvocationId, reason: &str) -> Result<Cancelled, JournalError> {
        if let Some(execution) = self.shared.execution(id) {
            execution.cancel.cancel(reason);
            return Ok(Cancelled::Asked);
        }
        match self.shared.journal.request_cancel(id).await? {
            CancelWish::Recorded => {
                // One that nobody executes has nobody to hear of it.
                self.shared.take_over_orphan(id).await?;
                Ok(Cancelled::Asked)
            }
            CancelWish::Finished => Ok(Cancelled::Ended),
            CancelWish::Unknown => Ok(Cancelled::Unknown),
        }
    }

    /// A kept conversation.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, JournalError> {
        self.shared.journal.load_thread(key).await
    }

    /// Deletes a kept conversation, at `version` or at any; tells whether there was one.
    ///
    /// # Errors
    /// [`ThreadError::Version`] at another version, [`ThreadError::Busy`] while an invocation runs on it.
    pub async fn delete_thread(&self, key: &ThreadKey, version: Option<u64>) -> Result<bool, ThreadError> {
        self.shared.journal.delete_thread(key, version, clock::wall_now()).await
    }

    /// Stops whatever still runs without ending it, so that another replica goes on with it at once.
    pub async fn hand_over(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        let held = self.shared.held();
        for execution in self.shared.all() {
            execution.lose();
        }
        let mut tasks = std::mem::take(&mut *self.shared.tasks());
        tasks.shutdown().await;
        if let Err(error) = self.shared.journal.release(&self.shared.settings.owner, &held, clock::wall_now()).await {
            tracing::warn!(%error, "leases could not be released; another replica takes over when they expire");
        }
    }
}

// === impl Shared ===

impl Shared {
    fn running(&self) -> MutexGuard<'_, HashMap<InvocationId, Arc<Execution>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn execution(&self, id: &InvocationId) -> Option<Arc<Execution>> {
        self.running().get(id).cloned()
    }

    fn all(&self) -> Vec<Arc<Execution>> {
        self.running().values().cloned().collect()
    }

    fn held(&self) -> Vec<Held> {
        let running = self.running();
        let recorded = running.values().filter(|execution| execution.is_recorded);
        recorded.map(|execution| Held { id: execution.id.clone(), epoch: execution.epoch }).collect()
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Whether this replica is taken to be alive by the others.
    fn holds_leases(&self) -> bool {
        Instant::now() < *self.leased_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leases_renewed(&self, asked_at: Instant) {
        *self.leased_until.lock().unwrap_or_else(PoisonError::into_inner) = asked_at + self.settings.lease;
    }

    /// Runs a task that ends with this replica at the latest.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        if !self.is_closing() {
            tasks.spawn(task);
        }
    }
}

#[cfg(test)]
mod tests;
