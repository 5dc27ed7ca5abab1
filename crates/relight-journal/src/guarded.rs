//! Guards a database's journal: detects its failures at once, waits for them briefly, and recovers
//! by itself.
//!
//! The store's health is judged by writes, not reads: while nothing was written for a while, a
//! probe is written, and while much is written, the file is checked, since writes to a removed or
//! overwritten file succeed. A slow or failed operation triggers a probe at once. A store that
//! fails its probe is unavailable: every operation then fails at once instead of waiting, and the
//! store is reopened, from its file or server, until a probe succeeds. So a full disk, a locked,
//! replaced or removed file, and a stopped or frozen server need no restart, and broken connections
//! are dropped together with the store that held them.

mod late;
mod operations;

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};

use self::late::LateRecords;
use super::{
    AppendError, FinishError, Journal as _, JournalError, LateRecord, SqlJournal, ThreadError,
    instance::Instance,
};
use crate::domain::ids::InvocationId;

/// Time that an operation may take before the store is probed.
const SLOW: Duration = Duration::from_millis(500);
/// Time that an operation may take in all. What reads or removes a lot may take longer.
const LONGEST: Duration = Duration::from_secs(10);
/// Time that a probe may take.
const PROBE_WITHIN: Duration = Duration::from_millis(1500);
/// Time after the last write at which the store is probed.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// Interval at which an unavailable store is reopened.
const REOPEN_EVERY: Duration = Duration::from_millis(500);
/// Time that opening it may take.
const REOPEN_WITHIN: Duration = Duration::from_secs(3);

/// State of the journal's store: it accepts writes, or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StoreHealth {
    /// It does.
    #[default]
    Up,
    /// It does not: why.
    Down(String),
}

/// Opens the store, from the beginning.
pub(super) type StoreOpener =
    Box<dyn Fn() -> BoxFuture<'static, Result<SqlJournal, JournalError>> + Send + Sync>;

/// A database's journal, and the health of its store.
pub struct GuardedJournal {
    guard: Arc<StoreGuard>,
    /// Probes and writes late records; ended when the journal is dropped.
    _tasks: JoinSet<()>,
    /// That this process uses the store's file.
    _instance: Option<Instance>,
}

struct StoreGuard {
    current: ArcSwap<SqlJournal>,
    open: StoreOpener,
    health: watch::Sender<StoreHealth>,
    suspected: Notify,
    written_at: Mutex<Instant>,
    /// The store's properties that were read: a recreated store gets the same.
    properties: Mutex<HashMap<String, String>>,
    /// Records that wait; `None` if each invocation is recorded when it starts.
    late: Option<LateRecords>,
}

/// Errors that can report an unavailable store.
trait OfStore: From<JournalError> {
    /// Returns the store's own failure, if it is one.
    fn of_store(&self) -> Option<&JournalError>;
}

// === impl GuardedJournal ===

impl GuardedJournal {
    /// Opens a store and guards it; with `late`, invocations that cannot be looked up are recorded
    /// when they end.
    ///
    /// # Errors
    /// [`JournalError`] when the store cannot be opened at all.
    pub(super) async fn start(
        instance: Option<Instance>,
        late: bool,
        open: StoreOpener,
    ) -> Result<Self, JournalError> {
        let first = open().await?;
        if instance.as_ref().is_some_and(Instance::is_alone) {
            first.give_up_all().await?;
        }
        let instance = instance.and_then(Instance::shared);
        let guard = Arc::new(StoreGuard {
            current: ArcSwap::from_pointee(first),
            open,
            health: watch::Sender::new(StoreHealth::Up),
            suspected: Notify::new(),
            written_at: Mutex::new(Instant::now()),
            properties: Mutex::default(),
            late: late.then(LateRecords::default),
        });
        let mut tasks = JoinSet::new();
        let probed = Arc::clone(&guard);
        tasks.spawn(async move { probed.keep_probing().await });
        let writing = Arc::clone(&guard);
        tasks.spawn(async move { writing.keep_recording().await });
        Ok(Self {
            guard,
            _tasks: tasks,
            _instance: instance,
        })
    }

    /// Does something with the store while it is there.
    async fn with<T, E: OfStore>(
        &self,
        longest: Duration,
        work: impl AsyncFnOnce(&SqlJournal) -> Result<T, E>,
    ) -> Result<T, E> {
        self.guard.with(longest, work).await
    }

    /// As `with`, for a write: its success shows that the store is healthy.
    async fn write<T, E: OfStore>(
        &self,
        work: impl AsyncFnOnce(&SqlJournal) -> Result<T, E>,
    ) -> Result<T, E> {
        self.guard.write(work).await
    }

    /// Returns the same with one invocation, whose record is written first if it waits.
    async fn with_recorded<T, E: OfStore>(
        &self,
        id: &InvocationId,
        work: impl AsyncFnOnce(&SqlJournal) -> Result<T, E>,
    ) -> Result<T, E> {
        self.guard.recorded(Some(id)).await?;
        self.with(LONGEST, work).await
    }

    /// Returns the same with all invocations, whose records are written first if they wait.
    async fn with_all_recorded<T, E: OfStore>(
        &self,
        longest: Duration,
        work: impl AsyncFnOnce(&SqlJournal) -> Result<T, E>,
    ) -> Result<T, E> {
        self.guard.recorded(None).await?;
        self.with(longest, work).await
    }
}

impl fmt::Debug for GuardedJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardedJournal")
            .field("health", &*self.guard.health.borrow())
            .finish_non_exhaustive()
    }
}

// === impl StoreGuard ===

impl StoreGuard {
    async fn with<T, E: OfStore>(
        &self,
        longest: Duration,
        work: impl AsyncFnOnce(&SqlJournal) -> Result<T, E>,
    ) -> Result<T, E> {
        if let StoreHealth::Down(reason) = &*self.health.borrow() {
            return Err(JournalError::Unavailable(reason.clone()).into());
        }
        let current = self.current.load_full();
        let done = {
            let mut working = std::pin::pin!(work(&current));
            if let Ok(done) = timeout(SLOW, &mut working).await {
                done
            } else {
                self.suspected.notify_one();
                let mut health = self.health.subscribe();
                tokio::select! {
                    done = &mut working => done,
                    reason = is_down(&mut health) => Err(JournalError::Unavailable(reason).into()),
                    () = sleep(longest) => Err(JournalError::Unavailable("it takes too long".to_owned()).into()),
                }
            }
        };
        if done
            .as_ref()
            .is_err_and(|error| error.of_store().is_some_and(JournalError::is_of_the_store))
        {
            self.suspected.notify_one();
        }
        done
    }

    /// As `with`, for a write: its success shows that the store is healthy.
    async fn write<T, E: OfStore>(
        &self,
        work: impl AsyncFnOnce(&SqlJournal) -> Result<T, E>,
    ) -> Result<T, E> {
        let done = self.with(LONGEST, work).await;
        if done.is_ok() {
            self.wrote();
        }
        done
    }

    /// Waits until the record of an invocation, or every record, is written.
    async fn recorded(&self, id: Option<&InvocationId>) -> Result<(), JournalError> {
        let Some(late) = &self.late else {
            return Ok(());
        };
        let wanted = late.want(id);
        if wanted.is_empty() {
            return Ok(());
        }
        let mut written = late.written.subscribe();
        let mut health = self.health.subscribe();
        let until = Instant::now() + LONGEST;
        while late.holds_any(&wanted) {
            tokio::select! {
                // The guard holds the sender.
                _ = written.changed() => {}
                reason = is_down(&mut health) => return Err(JournalError::Unavailable(reason)),
                () = sleep_until(until) => {
                    return Err(JournalError::Unavailable("a record is not written in time".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Writes the records that wait, for ever.
    async fn keep_recording(&self) {
        let Some(late) = &self.late else { return };
        loop {
            if late.is_empty() {
                late.added.notified().await;
            }
            tokio::select! {
                () = late.wanted.notified() => {}
                () = sleep(late::BATCH_AFTER) => {}
            }
            loop {
                let due = late.due();
                if due.is_empty() {
                    break;
                }
                if !self.record(late, due).await {
                    sleep(REOPEN_EVERY).await;
                }
            }
        }
    }

    /// Writes records that wait; returns whether the store takes records.
    async fn record(&self, late: &LateRecords, due: Vec<LateRecord>) -> bool {
        match self
            .write(async |store| store.record_late(&due).await)
            .await
        {
            Ok(()) => late.done(&due),
            Err(error @ JournalError::Unavailable(_)) => {
                let given_up = late.put_back(due);
                if given_up > 0 {
                    tracing::warn!(invocations = given_up, %error, "invocations that ended are not recorded");
                }
                return false;
            }
            Err(error) if due.len() == 1 => {
                tracing::error!(invocation = %due[0].new.id, %error, "an invocation cannot be recorded");
                late.give_up(&due);
            }
            Err(_) => {
                for one in due {
                    Box::pin(self.record(late, vec![one])).await;
                }
            }
        }
        true
    }

    fn wrote(&self) {
        *self.written_at.lock() = Instant::now();
    }

    fn last_written(&self) -> Instant {
        *self.written_at.lock()
    }

    /// Probes the store for as long as it exists: when it is suspected, when nothing was written
    /// for a while, and while it is unavailable.
    async fn keep_probing(&self) {
        loop {
            let looked_at = Instant::now();
            let is_suspected = tokio::select! {
                () = self.suspected.notified() => true,
                () = sleep(PROBE_AFTER) => false,
            };
            let current = self.current.load_full();
            let is_busy = !is_suspected && self.last_written() > looked_at;
            let probed = if is_busy {
                current.check_file()
            } else {
                self.probe(&current).await
            };
            if let Err(error) = probed {
                drop(current);
                self.become_down(&error);
                self.reopen().await;
            }
        }
    }

    async fn probe(&self, store: &SqlJournal) -> Result<(), JournalError> {
        let began = Instant::now();
        match timeout(PROBE_WITHIN, store.probe()).await {
            Ok(Ok(())) => {
                self.wrote();
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            // Other writes succeeded meanwhile, so it is busy rather than unavailable.
            Err(_) if self.last_written() > began => Ok(()),
            Err(_) => Err(JournalError::Unavailable(
                "its store does not respond".to_owned(),
            )),
        }
    }

    /// Reopens the store until it accepts a write.
    async fn reopen(&self) {
        loop {
            let opened = timeout(REOPEN_WITHIN, (self.open)()).await;
            let opened = opened.unwrap_or_else(|_| {
                Err(JournalError::Unavailable(
                    "it cannot be opened in time".to_owned(),
                ))
            });
            let taken = match opened {
                Ok(store) => self.take_in(&store).await.map(|()| store),
                Err(error) => Err(error),
            };
            match taken {
                Ok(store) => {
                    self.current.store(Arc::new(store));
                    self.health.send_replace(StoreHealth::Up);
                    return;
                }
                Err(error) => self.become_down(&error),
            }
            sleep(REOPEN_EVERY).await;
        }
    }

    /// Checks a reopened store, and gives it the properties of the one that it replaces.
    async fn take_in(&self, store: &SqlJournal) -> Result<(), JournalError> {
        self.probe(store).await?;
        let known = self.properties().clone();
        for (name, value) in known {
            store.property(&name, value).await?;
        }
        Ok(())
    }

    fn properties(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.properties.lock()
    }

    fn become_down(&self, error: &JournalError) {
        let reason = error.reason();
        self.health.send_if_modified(|health| {
            let fresh = *health == StoreHealth::Up;
            *health = StoreHealth::Down(reason);
            fresh
        });
    }
}

/// Returns the reason as soon as the store is unavailable.
async fn is_down(health: &mut watch::Receiver<StoreHealth>) -> String {
    // The sender lives as long as this journal.
    let down = health.wait_for(|health| *health != StoreHealth::Up).await;
    let reason = down.ok().and_then(|health| match &*health {
        StoreHealth::Down(reason) => Some(reason.clone()),
        StoreHealth::Up => None,
    });
    reason.unwrap_or_default()
}

// === impl OfStore ===

impl OfStore for JournalError {
    fn of_store(&self) -> Option<&JournalError> {
        Some(self)
    }
}

impl OfStore for AppendError {
    fn of_store(&self) -> Option<&JournalError> {
        if let Self::Store(error) = self {
            Some(error)
        } else {
            None
        }
    }
}

impl OfStore for ThreadError {
    fn of_store(&self) -> Option<&JournalError> {
        if let Self::Store(error) = self {
            Some(error)
        } else {
            None
        }
    }
}

impl OfStore for FinishError {
    fn of_store(&self) -> Option<&JournalError> {
        match self {
            Self::Append(error) => error.of_store(),
            Self::Thread(error) => error.of_store(),
        }
    }
}
