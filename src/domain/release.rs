//! What was decided about a release: a version of a target or tool server that was watched.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The rule by which the monitor acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseLane {
    /// A breaking change of the schema that no adapter covers.
    Contract,
    /// Failures in a row, or several with one signature.
    Immediate,
    /// Every execution failed.
    Fast,
    /// Anytime-valid evidence against the stable release.
    Evidence,
    /// Success dropped in the sliding window.
    Standard,
}

/// What was done with a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseAction {
    /// Its traffic went back to the stable release.
    RolledBack,
    /// It became the stable release.
    Promoted,
    /// It got its share again after a provisional rollback.
    Reinstated,
    /// A guard kept the monitor from acting, or nothing was to be done but to report it.
    Held,
}

/// The figures that a release was judged by.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReleaseEvidence {
    /// Executions that count.
    pub executions: u64,
    /// Of these, failures.
    pub failures: u64,
    /// Failures in a row up to now.
    pub consecutive: u64,
    /// Executions in the sliding window.
    pub window: u64,
    /// Success in the sliding window, 0 to 1; `None` where it is empty.
    pub window_success: Option<f64>,
    /// Success of the stable release, 0 to 1; `None` where too little is known of it.
    pub baseline_success: Option<f64>,
    /// Value of the e-process against the stable release; `None` without a baseline.
    pub e_value: Option<f64>,
    /// The signature that repeated failures share; empty where there is none.
    pub signature: String,
}

/// One decision about a release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseDecision {
    /// When it was made.
    pub at: Timestamp,
    /// What was done.
    pub action: ReleaseAction,
    /// By which rule; `None` where an operator decided.
    pub lane: Option<ReleaseLane>,
    /// Whether a small share of the traffic may still clear the release.
    pub provisional: bool,
    /// The figures at that moment.
    pub evidence: ReleaseEvidence,
    /// Why, in words.
    pub reason: String,
}

// === impl ReleaseLane ===

impl ReleaseLane {
    /// The lane's name in snake case, as in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Contract => "contract",
            Self::Immediate => "immediate",
            Self::Fast => "fast",
            Self::Evidence => "evidence",
            Self::Standard => "standard",
        }
    }
}

// === impl ReleaseAction ===

impl ReleaseAction {
    /// The action's name in snake case, as in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RolledBack => "rolled_back",
            Self::Promoted => "promoted",
            Self::Reinstated => "reinstated",
            Self::Held => "held",
        }
    }
}
