//! Tests whether a candidate does worse than the stable release does at the same time: a test that may be
//! looked at after every outcome.
//!
//! A good outcome of the candidate counts as it comes. A bad one counts once the next outcome of the
//! stable release is good and the one before it was, so that failures of both are not evidence. The
//! evidence is a mixture of betting martingales (Ville 1939; Waudby-Smith and Ramdas, "Estimating
//! means of bounded random variables by betting", 2024): a bet on the share `q` multiplies its
//! wealth by `q / r` for a bad outcome and by `(1 - q) / (1 - r)` for a good one. `r` is the share of
//! counted outcomes that are bad if the candidate is as bad as the stable release, at most `p`: of
//! its bad outcomes `p (1 - p)²` count, with good neighbours. The wealth is then at most 1 in
//! expectation, so that it ever reaches `x` with a probability of at most `1 / x`.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::within;

/// Nearness of each bet to certain failure beyond the expected share, as shares of the way, and its
/// share of the mixture: a small drop, one of thirty points, and failure each time.
const BETS: [(f64, f64); 3] = [(0.12, 0.25), (0.35, 0.5), (0.95, 0.25)];

/// The wealth of a bet is kept within these bounds, so that a long healthy life does not make it
/// blind.
const MIN_WEALTH: f64 = 1e-3;
const MAX_WEALTH: f64 = 1e12;

/// Time for which a bad outcome waits for one of the stable release.
const COMPARED_WITHIN: std::time::Duration = std::time::Duration::from_mins(5);
/// Bad outcomes that wait at most.
const MAX_WAITING: usize = 64;

/// The evidence that a candidate does worse, in one respect.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CandidateComparison {
    wealth: Option<[f64; BETS.len()]>,
    /// Bad outcomes that no outcome of the stable release came after yet.
    waiting: VecDeque<Timestamp>,
}

// === impl CandidateComparison ===

impl CandidateComparison {
    /// Takes a good outcome; `expected`: the share of bad ones at the stable release at most, `None`
    /// while that does worse than usual and says nothing.
    pub(super) fn good(&mut self, expected: Option<f64>) {
        self.bet(false, expected);
    }

    /// Takes a bad outcome, which waits for one of the stable release.
    pub(super) fn bad(&mut self, at: Timestamp) {
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(at);
        }
    }

    /// Takes an outcome of the stable release.
    pub(super) fn compare(&mut self, is_bad: bool, expected: Option<f64>, now: Timestamp) {
        let waiting = std::mem::take(&mut self.waiting);
        if is_bad {
            return;
        }
        for at in waiting {
            if within(at, now, COMPARED_WITHIN) {
                self.bet(true, expected);
            }
        }
    }

    /// Begins anew.
    pub(super) fn begin_anew(&mut self) {
        self.wealth = None;
    }

    /// Returns the value of the e-process; 1 before any bet.
    pub(super) fn e_value(&self) -> f64 {
        self.wealth.map_or(1.0, |wealth| {
            let parts = wealth.iter().zip(BETS);
            parts.map(|(wealth, (_, share))| wealth * share).sum()
        })
    }

    fn bet(&mut self, is_bad: bool, expected: Option<f64>) {
        let Some(expected) = expected else { return };
        let counted = counted_share(expected);
        let wealth = self.wealth.get_or_insert([1.0; BETS.len()]);
        for (wealth, (nearer, _)) in wealth.iter_mut().zip(BETS) {
            let bold = counted + (1.0 - counted) * nearer;
            let factor = if is_bad {
                bold / counted
            } else {
                (1.0 - bold) / (1.0 - counted)
            };
            *wealth = (*wealth * factor).clamp(MIN_WEALTH, MAX_WEALTH);
        }
    }
}

/// Returns the share of counted outcomes that are bad at most, if bad ones are at most `expected`
/// of all at both releases. `p (1 - p)²` is largest at a third.
fn counted_share(expected: f64) -> f64 {
    let largest = expected.min(1.0 / 3.0);
    let bad = largest * (1.0 - largest).powi(2);
    (bad / (bad + 1.0 - expected)).clamp(0.01, 0.99)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn a_bad_outcome_counts_once_the_stable_release_did_well_after_it() {
        let mut comparison = CandidateComparison::default();
        comparison.bad(at(0));
        assert!((comparison.e_value() - 1.0).abs() < 1e-9);
        comparison.compare(false, Some(0.1), at(1));
        let once = comparison.e_value();
        assert!(once > 1.0);
        comparison.bad(at(2));
        comparison.compare(true, Some(0.1), at(3));
        comparison.bad(at(4));
        comparison.compare(false, Some(0.1), at(305));
        comparison.bad(at(306));
        comparison.compare(false, None, at(307));
        assert!(
            (comparison.e_value() - once).abs() < 1e-9,
            "nothing else counts"
        );
        comparison.good(Some(0.1));
        assert!(comparison.e_value() < once);
    }

    #[test]
    fn what_is_expected_of_counted_outcomes_is_below_what_is_expected_of_all() {
        for hundredths in 1..=99 {
            let expected = f64::from(hundredths) / 100.0;
            let counted = counted_share(expected);
            assert!((0.01..=0.99).contains(&counted));
            assert!(counted <= expected.max(0.01), "{expected}: {counted}");
        }
    }
}
