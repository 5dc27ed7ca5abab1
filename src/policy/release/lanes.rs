//! The lanes: rules by which a candidate is rolled back or gets its share again, the surest first.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts are far below the 52 bits that a float holds exactly"
)]

use jiff::Timestamp;

use super::{
    Release, ReleaseAction, ReleaseLane, ReleaseMode, ReleasePolicy, ReleaseState,
    evidence::Baseline, within,
};

/// Chance that a run of failures of its length comes up in a healthy release's life, up to which
/// the rollback is final, and up to which it is provisional.
const SURELY_NO_CHANCE: f64 = 0.01;
const HARDLY_CHANCE: f64 = 0.15;

/// The share of failures that is expected of a stable release of which too little is known.
const UNKNOWN_FAILURES: f64 = 0.2;

/// Failures in a row from which a release that worked before is judged although the stable one was
/// not used meanwhile.
const UNCOMPARED_RUN: u64 = 8;

/// Outcomes of a provisionally rolled back release, on its small share, from which it may be
/// cleared.
const CANARY_OUTCOMES: usize = 10;

/// How far below the stable release's success a canary may be and be cleared.
const CLEARED_WITHIN: f64 = 0.05;

/// What the lanes say; the guards may still keep it from being done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReleaseVerdict {
    pub(super) action: ReleaseAction,
    pub(super) lane: ReleaseLane,
    pub(super) provisional: bool,
    pub(super) reason: String,
}

/// Judges a candidate after an outcome of its own.
pub(super) fn judge(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
    now: Timestamp,
) -> Option<ReleaseVerdict> {
    match policy.mode {
        ReleaseMode::Literal => literal(policy, candidate, stable),
        ReleaseMode::Adaptive => adaptive(policy, candidate, stable, now),
    }
}

/// The thresholds as they were configured; each rollback is final.
fn literal(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
) -> Option<ReleaseVerdict> {
    let own = &candidate.evidence;
    let run = own.run_within(policy.consecutive_window);
    if let Some((signature, same)) = own.repeated_signature(policy.consecutive_window)
        && same >= u64::from(policy.same_signature)
    {
        return Some(rolled_back(
            ReleaseLane::Immediate,
            false,
            format!("{same} failures in a row with `{signature}`"),
        ));
    }
    if run >= u64::from(policy.consecutive) {
        return Some(rolled_back(
            ReleaseLane::Immediate,
            false,
            format!("{run} failures in a row"),
        ));
    }
    if let Some((failures, _)) = all_failed(policy, candidate) {
        return Some(rolled_back(
            ReleaseLane::Fast,
            false,
            format!("all {failures} executions failed"),
        ));
    }
    let baseline = stable.evidence.baseline(policy, None)?;
    dropped(policy, candidate, baseline)
        .map(|words| rolled_back(ReleaseLane::Standard, false, words))
}

fn adaptive(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
    now: Timestamp,
) -> Option<ReleaseVerdict> {
    let own = &candidate.evidence;
    let baseline = stable.evidence.baseline(policy, own.since());
    let is_on_trial = candidate.state == ReleaseState::Active;
    let verdict = by_signature(policy, candidate, stable)
        .or_else(|| by_evidence(policy, candidate, stable, baseline))
        .or_else(|| {
            by_run(policy, candidate, stable, baseline).filter(|it| is_on_trial || !it.provisional)
        })
        .or_else(|| by_total_failure(policy, candidate, stable).filter(|_| is_on_trial))
        .or_else(|| {
            by_drop(policy, candidate, stable, baseline?)
                .filter(|it| is_on_trial || !it.provisional)
        });
    let verdict = verdict.or_else(|| cleared(candidate, baseline?).filter(|_| !is_on_trial))?;
    let is_final = verdict.action == ReleaseAction::RolledBack && !verdict.provisional;
    let is_cooling = candidate.decisions.iter().rev().any(|decision| {
        decision.lane.is_some()
            && decision.action != ReleaseAction::Held
            && within(decision.at, now, policy.cool_down)
    });
    // A second provisional rollback could not be taken back any more, so that only what is final
    // counts by then.
    let is_spent = candidate.reinstated && verdict.provisional;
    (is_final || !(is_cooling || is_spent)).then_some(verdict)
}

/// Failures with one signature that the stable release does not show.
fn by_signature(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
) -> Option<ReleaseVerdict> {
    let (signature, same) = candidate
        .evidence
        .repeated_signature(policy.consecutive_window)?;
    let is_new = !stable.evidence.has_signature(signature);
    (is_new && same >= u64::from(policy.same_signature)).then(|| {
        let words = format!(
            "{same} failures in a row with `{signature}`, which the stable release does not show"
        );
        rolled_back(ReleaseLane::Immediate, false, words)
    })
}

fn by_evidence(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
    baseline: Option<Baseline>,
) -> Option<ReleaseVerdict> {
    let value = candidate.evidence.e_value();
    baseline.filter(|_| value >= policy.final_evidence && !may_be_shared(candidate, stable))?;
    let words = format!("it fails more often than the stable release (e-value {value:.0})");
    Some(rolled_back(ReleaseLane::Evidence, false, words))
}

/// A run of failures that chance hardly explains, while the stable release does well.
fn by_run(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
    baseline: Option<Baseline>,
) -> Option<ReleaseVerdict> {
    let own = &candidate.evidence;
    let run = own.run_within(policy.consecutive_window);
    if run < u64::from(policy.consecutive) || may_be_shared(candidate, stable) {
        return None;
    }
    let expected = baseline.map_or(UNKNOWN_FAILURES, |baseline| baseline.failures_at_most);
    // The union bound over all places where a run of this length could have begun.
    let places = own.executions().saturating_sub(run) + 1;
    let chance = expected.powi(i32::try_from(run).unwrap_or(i32::MAX)) * places as f64;
    (chance <= HARDLY_CHANCE).then(|| {
        let (good, bad) = meanwhile(candidate, stable);
        let words = format!(
            "{run} failures in a row, while {bad} of {} of the stable release failed",
            good + bad
        );
        rolled_back(ReleaseLane::Immediate, chance > SURELY_NO_CHANCE, words)
    })
}

fn by_total_failure(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
) -> Option<ReleaseVerdict> {
    let (failures, since) = all_failed(policy, candidate)?;
    let (good, bad) = stable.evidence.counts_since(since);
    let is_shared = bad > 0 && good == 0;
    (!is_shared).then(|| {
        rolled_back(
            ReleaseLane::Fast,
            false,
            format!("all {failures} executions failed"),
        )
    })
}

fn by_drop(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
    baseline: Baseline,
) -> Option<ReleaseVerdict> {
    let is_in_run = candidate.evidence.run_length() >= u64::from(policy.consecutive);
    let words = dropped(policy, candidate, baseline)
        .filter(|_| !(is_in_run && may_be_shared(candidate, stable)))?;
    let is_sure = candidate.evidence.e_value() >= policy.drop_evidence;
    Some(rolled_back(ReleaseLane::Standard, !is_sure, words))
}

/// Whether a provisionally rolled back release does well on its small share, so that it gets its
/// own again.
fn cleared(candidate: &Release, baseline: Baseline) -> Option<ReleaseVerdict> {
    let (outcomes, success) = candidate.evidence.window();
    let does_well = outcomes >= CANARY_OUTCOMES && success >= baseline.success - CLEARED_WITHIN;
    (does_well && !candidate.reinstated).then(|| ReleaseVerdict {
        action: ReleaseAction::Reinstated,
        lane: ReleaseLane::Standard,
        provisional: false,
        reason: format!(
            "{:.0} % of {outcomes} executions succeeded since, as of the stable release",
            success * 100.0
        ),
    })
}

/// The failures of a release that never succeeded, if they are enough, and when the first one was.
fn all_failed(policy: &ReleasePolicy, candidate: &Release) -> Option<(u64, Timestamp)> {
    candidate
        .evidence
        .failed_from_birth()
        .filter(|(failures, _)| *failures >= u64::from(policy.all_failed))
}

fn dropped(policy: &ReleasePolicy, candidate: &Release, baseline: Baseline) -> Option<String> {
    let (outcomes, success) = candidate.evidence.window();
    // A ratio of small counts is not exact in binary: 0.9 - 0.75 is a little less than 0.15.
    let is_lower = baseline.success - success >= policy.drop - 1e-9;
    (outcomes >= policy.min_executions as usize && is_lower).then(|| {
        let (now, before) = (success * 100.0, baseline.success * 100.0);
        format!("{now:.0} % of the last {outcomes} executions succeeded, {before:.0} % of the stable release's")
    })
}

/// Whether the stable release fails as well since the present run of failures began, or was not
/// used since then although it will be: an outage of both looks like this.
fn may_be_shared(candidate: &Release, stable: &Release) -> bool {
    let run = candidate.evidence.run_length();
    let (good, bad) = meanwhile(candidate, stable);
    let is_unknown = good + bad == 0 && candidate.share < 1.0 && run < UNCOMPARED_RUN;
    run > 0 && (is_unknown || (bad > 0 && bad >= good))
}

/// Successes and failures of the stable release since the present run of failures of the candidate
/// began.
fn meanwhile(candidate: &Release, stable: &Release) -> (u64, u64) {
    candidate
        .evidence
        .since()
        .map_or((0, 0), |since| stable.evidence.counts_since(since))
}

fn rolled_back(lane: ReleaseLane, provisional: bool, reason: String) -> ReleaseVerdict {
    ReleaseVerdict {
        action: ReleaseAction::RolledBack,
        lane,
        provisional,
        reason,
    }
}
