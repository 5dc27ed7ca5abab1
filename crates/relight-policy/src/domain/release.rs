//! What was decided about a release: a version of a target or tool server that was watched.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The rule by which the monitor acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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

/// Action taken on a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    /// Success in the sliding window, 0 to 1; `None` if it is empty.
    pub window_success: Option<f64>,
    /// Success of the stable release, 0 to 1; `None` if too little is known of it.
    pub baseline_success: Option<f64>,
    /// Value of the e-process against the stable release; `None` without a baseline.
    pub e_value: Option<f64>,
    /// Signature that repeated failures share; empty if there is none.
    pub signature: String,
}

/// One decision about a release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseDecision {
    /// Time at which it was made.
    pub at: Timestamp,
    /// Action that was taken.
    pub action: ReleaseAction,
    /// Rule that decided; `None` if an operator decided.
    pub lane: Option<ReleaseLane>,
    /// If set, a small share of the traffic may still clear the release.
    pub provisional: bool,
    /// The figures at that moment.
    pub evidence: ReleaseEvidence,
    /// Reason, in words.
    pub reason: String,
}

// === impl ReleaseLane ===

impl ReleaseLane {
    /// Returns the lane's name in snake case, as in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

// === impl ReleaseAction ===

impl ReleaseAction {
    /// Returns the action's name in snake case, as in logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
