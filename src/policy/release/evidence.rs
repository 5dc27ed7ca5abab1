//! What is known of how a release does, and what its figures are against the stable release.
//!
//! The e-process is a mixture of betting martingales (Ville 1939; Waudby-Smith and Ramdas,
//! "Estimating means of bounded random variables by betting", 2024): each component bets that
//! failures are more frequent by its own share, and the mean of their wealths is at most 1 in
//! expectation while the release fails no more often than the stable one.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts are far below the 52 bits that a float holds exactly"
)]

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{ReleaseEvidence, ReleaseOutcome, ReleasePolicy, within};

/// How much nearer to certain failure each component of the e-process bets that the release is, as
/// shares of the way.
const BETS: [f64; 6] = [0.08, 0.16, 0.3, 0.5, 0.75, 0.95];

/// The wealth of a component is kept within these bounds, so that a long healthy life does not make
/// it blind.
const MIN_WEALTH: f64 = 1e-3;
const MAX_WEALTH: f64 = 1e12;

/// Failures in a row, and recent outcomes, that are remembered one by one.
const REMEMBERED: usize = 64;

/// Failures in a row, up to so old, by which the stable release shows that something fails that
/// both share.
const FAILING: usize = 2;
const FAILING_WITHIN: Duration = Duration::from_mins(5);

/// Executions of the stable release from which it is a baseline.
const MIN_BASELINE: u32 = 10;

/// What the stable release says of the failures that are to be expected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Baseline {
    /// Its success, 0 to 1.
    pub(super) success: f64,
    /// The share of failures that is to be expected at most.
    pub(super) failures_at_most: f64,
}

/// Everything that is known of how a release does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outcomes {
    executions: u64,
    failures: u64,
    /// When the first outcome came, and how many failures came before any success, those that do
    /// not count included.
    first_at: Option<Timestamp>,
    failed_from_birth: u64,
    has_succeeded: bool,
    /// The failures since the last success, the newest last.
    run: VecDeque<RunFailure>,
    run_length: u64,
    /// The newest outcomes, true for a success.
    window: VecDeque<bool>,
    /// The newest outcomes with their time.
    recent: VecDeque<(Timestamp, bool)>,
    /// Sessions whose failure was counted.
    sessions: VecDeque<u64>,
    /// Signatures of the newest failures.
    signatures: VecDeque<String>,
    wealth: Option<[f64; BETS.len()]>,
}

/// One of several failures in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RunFailure {
    at: Timestamp,
    signature: String,
}

// === impl Outcomes ===

impl Outcomes {
    /// Notes any outcome of the release, whether or not it counts.
    pub(super) fn note(&mut self, outcome: &ReleaseOutcome) {
        self.first_at.get_or_insert(outcome.at);
        self.has_succeeded |= outcome.failure.is_none();
        self.failed_from_birth += u64::from(!self.has_succeeded);
    }

    /// Failures since the first outcome, if there was no success yet, and when that was.
    pub(super) fn failed_from_birth(&self) -> Option<(u64, Timestamp)> {
        self.first_at
            .filter(|_| !self.has_succeeded)
            .map(|at| (self.failed_from_birth, at))
    }

    /// Takes in an outcome that counts, against what is to be expected.
    pub(super) fn take(
        &mut self,
        policy: &ReleasePolicy,
        outcome: &ReleaseOutcome,
        baseline: Option<Baseline>,
    ) {
        let failed = outcome.failure.is_some();
        if let Some(session) = outcome.session.filter(|_| failed) {
            if self.sessions.contains(&session) {
                return;
            }
            push(&mut self.sessions, session, REMEMBERED);
        }
        self.executions += 1;
        self.failures += u64::from(failed);
        push(&mut self.window, !failed, policy.window as usize);
        push(&mut self.recent, (outcome.at, !failed), REMEMBERED);
        if failed {
            self.run_length += 1;
            push(
                &mut self.run,
                RunFailure {
                    at: outcome.at,
                    signature: outcome.signature.clone(),
                },
                REMEMBERED,
            );
            push(&mut self.signatures, outcome.signature.clone(), REMEMBERED);
        } else {
            self.run_length = 0;
            self.run.clear();
        }
        let Some(baseline) = baseline else { return };
        let expected = baseline.failures_at_most;
        let wealth = self.wealth.get_or_insert([1.0; BETS.len()]);
        for (wealth, bet) in wealth.iter_mut().zip(BETS) {
            let bold = expected + (1.0 - expected) * bet;
            let factor = if failed {
                bold / expected
            } else {
                (1.0 - bold) / (1.0 - expected)
            };
            *wealth = (*wealth * factor).clamp(MIN_WEALTH, MAX_WEALTH);
        }
    }

    /// Begins anew what led to a decision, so that the same outcomes do not lead to it again.
    pub(super) fn begin_anew(&mut self) {
        self.run.clear();
        self.run_length = 0;
        self.window.clear();
        self.wealth = None;
    }

    pub(super) const fn executions(&self) -> u64 {
        self.executions
    }

    /// Failures in a row up to now.
    pub(super) const fn run_length(&self) -> u64 {
        self.run_length
    }

    /// Failures in a row of which the first is at most `span` before the last.
    pub(super) fn run_within(&self, span: Duration) -> u64 {
        let Some(last) = self.run.back() else {
            return 0;
        };
        self.run
            .iter()
            .filter(|failure| within(failure.at, last.at, span))
            .count() as u64
    }

    /// The signature of the newest failures in a row, and how many of them share it; `None` where
    /// they have none.
    pub(super) fn repeated_signature(&self, span: Duration) -> Option<(&str, u64)> {
        let last = self.run.back().filter(|last| !last.signature.is_empty())?;
        let same = self
            .run
            .iter()
            .rev()
            .take_while(|it| it.signature == last.signature && within(it.at, last.at, span));
        Some((&last.signature, same.count() as u64))
    }

    /// Whether a failure with this signature was seen lately.
    pub(super) fn has_signature(&self, signature: &str) -> bool {
        self.signatures.iter().any(|known| known == signature)
    }

    /// When the present run of failures began; `None` where there is none.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.run.front().map(|failure| failure.at)
    }

    /// The same, with an outcome that is about to be taken in.
    pub(super) fn since_with(&self, outcome: &ReleaseOutcome) -> Option<Timestamp> {
        outcome.failure.and(self.since().or(Some(outcome.at)))
    }

    /// Successes and failures since `at`.
    pub(super) fn counts_since(&self, at: Timestamp) -> (u64, u64) {
        let since = self.recent.iter().filter(|(when, _)| *when >= at);
        since.fold((0, 0), |(good, bad), (_, success)| {
            if *success {
                (good + 1, bad)
            } else {
                (good, bad + 1)
            }
        })
    }

    /// Whether the newest outcomes, up to five minutes old, are all failures: then others fail for
    /// the same reason.
    pub(super) fn is_failing(&self, now: Timestamp) -> bool {
        let newest = self.recent.iter().rev().take(FAILING);
        let failing = newest.filter(|(at, success)| !success && within(*at, now, FAILING_WITHIN));
        failing.count() == FAILING
    }

    /// Outcomes in the window, and its share of successes.
    pub(super) fn window(&self) -> (usize, f64) {
        let good = self.window.iter().filter(|success| **success).count();
        (self.window.len(), ratio(good, self.window.len()))
    }

    /// The value of the e-process; 1 where there was no baseline yet.
    pub(super) fn e_value(&self) -> f64 {
        self.wealth.map_or(1.0, |wealth| {
            wealth.iter().sum::<f64>() / f64::from(u32::try_from(BETS.len()).unwrap_or(1))
        })
    }

    /// What this release, as the stable one, says of the failures to expect; since `since`, if it
    /// failed more then.
    pub(super) fn baseline(
        &self,
        policy: &ReleasePolicy,
        since: Option<Timestamp>,
    ) -> Option<Baseline> {
        if self.window.len() < MIN_BASELINE.min(policy.min_executions) as usize {
            return None;
        }
        let (executions, failures) = (self.executions, self.failures);
        let success = 1.0 - failures as f64 / executions as f64;
        let mut failures_at_most = at_most(failures, executions);
        let mut success_now = success.min(self.window().1.max(success - policy.drop));
        if let Some(since) = since {
            let (good, bad) = self.counts_since(since);
            if bad > 0 {
                let share = (bad as f64 + 1.0) / ((good + bad) as f64 + 2.0);
                failures_at_most = failures_at_most.max(share);
                success_now = success_now.min(1.0 - share);
            }
        }
        Some(Baseline {
            success: success_now,
            failures_at_most: failures_at_most.clamp(0.01, 0.99),
        })
    }

    pub(super) fn figures(&self, baseline: Option<Baseline>) -> ReleaseEvidence {
        let (window, success) = self.window();
        ReleaseEvidence {
            executions: self.executions,
            failures: self.failures,
            consecutive: self.run_length,
            window: window as u64,
            window_success: (window > 0).then_some(success),
            baseline_success: baseline.map(|baseline| baseline.success),
            e_value: baseline.map(|_| self.e_value()),
            signature: self
                .run
                .back()
                .map(|failure| failure.signature.clone())
                .unwrap_or_default(),
        }
    }
}

/// The share of failures that `failures` of `executions` speak for at most, 19 times out of 20: the
/// mean of the Beta(1, 1) posterior and 1.64 of its standard deviations.
fn at_most(failures: u64, executions: u64) -> f64 {
    let n = executions as f64 + 2.0;
    let mean = (failures as f64 + 1.0) / n;
    mean + 1.64 * (mean * (1.0 - mean) / (n + 1.0)).sqrt()
}

fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn push<T>(queue: &mut VecDeque<T>, item: T, max: usize) {
    while queue.len() >= max.max(1) {
        queue.pop_front();
    }
    queue.push_back(item);
}
