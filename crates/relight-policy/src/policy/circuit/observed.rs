//! What a circuit knows, by owner: the calls of its target, its openings, and what its callers last
//! stated.

use tokio::time::Instant;

use super::{
    SharedWindow,
    admission_queue::{AdmissionQueue, AttemptOutcome},
    outcome_window::OutcomeWindow,
    setting::WINDOW,
};
use crate::{domain::event::Evidence, policy::sliding::Sliding};

/// The calls of a target, as far as they show how it is.
#[derive(Debug)]
pub(super) struct ObservedCalls {
    /// Those that are not judged yet.
    pub(super) queue: AdmissionQueue,
    /// Outcomes of those that are.
    pub(super) window: OutcomeWindow,
    /// Number of admitted calls.
    pub(super) arrivals: Sliding<u32>,
    pub(super) last_admitted: Option<Instant>,
    /// Time of the last success; before the first one, when the first call was admitted.
    pub(super) last_answered: Option<Instant>,
    /// Time at which the last call was admitted that succeeded.
    pub(super) succeeded: Option<Instant>,
}

/// Openings of a circuit since it was last closed.
#[derive(Debug, Default)]
pub(super) struct Openings {
    /// Recoveries that failed.
    pub(super) streak: u32,
    /// Calls per second before the circuit opened.
    pub(super) usual_rate: f64,
    /// Time of the first of the failures that opened it.
    pub(super) failing_since: Option<Instant>,
    /// On what it opened last, and why; `None` once it closed.
    pub(super) last: Option<(Evidence, &'static str)>,
    /// Time of the last opening, and what replicas share of what it rested on.
    pub(super) rested_on: Option<(Instant, SharedWindow)>,
}

/// Circumstances that the callers of a circuit last stated: it has no clock, no random numbers and no
/// neighbours of its own.
#[derive(Debug)]
pub(super) struct StatedContext {
    /// The latest time: time does not run backwards here, even when callers read their clocks before
    /// they got the lock.
    pub(super) latest: Option<Instant>,
    /// A random number, 0 to 1.
    pub(super) rng: f64,
    /// `true` if another target could take the calls.
    pub(super) alternative_healthy: bool,
}

// === impl ObservedCalls ===

impl ObservedCalls {
    pub(super) fn new() -> Self {
        Self {
            queue: AdmissionQueue::default(),
            window: OutcomeWindow::new(),
            arrivals: Sliding::new(WINDOW),
            last_admitted: None,
            last_answered: None,
            succeeded: None,
        }
    }

    /// Enters a call and returns its number.
    pub(super) fn admit(&mut self, now: Instant) -> u64 {
        self.arrivals.add(now, 1);
        self.last_admitted = Some(now);
        self.last_answered.get_or_insert(now);
        self.queue.push(now, AttemptOutcome::Pending, 0)
    }

    /// Returns the calls per second of late.
    pub(super) fn per_second(&mut self, now: Instant) -> f64 {
        f64::from(self.arrivals.total(now)) / WINDOW.as_secs_f64()
    }

    /// Forgets outcomes, decided or not.
    pub(super) fn forget(&mut self) {
        self.queue.clear();
        self.window = OutcomeWindow::new();
    }
}

// === impl StatedContext ===

impl Default for StatedContext {
    fn default() -> Self {
        Self {
            latest: None,
            rng: 0.5,
            alternative_healthy: false,
        }
    }
}

impl StatedContext {
    /// Takes a reading of a clock and returns the latest one.
    pub(super) fn advance(&mut self, now: Instant) -> Instant {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(now);
        now
    }
}
