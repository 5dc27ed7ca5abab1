//! The record of a circuit's changes: each with its generation, the state before it, and its
//! evidence.
//!
//! Everything is recorded at the moment of the change, because the change itself resets the
//! evidence.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Circuit, CircuitMode, State,
    recovery::RecoveryRamp,
    setting::WINDOW,
    view::{CircuitState, Transition, TransitionKind},
};
use crate::domain::event::Evidence;

/// Changes not yet returned, and the times of the last ones.
#[derive(Debug, Default)]
pub(super) struct TransitionLog {
    outbox: Vec<Transition>,
    /// Time at which it entered its state; `None` while it is in its first one.
    entered: Option<Instant>,
    /// Time at which it was last closed, while it is not closed.
    disturbed: Option<Instant>,
}

/// Cause of a circuit's transition: its own rules or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    /// Observations of the target, or new settings.
    Itself,
    /// Silence of the target.
    Silence,
    /// An operator.
    Operator,
}

// === impl TransitionLog ===

impl TransitionLog {
    /// Returns the changes not yet returned.
    pub(super) fn take(&mut self) -> Vec<Transition> {
        std::mem::take(&mut self.outbox)
    }
}

impl Circuit {
    /// Begins a new generation and records the change.
    pub(super) fn go(&mut self, state: State, by: Trigger, kind: TransitionKind) {
        let before = self.before(by, kind);
        self.openings.last = match kind {
            // An operator's reason is not the circuit's.
            TransitionKind::Opened {
                evidence, reason, ..
            } => (by != Trigger::Operator).then_some((evidence, reason)),
            TransitionKind::Closed => None,
            TransitionKind::HalfOpen
            | TransitionKind::Recovering { .. }
            | TransitionKind::Degraded(_) => self.openings.last,
        };
        self.enter(state);
        let streak = self.times_opened();
        self.moves.outbox.push(Transition {
            generation: self.generation,
            streak,
            ..before
        });
    }

    /// Records a change that starts no generation.
    pub(super) fn record(&mut self, kind: TransitionKind) {
        let transition = self.before(Trigger::Itself, kind);
        self.moves.outbox.push(transition);
    }

    /// Begins a new generation without recording a change.
    pub(super) fn enter(&mut self, state: State) {
        let from = self.state();
        self.state = state;
        let to = self.state();
        // A rejected caller does not care why: an open time continues when an operator releases the
        // circuit.
        if !(from.is_open() && to.is_open()) {
            self.moves.entered = self.context.latest;
        }
        if to.is_closed() {
            self.moves.disturbed = None;
        } else if from.is_closed() {
            self.moves.disturbed = self.context.latest;
        }
        self.generation += 1;
        self.degraded = false;
        self.calls.forget();
    }

    /// Closes.
    pub(super) fn close(&mut self, by: Trigger) {
        self.openings.streak = 0;
        self.go(State::Closed, by, TransitionKind::Closed);
    }

    /// Enters the first stage of recovery.
    pub(super) fn recover(&mut self, now: Instant) {
        let ramp = RecoveryRamp::new(now);
        let admitted_percent = ramp.percent();
        self.go(
            State::Recovering(ramp),
            Trigger::Itself,
            TransitionKind::Recovering { admitted_percent },
        );
    }

    /// Returns the time at which it entered its state; `None` while it is in its first one.
    #[must_use]
    pub fn since(&self) -> Option<Instant> {
        self.moves.entered
    }

    /// Returns the outcomes in the window.
    pub(super) fn evidence(&self) -> Evidence {
        let (counts, window) = self.calls.window.visible();
        Evidence {
            committed: counts.committed(),
            failures: counts.failed,
            slow: counts.slow,
            pending: self.calls.queue.pending(),
            consecutive: self.calls.window.run_failures,
            window_ms: u64::try_from(window.as_millis()).unwrap_or(u64::MAX),
            threshold: self.threshold(),
        }
    }

    /// Failures in a row that open at the present rate of calls.
    fn threshold(&self) -> u32 {
        match self.policy.mode {
            CircuitMode::Off => 0,
            CircuitMode::Consecutive => self.policy.consecutive_failures,
            CircuitMode::Evidence => self
                .policy
                .run_at(f64::from(self.calls.arrivals.last_total()) / WINDOW.as_secs_f64()),
        }
    }

    fn before(&self, by: Trigger, kind: TransitionKind) -> Transition {
        let evidence = match (&self.state, &kind) {
            (_, TransitionKind::Opened { evidence, .. }) => *evidence,
            (State::HalfOpen(probes), _) => Evidence {
                committed: probes.successes,
                pending: probes.outstanding(),
                ..Evidence::default()
            },
            (_, _) => self.evidence(),
        };
        let passed = |since: Instant| {
            self.context
                .latest
                .map_or(Duration::ZERO, |now| now.saturating_duration_since(since))
        };
        Transition {
            kind,
            generation: self.generation,
            from: self.state(),
            streak: self.times_opened(),
            forced: by == Trigger::Operator,
            silent: by == Trigger::Silence,
            slowed: self.calls.window.last_was_slow,
            lasted: self.moves.entered.map(passed),
            disturbed: self.moves.disturbed.map(passed).unwrap_or_default(),
            evidence,
        }
    }

    fn times_opened(&self) -> u32 {
        if CircuitState::is_closed(self.state()) {
            0
        } else {
            self.openings.streak.saturating_add(1)
        }
    }
}
