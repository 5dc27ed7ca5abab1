//! Committed outcomes: how many in a row, how many in the window, and whether they suffice to open
//! the circuit.
//!
//! Nothing here grows with the traffic: a window of 20 parts, the last few outcomes, and counters.

use std::{
    collections::VecDeque,
    ops::{AddAssign, SubAssign},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    FailKind,
    admission_queue::AttemptOutcome,
    setting::{
        CircuitPolicy, FAILURE_SHARE, MIN_OUTCOMES, SHARE_WITH_ALTERNATIVE, SPARSE_WINDOW, WINDOW,
    },
};
use crate::policy::sliding::Sliding;

/// Failures in a row whose times are remembered.
pub(super) const RUN_REMEMBERED: usize = 32;

/// Outcomes before a run of failures from which the share of failures is known.
const SHARE_KNOWN: u32 = 100;

/// Probability of a run of failures that is not taken for chance: of 250 attempts a second at a target
/// that fails half of them, one in three months begins such a run.
const CHANCE: f64 = 1e-9;

/// Counts of outcomes by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct OutcomeCounts {
    /// First tokens.
    pub(super) answered: u32,
    /// Failures.
    pub(super) failed: u32,
    /// Failures that were timeouts.
    pub(super) failed_slow: u32,
    /// Calls abandoned without a response, after the slow threshold.
    pub(super) silent: u32,
    /// Slow in any way: late response, abandoned, timed out.
    pub(super) slow: u32,
}

/// The reason for which a circuit opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trip {
    /// A description of the reason.
    pub(super) reason: &'static str,
    /// Kind of failure, which tells whether learning of recovery is cheap.
    pub(super) kind: FailKind,
}

/// The outcomes committed since the circuit last changed its state.
#[derive(Debug)]
pub(super) struct OutcomeWindow {
    window: Sliding<OutcomeCounts>,
    last: VecDeque<(Instant, OutcomeCounts)>,
    /// Failures since the last success.
    pub(super) run_failures: u32,
    run_slow: u32,
    run_silent: u32,
    run_began: Option<Instant>,
    run_ended: Option<Instant>,
    /// Times at which the last of its failures were admitted.
    run_admitted: VecDeque<Instant>,
    local_run: u32,
    /// `true` if the last completion came slowly.
    pub(super) last_was_slow: bool,
}

// === impl OutcomeCounts ===

impl OutcomeCounts {
    pub(super) const NONE: Self = Self {
        answered: 0,
        failed: 0,
        failed_slow: 0,
        silent: 0,
        slow: 0,
    };

    fn of(outcome: AttemptOutcome) -> Self {
        let none = Self::NONE;
        match outcome {
            AttemptOutcome::Answered { slow } => Self {
                answered: 1,
                slow: u32::from(slow),
                ..none
            },
            AttemptOutcome::Failed(FailKind::Fast) => Self { failed: 1, ..none },
            AttemptOutcome::Failed(FailKind::Slow) => Self {
                failed: 1,
                failed_slow: 1,
                slow: 1,
                ..none
            },
            AttemptOutcome::Silent => Self {
                silent: 1,
                slow: 1,
                ..none
            },
            AttemptOutcome::Local | AttemptOutcome::Pending | AttemptOutcome::Removed => none,
        }
    }

    /// Returns all of them.
    pub(super) fn committed(&self) -> u32 {
        self.answered + self.failed + self.silent
    }

    /// Failures among them, 0 to 1.
    pub(super) fn failure_share(&self) -> f64 {
        f64::from(self.failed) / f64::from(self.committed().max(1))
    }

    /// Slow ones among them, 0 to 1.
    pub(super) fn slow_share(&self) -> f64 {
        f64::from(self.slow) / f64::from(self.committed().max(1))
    }
}

impl AddAssign for OutcomeCounts {
    fn add_assign(&mut self, other: Self) {
        self.answered += other.answered;
        self.failed += other.failed;
        self.failed_slow += other.failed_slow;
        self.silent += other.silent;
        self.slow += other.slow;
    }
}

impl SubAssign for OutcomeCounts {
    fn sub_assign(&mut self, other: Self) {
        self.answered -= other.answered;
        self.failed -= other.failed;
        self.failed_slow -= other.failed_slow;
        self.silent -= other.silent;
        self.slow -= other.slow;
    }
}

// === impl Trip ===

impl Trip {
    /// Opens on failures in a row, of which some were slow.
    pub(super) fn of_run(slow: u32, failures: u32) -> Self {
        Self {
            reason: "failures in a row",
            kind: majority(slow, failures),
        }
    }
}

// === impl OutcomeWindow ===

impl OutcomeWindow {
    pub(super) fn new() -> Self {
        Self {
            window: Sliding::new(WINDOW),
            last: VecDeque::with_capacity(MIN_OUTCOMES as usize),
            run_failures: 0,
            run_slow: 0,
            run_silent: 0,
            run_began: None,
            run_ended: None,
            run_admitted: VecDeque::new(),
            local_run: 0,
            last_was_slow: false,
        }
    }

    /// Counts an outcome, in admission order.
    pub(super) fn commit(&mut self, now: Instant, admitted: Instant, outcome: AttemptOutcome) {
        match outcome {
            AttemptOutcome::Pending | AttemptOutcome::Removed => return,
            AttemptOutcome::Local => {
                self.local_run += 1;
                return;
            }
            AttemptOutcome::Answered { slow } => {
                self.last_was_slow = slow;
                self.local_run = 0;
                self.end_run();
            }
            AttemptOutcome::Failed(kind) => {
                self.local_run = 0;
                self.run_failures += 1;
                self.run_slow += u32::from(kind == FailKind::Slow);
                if self.run_admitted.len() >= RUN_REMEMBERED {
                    self.run_admitted.pop_front();
                }
                self.run_admitted.push_back(admitted);
                self.lengthen_run(admitted);
            }
            AttemptOutcome::Silent => {
                self.run_silent += 1;
                self.lengthen_run(admitted);
            }
        }
        let counts = OutcomeCounts::of(outcome);
        self.window.add(now, counts);
        while self.last.len() >= MIN_OUTCOMES as usize {
            self.last.pop_front();
        }
        self.last.push_back((now, counts));
    }

    /// Returns a trip if there are enough failures in a row, or enough silence in a row; `length`
    /// is what opens.
    pub(super) fn judge_run(&self, length: u32, policy: &CircuitPolicy) -> Option<Trip> {
        if self.run_failures >= length {
            return Some(Trip::of_run(self.run_slow, self.run_failures));
        }
        // Each caller who gave up proves little, so the run must also last longer than the slow
        // threshold. Otherwise one pause of the target would open the circuit for all calls of that
        // moment.
        if self.run_failures + self.run_silent >= length && self.run_time() >= policy.slow_threshold
        {
            return Some(Trip {
                reason: "no call succeeded",
                kind: FailKind::Slow,
            });
        }
        None
    }

    /// Returns a trip if enough failures in a row have a cause on this host, to stop trying from
    /// here.
    pub(super) fn judge_local(&self, length: u32) -> Option<Trip> {
        (self.local_run >= length).then_some(Trip {
            reason: "local failures in a row",
            kind: FailKind::Fast,
        })
    }

    /// Checks whether the share of failures is too high.
    pub(super) fn judge_share(
        &mut self,
        now: Instant,
        min_outcomes: u32,
        alternative_healthy: bool,
    ) -> Option<Trip> {
        let counts = self.basis(now, min_outcomes)?;
        let share = counts.failure_share();
        let kind = majority(counts.failed_slow, counts.failed);
        if share >= FAILURE_SHARE {
            return Some(Trip {
                reason: "share of failures",
                kind,
            });
        }
        (alternative_healthy && share >= SHARE_WITH_ALTERNATIVE).then_some(Trip {
            reason: "share of failures while another target is healthy",
            kind,
        })
    }

    /// Returns the outcomes on which shares are judged: the window, or at low traffic the last few;
    /// `None` when too few.
    pub(super) fn basis(&mut self, now: Instant, min_outcomes: u32) -> Option<OutcomeCounts> {
        let counts = self.window.total(now);
        if counts.committed() >= min_outcomes {
            return Some(counts);
        }
        let batch = self.last.len().checked_sub(min_outcomes as usize)?;
        let (oldest, _) = self.last.get(batch)?;
        if now.saturating_duration_since(*oldest) > SPARSE_WINDOW {
            return None;
        }
        let mut counts = OutcomeCounts::default();
        for (_, outcome) in self.last.range(batch..) {
            counts += *outcome;
        }
        Some(counts)
    }

    /// Of the last outcomes, `max` at most: how many there are, and how many of them were slow.
    pub(super) fn last_slow(&self, now: Instant, max: u32) -> (u32, u32) {
        let since = now.checked_sub(SPARSE_WINDOW);
        let recent = self.last.iter().rev().take(max as usize);
        let recent = recent.take_while(|(at, _)| since.is_none_or(|since| *at >= since));
        recent.fold((0, 0), |(counted, slow), (_, counts)| {
            (counted + counts.committed(), slow + counts.slow)
        })
    }

    /// Returns the number of failures and calls without a response since the last success.
    pub(super) fn unanswered(&self) -> u32 {
        self.run_failures + self.run_silent
    }

    /// Returns the number of failures in a row that chance does not explain, by the share of failures
    /// in the window before them; 0 while that is not known.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 93"
    )]
    pub(super) fn run_beyond_chance(&mut self, now: Instant) -> u32 {
        let all = self.counted(now);
        let before = all.committed().saturating_sub(self.unanswered());
        let failed = all.failed.saturating_sub(self.run_failures);
        if before < SHARE_KNOWN || failed == 0 {
            return 0;
        }
        let share = (f64::from(failed) / f64::from(before)).min(FAILURE_SHARE);
        (CHANCE.ln() / share.ln()).ceil() as u32
    }

    /// Returns the time from the first to the last of them; zero if there are fewer than two.
    pub(super) fn run_time(&self) -> Duration {
        self.run_ended
            .zip(self.run_began)
            .map_or(Duration::ZERO, |(end, began)| {
                end.saturating_duration_since(began)
            })
    }

    /// Returns the time at which the first of them was admitted.
    pub(super) const fn run_began(&self) -> Option<Instant> {
        self.run_began
    }

    /// Returns the times at which the last failures in a row were admitted.
    pub(super) fn run(&self) -> impl Iterator<Item = Instant> + '_ {
        self.run_admitted.iter().copied()
    }

    /// Returns the outcomes of the window.
    pub(super) fn counted(&mut self, now: Instant) -> OutcomeCounts {
        self.window.total(now)
    }

    /// Forgets all outcomes but those in a row at the end.
    pub(super) fn forget_shares(&mut self) {
        self.window = Sliding::new(WINDOW);
        self.last.clear();
    }

    /// Returns the outcomes shown to people and the time that they cover: the window, or at low
    /// traffic the last few.
    pub(super) fn visible(&self) -> (OutcomeCounts, Duration) {
        let mut last = OutcomeCounts::default();
        for (_, outcome) in &self.last {
            last += *outcome;
        }
        if self.window.last_total().committed() >= last.committed() {
            (self.window.last_total(), WINDOW)
        } else {
            (last, SPARSE_WINDOW)
        }
    }

    fn lengthen_run(&mut self, admitted: Instant) {
        self.run_began.get_or_insert(admitted);
        self.run_ended = Some(admitted);
    }

    fn end_run(&mut self) {
        self.run_failures = 0;
        self.run_slow = 0;
        self.run_silent = 0;
        self.run_began = None;
        self.run_ended = None;
        self.run_admitted.clear();
    }
}

fn majority(slow: u32, all: u32) -> FailKind {
    if slow * 2 > all {
        FailKind::Slow
    } else {
        FailKind::Fast
    }
}
