//! What others see of a circuit: its state, its changes, and what an operator may demand of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::event::Evidence;

/// A circuit's state as people and metrics see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// Everything is admitted.
    Closed,
    /// Nothing is admitted until a time.
    Open,
    /// A few probes are admitted.
    HalfOpen,
    /// A share is admitted, in stages.
    Recovering,
    /// Held open by an operator.
    ForcedOpen,
    /// Held closed by an operator; evidence is counted and changes nothing.
    ForcedClosed,
}

/// What an operator demands.
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

/// A change that others want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The circuit opened; it is no longer called degraded.
    Opened {
        /// On what.
        evidence: Evidence,
        /// How long nothing is admitted.
        retry_in: Duration,
        /// Why, in words; begins with `local` when the cause lies on this host, so that it is no vote for others.
        reason: &'static str,
    },
    /// The first probe goes out.
    HalfOpen,
    /// A stage of recovery began.
    Recovering {
        /// The share admitted, in percent.
        admitted_percent: u32,
    },
    /// The circuit closed.
    Closed,
    /// A closed or recovering circuit is, or is no longer, degraded: prefer other targets.
    Degraded(bool),
}

/// What a circuit looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CircuitSnapshot {
    /// The state.
    pub state: CircuitState,
    /// How often the state changed.
    pub generation: u64,
    /// How long until calls may come through; `None` when they may now, or while an operator holds it open.
    pub retry_in: Option<Duration>,
    /// Whether other targets are preferable.
    pub degraded: bool,
    /// Outcomes in the window.
    pub evidence: Evidence,
    /// Recoveries that failed since the circuit was last closed.
    pub streak: u32,
    /// Reports that came too late to change anything.
    pub stale_reports: u64,
    /// Probes that are out.
    pub probes_outstanding: u32,
}

// === impl CircuitState ===

impl CircuitState {
    /// The state's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
            Self::Recovering => "recovering",
            Self::ForcedOpen => "forced_open",
            Self::ForcedClosed => "forced_closed",
        }
    }
}
