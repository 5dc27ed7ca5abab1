//! When a release is rolled back: the settings.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{ids::TargetId, units};

/// How releases are judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReleasePolicy {
    /// `adaptive` judges a candidate against the stable release; `literal` applies the thresholds
    /// that were configured as they are written, and every rollback is final. Default `adaptive`.
    pub mode: ReleaseMode,
    /// Failures in a row, within `consecutive_window`, that roll a candidate back at once. 1 to
    /// 100; default 3.
    pub consecutive: u32,
    /// How far apart the first and the last failure in a row may be (1s to 24h). Default 5m.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub consecutive_window: Duration,
    /// Failures in a row with one signature (`TypeError`, `AttributeError`, `-32602`, an unknown
    /// field) that roll a candidate back at once. 1 to 100; default 2.
    pub same_signature: u32,
    /// Executions after which a candidate is rolled back that failed each of them. 1 to 1000;
    /// default 5.
    pub all_failed: u32,
    /// Executions in the sliding window, the newest that count. 10 to 1000; default 50.
    pub window: u32,
    /// Executions in the window from which a drop is judged. 1 to 1000; default 10.
    pub min_executions: u32,
    /// How far success in the window may be below that of the stable release before the candidate
    /// is rolled back: a ratio, 0.01 to 1; default 0.15 (15 points).
    pub drop: f64,
    /// Value of the e-process from which a rollback is final (2 to 1000000). By Ville's inequality
    /// a release that is as good as the stable one reaches it with a probability of at most 1 /
    /// value. Default 100.
    pub final_evidence: f64,
    /// Value of the e-process from which a drop in the window is final, and not provisional (1 to
    /// 1000000). Default 3.
    pub drop_evidence: f64,
    /// Share of the traffic that a provisionally rolled back candidate still gets, by which it may
    /// be cleared: a ratio, 0 to 0.5; default 0.05.
    pub canary_share: f64,
    /// Time after a decision of the monitor in which it makes no further one about the same
    /// subject, but for final rollbacks (0s to 24h). Default 10m.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub cool_down: Duration,
    /// Automatic rollbacks of one subject within `freeze_window` after which promotion is frozen. 1
    /// to 100; default 3.
    pub freeze_after: u32,
    /// See `freeze_after` (1s to 720h). Default 24h.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub freeze_window: Duration,
    /// Time without use after which a candidate is reported as unused; it is not rolled back (1s to
    /// 8784h). Default 720h.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub unused_after: Duration,
    /// Candidates by subject: the name of the target or tool server that is to be replaced, which
    /// keeps being the stable release.
    #[schemars(with = "BTreeMap<String, ReleaseSubject>")]
    pub subjects: BTreeMap<String, ReleaseSubject>,
}

/// Whether a candidate is compared with the stable release.
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
    /// What is wrong with it: the field and why.
    #[must_use]
    pub fn validate(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let mut require = |field: &str, is_right: bool, reason: &str| {
            if !is_right {
                faults.push((field.to_owned(), reason.to_owned()));
            }
        };
        let day = Duration::from_hours(24);
        require(
            "consecutive",
            (1..=100).contains(&self.consecutive),
            "must be 1 to 100",
        );
        let second = Duration::from_secs(1);
        require(
            "consecutive_window",
            (second..=day).contains(&self.consecutive_window),
            "must be 1s to 24h",
        );
        require(
            "same_signature",
            (1..=100).contains(&self.same_signature),
            "must be 1 to 100",
        );
        require(
            "all_failed",
            (1..=1000).contains(&self.all_failed),
            "must be 1 to 1000",
        );
        require(
            "window",
            (10..=1000).contains(&self.window),
            "must be 10 to 1000",
        );
        require(
            "min_executions",
            (1..=self.window).contains(&self.min_executions),
            "must be 1 to `window`",
        );
        require(
            "drop",
            (0.01..=1.0).contains(&self.drop),
            "must be 0.01 to 1",
        );
        require(
            "final_evidence",
            (2.0..=1e6).contains(&self.final_evidence),
            "must be 2 to 1000000",
        );
        require(
            "drop_evidence",
            (1.0..=1e6).contains(&self.drop_evidence),
            "must be 1 to 1000000",
        );
        require(
            "canary_share",
            (0.0..=0.5).contains(&self.canary_share),
            "must be 0 to 0.5",
        );
        require("cool_down", self.cool_down <= day, "must be 0s to 24h");
        require(
            "freeze_after",
            (1..=100).contains(&self.freeze_after),
            "must be 1 to 100",
        );
        require(
            "freeze_window",
            (second..=30 * day).contains(&self.freeze_window),
            "must be 1s to 720h",
        );
        require(
            "unused_after",
            (second..=366 * day).contains(&self.unused_after),
            "must be 1s to 8784h",
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
            consecutive_window: Duration::from_mins(5),
            same_signature: 2,
            all_failed: 5,
            window: 50,
            min_executions: 10,
            drop: 0.15,
            final_evidence: 100.0,
            drop_evidence: 3.0,
            canary_share: 0.05,
            cool_down: Duration::from_mins(10),
            freeze_after: 3,
            freeze_window: Duration::from_hours(24),
            unused_after: Duration::from_hours(720),
            subjects: BTreeMap::new(),
        }
    }
}
