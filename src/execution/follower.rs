//! Follows one invocation from a given step, wherever it runs, until its end.
//!
//! It reads the replay buffer of an invocation that runs here, and the journal for everything else:
//! steps that the buffer has dropped, invocations that another replica executes, finished ones. It
//! survives a change of the owner, and takes an orphaned invocation over itself. Steps come in
//! order and without gaps; if that is not possible, all blocks come at once instead. A slow
//! follower delays only itself.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};

use super::{
    ExecutionShared,
    driver::Driver,
    live::{Execution, SubscriberGuard},
    lost::Lost,
    replay_buffer::{FollowerPlace, ReadResult, Snapshot},
};
use crate::{
    domain::{
        clock,
        fold::{AnswerState, Block, StreamStep},
        ids::InvocationId,
        invocation::Outcome,
    },
    journal::{Changes, Entry, JournalError, Page, Record},
};

/// Number of steps that are fetched at once.
const PAGE: usize = 256;

/// Time that a follower waits for a change of the journal before it checks whether the owner still
/// lives.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Item that a follower receives.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// A step that the client has already, for callers that keep track of what the client holds.
    Known(Arc<Entry>),
    /// The next step.
    Step(Arc<Entry>),
    /// All blocks at once, in place of every step up to `seq`.
    Snapshot {
        /// The epoch of the last step that is contained.
        epoch: u64,
        /// Its number.
        seq: u64,
        /// Time at which it happened.
        at: jiff::Timestamp,
        /// The blocks.
        blocks: Vec<Block>,
        /// Number of the last attempt that started.
        attempt: u32,
    },
}

/// Follows one invocation.
#[derive(Debug)]
pub struct Follower {
    shared: Arc<ExecutionShared>,
    id: InvocationId,
    /// Position of the client: epoch and number.
    has: Option<(u64, u64)>,
    /// The last step that was fetched.
    at: u64,
    at_epoch: u64,
    subscription: Option<SubscriberGuard>,
    changes: Option<Changes>,
    ready: VecDeque<StreamItem>,
    over: bool,
    /// Run that it follows, if that proceeds only while this waits for its end.
    driver: Option<Driver>,
}

// === impl Follower ===

impl Follower {
    pub(super) fn new(
        shared: Arc<ExecutionShared>,
        id: InvocationId,
        has: Option<(u64, u64)>,
    ) -> Self {
        let subscription = shared.execution(&id).map(|execution| execution.subscribe());
        let has = has.filter(|(_, seq)| *seq > 0);
        Self {
            shared,
            id,
            has,
            at: 0,
            at_epoch: 0,
            subscription,
            changes: None,
            ready: VecDeque::new(),
            over: false,
            driver: None,
        }
    }

    /// Creates the first follower of an execution that is about to start.
    pub(super) fn of(shared: Arc<ExecutionShared>, execution: &Arc<Execution>) -> Self {
        let mut follower = Self::new(shared, execution.id.clone(), None);
        follower.subscription = Some(execution.subscribe());
        follower
    }

    /// Makes it drive the run that it follows.
    pub(super) fn drives(&mut self, driver: Driver) {
        self.driver = Some(driver);
    }

    /// Returns the time since the last data of the target that is called here; `None` if that is
    /// not known.
    pub fn upstream_silence(&self) -> Option<Duration> {
        let active_at = self
            .subscription
            .as_ref()?
            .execution()
            .replay
            .last_activity()?;
        Some(Instant::now().saturating_duration_since(active_at))
    }

    /// Returns the next item; `None` after the end. Cancel safe.
    ///
    /// # Errors
    /// [`Lost`]: no more steps can be read here.
    pub async fn next(&mut self) -> Result<Option<StreamItem>, Lost> {
        // A caller that reads step by step may be slow, and others may follow.
        drop(self.driver.take());
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.over {
                return Ok(None);
            }
            self.fetch().await?;
        }
    }

    /// Returns the end, whatever comes before it.
    ///
    /// # Errors
    /// [`Lost`]: the outcome cannot be read here.
    pub async fn outcome(&mut self) -> Result<Arc<Outcome>, Lost> {
        let Some(mut driver) = self.driver.take() else {
            return self.end().await;
        };
        tokio::select! {
            biased;
            () = driver.drive() => {}
            // What is left to be done for other followers continues without this one.
            end = self.end() => return end,
        }
        self.end().await
    }

    async fn end(&mut self) -> Result<Arc<Outcome>, Lost> {
        while let Some(item) = self.next().await? {
            if let StreamItem::Step(entry) = item
                && let StreamStep::Terminal(outcome) = &entry.step
            {
                return Ok(Arc::clone(outcome));
            }
        }
        Err(Lost::Gone)
    }

    async fn fetch(&mut self) -> Result<(), Lost> {
        if self.subscription.is_none() {
            self.subscription = self
                .shared
                .execution(&self.id)
                .map(|execution| execution.subscribe());
        }
        match self
            .subscription
            .as_ref()
            .map(|subscription| (Arc::clone(subscription.execution()), subscription.reader()))
        {
            Some((execution, reader)) => self.fetch_here(&execution, reader).await,
            None => self.fetch_recorded().await,
        }
    }

    /// Reads what runs here, or waits for it.
    async fn fetch_here(
        &mut self,
        execution: &Arc<Execution>,
        reader: FollowerPlace,
    ) -> Result<(), Lost> {
        let changed = execution.replay.changed();
        tokio::pin!(changed);
        // Before the read, so that what is published meanwhile is noticed.
        changed.as_mut().enable();
        let fenced = execution.is_fenced();
        if self.at_epoch > execution.epoch {
            // The journal knows a newer owner than this replica does.
            self.shared.fence(execution);
            self.subscription = None;
            return Ok(());
        }
        if self.at > execution.base && self.at_epoch != execution.epoch {
            // The client has steps that the previous owner never recorded.
            return self.catch_up(execution).await;
        }
        match execution.replay.after(reader, self.at, PAGE) {
            ReadResult::Steps(steps) if !steps.is_empty() => {
                self.accept(steps, Some(execution));
                Ok(())
            }
            ReadResult::Steps(_) if fenced => {
                self.subscription = None;
                if self.shared.tasks.are_closing() {
                    Err(Lost::Closing)
                } else if execution.has_lost_record() {
                    Err(Lost::Record)
                } else {
                    Ok(())
                }
            }
            ReadResult::Steps(_) => {
                if self
                    .has
                    .is_some_and(|(epoch, seq)| seq > self.at && epoch <= execution.epoch)
                {
                    // It has more than was ever published here.
                    return self.catch_up(execution).await;
                }
                changed.await;
                Ok(())
            }
            ReadResult::Behind => {
                let page = self.page(self.at, PAGE).await?;
                let page = page.filter(|page| !page.gone && !page.entries.is_empty());
                match page {
                    Some(page) if page.entries[0].seq == self.at + 1 => {
                        self.accept(
                            page.entries.into_iter().map(Arc::new).collect(),
                            Some(execution),
                        );
                        Ok(())
                    }
                    Some(_) | None => self.catch_up(execution).await,
                }
            }
            ReadResult::Ahead => self.catch_up(execution).await,
        }
    }

    /// Takes all blocks at once from what runs here, or, before its first step, from the journal.
    async fn catch_up(&mut self, execution: &Arc<Execution>) -> Result<(), Lost> {
        match execution.replay.whole() {
            Some(whole) => {
                self.take_whole(whole);
                Ok(())
            }
            None => self.take_recorded_whole().await,
        }
    }

    fn take_whole(&mut self, whole: Snapshot) {
        let Snapshot {
            blocks,
            attempt,
            last,
        } = whole;
        let ended = matches!(last.step, StreamStep::Terminal(_));
        let seq = if ended { last.seq - 1 } else { last.seq };
        self.ready.push_back(StreamItem::Snapshot {
            epoch: last.epoch,
            seq,
            at: last.at,
            blocks,
            attempt,
        });
        (self.at, self.at_epoch, self.has) = (last.seq, last.epoch, None);
        if ended {
            self.ready.push_back(StreamItem::Step(Arc::new(last)));
            self.over = true;
        }
    }

    /// Reads the journal, or waits for it; takes an orphan over.
    async fn fetch_recorded(&mut self) -> Result<(), Lost> {
        if self.shared.tasks.are_closing() {
            return Err(Lost::Closing);
        }
        if self.changes.is_none() {
            self.changes = Some(self.shared.journal.changes(&self.id));
        }
        // The last step is read once more: after a change of the owner it may be another one.
        let from = self.at.saturating_sub(1);
        let Some(mut page) = self.page(from, PAGE).await? else {
            return Err(Lost::Gone);
        };
        if self.at > 0 {
            let same = page
                .entries
                .first()
                .is_some_and(|entry| entry.seq == self.at && entry.epoch == self.at_epoch);
            let behind = page.last_seq < self.at && page.epoch == self.at_epoch && !page.finished;
            if !same && !behind {
                return self.take_recorded_whole().await;
            }
            if same {
                page.entries.remove(0);
            } else {
                page.entries.clear();
            }
        }
        if page.gone && page.entries.is_empty() {
            return self.take_recorded_whole().await;
        }
        if !page.entries.is_empty() {
            self.accept(page.entries.into_iter().map(Arc::new).collect(), None);
            return Ok(());
        }
        if page.finished {
            // The end is recorded, but not as a step: its steps had gaps.
            return self.take_recorded_whole().await;
        }
        let lost_tail = self
            .has
            .is_some_and(|(epoch, seq)| epoch < page.epoch && seq > page.last_seq);
        if lost_tail {
            return self.take_recorded_whole().await;
        }
        self.wait_or_take_over().await
    }

    async fn wait_or_take_over(&mut self) -> Result<(), Lost> {
        if self
            .shared
            .take_over_orphan(&self.id)
            .await
            .map_err(Lost::Journal)?
        {
            return Ok(());
        }
        if let Some(changes) = &mut self.changes {
            // A timeout is a reason to check, too: an owner that died changes nothing.
            let _ = timeout(LOOK_AGAIN, changes.wait()).await;
        }
        Ok(())
    }

    /// Takes all blocks at once from the journal.
    async fn take_recorded_whole(&mut self) -> Result<(), Lost> {
        let record = self
            .shared
            .journal
            .get(&self.id)
            .await
            .map_err(Lost::Journal)?
            .ok_or(Lost::Gone)?;
        if record.is_finished() {
            return self.take_end(record);
        }
        let mut fold = AnswerState::default();
        let mut attempt = 0;
        let mut last = None;
        let mut after = 0;
        while let Some(page) = self.page(after, PAGE).await? {
            if page.gone {
                return Err(Lost::Gone);
            }
            let Some(newest) = page.entries.last().map(|entry| entry.seq) else {
                break;
            };
            after = newest;
            for entry in page.entries {
                if let StreamStep::AttemptStarted {
                    attempt: number, ..
                } = &entry.step
                {
                    attempt = *number;
                }
                if matches!(entry.step, StreamStep::Terminal(_)) {
                    // It ended meanwhile.
                    break;
                }
                fold.apply(&entry.step)
                    .map_err(|error| Lost::Journal(JournalError::Corrupt(error.to_string())))?;
                last = Some((entry.epoch, entry.seq, entry.at));
            }
        }
        let (epoch, seq, at) = last.unwrap_or((record.epoch, 0, record.created_at));
        self.ready.push_back(StreamItem::Snapshot {
            epoch,
            seq,
            at,
            blocks: fold.into_blocks(),
            attempt,
        });
        (self.at, self.at_epoch, self.has) = (seq, epoch, None);
        Ok(())
    }

    /// Emits an end whose steps are no longer kept, or never were.
    fn take_end(&mut self, record: Record) -> Result<(), Lost> {
        let Some(outcome) = record.outcome else {
            return Err(Lost::Gone);
        };
        let at = match record.state {
            crate::journal::RunState::Finished { at } => at,
            crate::journal::RunState::Running { .. } => clock::wall_now(),
        };
        let attempt = outcome.attempts.last().map_or(0, |attempt| attempt.number);
        let epoch = record.epoch;
        let seq = record.last_seq.max(1);
        let blocks = record.snapshot.unwrap_or_default();
        self.ready.push_back(StreamItem::Snapshot {
            epoch,
            seq: seq - 1,
            at,
            blocks,
            attempt,
        });
        let step = StreamStep::Terminal(outcome);
        self.ready.push_back(StreamItem::Step(Arc::new(Entry {
            epoch,
            seq,
            attempt: 0,
            at,
            step,
        })));
        self.over = true;
        Ok(())
    }

    /// Queues steps that follow those that were fetched.
    fn accept(&mut self, steps: Vec<Arc<Entry>>, here: Option<&Arc<Execution>>) {
        for entry in steps {
            (self.at, self.at_epoch) = (entry.seq, entry.epoch);
            let ended = matches!(entry.step, StreamStep::Terminal(_));
            if ended && self.has.is_some_and(|(epoch, _)| epoch != entry.epoch) {
                // It has more than its owner recorded, and the end came before that could be
                // corrected.
                self.restate(here);
                return;
            }
            if ended {
                self.ready.push_back(StreamItem::Step(entry));
                self.over = true;
                break;
            }
            match self.has {
                Some((_, seq)) if entry.seq < seq => self.ready.push_back(StreamItem::Known(entry)),
                Some((epoch, seq)) if entry.seq == seq => {
                    self.has = None;
                    let same = entry.epoch == epoch;
                    self.ready.push_back(StreamItem::Known(entry));
                    if !same {
                        // What it has is of an owner whose last steps were lost.
                        self.restate(here);
                        return;
                    }
                }
                Some(_) | None => self.ready.push_back(StreamItem::Step(entry)),
            }
        }
    }

    /// Sends all blocks at once, because the client has other ones.
    fn restate(&mut self, here: Option<&Arc<Execution>>) {
        if let Some(whole) = here.and_then(|execution| execution.replay.whole()) {
            self.take_whole(whole);
        } else {
            // An epoch that never was: the next read finds another one, and takes all blocks at
            // once.
            self.at_epoch = 0;
        }
    }

    async fn page(&self, after: u64, limit: usize) -> Result<Option<Page>, Lost> {
        self.shared
            .journal
            .read(&self.id, after, limit)
            .await
            .map_err(Lost::Journal)
    }
}
