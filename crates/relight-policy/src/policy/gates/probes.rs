//! When a closed gate lets a probe pass.

use std::time::Duration;

use tokio::time::Instant;

/// The shortest and the longest time between two probes of a gate that was closed for a second.
const BETWEEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Number of incoming calls of which one may be a probe, if they wait meanwhile.
const CALLS_A_PROBE: f64 = 20.0;
/// Number of calls that came before in the time in which a limit that they reached may refill.
const CALLS_REFILLED: f64 = 3.0;
/// The longest time between two probes while calls wait for one: several end before the calls that
/// came at the first of them run out of time.
pub(super) const WHILE_CALLS_WAIT: Duration = Duration::from_secs(8);
/// Time by which two refusals that state a wait must be apart for their agreement to mean
/// something.
const APART: Duration = Duration::from_secs(2);
/// By how much the ends that two refusals state may differ: waits are stated in whole seconds.
const TOLERANCE: Duration = Duration::from_secs(1);

/// The probes of one closing.
#[derive(Debug, Clone)]
pub(super) struct ProbePlan {
    closed: Instant,
    /// Time of the last one, of any replica; of the closing before the first.
    last: Instant,
    /// Time at which the next one may pass.
    due: Instant,
    /// The believed end for which a probe went half-way.
    halved: Option<Instant>,
}

/// Statements of refusals about the end of a limit.
#[derive(Debug, Clone, Default)]
pub(super) struct StatedEnd {
    /// Time at which the first one said so, and the end that it stated.
    stated: Option<(Instant, Instant)>,
    believed: Option<Instant>,
}

// === impl ProbePlan ===

impl ProbePlan {
    /// The probes of a gate that closes now: one at once.
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            closed: now,
            last: now,
            due: now,
            halved: None,
        }
    }

    /// Returns the time at which the next one may pass.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// Returns the time at which the next one may pass once a call waits for it.
    pub(super) fn due_if_awaited(&self) -> Instant {
        self.due.min(self.last + WHILE_CALLS_WAIT)
    }

    /// A call waits for the next one: it passes as soon as if calls had waited all along.
    pub(super) fn awaited(&mut self) {
        self.due = self.due_if_awaited();
    }

    /// Another replica, which sent one, knows that none should pass before this time.
    pub(super) fn not_before(&mut self, now: Instant, due: Instant) {
        if due > self.due {
            (self.due, self.last) = (due, now);
        }
    }

    /// One passes, or was refused: when the next one may pass. `end`: the believed end; `rate`: how
    /// many calls a second wait meanwhile; `step`: the shortest time between two probes within the
    /// first second, of a gate whose limit may refill all the time.
    pub(super) fn next(
        &mut self,
        now: Instant,
        end: Option<Instant>,
        rate: f64,
        step: Option<Duration>,
    ) {
        let (shortest, longest) = BETWEEN;
        if let Some(passed) = self.halved.filter(|end| *end <= now) {
            // The believed end is over: from here on it is as if the gate had closed then.
            (self.closed, self.halved) = (passed, None);
        }
        let lasted = now.saturating_duration_since(self.closed);
        let wait = match (end.filter(|end| *end > now), step) {
            (Some(end), _) if self.halved.is_some_and(|halved| agree(halved, end)) => end - now,
            (Some(end), _) => {
                self.halved = Some(end);
                (end - now) / 2
            }
            (None, Some(step)) if lasted < shortest && rate > 0.0 => {
                let refilled = seconds(CALLS_REFILLED / rate).max(step);
                (self.last, self.due) = (now, now + lasted.max(refilled).min(shortest));
                return;
            }
            (None, _) if rate > 0.0 => {
                (lasted / 2).min(seconds(CALLS_A_PROBE / rate).min(WHILE_CALLS_WAIT))
            }
            (None, _) => lasted / 2,
        };
        (self.last, self.due) = (now, now + wait.clamp(shortest, longest));
    }

    /// A believed end became known: the next one passes when that allows it.
    pub(super) fn believe(&mut self, now: Instant, end: Instant) {
        if self.halved.is_none_or(|halved| !agree(halved, end)) {
            self.next(now, Some(end), 0.0, None);
        }
    }
}

// === impl StatedEnd ===

impl StatedEnd {
    /// Takes a refusal that states a wait; returns the end that is believed.
    pub(super) fn stated(&mut self, now: Instant, wait: Option<Duration>) -> Option<Instant> {
        let wait = wait.filter(|wait| !wait.is_zero());
        let Some(end) = wait.and_then(|wait| now.checked_add(wait)) else {
            return self.believed(now);
        };
        match self.stated {
            Some((at, before)) if before > now && now.saturating_duration_since(at) < APART => {}
            Some((_, before)) if agree(before, end) => self.believed = Some(before.max(end)),
            Some(_) | None => (self.stated, self.believed) = (Some((now, end)), None),
        }
        self.believed(now)
    }

    /// A provider stated it by other means.
    pub(super) fn set(&mut self, now: Instant, end: Instant) {
        (self.stated, self.believed) = (Some((now, end)), Some(end));
    }

    /// Returns the end that is believed, while it is to come.
    pub(super) fn believed(&self, now: Instant) -> Option<Instant> {
        self.believed.filter(|end| *end > now)
    }
}

fn agree(one: Instant, other: Instant) -> bool {
    one.max(other) - one.min(other) <= TOLERANCE
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
