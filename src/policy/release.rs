//! Releases: whether a new version of a target or tool keeps its traffic, gets less of it, or is
//! rolled back.
//!
//! A subject (a target, or a tool server) has a stable release and at most one candidate.
//! [`ReleaseMonitor`] is told each outcome of both and returns at most one decision for each; it is
//! plain data, so that all replicas share one state. What the stable release shows too, what a
//! shared upstream causes, and repeats of one session are no evidence.

mod evidence;
mod failures;
mod lanes;
mod operator;
mod routing;
mod setting;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod version;

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::{evidence::Outcomes, failures::is_of_the_upstream};
pub use self::{
    failures::signature,
    operator::ReleaseRefusal,
    routing::ReleaseRouting,
    setting::{ReleaseMode, ReleasePolicy},
    version::ReleaseVersion,
};
use crate::domain::failure::FailureClass;
pub use crate::domain::release::{ReleaseAction, ReleaseDecision, ReleaseEvidence, ReleaseLane};

/// Decisions of a release that are kept, newest last.
const DECISIONS_KEPT: usize = 16;

/// Releases of a subject that are kept after others took their place.
const PAST_KEPT: usize = 4;

/// Where a release is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseState {
    /// It takes its share of the traffic.
    Active,
    /// It was rolled back, and a small share may still clear it.
    Provisional,
    /// It was rolled back for good.
    RolledBack,
    /// Another release took its place in good order.
    Superseded,
}

/// How one execution of a release ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseOutcome {
    /// When it ended.
    pub at: Timestamp,
    /// How it failed; `None` where it did not.
    pub failure: Option<FailureClass>,
    /// What failures of one cause share (`TypeError`, `-32602`, …); empty where nothing is known.
    pub signature: String,
    /// The session it belonged to, as a number; failures of one session count once. `None`: it is a
    /// session of its own.
    pub session: Option<u64>,
}

/// One version of a subject, with all that is known of how it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Release {
    /// Its id: its target and a fingerprint of its version.
    pub id: String,
    /// What makes it this version.
    pub version: ReleaseVersion,
    /// Where it is in its life.
    pub state: ReleaseState,
    /// Its share of the subject's traffic now, 0 to 1.
    pub share: f64,
    /// The share that the configuration gives it, 0 to 1.
    pub configured_share: f64,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When it was last used; `None`: never.
    pub last_used_at: Option<Timestamp>,
    /// Whether it got its share back once: that happens at most once.
    pub reinstated: bool,
    /// Whether it was reported as unused.
    pub unused_reported: bool,
    /// What was decided about it, oldest first.
    pub decisions: Vec<ReleaseDecision>,
    evidence: Outcomes,
}

/// The releases of one subject, and everything by which they are judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseMonitor {
    /// The target or tool server that callers name.
    pub subject: String,
    /// The release that is known to work.
    pub stable: Release,
    /// The release on trial.
    pub candidate: Option<Release>,
    /// Earlier releases, newest last.
    pub past: Vec<Release>,
    /// Whether an operator pinned the subject: the monitor reports, and does not act.
    pub pinned: bool,
    /// When the monitor rolled back by itself, within the last day.
    pub rollbacks: VecDeque<Timestamp>,
    /// When it last acted.
    pub acted_at: Option<Timestamp>,
}

// === impl Release ===

impl Release {
    /// A release that nothing is known of yet.
    #[must_use]
    pub fn new(version: ReleaseVersion, share: f64, now: Timestamp) -> Self {
        Self {
            id: version.id(),
            version,
            state: ReleaseState::Active,
            share,
            configured_share: share,
            created_at: now,
            last_used_at: None,
            reinstated: false,
            unused_reported: false,
            decisions: Vec::new(),
            evidence: Outcomes::default(),
        }
    }

    /// The figures that it is judged by now, against `stable`; without a baseline for the stable
    /// release itself.
    #[must_use]
    pub fn figures(&self, policy: &ReleasePolicy, stable: Option<&Self>) -> ReleaseEvidence {
        let baseline =
            stable.and_then(|stable| stable.evidence.baseline(policy, self.evidence.since()));
        self.evidence.figures(baseline)
    }

    fn record(&mut self, decision: &ReleaseDecision) {
        self.decisions.push(decision.clone());
        let surplus = self.decisions.len().saturating_sub(DECISIONS_KEPT);
        self.decisions.drain(..surplus);
    }
}

// === impl ReleaseMonitor ===

impl ReleaseMonitor {
    /// A subject with its stable release only.
    #[must_use]
    pub fn new(subject: impl Into<String>, stable: ReleaseVersion, now: Timestamp) -> Self {
        Self {
            subject: subject.into(),
            stable: Release::new(stable, 1.0, now),
            candidate: None,
            past: Vec::new(),
            pinned: false,
            rollbacks: VecDeque::new(),
            acted_at: None,
        }
    }

    /// Takes over what the configuration says: which version is stable, which one is on trial and
    /// with which share of the traffic. A version that is known keeps what is known of it; one that
    /// is new begins anew. After a promotion the promoted release stays stable until the
    /// configuration names other versions.
    pub fn configure(
        &mut self,
        stable: &ReleaseVersion,
        candidate: Option<(&ReleaseVersion, f64)>,
        now: Timestamp,
    ) {
        let candidate_id = candidate.map(|(version, _)| version.id());
        let is_promoted = candidate_id.as_ref() == Some(&self.stable.id);
        if self.stable.id != stable.id() && !is_promoted {
            let before =
                std::mem::replace(&mut self.stable, Release::new(stable.clone(), 1.0, now));
            self.supersede(before);
        }
        if self.candidate.as_ref().map(|known| &known.id) != candidate_id.as_ref()
            && let Some(before) = self.candidate.take()
        {
            self.supersede(before);
        }
        if let (Some((version, share)), false) = (candidate, is_promoted) {
            let known = self
                .candidate
                .get_or_insert_with(|| Release::new(version.clone(), share, now));
            known.configured_share = share;
            if known.state == ReleaseState::Active {
                known.share = share;
            }
        }
    }

    /// The share of the traffic that the candidate takes now, 0 to 1.
    #[must_use]
    pub fn candidate_share(&self) -> f64 {
        self.candidate
            .as_ref()
            .map_or(0.0, |candidate| candidate.share)
    }

    /// The release that takes most of the traffic of this subject; `None` for another subject.
    #[must_use]
    pub fn mostly_served_by(&self, subject: &str) -> Option<String> {
        let candidate = self
            .candidate
            .as_ref()
            .filter(|candidate| candidate.share > 0.5);
        (self.subject == subject).then(|| candidate.unwrap_or(&self.stable).id.clone())
    }

    /// Whether promotion is frozen: the monitor rolled back too often within a day.
    #[must_use]
    pub fn is_frozen(&self, policy: &ReleasePolicy, now: Timestamp) -> bool {
        let recent = self
            .rollbacks
            .iter()
            .filter(|at| within(**at, now, policy.freeze_window));
        recent.count() >= policy.freeze_after as usize
    }

    /// Takes in how one execution of a release ended, and decides. `stable_is_healthy`: whether the
    /// stable release could take the traffic now.
    pub fn observe(
        &mut self,
        policy: &ReleasePolicy,
        release: &str,
        outcome: &ReleaseOutcome,
        stable_is_healthy: bool,
    ) -> Option<ReleaseDecision> {
        if release == self.stable.id {
            self.stable.last_used_at = Some(outcome.at);
            if self.counts(policy, outcome) {
                self.stable.evidence.take(policy, outcome, None);
            }
            return None;
        }
        let counts = self.counts(policy, outcome);
        let candidate = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.id == release)?;
        candidate.last_used_at = Some(outcome.at);
        if !counts || candidate.state == ReleaseState::RolledBack {
            return None;
        }
        candidate.evidence.note(outcome);
        let is_shared = outcome.failure.is_some()
            && policy.mode == ReleaseMode::Adaptive
            && self.stable.evidence.is_failing(outcome.at);
        if !is_shared {
            let since = candidate.evidence.since_with(outcome);
            let baseline = self.stable.evidence.baseline(policy, since);
            candidate.evidence.take(policy, outcome, baseline);
        }
        let verdict = lanes::judge(policy, candidate, &self.stable, outcome.at)?;
        Some(self.act(policy, verdict, stable_is_healthy, outcome.at))
    }

    /// Rolls the candidate back because its schema breaks callers and no adapter covers the change,
    /// before it failed once.
    pub fn contract_broken(
        &mut self,
        policy: &ReleasePolicy,
        release: &str,
        words: &str,
        stable_is_healthy: bool,
        now: Timestamp,
    ) -> Option<ReleaseDecision> {
        let candidate = self
            .candidate
            .as_ref()
            .filter(|candidate| candidate.id == release)?;
        let is_serving = matches!(
            candidate.state,
            ReleaseState::Active | ReleaseState::Provisional
        );
        let was_held = candidate
            .decisions
            .iter()
            .any(|decision| decision.lane == Some(ReleaseLane::Contract));
        // What the guards keep from being done is said once.
        if !is_serving || was_held && (self.pinned || !stable_is_healthy) {
            return None;
        }
        let verdict = lanes::ReleaseVerdict {
            action: ReleaseAction::RolledBack,
            lane: ReleaseLane::Contract,
            provisional: false,
            reason: format!("its schema breaks callers: {words}"),
        };
        Some(self.act(policy, verdict, stable_is_healthy, now))
    }

    /// Reports a candidate that was not used for a long time, once: that is no failure, and it is
    /// not rolled back.
    pub fn unused(&mut self, policy: &ReleasePolicy, now: Timestamp) -> Option<ReleaseDecision> {
        let baseline = self.stable.evidence.baseline(policy, None);
        let candidate = self.candidate.as_mut()?;
        let quiet_since = candidate.last_used_at.unwrap_or(candidate.created_at);
        let is_quiet = candidate.state == ReleaseState::Active
            && !within(quiet_since, now, policy.unused_after);
        if !is_quiet || candidate.unused_reported {
            return None;
        }
        candidate.unused_reported = true;
        let decision = ReleaseDecision {
            at: now,
            action: ReleaseAction::Held,
            lane: None,
            provisional: false,
            evidence: candidate.evidence.figures(baseline),
            reason: "it is not used; that is no failure, and it stays as it is".to_owned(),
        };
        candidate.record(&decision);
        Some(decision)
    }

    /// All releases, the newest first.
    pub fn releases(&self) -> impl Iterator<Item = &Release> {
        self.candidate
            .iter()
            .chain([&self.stable])
            .chain(self.past.iter().rev())
    }

    /// Whether an outcome says anything of a release: not where Relight or the caller ended it, and
    /// not where an upstream that both releases share does.
    fn counts(&self, policy: &ReleasePolicy, outcome: &ReleaseOutcome) -> bool {
        let Some(class) = outcome.failure else {
            return true;
        };
        let is_neither = class.is_local_refusal()
            || matches!(
                class,
                FailureClass::Cancelled | FailureClass::ApprovalRejected | FailureClass::Cache
            );
        if is_neither {
            return false;
        }
        let endpoint = |release: &Release| release.version.endpoint.clone();
        let is_shared = self
            .candidate
            .as_ref()
            .is_some_and(|it| endpoint(it) == endpoint(&self.stable));
        policy.mode == ReleaseMode::Literal || !is_shared || !is_of_the_upstream(class)
    }

    /// Carries out what the lanes decided, as far as the guards allow it.
    fn act(
        &mut self,
        policy: &ReleasePolicy,
        verdict: lanes::ReleaseVerdict,
        stable_is_healthy: bool,
        now: Timestamp,
    ) -> ReleaseDecision {
        let baseline = self.stable.evidence.baseline(policy, None);
        let lanes::ReleaseVerdict {
            mut action,
            lane,
            provisional,
            mut reason,
        } = verdict;
        if self.pinned {
            reason = format!("an operator pinned it; else: {reason}");
            action = ReleaseAction::Held;
        } else if action == ReleaseAction::RolledBack && !stable_is_healthy {
            reason = format!(
                "the stable release is not healthy, so that nothing could take the traffic; else: {reason}"
            );
            action = ReleaseAction::Held;
        }
        let canary = policy.canary_share;
        let evidence = self
            .candidate
            .as_ref()
            .map(|it| it.evidence.figures(baseline))
            .unwrap_or_default();
        let decision = ReleaseDecision {
            at: now,
            action,
            lane: Some(lane),
            provisional,
            evidence,
            reason,
        };
        if let Some(candidate) = self.candidate.as_mut() {
            match action {
                ReleaseAction::RolledBack => {
                    let was_active = candidate.state == ReleaseState::Active;
                    candidate.state = if provisional {
                        ReleaseState::Provisional
                    } else {
                        ReleaseState::RolledBack
                    };
                    candidate.share = if provisional {
                        canary.min(candidate.share)
                    } else {
                        0.0
                    };
                    candidate.evidence.begin_anew();
                    if was_active {
                        self.rollbacks.push_back(now);
                    }
                }
                ReleaseAction::Reinstated => {
                    candidate.state = ReleaseState::Active;
                    candidate.reinstated = true;
                    candidate.share = candidate.configured_share;
                    candidate.evidence.begin_anew();
                }
                // Said once for each run of failures, and not once for each failure of it.
                ReleaseAction::Held | ReleaseAction::Promoted => candidate.evidence.begin_anew(),
            }
            candidate.record(&decision);
        }
        if action != ReleaseAction::Held {
            self.acted_at = Some(now);
        }
        while self
            .rollbacks
            .front()
            .is_some_and(|at| !within(*at, now, policy.freeze_window))
        {
            self.rollbacks.pop_front();
        }
        decision
    }

    fn supersede(&mut self, mut release: Release) {
        if release.state == ReleaseState::Active {
            release.state = ReleaseState::Superseded;
        }
        release.share = 0.0;
        self.past.push(release);
        let surplus = self.past.len().saturating_sub(PAST_KEPT);
        self.past.drain(..surplus);
    }
}

/// Whether `at` is at most `span` before `now`.
fn within(at: Timestamp, now: Timestamp, span: std::time::Duration) -> bool {
    now.duration_since(at).unsigned_abs() <= span
}
