//! The attempts that a circuit admitted, in the order of admission, until each is decided.
//!
//! Errors are fast and completions are slow: in the first second of a partial outage nearly everything
//! that *completes* is an error. So outcomes are passed on in the order in which their calls were
//! admitted, from the head, and a head that is silent for longer than the first-token timeout is
//! passed on as failed: a hang is detected even without a report.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{
    FailKind,
    setting::{CircuitPolicy, MAX_PENDING},
};

/// Number of neighbours that are looked at for a run that is already certain.
const LOOK_AROUND: usize = 1024;

/// The outcome of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// Not known yet.
    Pending,
    /// It got its first token; `slow`: after the slow threshold.
    Answered { slow: bool },
    /// It failed.
    Failed(FailKind),
    /// It was abandoned after the slow threshold, without a first token.
    Silent,
    /// It failed for a reason on this host.
    Local,
    /// It shows nothing about the target.
    Removed,
}

/// A decided attempt on its way to the outcome window.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuedOutcome {
    /// Time at which it was admitted.
    pub(super) admitted: Instant,
    /// Its outcome.
    pub(super) outcome: AttemptOutcome,
    /// The wait that its failure states, in milliseconds.
    pub(super) floor_ms: u32,
}

/// Failures in a row among attempts that are not all passed on yet.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FailureRun {
    /// Number of failures.
    pub(super) failures: u32,
    /// Number of them that were slow.
    pub(super) slow: u32,
    /// Number of failures admitted after the attempt in question.
    pub(super) after: u32,
}

/// The attempts in order of admission, in a ring buffer.
#[derive(Debug, Default)]
pub(super) struct AdmissionQueue {
    entries: VecDeque<QueuedOutcome>,
    first_seq: u64,
    pending: u32,
}

// === impl AdmissionQueue ===

impl AdmissionQueue {
    /// Enters an attempt and returns its number.
    pub(super) fn push(
        &mut self,
        admitted: Instant,
        outcome: AttemptOutcome,
        floor_ms: u32,
    ) -> u64 {
        if outcome == AttemptOutcome::Pending {
            self.pending += 1;
        }
        self.entries.push_back(QueuedOutcome {
            admitted,
            outcome,
            floor_ms,
        });
        self.first_seq + self.entries.len() as u64 - 1
    }

    /// Returns a number for an attempt that is not followed.
    pub(super) fn skip(&mut self) -> u64 {
        self.clear();
        self.first_seq += 1;
        self.first_seq - 1
    }

    /// Returns the time at which a pending attempt was admitted; `None` if it is decided or gone.
    pub(super) fn pending_since(&self, seq: u64) -> Option<Instant> {
        let entry = self.entries.get(self.index(seq)?)?;
        (entry.outcome == AttemptOutcome::Pending).then_some(entry.admitted)
    }

    /// Decides a pending attempt; without effect when it is decided or gone.
    pub(super) fn decide(&mut self, seq: u64, outcome: AttemptOutcome, floor_ms: u32) {
        let Some(index) = self.index(seq) else { return };
        if let Some(entry) = self.entries.get_mut(index)
            && entry.outcome == AttemptOutcome::Pending
        {
            entry.outcome = outcome;
            entry.floor_ms = floor_ms;
            self.pending -= 1;
        }
    }

    /// Removes the head when it is decided or overdue; an overdue head becomes a slow failure.
    ///
    /// When the ring is over its bound, a pending head is removed too: as silent when it was slow,
    /// else as removed.
    pub(super) fn pop(&mut self, now: Instant, policy: &CircuitPolicy) -> Option<QueuedOutcome> {
        loop {
            let mut head = *self.entries.front()?;
            if head.outcome == AttemptOutcome::Pending {
                let age = now.saturating_duration_since(head.admitted);
                if age >= policy.first_token_timeout {
                    head.outcome = AttemptOutcome::Failed(FailKind::Slow);
                } else if self.entries.len() <= MAX_PENDING {
                    return None;
                } else {
                    head.outcome = if age >= policy.slow_threshold {
                        AttemptOutcome::Silent
                    } else {
                        AttemptOutcome::Removed
                    };
                }
                self.pending -= 1;
            }
            self.entries.pop_front();
            self.first_seq += 1;
            if head.outcome != AttemptOutcome::Removed {
                return Some(head);
            }
        }
    }

    /// Returns the run of failures around an attempt that no pending attempt can interrupt:
    /// certain, whatever the others become.
    pub(super) fn run_around(&self, seq: u64) -> FailureRun {
        let Some(index) = self.index(seq).filter(|index| *index < self.entries.len()) else {
            return FailureRun::default();
        };
        let mut run = FailureRun::default();
        for entry in self.entries.range(..=index).rev().take(LOOK_AROUND) {
            if !run.takes(entry.outcome) {
                break;
            }
        }
        let before = run.failures;
        for entry in self.entries.range(index + 1..).take(LOOK_AROUND) {
            if !run.takes(entry.outcome) {
                break;
            }
        }
        run.after = run.failures - before;
        run
    }

    /// Returns the times at which the last failures in a row were admitted, the newest first; calls
    /// that are not decided yet and came after them do not count.
    pub(super) fn last_run(&self) -> impl Iterator<Item = Instant> + '_ {
        let entries = self.entries.iter().rev().take(LOOK_AROUND);
        let decided = entries.skip_while(|entry| entry.outcome == AttemptOutcome::Pending);
        let mut run = FailureRun::default();
        decided
            .take_while(move |entry| run.takes(entry.outcome))
            .filter(|entry| matches!(entry.outcome, AttemptOutcome::Failed(_)))
            .map(|entry| entry.admitted)
    }

    /// Of the last `max` attempts that are at least `age` old: how many show something about the
    /// target, and how many of these are slow. A pending one is slow.
    pub(super) fn aged(&self, now: Instant, age: Duration, max: u32) -> (u32, u32) {
        let young = self
            .entries
            .partition_point(|entry| now.saturating_duration_since(entry.admitted) >= age);
        let mut counted = 0;
        let mut slow = 0;
        for entry in self.entries.range(..young).rev().take(LOOK_AROUND) {
            if counted == max {
                break;
            }
            let (counts, is_slow) = match entry.outcome {
                AttemptOutcome::Removed | AttemptOutcome::Local => (0, 0),
                AttemptOutcome::Pending
                | AttemptOutcome::Silent
                | AttemptOutcome::Answered { slow: true }
                | AttemptOutcome::Failed(FailKind::Slow) => (1, 1),
                AttemptOutcome::Answered { slow: false }
                | AttemptOutcome::Failed(FailKind::Fast) => (1, 0),
            };
            counted += counts;
            slow += is_slow;
        }
        (counted, slow)
    }

    /// Returns the number that is not decided yet.
    pub(super) fn pending(&self) -> u32 {
        self.pending
    }

    /// Forgets all attempts; their numbers are not given again.
    pub(super) fn clear(&mut self) {
        self.first_seq += self.entries.len() as u64;
        self.entries.clear();
        self.pending = 0;
    }

    fn index(&self, seq: u64) -> Option<usize> {
        usize::try_from(seq.checked_sub(self.first_seq)?).ok()
    }
}

// === impl FailureRun ===

impl FailureRun {
    /// Returns whether the run continues over such an attempt.
    fn takes(&mut self, outcome: AttemptOutcome) -> bool {
        match outcome {
            AttemptOutcome::Pending | AttemptOutcome::Answered { .. } => false,
            AttemptOutcome::Silent | AttemptOutcome::Local | AttemptOutcome::Removed => true,
            AttemptOutcome::Failed(kind) => {
                self.failures += 1;
                self.slow += u32::from(kind == FailKind::Slow);
                true
            }
        }
    }
}
