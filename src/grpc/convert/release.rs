//! Releases and what was decided about them, as the contract has them.

use jiff::Timestamp;

use super::{enums::IntoProto, time::wire_time};
use crate::{
    domain::release::{ReleaseDecision, ReleaseEvidence},
    grpc::v1,
    policy::release::{Release, ReleaseMonitor, ReleasePolicy, ReleaseState},
};

/// Returns all releases of a subject, the newest first.
pub(in crate::grpc) fn wire_releases(
    monitor: &ReleaseMonitor,
    policy: &ReleasePolicy,
    now: Timestamp,
) -> Vec<v1::Release> {
    monitor
        .releases()
        .map(|release| wire_release(monitor, release, policy, now))
        .collect()
}

/// One release of a subject.
pub(in crate::grpc) fn wire_release(
    monitor: &ReleaseMonitor,
    release: &Release,
    policy: &ReleasePolicy,
    now: Timestamp,
) -> v1::Release {
    let is_stable = release.id == monitor.stable.id;
    let share = if is_stable {
        1.0 - monitor.candidate_share()
    } else {
        release.share
    };
    let channel = if is_stable {
        v1::ReleaseChannel::Stable
    } else {
        v1::ReleaseChannel::Candidate
    };
    let figures = release.figures(policy, (!is_stable).then_some(&monitor.stable));
    v1::Release {
        id: release.id.clone(),
        subject: monitor.subject.clone(),
        target: release.version.target.clone(),
        version: release.id.rsplit('@').next().unwrap_or_default().to_owned(),
        channel: channel.into(),
        state: release.state.into_proto().into(),
        traffic_share: share,
        model: release.version.model.clone(),
        schema_hash: release.version.schema_hash.clone(),
        prompt_hash: release.version.prompt_hash.clone(),
        endpoint: release.version.endpoint.clone(),
        created_at: Some(wire_time(release.created_at)),
        last_used_at: release.last_used_at.map(wire_time),
        evidence: Some(wire_evidence(&figures)),
        decisions: release.decisions.iter().map(wire_decision).collect(),
        pinned: monitor.pinned,
        promotion_frozen: monitor.is_frozen(now),
        unused: release.unused_reported,
    }
}

/// One decision about a release.
pub(in crate::grpc) fn wire_decision(decision: &ReleaseDecision) -> v1::ReleaseDecision {
    v1::ReleaseDecision {
        time: Some(wire_time(decision.at)),
        action: decision.action.into_proto().into(),
        lane: decision
            .lane
            .map_or(v1::ReleaseLane::Unspecified, IntoProto::into_proto)
            .into(),
        provisional: decision.provisional,
        evidence: Some(wire_evidence(&decision.evidence)),
        reason: decision.reason.clone(),
    }
}

fn wire_evidence(evidence: &ReleaseEvidence) -> v1::ReleaseEvidence {
    v1::ReleaseEvidence {
        executions: evidence.executions,
        failures: evidence.failures,
        consecutive_failures: evidence.consecutive,
        window_executions: evidence.window,
        window_success_ratio: evidence.window_success,
        baseline_success_ratio: evidence.baseline_success,
        e_value: evidence.e_value,
        signature: evidence.signature.clone(),
    }
}

// === impl conversions ===

impl IntoProto for ReleaseState {
    type Proto = v1::ReleaseState;

    fn into_proto(self) -> v1::ReleaseState {
        match self {
            Self::Active => v1::ReleaseState::Active,
            Self::Provisional => v1::ReleaseState::ProvisionallyRolledBack,
            Self::RolledBack => v1::ReleaseState::RolledBack,
            Self::Superseded => v1::ReleaseState::Superseded,
        }
    }
}
