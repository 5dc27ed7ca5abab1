//! The visible side of a circuit: its state, its changes, and what an operator may force.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::domain::circuit::CircuitState;
use crate::domain::event::Evidence;

/// A state that an operator forces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Forced {
    /// Admit nothing.
    Open,
    /// Admit everything.
    Closed,
    /// Judge by evidence again: after `Open` by probing first.
    Auto,
}

/// The kind of a change, with its facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransitionKind {
    /// The circuit opened; it is no longer called degraded.
    Opened {
        /// The outcomes on which it opened.
        evidence: Evidence,
        /// Time for which nothing is admitted; `None` until an operator releases it.
        retry_in: Option<Duration>,
        /// Reason in words; starts with `local` if the cause is on this host, so that it is not a
        /// vote for other replicas.
        reason: &'static str,
    },
    /// The first probe is sent.
    HalfOpen,
    /// A stage of recovery started.
    Recovering {
        /// The share admitted, in percent.
        admitted_percent: u32,
    },
    /// The circuit closed.
    Closed,
    /// A closed or recovering circuit is, or is no longer, degraded: prefer other targets.
    Degraded(bool),
}

/// A change of a circuit, and everything known at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// Kind of change.
    pub kind: TransitionKind,
    /// Generation that started; a later stage of recovery, or a degraded target, starts none.
    pub generation: u64,
    /// The state before it.
    pub from: CircuitState,
    /// Number of times the circuit opened in a row without closing between, this time included; 0
    /// if it is closed.
    pub streak: u32,
    /// `true` if an operator did it.
    pub forced: bool,
    /// `true` if it opened because the target was silent, rather than because it reported failures.
    pub silent: bool,
    /// `true` if the last completion before came slowly, as it does when calls queue up at the target.
    pub slowed: bool,
    /// Time spent in the state before; `None` if that was its first one.
    pub lasted: Option<Duration>,
    /// Time since it was last closed; zero if it was closed until now.
    pub disturbed: Duration,
    /// The outcomes by which it judged, before they were forgotten.
    pub evidence: Evidence,
}

/// A snapshot of a circuit for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitSnapshot {
    /// The state.
    pub state: CircuitState,
    /// Number of state changes.
    pub generation: u64,
    /// Time until calls may come through; `None` if they may now, or while an operator holds it
    /// open.
    pub retry_in: Option<Duration>,
    /// If set, other targets are preferable.
    pub degraded: bool,
    /// Outcomes in the window.
    pub evidence: Evidence,
    /// The evidence and reason of the last opening; `None` once it closed.
    pub opened: Option<(Evidence, &'static str)>,
    /// Recoveries that failed since the circuit was last closed.
    pub streak: u32,
    /// Reports that came too late to change anything.
    pub stale_reports: u64,
    /// Probes that are out.
    pub probes_outstanding: u32,
}

// === impl CircuitSnapshot ===

impl CircuitSnapshot {
    /// Returns the number of times it opened in a row without closing between; 0 while it is
    /// closed.
    #[must_use]
    pub const fn times_opened(&self) -> u32 {
        if self.state.is_closed() {
            0
        } else {
            self.streak.saturating_add(1)
        }
    }

    /// Returns the reason why calls to the target are a risk, in words; `None` for a healthy
    /// target.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        if !self.state.is_closed() {
            let why = self
                .opened
                .map(|(evidence, reason)| format!(": {}", opened_words(&evidence, reason)));
            Some(format!(
                "the circuit is {}{}",
                self.state.as_str(),
                why.unwrap_or_default()
            ))
        } else if self.degraded {
            Some("the target is degraded: others are preferred".to_owned())
        } else {
            None
        }
    }
}

/// Returns the reason why a circuit opened, with the numbers, such as `5 failures in a row (5 open
/// it)`.
#[must_use]
pub fn opened_words(evidence: &Evidence, reason: &str) -> String {
    let Evidence {
        committed,
        failures,
        consecutive,
        threshold,
        ..
    } = evidence;
    match reason {
        "failures in a row" => format!("{consecutive} failures in a row ({threshold} open it)"),
        reason if *committed > 1 => format!("{reason} ({failures} of {committed} calls failed)"),
        reason => reason.to_owned(),
    }
}
