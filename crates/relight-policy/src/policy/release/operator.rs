//! What an operator does about a release: roll it back, promote it, and why that is refused.

use jiff::Timestamp;

use super::{
    ReleaseAction, ReleaseDecision, ReleaseEvidence, ReleaseMonitor, ReleasePolicy, ReleaseState,
};

/// Reason for which an operator's wish about a release cannot be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseRefusal {
    /// No release has this id, or it is one of the past.
    #[error("no release of this id takes or could take traffic")]
    Unknown,
    /// It is the stable release, and there is no other.
    #[error("it is the stable release; promote another one first")]
    Stable,
    /// The stable release is not healthy.
    #[error("the stable release is not healthy, so that nothing could take the traffic")]
    NothingHealthy,
    /// Promotion is frozen after several automatic rollbacks.
    #[error(
        "promotion is frozen, because the monitor rolled back three times within 24 hours; \
         pin the subject to promote all the same"
    )]
    Frozen,
}

// === impl ReleaseMonitor ===

impl ReleaseMonitor {
    /// Takes the traffic from a release as an operator wishes.
    ///
    /// # Errors
    /// [`ReleaseRefusal`]; then nothing was changed.
    pub fn roll_back(
        &mut self,
        policy: &ReleasePolicy,
        release: &str,
        reason: &str,
        pin: bool,
        stable_is_healthy: bool,
        now: Timestamp,
    ) -> Result<ReleaseDecision, ReleaseRefusal> {
        if release == self.stable.id {
            return Err(ReleaseRefusal::Stable);
        }
        let baseline = self.stable.evidence.baseline(policy, None);
        let candidate = self
            .candidate
            .as_mut()
            .filter(|candidate| candidate.id == release)
            .ok_or(ReleaseRefusal::Unknown)?;
        if !stable_is_healthy {
            return Err(ReleaseRefusal::NothingHealthy);
        }
        (candidate.state, candidate.share) = (ReleaseState::RolledBack, 0.0);
        let decision = by_operator(
            ReleaseAction::RolledBack,
            candidate.evidence.figures(baseline),
            reason,
            now,
        );
        candidate.record(&decision);
        (self.pinned, self.acted_at) = (pin, Some(now));
        Ok(decision)
    }

    /// Makes the candidate the stable release as an operator wishes. A pin overrides the freeze.
    ///
    /// # Errors
    /// [`ReleaseRefusal`]; then nothing was changed.
    pub fn promote(
        &mut self,
        policy: &ReleasePolicy,
        release: &str,
        reason: &str,
        pin: bool,
        now: Timestamp,
    ) -> Result<ReleaseDecision, ReleaseRefusal> {
        let baseline = self.stable.evidence.baseline(policy, None);
        let is_frozen = self.is_frozen(now);
        if self
            .candidate
            .as_ref()
            .is_none_or(|candidate| candidate.id != release)
        {
            return Err(ReleaseRefusal::Unknown);
        }
        if is_frozen && !pin {
            return Err(ReleaseRefusal::Frozen);
        }
        let Some(mut promoted) = self.candidate.take() else {
            return Err(ReleaseRefusal::Unknown);
        };
        let decision = by_operator(
            ReleaseAction::Promoted,
            promoted.evidence.figures(baseline),
            reason,
            now,
        );
        promoted.record(&decision);
        (promoted.state, promoted.share) = (ReleaseState::Active, 1.0);
        let before = std::mem::replace(&mut self.stable, promoted);
        self.supersede(before);
        (self.pinned, self.acted_at) = (pin, Some(now));
        Ok(decision)
    }
}

fn by_operator(
    action: ReleaseAction,
    evidence: ReleaseEvidence,
    reason: &str,
    now: Timestamp,
) -> ReleaseDecision {
    ReleaseDecision {
        at: now,
        action,
        lane: None,
        provisional: false,
        evidence,
        reason: reason.to_owned(),
    }
}
