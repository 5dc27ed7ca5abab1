//! The steps between a writer's caller and its task: numbered when taken, kept until they are durable.

use std::collections::VecDeque;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{
    super::{AppendError, Entry, size::step_bytes},
    BATCH_BYTES, BATCH_DELAY,
};
use crate::{config::observe::JournalMode, domain::fold::Progress};

/// Steps of one append at most.
const BATCH_STEPS: usize = 512;

/// Steps that are taken and not durable yet.
#[derive(Debug)]
pub(super) struct Queue {
    entries: VecDeque<(Entry, u64)>,
    bytes: u64,
    capacity: usize,
    last_seq: u64,
    oldest: Option<Instant>,
    /// Up to this step somebody waits.
    wanted: u64,
    stopped: Option<AppendError>,
    lost: bool,
    dropped: u64,
}

/// When the next append is due.
#[derive(Debug, PartialEq)]
pub(super) enum Due {
    /// Now, with these.
    Now(Vec<Entry>),
    /// Then, unless more comes.
    At(Instant),
    /// Nothing waits.
    Idle,
}

// === impl Queue ===

impl Queue {
    pub(super) const fn new(last_seq: u64, capacity: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            capacity,
            last_seq,
            oldest: None,
            wanted: 0,
            stopped: None,
            lost: false,
            dropped: 0,
        }
    }

    /// Why nothing more is taken.
    pub(super) fn check(&self) -> Result<(), AppendError> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Numbers a step, and keeps it unless the record was given up.
    pub(super) fn take(&mut self, epoch: u64, attempt: u32, at: Timestamp, step: Progress, now: Instant) -> u64 {
        self.last_seq += 1;
        if self.lost {
            self.dropped += 1;
            return self.last_seq;
        }
        let bytes = step_bytes(&step);
        self.bytes += bytes;
        self.oldest.get_or_insert(now);
        self.entries.push_back((Entry { epoch, seq: self.last_seq, attempt, at, step }, bytes));
        self.last_seq
    }

    /// Everything taken so far is wanted now; tells the last of it.
    pub(super) fn want_all(&mut self) -> u64 {
        self.wanted = self.last_seq;
        self.last_seq
    }

    pub(super) fn due(&self, mode: JournalMode, now: Instant) -> Due {
        let (Some((first, _)), Some(oldest)) = (self.entries.front(), self.oldest) else { return Due::Idle };
        let at = oldest + BATCH_DELAY;
        let urgent = match mode {
            JournalMode::Strict => true,
            JournalMode::Fast => self.wanted >= first.seq || self.bytes >= BATCH_BYTES || at <= now,
        };
        if !urgent {
            return Due::At(at);
        }
        Due::Now(self.entries.iter().take(BATCH_STEPS).map(|(entry, _)| entry.clone()).collect())
    }

    /// Everything up to a step is durable.
    pub(super) fn recorded(&mut self, seq: u64) {
        while let Some((_, bytes)) = self.entries.pop_front_if(|(entry, _)| entry.seq <= seq) {
            self.bytes -= bytes;
        }
        // What is left came while the append was under way, so it waited less than an append took.
        if self.entries.is_empty() {
            self.oldest = None;
        }
    }

    /// Nothing more can be appended; what waits is kept for the end.
    pub(super) fn stop(&mut self, error: AppendError) {
        self.stopped = Some(error);
    }

    /// Gives up the rest of the record.
    pub(super) fn give_up(&mut self) {
        self.lost = true;
        self.dropped += self.entries.len() as u64;
        self.entries.clear();
        self.bytes = 0;
        self.oldest = None;
    }

    /// What is not known to be durable, and the last steps after it.
    pub(super) fn remainder(&self, epoch: u64, rest: &[(u32, Progress)], now: Timestamp) -> Vec<Entry> {
        if self.lost {
            return Vec::new();
        }
        let waiting = self.entries.iter().map(|(entry, _)| entry.clone());
        let rest = (self.last_seq + 1..).zip(rest);
        let rest =
            rest.map(|(seq, (attempt, step))| Entry { epoch, seq, attempt: *attempt, at: now, step: step.clone() });
        waiting.chain(rest).collect()
    }

    pub(super) const fn last_seq(&self) -> u64 {
        self.last_seq
    }

    pub(super) const fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}
