//! Evidence of one target at several replicas: what each of them saw, and the rule of one circuit
//! on the sum.
//!
//! Ages are lengths from now, so that clocks need not agree. A failure counts only if its call was
//! admitted after the last call, at any replica, that succeeded: as at one circuit, outcomes are
//! judged in the order in which their calls were admitted.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    Circuit, CircuitMode, CircuitPolicy, FailKind, ObservedCalls, State, Transition, Trigger,
    outcome_window::{RUN_REMEMBERED, Trip},
    setting::{FAILURE_SHARE, MIN_OUTCOMES, WINDOW},
};
use crate::domain::event::Evidence;

/// Outcomes that one replica saw of a target lately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SharedWindow {
    /// Calls that it admitted in the last ten seconds.
    pub calls: u32,
    /// Outcomes of them that count.
    pub committed: u32,
    /// Failures among these.
    pub failures: u32,
    /// Milliseconds since a call was admitted that succeeded; `None` if none did.
    pub answered_ms: Option<u64>,
    /// Milliseconds since each of the last failures in a row was admitted; 32 at most.
    pub run_ms: Vec<u64>,
}

/// The state of a circuit as replicas share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedPhase {
    /// Calls are kept away, or probes find out whether they must be.
    Open,
    /// More and more calls are admitted.
    Recovering,
    /// Every call is admitted.
    Closed,
}

/// A reason to open that the sum of several windows shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Together {
    /// The outcomes of all.
    pub evidence: Evidence,
    /// The reason, in words.
    pub reason: &'static str,
}

// === impl Together ===

impl Together {
    /// Returns the evidence of a circuit that opened at another replica.
    #[must_use]
    pub fn at_another(window: &SharedWindow) -> Self {
        let consecutive = u32::try_from(window.run_ms.len()).unwrap_or(u32::MAX);
        Self {
            evidence: Evidence {
                committed: window.committed,
                failures: window.failures,
                consecutive,
                window_ms: millis(WINDOW),
                ..Evidence::default()
            },
            reason: "failures at another replica",
        }
    }
}

// === impl SharedWindow ===

impl SharedWindow {
    /// Returns the same window as it is after this time.
    #[must_use]
    pub fn after(mut self, passed: Duration) -> Self {
        let passed = millis(passed);
        let later = |age: u64| age.saturating_add(passed);
        self.answered_ms = self.answered_ms.map(later);
        for age in &mut self.run_ms {
            *age = later(*age);
        }
        self
    }

    /// Returns whether its last outcomes are failures, or failures are a good part of them.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        let share = f64::from(self.failures) / f64::from(self.committed.max(1));
        !self.run_ms.is_empty() || (self.failures >= SEVERAL && share >= FAILURE_SHARE / 2.0)
    }
}

/// Failures at which their share begins to mean something.
const SEVERAL: u32 = 3;

/// Returns whether the sum of what several replicas saw would open one circuit, and why.
#[must_use]
pub fn judge_together(policy: &CircuitPolicy, windows: &[SharedWindow]) -> Option<Together> {
    let sum = |of: fn(&SharedWindow) -> u32| windows.iter().map(of).sum::<u32>();
    let answered = windows.iter().filter_map(|window| window.answered_ms).min();
    let ages = windows.iter().flat_map(|window| &window.run_ms);
    let run = ages.filter(|age| answered.is_none_or(|answered| **age < answered));
    let consecutive = u32::try_from(run.count()).unwrap_or(u32::MAX);
    let committed = sum(|one| one.committed);
    let failures = sum(|one| one.failures);
    let threshold = match policy.mode {
        CircuitMode::Off => return None,
        CircuitMode::Consecutive => policy.consecutive_failures,
        CircuitMode::Evidence => {
            policy.run_at(f64::from(sum(|one| one.calls)) / WINDOW.as_secs_f64())
        }
    };
    let evidence = Evidence {
        committed: committed.max(consecutive),
        failures: failures.max(consecutive),
        consecutive,
        window_ms: millis(WINDOW),
        threshold,
        ..Evidence::default()
    };
    let share = f64::from(failures) / f64::from(committed.max(1));
    let by_share =
        policy.mode == CircuitMode::Evidence && committed >= MIN_OUTCOMES && share >= FAILURE_SHARE;
    let reason = if consecutive >= threshold {
        "failures in a row"
    } else if by_share {
        "share of failures"
    } else {
        return None;
    };
    Some(Together { evidence, reason })
}

// === impl Circuit: what replicas share of it ===

impl Circuit {
    /// Returns the state that others may follow; `None` while an operator or nothing decides.
    #[must_use]
    pub fn shared_phase(&self) -> Option<SharedPhase> {
        match self.state {
            _ if self.policy.mode == CircuitMode::Off => None,
            State::ForcedOpen | State::ForcedClosed => None,
            State::Open { .. } | State::HalfOpen(_) => Some(SharedPhase::Open),
            State::Recovering(_) => Some(SharedPhase::Recovering),
            State::Closed => Some(SharedPhase::Closed),
        }
    }

    /// Returns the settings in force, to be judged by elsewhere.
    #[must_use]
    pub fn shared_policy(&self) -> Arc<CircuitPolicy> {
        Arc::clone(&self.policy)
    }

    /// Returns what was seen: lately, or, while the circuit is not closed, before it opened.
    pub fn shared_window(&mut self, now: Instant) -> SharedWindow {
        let before = self.openings.rested_on.as_ref();
        match before.filter(|_| !self.state().is_closed()) {
            Some((at, window)) => window
                .clone()
                .after(now.saturating_duration_since(*at))
                .answered_since(self.calls.answered_ago(now)),
            None => self.calls.seen(now),
        }
    }

    /// Opens on evidence of several replicas; for as long as the one that opened first, if one did.
    /// Without effect unless calls are admitted now.
    pub fn open_with(
        &mut self,
        now: Instant,
        rng: f64,
        together: Together,
        retry_in: Option<Duration>,
    ) -> Vec<Transition> {
        self.context.rng = rng;
        let now = self.settle(now);
        let admits = matches!(self.state, State::Closed | State::Recovering(_));
        if admits && self.policy.mode != CircuitMode::Off {
            let trip = Trip {
                reason: together.reason,
                kind: FailKind::Fast,
            };
            let floor = retry_in.map_or(0, |wait| u32::try_from(wait.as_millis()).unwrap_or(0));
            self.open(now, trip, floor, together.evidence);
        }
        self.drain()
    }

    /// Returns how many probes may be out at once and for how long at most, if the next call would
    /// be one.
    #[must_use]
    pub fn next_is_probe(&self, now: Instant) -> Option<(u32, Duration)> {
        let is_probe = match &self.state {
            State::Open { until, .. } => now >= *until,
            State::HalfOpen(_) => true,
            State::Closed | State::Recovering(_) | State::ForcedOpen | State::ForcedClosed => false,
        };
        is_probe.then(|| (self.policy.probes_at_once(), self.policy.lease()))
    }

    /// Leaves probing to others until this time, if it is open.
    pub fn stay_open(&mut self, until: Instant) {
        if let State::Open {
            until: known,
            until_alone,
        } = &mut self.state
        {
            *known = (*known).max(until);
            *until_alone = (*until_alone).max(until);
        }
    }

    /// Goes as far as another replica did that had successes: to the first stage of recovery, or
    /// from there to closed. Without effect on a circuit that has got as far, and on one that an
    /// operator holds.
    pub fn recover_as(&mut self, phase: SharedPhase, now: Instant) -> Vec<Transition> {
        let now = self.settle(now);
        match (&self.state, phase) {
            (State::Open { .. } | State::HalfOpen(_), SharedPhase::Closed)
                if self.policy.mode == CircuitMode::Consecutive =>
            {
                self.close(Trigger::Itself);
            }
            (
                State::Open { .. } | State::HalfOpen(_),
                SharedPhase::Recovering | SharedPhase::Closed,
            ) if self.policy.mode == CircuitMode::Evidence => self.recover(now),
            (State::Recovering(_), SharedPhase::Closed) if self.calls.window.run_failures == 0 => {
                self.close(Trigger::Itself);
            }
            _ => {}
        }
        self.drain()
    }
}

// === impl ObservedCalls: what replicas share of them ===

impl ObservedCalls {
    /// Returns what was seen since the last change of state.
    pub(super) fn seen(&mut self, now: Instant) -> SharedWindow {
        let counts = self.window.counted(now);
        let ago = |at: Instant| millis(now.saturating_duration_since(at));
        let mut run: Vec<u64> = self.window.run().map(ago).collect();
        // A slow call before them keeps failures from being committed.
        let waiting: Vec<u64> = self
            .queue
            .last_run()
            .take(RUN_REMEMBERED)
            .map(ago)
            .collect();
        if waiting.len() > run.len() {
            run = waiting;
        }
        let failures = counts
            .failed
            .max(u32::try_from(run.len()).unwrap_or(u32::MAX));
        let calls = self.per_second(now) * WINDOW.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of calls"
        )]
        let calls = calls.round() as u32;
        SharedWindow {
            calls: calls.max(counts.committed()),
            committed: counts.committed().max(failures),
            failures,
            answered_ms: self.answered_ago(now),
            run_ms: run,
        }
    }

    fn answered_ago(&self, now: Instant) -> Option<u64> {
        self.succeeded
            .map(|at| millis(now.saturating_duration_since(at)))
    }
}

impl SharedWindow {
    fn answered_since(self, answered_ms: Option<u64>) -> Self {
        Self {
            answered_ms: answered_ms.or(self.answered_ms),
            ..self
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
