//! When a release is rolled back: the settings.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{ids::TargetId, units};

/// Time by which the first and the last failure in a row may be apart: a longer one makes a run of
/// failures that happened by chance over a quiet day.
pub(super) const CONSECUTIVE_WINDOW: Duration = Duration::from_mins(5);
/// Failures in a row with one signature (`TypeError`, `AttributeError`, `-32602`, an unknown field)
/// that roll a candidate back at once: a fault of its code repeats itself.
pub(super) const SAME_SIGNATURE: u64 = 2;
/// Executions after which a candidate is rolled back that failed each of them.
pub(super) const ALL_FAILED: u64 = 5;
/// Executions in the sliding window, the newest that count.
pub(super) const WINDOW: u32 = 50;
/// Value of the e-process from which a rollback is final. By Ville's inequality a release that is
/// as good as the stable one reaches it with a probability of at most 1 in 100.
pub(super) const FINAL_EVIDENCE: f64 = 100.0;
/// Value of the e-process from which a candidate whose success dropped, or that is much slower,
/// keeps only `canary_share` of the traffic, until it is cleared or rolled back. A release that is
/// as good as the stable one reaches it with a probability of at most 1 in 10.
pub(super) const DROP_EVIDENCE: f64 = 10.0;
/// Automatic rollbacks of one subject within `FREEZE_WINDOW` after which promotion is frozen.
pub(super) const FREEZE_AFTER: usize = 3;
/// Time within which rollbacks count for `FREEZE_AFTER`.
pub(super) const FREEZE_WINDOW: Duration = Duration::from_hours(24);
/// Time without use after which a candidate is reported as unused; it is not rolled back.
pub(super) const UNUSED_AFTER: Duration = Duration::from_hours(720);

/// Settings by which releases are judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReleasePolicy {
    /// `adaptive` judges a candidate against the stable release; `literal` applies the thresholds
    /// that were configured as they are written, and every rollback is final. Default `adaptive`.
    pub mode: ReleaseMode,
    /// Failures in a row, within 5 minutes, that roll a candidate back at once. 1 to 100; default
    /// 3.
    pub consecutive: u32,
    /// Executions among the last 50 from which a drop is judged. 1 to 50; default 10.
    pub min_executions: u32,
    /// Distance by which success in the last 50 executions may be below that of the stable release
    /// before the candidate is rolled back, in `adaptive` mode if the e-process reaches 10 as well:
    /// a ratio, 0.01 to 1; default 0.15 (15 points).
    pub drop: f64,
    /// Share of the traffic that a provisionally rolled back candidate still gets, by which it may
    /// be cleared: a ratio, 0 to 0.5; default 0.05.
    pub canary_share: f64,
    /// Time after a decision of the monitor in which it makes no further one about the same
    /// candidate, but for final rollbacks (0s to 24h). Default 10m.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub cool_down: Duration,
    /// Candidates by subject: the name of the target or tool server that is to be replaced, which
    /// keeps being the stable release.
    #[schemars(with = "BTreeMap<String, ReleaseSubject>")]
    pub subjects: BTreeMap<String, ReleaseSubject>,
}

/// Comparison of a candidate with the stable release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseMode {
    /// It is, and what the stable release shows too does not count.
    #[default]
    Adaptive,
    /// Thresholds count as they are written, and every rollback is final.
    Literal,
}

/// The candidate of one subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseSubject {
    /// The target or tool server on trial, of the same kind as the subject. It takes a share of the
    /// traffic of the subject wherever that is named in a route or by a tool call, and the subject
    /// is its first fallback.
    #[schemars(with = "String")]
    pub candidate: TargetId,
    /// Share of the subject's invocations that the candidate takes: a ratio, 0 to 1. Default 0.1.
    #[serde(default = "ReleaseSubject::default_share")]
    pub share: f64,
}

// === impl ReleaseSubject ===

impl ReleaseSubject {
    const fn default_share() -> f64 {
        0.1
    }
}

// === impl ReleasePolicy ===

impl ReleasePolicy {
    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut require = |field: &str, is_right: bool, reason: &str| {
            if !is_right {
                faults.push((field.to_owned(), reason.to_owned()));
            }
        };
        require(
            "consecutive",
            (1..=100).contains(&self.consecutive),
            "must be 1 to 100",
        );
        require(
            "min_executions",
            (1..=WINDOW).contains(&self.min_executions),
            "must be 1 to 50",
        );
        require(
            "drop",
            (0.01..=1.0).contains(&self.drop),
            "must be 0.01 to 1",
        );
        require(
            "canary_share",
            (0.0..=0.5).contains(&self.canary_share),
            "must be 0 to 0.5",
        );
        require(
            "cool_down",
            self.cool_down <= Duration::from_hours(24),
            "must be 0s to 24h",
        );
        for (name, subject) in &self.subjects {
            let field = format!("subjects.{name}");
            require(
                &format!("{field}.share"),
                (0.0..=1.0).contains(&subject.share),
                "must be 0 to 1",
            );
            require(
                &format!("{field}.candidate"),
                subject.candidate.as_str() != name,
                "must differ from the subject",
            );
        }
        faults
    }
}

impl Default for ReleasePolicy {
    fn default() -> Self {
        Self {
            mode: ReleaseMode::default(),
            consecutive: 3,
            min_executions: 10,
            drop: 0.15,
            canary_share: 0.05,
            cool_down: Duration::from_mins(10),
            subjects: BTreeMap::new(),
        }
    }
}
