//! Releases: decides whether a new version of a target or tool keeps its traffic, gets less of it, or is
//! rolled back.
//!
//! A subject (a target, or a tool server) has a stable release and at most one candidate.
//! [`ReleaseMonitor`] is told each outcome of both and returns at most one decision for each; it is
//! plain data, so that all replicas share one state. Failures that the stable release shows at the
//! same time and repeats of one call or session are not evidence.

mod comparison;
mod evidence;
mod failures;
mod flaws;
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

use self::{
    evidence::Outcomes,
    setting::{FREEZE_AFTER, FREEZE_WINDOW, UNUSED_AFTER},
};
pub use self::{
    failures::signature,
    flaws::is_flawed,
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

/// Stage of a release in its life.
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

/// End of one execution of a release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseOutcome {
    /// Time at which it ended.
    pub at: Timestamp,
    /// Class of its failure; `None` if it did not fail.
    pub failure: Option<FailureClass>,
    /// `true` if its result is of no use although it did not fail: a result that is empty or does
    /// not fit its schema, tool calls that do not fit.
    pub is_flawed: bool,
    /// The number of the attempt in its call, from 1; later ones repeat what the first one showed.
    pub attempt: u32,
    /// Duration in milliseconds, if it succeeded and that is known.
    pub duration_ms: Option<u64>,
    /// Text that failures of one cause share (`TypeError`, `-32602`, …); empty if nothing is known.
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
    /// Identity of this version.
    pub version: ReleaseVersion,
    /// Stage in its life.
    pub state: ReleaseState,
    /// Its share of the subject's traffic now, 0 to 1.
    pub share: f64,
    /// The share that the configuration gives it, 0 to 1.
    pub configured_share: f64,
    /// Time at which it was first seen.
    pub created_at: Timestamp,
    /// Time at which it was last used; `None`: never.
    pub last_used_at: Option<Timestamp>,
    /// `true` if it got its share back once: that happens at most once.
    pub reinstated: bool,
    /// `true` if it was reported as unused.
    pub unused_reported: bool,
    /// Decisions about it, oldest first.
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
    /// If set, an operator pinned the subject: the monitor reports, and does not act.
    pub pinned: bool,
    /// Times at which the monitor rolled back by itself, within the last day.
    pub rollbacks: VecDeque<Timestamp>,
    /// Time at which it last acted.
    pub acted_at: Option<Timestamp>,
}

// === impl ReleaseOutcome ===

impl ReleaseOutcome {
    /// Returns whether it speaks against its release. As written, only failures do.
    fn is_bad(&self, policy: &ReleasePolicy) -> bool {
        self.failure.is_some() || (self.is_flawed && policy.mode == ReleaseMode::Adaptive)
    }

    /// Returns whether it says anything of its release: not if Relight or the caller ended it.
    fn counts(&self) -> bool {
        self.failure.is_none_or(|class| {
            !class.is_local_refusal()
                && !matches!(
                    class,
                    FailureClass::Cancelled | FailureClass::ApprovalRejected | FailureClass::Cache
                )
        })
    }

    /// Returns whether an earlier attempt of the same call said the same of a candidate already.
    fn repeats(&self, policy: &ReleasePolicy) -> bool {
        self.attempt > 1 && policy.mode == ReleaseMode::Adaptive
    }
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

    /// Returns the figures that it is judged by now, against `stable`; without a baseline for the
    /// stable release itself.
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

    /// Takes over the configuration: the version that is stable, the one on trial and its share of
    /// the traffic. A known version keeps its history; a new one starts anew. After a promotion the
    /// promoted release stays stable until the configuration names other versions.
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

    /// Returns the share of the traffic that the candidate takes now, 0 to 1.
    #[must_use]
    pub fn candidate_share(&self) -> f64 {
        self.candidate
            .as_ref()
            .map_or(0.0, |candidate| candidate.share)
    }

    /// Returns the release that takes most of the traffic of this subject; `None` for another
    /// subject.
    #[must_use]
    pub fn mostly_served_by(&self, subject: &str) -> Option<String> {
        let candidate = self
            .candidate
            .as_ref()
            .filter(|candidate| candidate.share > 0.5);
        (self.subject == subject).then(|| candidate.unwrap_or(&self.stable).id.clone())
    }

    /// Returns whether promotion is frozen: the monitor rolled back too often within a day.
    #[must_use]
    pub fn is_frozen(&self, now: Timestamp) -> bool {
        let recent = self
            .rollbacks
            .iter()
            .filter(|at| within(**at, now, FREEZE_WINDOW));
        recent.count() >= FREEZE_AFTER
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
        let counts = outcome.counts();
        if release == self.stable.id {
            self.stable.last_used_at = Some(outcome.at);
            if !counts {
                return None;
            }
            self.stable.evidence.take(policy, outcome);
            let candidate = self.candidate.as_mut().filter(|candidate| {
                policy.mode == ReleaseMode::Adaptive && candidate.state != ReleaseState::RolledBack
            })?;
            candidate
                .evidence
                .compare_with(policy, outcome, &self.stable.evidence);
        } else {
            let candidate = self
                .candidate
                .as_mut()
                .filter(|candidate| candidate.id == release)?;
            candidate.last_used_at = Some(outcome.at);
            let is_over = candidate.state == ReleaseState::RolledBack;
            if !counts || is_over || outcome.repeats(policy) {
                return None;
            }
            let is_adaptive = policy.mode == ReleaseMode::Adaptive;
            let is_shared = outcome.is_bad(policy)
                && is_adaptive
                && self.stable.evidence.is_failing(outcome.at);
            if !is_shared {
                candidate.evidence.note(policy, outcome);
                if candidate.evidence.take(policy, outcome) && is_adaptive {
                    candidate
                        .evidence
                        .compare(policy, outcome, &self.stable.evidence);
                }
            }
        }
        let candidate = self.candidate.as_ref()?;
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

    /// Reports a candidate that was not used for a long time, once: that is not a failure, and it
    /// is not rolled back.
    pub fn unused(&mut self, policy: &ReleasePolicy, now: Timestamp) -> Option<ReleaseDecision> {
        let baseline = self.stable.evidence.baseline(policy, None);
        let candidate = self.candidate.as_mut()?;
        let quiet_since = candidate.last_used_at.unwrap_or(candidate.created_at);
        let is_quiet =
            candidate.state == ReleaseState::Active && !within(quiet_since, now, UNUSED_AFTER);
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

    /// Returns all releases, the newest first.
    pub fn releases(&self) -> impl Iterator<Item = &Release> {
        self.candidate
            .iter()
            .chain([&self.stable])
            .chain(self.past.iter().rev())
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
            .is_some_and(|at| !within(*at, now, FREEZE_WINDOW))
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

/// Returns whether `at` is at most `span` before `now`.
fn within(at: Timestamp, now: Timestamp, span: std::time::Duration) -> bool {
    now.duration_since(at).unsigned_abs() <= span
}
