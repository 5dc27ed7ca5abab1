//! The newest steps of a running invocation in memory, for followers on this replica.
//!
//! Followers read it at their own pace and never delay it: the oldest steps are dropped when it
//! grows, and a follower that still needs them reads the journal, or takes all blocks at once. What
//! all followers have is dropped before that, unless a client was promised that it may come back.
//! Of the steps that it holds no text is copied until a follower takes all blocks; only those that
//! it drops are folded.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};

use crate::{
    domain::fold::{AnswerState, Block, StreamStep},
    journal::Entry,
};

/// Beyond so many times the bytes that are kept, steps go although the journal does not have them:
/// it is away, or slow, and memory is finite.
const WITHOUT_RECORD: usize = 16;

/// Bytes that are kept of steps that all readers have, if nobody may come back for them: a short
/// answer is not folded.
const KEPT_WHEN_TAKEN: usize = 8 << 10;

/// The newest steps of one invocation.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    state: Mutex<ReplayState>,
    changed: Notify,
}

/// Place of a follower among those that read a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FollowerPlace(usize);

/// All blocks at once.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) blocks: Vec<Block>,
    /// Number of the last attempt that started.
    pub(super) attempt: u32,
    /// The last step that is contained.
    pub(super) last: Entry,
}

/// Available content for a follower.
#[derive(Debug)]
pub(super) enum ReadResult {
    /// Steps right after those that it has; none if it has all.
    Steps(Vec<Arc<Entry>>),
    /// The steps that it needs are no longer here.
    Behind,
    /// It claims to have what was never published here.
    Ahead,
}

#[derive(Debug)]
struct ReplayState {
    steps: VecDeque<Arc<Entry>>,
    bytes: usize,
    /// Bytes that are kept of what the journal has.
    kept: usize,
    /// If set, a client may come back for steps that it was sent.
    is_promised: bool,
    /// The last step that each reader has; `None` for a place that is free.
    readers: Vec<Option<u64>>,
    /// Result of the steps that were removed: all blocks, but for the steps that are held.
    gone: AnswerState,
    attempt: u32,
    last: u64,
    recorded: u64,
    active_at: Option<Instant>,
}

// === impl ReplayBuffer ===

impl ReplayBuffer {
    /// The buffer of an invocation of which `last` steps were published before, making `blocks`; it
    /// keeps `kept` bytes of steps that the journal has. Unless `is_promised`, steps go once all
    /// readers have them.
    pub(super) fn new(
        kept: usize,
        is_promised: bool,
        last: u64,
        attempt: u32,
        blocks: Vec<Block>,
    ) -> Self {
        let mut gone = AnswerState::default();
        gone.restore(blocks);
        let state = ReplayState {
            steps: VecDeque::new(),
            bytes: 0,
            kept,
            is_promised,
            readers: Vec::new(),
            gone,
            attempt,
            last,
            recorded: last,
            active_at: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Takes a place among the readers, who needs all steps until it reads some.
    pub(super) fn join(&self) -> FollowerPlace {
        let mut state = self.state();
        let free = state.readers.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            state.readers.push(None);
            state.readers.len() - 1
        });
        state.readers[place] = Some(0);
        FollowerPlace(place)
    }

    /// Gives the place back.
    pub(super) fn leave(&self, reader: FollowerPlace) {
        let mut state = self.state();
        state.readers[reader.0] = None;
        state.shrink();
    }

    /// Publishes steps, in order, but for those that are published already.
    pub(super) fn publish(&self, entries: impl IntoIterator<Item = Entry>) {
        let mut state = self.state();
        let published = state.last;
        for entry in entries.into_iter().filter(|entry| entry.seq > published) {
            state.push(Arc::new(entry));
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Up to which step the journal has them.
    pub(super) fn recorded(&self, seq: u64) {
        let mut state = self.state();
        state.recorded = state.recorded.max(seq);
        state.shrink();
    }

    /// Notes that the target sent something.
    pub(super) fn note_activity(&self) {
        self.state().active_at = Some(Instant::now());
    }

    /// Returns the time at which the target last sent something.
    pub(super) fn last_activity(&self) -> Option<Instant> {
        self.state().active_at
    }

    /// Returns the number of the last step that was published.
    pub(super) fn last(&self) -> u64 {
        self.state().last
    }

    /// Returns the number of kept steps, and roughly the number of bytes they take.
    pub(super) fn held(&self) -> (usize, usize) {
        let state = self.state();
        (state.steps.len(), state.bytes)
    }

    /// At most `limit` steps after `after`, the last one that the reader has.
    pub(super) fn after(&self, reader: FollowerPlace, after: u64, limit: usize) -> ReadResult {
        let mut state = self.state();
        if after > state.last {
            return ReadResult::Ahead;
        }
        state.readers[reader.0] = Some(after);
        state.shrink();
        let first = state
            .steps
            .front()
            .map_or(state.last + 1, |entry| entry.seq);
        if after + 1 < first {
            return ReadResult::Behind;
        }
        let skip = usize::try_from(after + 1 - first).unwrap_or(usize::MAX);
        ReadResult::Steps(state.steps.iter().skip(skip).take(limit).cloned().collect())
    }

    /// Returns all blocks as of the last step; `None` before the first one of this owner.
    pub(super) fn whole(&self) -> Option<Snapshot> {
        let state = self.state();
        let last = Entry::clone(state.steps.back()?);
        let attempt = state.attempt;
        Some(Snapshot {
            blocks: folded(state).into_blocks(),
            attempt,
            last,
        })
    }

    /// Returns all blocks as of the last of `more`, of which some may be published.
    pub(super) fn blocks_with(&self, more: &[Entry]) -> Vec<Block> {
        let state = self.state();
        let published = state.last;
        let mut blocks = folded(state);
        for entry in more.iter().filter(|entry| entry.seq > published) {
            fold(&mut blocks, entry);
        }
        blocks.into_blocks()
    }

    /// Ends when there is more; enable it before reading.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Wakes every follower: there will be nothing more.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.state.lock()
    }
}

// === impl ReplayState ===

impl ReplayState {
    fn push(&mut self, entry: Arc<Entry>) {
        if let StreamStep::AttemptStarted { attempt, .. } = &entry.step {
            self.attempt = *attempt;
        }
        self.last = entry.seq;
        self.bytes += weight(&entry);
        self.steps.push_back(entry);
        self.shrink();
    }

    fn shrink(&mut self) {
        let taken_by_all = if self.is_promised {
            0
        } else {
            self.readers.iter().flatten().min().copied().unwrap_or(0)
        };
        // The last step stays: it is the place at which all blocks end.
        while self.steps.len() > 1
            && let Some(oldest) = self.steps.front()
        {
            let much = self.bytes > self.kept;
            let may_go = (self.bytes > KEPT_WHEN_TAKEN && oldest.seq <= taken_by_all)
                || (much && oldest.seq <= self.recorded)
                || self.bytes / WITHOUT_RECORD > self.kept;
            if !may_go {
                break;
            }
            self.bytes -= weight(oldest);
            fold(&mut self.gone, oldest);
            self.steps.pop_front();
        }
    }
}

/// Returns the result of all steps that were published.
fn folded(state: MutexGuard<'_, ReplayState>) -> AnswerState {
    let mut blocks = state.gone.clone();
    let held = state.steps.clone();
    // The steps that are held may be many: a publisher does not wait for them.
    drop(state);
    for entry in &held {
        fold(&mut blocks, entry);
    }
    blocks
}

/// Adds a step to the blocks that those before it make.
fn fold(blocks: &mut AnswerState, entry: &Entry) {
    if !matches!(entry.step, StreamStep::Terminal(_))
        && let Err(error) = blocks.apply(&entry.step)
    {
        tracing::error!(%error, "a step that is published does not fold");
    }
}

/// Roughly what a step takes in memory.
fn weight(entry: &Entry) -> usize {
    let text = match &entry.step {
        StreamStep::BlockDelta { text, .. } => text.len(),
        StreamStep::Terminal(_)
        | StreamStep::ContextInjected { .. }
        | StreamStep::Recovery { .. } => 1024,
        StreamStep::BlockStop { opaque, .. } => {
            opaque.as_ref().map_or(64, |opaque| opaque.bytes.len() + 64)
        }
        StreamStep::ResponseStarted { around, .. } => around.bytes.len() + 64,
        StreamStep::AttemptStarted { .. }
        | StreamStep::BlockStart { .. }
        | StreamStep::Rewind { .. }
        | StreamStep::Parked { .. }
        | StreamStep::Usage { .. } => 64,
    };
    text + std::mem::size_of::<Entry>() + 32
}

#[cfg(test)]
mod tests;
