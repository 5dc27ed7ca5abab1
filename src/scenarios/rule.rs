//! The rule that every scenario is held to, whatever its seed and rate: never worse than a naive
//! client, and not far from the ideal.

use super::{Bounds, GateResult, Measures};

/// Verdict that as many calls succeed as with the naive client.
const SUCCESS_NAIVE: &str = "success (naive)";
/// Verdict that not many fewer calls succeed than at best.
const SUCCESS_IDEAL: &str = "success (ideal)";
/// The verdict that no more attempts are made than by the naive client.
const AMPLIFICATION_NAIVE: &str = "amplification (naive)";
/// The verdict that callers wait no longer than those of the naive client.
const ADDED_P99_NAIVE: &str = "added_p99 (naive)";

/// Every verdict of the rule.
pub(super) const ALL: [&str; 4] = [
    SUCCESS_NAIVE,
    SUCCESS_IDEAL,
    AMPLIFICATION_NAIVE,
    ADDED_P99_NAIVE,
];

/// Amount by which fewer calls may succeed than with the naive client.
const LESS: f64 = 0.005;
/// The same if less than half as many attempts are made.
const LESS_FOR_HALF: f64 = 0.03;
/// Amount by which fewer calls may succeed than with the ideal, which knows the future.
const FROM_IDEAL: f64 = 0.1;
/// Amount by which the 99th percentile of the added time may be longer than the naive client's, if
/// as many calls succeed with both, and enough for a percentile: by this factor, and by so many
/// seconds.
const LONGER: (f64, f64) = (1.5, 1.0);
/// Answered calls from which one in a hundred is a call: of fewer, the percentile is the longest of all.
const FEWEST: f64 = 100.0;
/// The most attempts per call that are always allowed; beyond, at most as many as the naive client's.
const ATTEMPTS: f64 = 1.2;
/// In how many standard deviations of a mean chance may show.
const DEVIATIONS: f64 = 3.0;

/// Returns the gates of the rule for these measures; if no ideal is known, without it.
pub(super) fn verdicts(
    ours: &Measures,
    naive: &Measures,
    ideal: Option<&Measures>,
) -> Vec<GateResult> {
    let [Some(success), Some(by_naive)] = [ours, naive].map(|measures| measures.get("success"))
    else {
        return Vec::new();
    };
    let attempts = |measures: &Measures| measures.get("amplification").unwrap_or(0.0);
    let less = if attempts(ours) * 2.0 < attempts(naive) {
        LESS_FOR_HALF
    } else {
        LESS
    };
    let calls = ours.get("calls").unwrap_or(1.0);
    let chance = |share: f64| DEVIATIONS * (share * (1.0 - share) / calls.max(1.0)).sqrt();
    let min = by_naive - less - chance(by_naive);
    let mut verdicts = vec![at_least(SUCCESS_NAIVE, success, min)];
    if let Some(by_ideal) = ideal.and_then(|ideal| ideal.get("success")) {
        let min = by_ideal - FROM_IDEAL - chance(by_ideal);
        verdicts.push(at_least(SUCCESS_IDEAL, success, min));
    }
    // Attempts until the first that succeeds have a geometric distribution, of variance `m (m - 1)`.
    let by_naive_attempts = attempts(naive).max(1.0);
    let variance = by_naive_attempts * (by_naive_attempts - 1.0);
    let by_chance = DEVIATIONS * (variance / calls.max(1.0)).sqrt();
    let max = (by_naive_attempts + by_chance).max(ATTEMPTS);
    verdicts.push(at_most(AMPLIFICATION_NAIVE, attempts(ours), max));
    let as_many = (success - by_naive).abs() <= LESS && success.min(by_naive) * calls >= FEWEST;
    if let (true, Some(added), Some(of_naive)) = (
        as_many,
        ours.get("added_p99"),
        naive.get("added_p99_by_chance"),
    ) {
        let max = LONGER.0 * of_naive + LONGER.1;
        verdicts.push(at_most(ADDED_P99_NAIVE, added, max));
    }
    verdicts
}

/// Returns whether a verdict is one of the rule, and not of a scenario's own gates.
pub(super) fn is_of(verdict: &GateResult) -> bool {
    ALL.contains(&verdict.measure.as_str())
}

fn at_least(measure: &str, value: f64, min: f64) -> GateResult {
    GateResult {
        measure: measure.to_owned(),
        value: Some(value),
        bounds: Bounds {
            min: Some(rounded(min)),
            max: None,
        },
        passed: value >= min,
        beyond: None,
    }
}

fn at_most(measure: &str, value: f64, max: f64) -> GateResult {
    GateResult {
        measure: measure.to_owned(),
        value: Some(value),
        bounds: Bounds {
            min: None,
            max: Some(rounded(max)),
        },
        passed: value <= max,
        beyond: None,
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
