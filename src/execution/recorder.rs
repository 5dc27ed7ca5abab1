//! Writes an execution's steps to the journal, in batches, one at a time, after or before they are
//! published.
//!
//! The only writer of an execution. `fast` publishes first and writes within [`BATCH_AFTER`];
//! `strict` writes first. What the journal cannot take now is retried; what it can never take is
//! given up, and the invocation continues without a record. When more steps wait than
//! `journal.queue` allows, `strict` reads no more of the upstream, and `fast` gives up the record
//! of the invocation that has one more, which is counted. It never waits for a client.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{ExecutionShared, journal_queue::QueueReservation, live::Execution};
use crate::{
    domain::{clock, fold::StreamStep},
    journal::{AppendError, Entry, JournalError, JournalMode},
};

/// Time that a step may wait for others before all are written.
const BATCH_AFTER: Duration = Duration::from_millis(100);

/// Number of steps that make a batch at once.
const BATCH_STEPS: usize = 256;

/// Time after which the journal is tried again after it was away.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

type PendingWrite = BoxFuture<'static, (Vec<Entry>, Result<(), AppendError>)>;

/// Writes one execution's steps.
pub(super) struct StepRecorder {
    shared: Arc<ExecutionShared>,
    execution: Arc<Execution>,
    next_seq: u64,
    attempt: u32,
    waiting: Vec<Entry>,
    share: QueueReservation,
    pending: Option<PendingWrite>,
    /// Time at which the waiting steps are written.
    due: Option<Pin<Box<Sleep>>>,
    /// Until then nothing is written, because the journal was away: however many steps wait, and
    /// however many come.
    away_until: Option<Instant>,
    writing: WriteMode,
}

/// Mode of writing steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteMode {
    /// In batches.
    Batches,
    /// All that is left, with the end.
    AtTheEnd,
    /// Not any more, or never.
    Never,
}

/// The result of writing a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteResult {
    /// Written, or to be tried again.
    GoOn,
    /// The invocation's own cap is reached: the rest comes with its end.
    Full,
    /// Another replica owns the execution.
    Lost,
}

// === impl StepRecorder ===

impl StepRecorder {
    pub(super) fn new(
        shared: Arc<ExecutionShared>,
        execution: Arc<Execution>,
        attempt: u32,
    ) -> Self {
        let next_seq = execution.base + 1;
        let writing = if execution.commitments.is_recorded {
            WriteMode::Batches
        } else {
            WriteMode::Never
        };
        let share = QueueReservation::of(Arc::clone(&shared.journal_use.queue));
        Self {
            shared,
            execution,
            next_seq,
            attempt,
            waiting: Vec::new(),
            share,
            pending: None,
            due: None,
            away_until: None,
            writing,
        }
    }

    /// Queues a step, and publishes it if that may happen before it is written.
    pub(super) fn take(&mut self, step: StreamStep) {
        let entry = self.number(step);
        let publishes_first = self.writing != WriteMode::Batches || self.publishes_first();
        if publishes_first && self.execution.replay.last() + 1 == entry.seq {
            self.execution.replay.publish([entry.clone()]);
        }
        if self.writing == WriteMode::Never {
            self.share.drop_steps(1);
            return;
        }
        let too_much = self.share.queue().is_full();
        self.waiting.push(entry);
        self.share.add();
        self.write_at(if publishes_first && self.waiting.len() < BATCH_STEPS {
            Instant::now() + BATCH_AFTER
        } else {
            Instant::now()
        });
        if too_much && self.writing == WriteMode::Batches && self.mode() == JournalMode::Fast {
            tracing::warn!(invocation = %self.execution.id, "the journal does not keep up; the record is given up");
            self.give_up();
        }
    }

    /// Returns whether the upstream may be read on: always, but in `strict` while too many steps
    /// wait.
    pub(super) fn has_room(&self) -> bool {
        self.writing != WriteMode::Batches
            || self.mode() == JournalMode::Fast
            || !self.share.queue().is_full()
    }

    /// Writes the waiting steps when it is time, and returns the result of the batch. Returns only
    /// if something was written, or could not be, and then not again before [`RETRY_INTERVAL`] has
    /// passed: its caller polls it first, and would do nothing else. Cancel safe.
    pub(super) async fn turn(&mut self) -> WriteResult {
        loop {
            if let Some(pending) = &mut self.pending {
                let (batch, result) = pending.await;
                self.pending = None;
                return self.written(batch, result);
            }
            match self
                .due
                .as_mut()
                .filter(|_| self.writing == WriteMode::Batches && !self.waiting.is_empty())
            {
                Some(due) => due.await,
                None => std::future::pending().await,
            }
            self.launch();
        }
    }

    /// Everything that is not written yet, for the end.
    pub(super) async fn rest(&mut self) -> Result<Vec<Entry>, WriteResult> {
        while let Some(pending) = &mut self.pending {
            let (batch, result) = pending.await;
            self.pending = None;
            if self.written(batch, result) == WriteResult::Lost {
                return Err(WriteResult::Lost);
            }
        }
        Ok(std::mem::take(&mut self.waiting))
    }

    /// Gives a step its number and time.
    pub(super) fn number(&mut self, step: StreamStep) -> Entry {
        if let StreamStep::AttemptStarted { attempt, .. } = &step {
            self.attempt = *attempt;
        }
        let attempt = match &step {
            StreamStep::ContextInjected { attempt, .. }
            | StreamStep::Rewind { attempt, .. }
            | StreamStep::Recovery { attempt, .. }
            | StreamStep::Parked { attempt, .. }
            | StreamStep::ResponseStarted { attempt, .. }
            | StreamStep::Usage { attempt, .. } => *attempt,
            StreamStep::Terminal(_) => 0,
            StreamStep::AttemptStarted { .. }
            | StreamStep::BlockStart { .. }
            | StreamStep::BlockDelta { .. }
            | StreamStep::BlockStop { .. } => self.attempt,
        };
        let seq = self.next_seq;
        self.next_seq += 1;
        Entry {
            epoch: self.execution.epoch,
            seq,
            attempt,
            at: clock::wall_now(),
            step,
        }
    }

    /// Returns the number that the next step will have.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Numbers from `seq` on are free again.
    pub(super) fn renumber_from(&mut self, seq: u64) {
        self.next_seq = seq;
    }

    /// Returns whether nothing is written (any more).
    pub(super) fn writes_nothing(&self) -> bool {
        self.writing == WriteMode::Never
    }

    /// Sets the time at which what waits is written, if not before; not while the journal is away.
    fn write_at(&mut self, time: Instant) {
        let time = self.away_until.map_or(time, |until| time.max(until));
        match &mut self.due {
            Some(due) if due.deadline() <= time => {}
            Some(due) => due.as_mut().reset(time),
            None => self.due = Some(Box::pin(sleep_until(time))),
        }
    }

    fn mode(&self) -> JournalMode {
        self.shared.settings.mode
    }

    fn publishes_first(&self) -> bool {
        self.shared.publishes_first(&self.execution)
    }

    fn launch(&mut self) {
        self.due = None;
        self.away_until = None;
        let batch = std::mem::take(&mut self.waiting);
        let journal = Arc::clone(&self.shared.journal);
        let id = self.execution.id.clone();
        self.pending = Some(Box::pin(async move {
            let result = journal.append(&id, &batch).await;
            (batch, result)
        }));
    }

    fn written(&mut self, batch: Vec<Entry>, result: Result<(), AppendError>) -> WriteResult {
        match result {
            Ok(()) => {
                self.share.recorded(batch.len());
                if let Some(last) = batch.last().map(|entry| entry.seq) {
                    self.publish(batch);
                    self.execution.replay.recorded(last);
                }
                WriteResult::GoOn
            }
            Err(AppendError::Fenced { .. } | AppendError::Finished) => WriteResult::Lost,
            Err(AppendError::Unknown) if !self.shared.continues_without_record(&self.execution) => {
                WriteResult::Lost
            }
            Err(AppendError::Full { .. }) => {
                // The engine accepted it, so it is published; the journal takes it with the end.
                self.publish(batch.clone());
                self.put_back(batch);
                self.writing = WriteMode::AtTheEnd;
                WriteResult::Full
            }
            Err(AppendError::Store(JournalError::Unavailable(reason))) => {
                tracing::debug!(invocation = %self.execution.id, reason, "the journal is away; steps wait");
                self.put_back(batch);
                let until = Instant::now() + RETRY_INTERVAL;
                self.away_until = Some(until);
                self.due = Some(Box::pin(sleep_until(until)));
                WriteResult::GoOn
            }
            Err(
                error @ (AppendError::Gap { .. } | AppendError::Unknown | AppendError::Store(_)),
            ) => {
                tracing::error!(invocation = %self.execution.id, %error, "the record is given up");
                self.share.drop_steps(batch.len());
                self.publish(batch);
                self.give_up();
                WriteResult::GoOn
            }
        }
    }

    /// Publishes the part of a batch that was not published yet, and the steps that wait behind it
    /// if that is allowed.
    fn publish(&mut self, batch: Vec<Entry>) {
        self.execution.replay.publish(batch);
        if self.publishes_first() {
            let published = self.execution.replay.last();
            self.execution.replay.publish(
                self.waiting
                    .iter()
                    .filter(|entry| entry.seq > published)
                    .cloned(),
            );
        }
    }

    fn put_back(&mut self, mut batch: Vec<Entry>) {
        batch.append(&mut self.waiting);
        self.waiting = batch;
    }

    fn give_up(&mut self) {
        self.writing = WriteMode::Never;
        let waiting = std::mem::take(&mut self.waiting);
        self.share.drop_steps(waiting.len());
        self.execution.replay.publish(waiting);
    }
}
