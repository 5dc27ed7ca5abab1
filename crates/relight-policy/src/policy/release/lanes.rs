//! The lanes: rules by which a candidate is rolled back or gets its share again, the surest first.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts are far below the 52 bits that a float holds exactly"
)]

use jiff::Timestamp;

use super::{
    Release, ReleaseAction, ReleaseLane, ReleaseMode, ReleasePolicy, ReleaseState,
    evidence::{Baseline, fisher},
    setting::{ALL_FAILED, CONSECUTIVE_WINDOW, DROP_EVIDENCE, FINAL_EVIDENCE, SAME_SIGNATURE},
    within,
};

/// Chance that any run of failures in a healthy release's life is taken for its own.
const RUN_ERROR: f64 = 0.02;
/// Chance of failing each time while the stable release fails as often as it did, from which an
/// outage of both is the likelier cause.
const SHARED_CHANCE: f64 = 0.5;
/// Sum of 1 / n² over all places n at which a run may start.
const ALL_PLACES: f64 = 1.645;

/// Failures in a row from which a release that worked before is judged although the stable one was
/// not used meanwhile.
const UNCOMPARED_RUN: u64 = 8;

/// Outcomes of a provisionally rolled back release, on its small share, from which it may be
/// cleared.
const CANARY_OUTCOMES: usize = 10;

/// Distance by which a canary may be below the stable release's success and be cleared.
const CLEARED_WITHIN: f64 = 0.05;

/// Verdict of the lanes; the guards may still keep it from being done.
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
    let run = own.run_within(CONSECUTIVE_WINDOW);
    if let Some((signature, same)) = own.repeated_signature(CONSECUTIVE_WINDOW)
        && same >= SAME_SIGNATURE
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
    if let Some((failures, _)) = all_failed(candidate) {
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
    let verdict = by_signature(candidate, stable)
        .or_else(|| by_evidence(candidate, stable))
        .or_else(|| by_run(policy, candidate, stable))
        .or_else(|| by_total_failure(candidate, stable).filter(|_| is_on_trial))
        .or_else(|| by_doubt(policy, candidate, stable, baseline).filter(|_| is_on_trial));
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
fn by_signature(candidate: &Release, stable: &Release) -> Option<ReleaseVerdict> {
    let (signature, same) = candidate.evidence.repeated_signature(CONSECUTIVE_WINDOW)?;
    let is_new = !stable.evidence.has_signature(signature);
    (is_new && same >= SAME_SIGNATURE).then(|| {
        let words = format!(
            "{same} failures in a row with `{signature}`, which the stable release does not show"
        );
        rolled_back(ReleaseLane::Immediate, false, words)
    })
}

fn by_evidence(candidate: &Release, stable: &Release) -> Option<ReleaseVerdict> {
    let value = candidate.evidence.e_value();
    let is_sure = value >= FINAL_EVIDENCE && is_its_own(candidate, stable);
    is_sure.then(|| rolled_back(ReleaseLane::Evidence, false, worse(candidate)))
}

/// Evidence that is not enough to be final: less traffic, until there is more.
fn by_doubt(
    policy: &ReleasePolicy,
    candidate: &Release,
    stable: &Release,
    baseline: Option<Baseline>,
) -> Option<ReleaseVerdict> {
    let value = candidate.evidence.e_value();
    if value < DROP_EVIDENCE || !is_its_own(candidate, stable) {
        return None;
    }
    let words = if candidate.evidence.is_slow_rather() {
        worse(candidate)
    } else {
        dropped(policy, candidate, baseline?)?
    };
    Some(rolled_back(ReleaseLane::Standard, true, words))
}

/// Returns whether it is the candidate that does worse, and not both.
fn is_its_own(candidate: &Release, stable: &Release) -> bool {
    candidate.evidence.is_slow_rather()
        || candidate
            .evidence
            .is_worse_now(&stable.evidence, candidate.share)
}

fn worse(candidate: &Release) -> String {
    let value = candidate.evidence.e_value();
    let how = if candidate.evidence.is_slow_rather() {
        "is much slower"
    } else {
        "fails more often"
    };
    format!("it {how} than the stable release does at the same time (e-value {value:.0})")
}

/// Finds a run of failures that chance hardly explains, while the stable release does well. The
/// chance of a run is spread over all places at which one may start, 1 / n² each, so that all
/// together are mistaken with a probability of at most [`RUN_ERROR`].
fn by_run(policy: &ReleasePolicy, candidate: &Release, stable: &Release) -> Option<ReleaseVerdict> {
    let own = &candidate.evidence;
    let run = own.run_within(CONSECUTIVE_WINDOW);
    if run < u64::from(policy.consecutive) || may_be_shared(candidate, stable) {
        return None;
    }
    let expected = stable.evidence.failures_at_most();
    let place = (own.executions().saturating_sub(run) + 1) as f64;
    let chance = expected.powi(i32::try_from(run).unwrap_or(i32::MAX)) * place.powi(2) * ALL_PLACES;
    (chance <= RUN_ERROR).then(|| {
        let (good, bad) = meanwhile(candidate, stable);
        let words = format!(
            "{run} failures in a row, while {bad} of {} of the stable release failed",
            good + bad
        );
        rolled_back(ReleaseLane::Immediate, false, words)
    })
}

fn by_total_failure(candidate: &Release, stable: &Release) -> Option<ReleaseVerdict> {
    let (failures, since) = all_failed(candidate)?;
    let (good, bad) = stable.evidence.counts_since(since);
    let is_shared =
        bad > 0 && (good == 0 || fisher((failures, failures), (bad, good + bad)) > SHARED_CHANCE);
    (!is_shared).then(|| {
        rolled_back(
            ReleaseLane::Fast,
            false,
            format!("all {failures} executions failed"),
        )
    })
}

/// Returns whether a provisionally rolled back release does well on its small share, so that it
/// gets its own again.
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

/// Returns the failures of a release that never succeeded, if they are enough, and when the first
/// one was.
fn all_failed(candidate: &Release) -> Option<(u64, Timestamp)> {
    candidate
        .evidence
        .failed_from_birth()
        .filter(|(failures, _)| *failures >= ALL_FAILED)
}

fn dropped(policy: &ReleasePolicy, candidate: &Release, baseline: Baseline) -> Option<String> {
    let (outcomes, success) = candidate.evidence.window();
    // A ratio of small counts is not exact in binary: 0.9 - 0.75 is a little less than 0.15.
    let is_lower = baseline.success - success >= policy.drop - 1e-9;
    (outcomes >= policy.min_executions as usize && is_lower).then(|| {
        let now = success * 100.0;
        let before = baseline.success * 100.0;
        format!("{now:.0} % of the last {outcomes} executions succeeded, {before:.0} % of the stable release's")
    })
}

/// Returns whether the stable release fails as well since the present run of failures began, or was
/// not used since then although it will be: an outage of both looks like this.
fn may_be_shared(candidate: &Release, stable: &Release) -> bool {
    let run = candidate.evidence.run_length();
    let (good, bad) = meanwhile(candidate, stable);
    let is_unknown = good + bad == 0 && candidate.share < 1.0 && run < UNCOMPARED_RUN;
    run > 0 && (is_unknown || (bad > 0 && bad >= good))
}

/// Returns the successes and failures of the stable release since the present run of failures of
/// the candidate began.
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
