//! Writes the steps of one execution, in batches: after they are sent (`fast`), or before (`strict`).
//!
//! `fast` collects for 100 ms or 4 KiB, so that a stream of tokens costs ten appends a second and no latency; what must
//! be durable at once (a committed tool call, a side effect about to happen, the end) is followed by a `flush`.
//! `strict` appends what is there as soon as the append before it is done: steps that come meanwhile share the next one.
//!
//! A store that is away is tried again while the queue holds. It never delays a `fast` stream: when the queue is full,
//! the rest of the record is given up, which `lost` and `dropped` tell. Dropping the writer stops it as a crash would.

mod queue;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use self::queue::{Due, Queue};
use super::{AppendError, Entry, Finish, FinishError, Journal, JournalError, ThreadEnd};
use crate::{
    config::observe::{JournalConfig, JournalMode},
    domain::{
        fold::{Block, Progress},
        ids::InvocationId,
        invocation::Outcome,
    },
};

/// How long `fast` collects.
pub(super) const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How much `fast` collects, in bytes of JSON.
pub(super) const BATCH_BYTES: u64 = 4096;
/// The wait after a store's first failure; doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest wait after a store's failure.
const LAST_BACKOFF: Duration = Duration::from_secs(1);

/// How a writer works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterSettings {
    /// Whether steps are durable before `push` returns.
    pub mode: JournalMode,
    /// Steps waiting to be written at most.
    pub queue: usize,
}

/// The end of an execution, for [`JournalWriter::finish`].
#[derive(Debug, Clone, PartialEq)]
pub struct Ending {
    /// The last steps: attempt and step, `Terminal` included.
    pub rest: Vec<(u32, Progress)>,
    /// The outcome.
    pub outcome: Outcome,
    /// The blocks of the whole stream.
    pub snapshot: Vec<Block>,
    /// What becomes of the thread.
    pub thread: Option<ThreadEnd>,
}

/// Writes the steps of one execution; its only writer.
#[derive(Debug)]
pub struct JournalWriter {
    shared: Arc<Shared>,
    task: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    journal: Arc<dyn Journal>,
    id: InvocationId,
    epoch: u64,
    settings: WriterSettings,
    queue: Mutex<Queue>,
    wake: Notify,
    mark: watch::Sender<Mark>,
}

/// How far the task came.
#[derive(Debug, Clone, Default)]
struct Mark {
    durable: u64,
    failures: u64,
    last_failure: Option<AppendError>,
}

// === impl WriterSettings ===

impl From<&JournalConfig> for WriterSettings {
    fn from(config: &JournalConfig) -> Self {
        Self { mode: config.mode, queue: config.queue }
    }
}

// === impl JournalWriter ===

impl JournalWriter {
    /// A writer for the execution of `id` in `epoch`, whose record ends at `last_seq`.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        id: InvocationId,
        epoch: u64,
        last_seq: u64,
        settings: WriterSettings,
    ) -> Self {
        let (mark, _) = watch::channel(Mark { durable: last_seq, ..Mark::default() });
        let queue = Mutex::new(Queue::new(last_seq, settings.queue.max(1)));
        let shared = Arc::new(Shared { journal, id, epoch, settings, queue, wake: Notify::new(), mark });
        let mut task = JoinSet::new();
        let writing = Arc::clone(&shared);
        task.spawn(async move { writing.run().await });
        Self { shared, task }
    }

    /// Takes a step and tells its number. In `fast` mode it does not wait; in `strict` mode the step is durable when
    /// it returns. Dropped before, the step may still be recorded.
    ///
    /// # Errors
    /// [`AppendError::Fenced`], `Finished`, `Unknown` or `Gap`: stop, the execution is not this writer's any more.
    /// [`AppendError::Full`]: this step was not taken; go on as `ATOMIC` and hand the rest to [`Self::finish`].
    /// [`AppendError::Store`]: in `strict` mode only, the step is not durable yet.
    pub async fn push(&self, attempt: u32, at: Timestamp, step: Progress) -> Result<u64, AppendError> {
        let failures = self.shared.mark.borrow().failures;
        let seq = loop {
            let room = {
                let mut queue = self.shared.queue();
                queue.check()?;
                match (self.shared.settings.mode, queue.is_full()) {
                    (JournalMode::Strict, true) => Some(self.shared.mark.subscribe()),
                    (JournalMode::Fast, true) => {
                        queue.give_up();
                        // Who waits for a flush waits for nothing now.
                        self.shared.mark.send_modify(|_| ());
                        None
                    }
                    (JournalMode::Fast | JournalMode::Strict, false) => None,
                }
            };
            match room {
                Some(mut mark) => self.shared.wait_for_room(&mut mark, failures).await?,
                None => break self.shared.queue().take(self.shared.epoch, attempt, at, step, Instant::now()),
            }
        };
        self.shared.wake.notify_one();
        match self.shared.settings.mode {
            JournalMode::Fast => {}
            JournalMode::Strict => self.shared.durable(seq, failures).await?,
        }
        Ok(seq)
    }

    /// Waits until every step pushed so far is durable.
    ///
    /// # Errors
    /// As [`Self::push`]; [`AppendError::Store`] when the store failed since, or the rest of the record is given up.
    pub async fn flush(&self) -> Result<(), AppendError> {
        let failures = self.shared.mark.borrow().failures;
        let last = self.shared.queue().want_all();
        self.shared.wake.notify_one();
        self.shared.durable(last, failures).await
    }

    /// Records all that is left, the outcome and the thread's change in one piece. It may be called again after an
    /// error; nothing can be pushed any more. When the record was given up, the outcome is recorded without the steps that are missing.
    ///
    /// # Errors
    /// [`FinishError`]; then nothing of it was recorded.
    pub async fn finish(&mut self, ending: Ending, now: Timestamp) -> Result<(), FinishError> {
        // An append under way is either done or not; what it recorded is passed over below.
        self.task.shutdown().await;
        let entries = {
            let mut queue = self.shared.queue();
            queue.stop(AppendError::Finished);
            queue.remainder(self.shared.epoch, &ending.rest, now)
        };
        let Ending { rest: _, outcome, snapshot, thread } = ending;
        let (id, epoch) = (self.shared.id.clone(), self.shared.epoch);
        self.shared.journal.finish(Finish { id, epoch, entries, outcome, snapshot, thread }, now).await
    }

    /// Number of the last step that was taken.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.shared.queue().last_seq()
    }

    /// Number of the last step that is durable.
    #[must_use]
    pub fn durable_seq(&self) -> u64 {
        self.shared.mark.borrow().durable
    }

    /// Whether the rest of the record was given up, so that the stream cannot be resumed any more.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.shared.queue().is_lost()
    }

    /// Steps that were taken and given up; those of an append that was under way may be recorded yet.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.shared.queue().dropped()
    }
}

// === impl Shared ===

impl Shared {
    async fn run(&self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            let batch = self.next_batch().await;
            let Some(last) = batch.last().map(|entry| entry.seq) else { continue };
            match self.journal.append(&self.id, &batch).await {
                Ok(()) => {
                    backoff = FIRST_BACKOFF;
                    self.queue().recorded(last);
                    self.mark.send_modify(|mark| mark.durable = last);
                }
                Err(AppendError::Store(JournalError::Unavailable(reason))) => {
                    self.failed(&AppendError::Store(JournalError::Unavailable(reason)));
                    sleep(backoff).await;
                    backoff = LAST_BACKOFF.min(backoff * 2);
                }
                Err(error) => {
                    self.queue().stop(error.clone());
                    self.failed(&error);
                    return;
                }
            }
        }
    }

    /// Waits until a batch is due.
    async fn next_batch(&self) -> Vec<Entry> {
        loop {
            let due = self.queue().due(self.settings.mode, Instant::now());
            match due {
                Due::Now(batch) => return batch,
                Due::At(at) => {
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = self.wake.notified() => {}
                    }
                }
                Due::Idle => self.wake.notified().await,
            }
        }
    }

    fn failed(&self, error: &AppendError) {
        self.mark.send_modify(|mark| {
            mark.failures += 1;
            mark.last_failure = Some(error.clone());
        });
    }

    /// Waits until a step is durable, or an append failed that was not among the first `failures`.
    async fn durable(&self, seq: u64, failures: u64) -> Result<(), AppendError> {
        let mut mark = self.mark.subscribe();
        loop {
            {
                let mark = mark.borrow_and_update();
                if mark.durable >= seq {
                    return Ok(());
                }
                if let Some(error) = mark.last_failure.as_ref().filter(|_| mark.failures > failures) {
                    return Err(error.clone());
                }
            }
            self.queue().check()?;
            if self.queue().is_lost() {
                return Err(gone());
            }
            mark.changed().await.map_err(|_| gone())?;
        }
    }

    /// Waits until the queue may have room.
    async fn wait_for_room(&self, mark: &mut watch::Receiver<Mark>, failures: u64) -> Result<(), AppendError> {
        while self.queue().is_full() {
            let failure = mark.borrow_and_update().clone();
            if let Some(error) = failure.last_failure.filter(|_| failure.failures > failures) {
                return Err(error);
            }
            if self.queue().is_full() {
                mark.changed().await.map_err(|_| gone())?;
            }
        }
        Ok(())
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone() -> AppendError {
    AppendError::Store(JournalError::Unavailable("the rest of the record was given up".to_owned()))
}

#[cfg(test)]
mod tests;
