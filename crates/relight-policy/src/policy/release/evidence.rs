//! What is known of how a release does, and what its figures are against the stable release.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts are far below the 52 bits that a float holds exactly"
)]

use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    ReleaseEvidence, ReleaseOutcome, ReleasePolicy, comparison::CandidateComparison,
    setting::WINDOW, within,
};

/// The shares of the evidence for failures and for slowness in the value of the whole: a mean of
/// e-processes is one, too.
const OF_FAILURES: f64 = 0.8;
const OF_SLOWNESS: f64 = 0.2;

/// An execution is slow that takes so many times as long as most of the stable release's, and so
/// much longer.
const SLOW_FACTOR: u64 = 5;
const SLOW_BY_MS: u64 = 50;

/// The newest outcomes of the stable release by which it does worse than usual, and by how many
/// standard deviations.
const NEWEST: [usize; 2] = [10, 20];
const WORSE_BY: f64 = 2.0;

/// Probability with which chance may explain that they are worse; a ratio is not exact in binary.
const ONE_IN_FOUR: f64 = 0.25 + 1e-9;

/// The newest outcomes of a candidate that are compared with those of the stable release since.
const COMPARED: usize = 20;

/// The share of failures that is expected of a stable release of which too little is known.
pub(super) const UNKNOWN_FAILURES: f64 = 0.2;

/// Failures in a row, and recent outcomes, that are remembered one by one.
const REMEMBERED: usize = 64;

/// Failures in a row, up to so old, by which the stable release shows that something fails that
/// both share.
const FAILING: usize = 2;
const FAILING_WITHIN: Duration = Duration::from_mins(5);

/// Executions of the stable release from which it is a baseline.
const MIN_BASELINE: u32 = 10;

/// Failures to be expected, as the stable release shows them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Baseline {
    /// Its success, 0 to 1.
    pub(super) success: f64,
}

/// Everything that is known of how a release does.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outcomes {
    executions: u64,
    failures: u64,
    /// Time of the first outcome, and the number of failures that came before any success, those
    /// that do not count included.
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
    /// Durations of the newest successes, in milliseconds.
    durations: VecDeque<u64>,
    failing: CandidateComparison,
    slow: CandidateComparison,
}

/// One of several failures in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct RunFailure {
    at: Timestamp,
    signature: String,
}

// === impl Outcomes ===

impl Outcomes {
    /// Notes an outcome of the release, repeats of a session included.
    pub(super) fn note(&mut self, policy: &ReleasePolicy, outcome: &ReleaseOutcome) {
        self.first_at.get_or_insert(outcome.at);
        self.has_succeeded |= !outcome.is_bad(policy);
        self.failed_from_birth += u64::from(!self.has_succeeded);
    }

    /// Failures since the first outcome, if there was no success yet, and when that was.
    pub(super) fn failed_from_birth(&self) -> Option<(u64, Timestamp)> {
        self.first_at
            .filter(|_| !self.has_succeeded)
            .map(|at| (self.failed_from_birth, at))
    }

    /// Takes in an outcome that counts; returns whether it did, and was no repeat of a session's
    /// failure.
    pub(super) fn take(&mut self, policy: &ReleasePolicy, outcome: &ReleaseOutcome) -> bool {
        let failed = outcome.is_bad(policy);
        if let Some(session) = outcome.session.filter(|_| failed) {
            if self.sessions.contains(&session) {
                return false;
            }
            push(&mut self.sessions, session, REMEMBERED);
        }
        self.executions += 1;
        self.failures += u64::from(failed);
        push(&mut self.window, !failed, WINDOW as usize);
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
        if let Some(millis) = outcome.duration_ms.filter(|_| !failed) {
            push(&mut self.durations, millis, REMEMBERED);
        }
        true
    }

    /// Compares an outcome of this candidate with how the stable release does.
    pub(super) fn compare(
        &mut self,
        policy: &ReleasePolicy,
        outcome: &ReleaseOutcome,
        stable: &Self,
    ) {
        if outcome.is_bad(policy) {
            if !stable.has_just_failed(outcome.at) {
                self.failing.bad(outcome.at);
            }
            return;
        }
        self.failing.good(stable.expected(outcome.at));
        let Some((bound, share)) = stable.slowness() else {
            return;
        };
        match outcome.duration_ms {
            Some(millis) if millis <= bound => self.slow.good(Some(share)),
            Some(_) if stable.durations.back().is_some_and(|last| *last <= bound) => {
                self.slow.bad(outcome.at);
            }
            Some(_) | None => {}
        }
    }

    /// Compares what waits with an outcome of the stable release, which `stable` holds already.
    pub(super) fn compare_with(
        &mut self,
        policy: &ReleasePolicy,
        outcome: &ReleaseOutcome,
        stable: &Self,
    ) {
        let is_bad = outcome.is_bad(policy);
        self.failing
            .compare(is_bad, stable.expected(outcome.at), outcome.at);
        if let (Some((bound, share)), Some(millis)) =
            (stable.slowness(), outcome.duration_ms.filter(|_| !is_bad))
        {
            self.slow.compare(millis > bound, Some(share), outcome.at);
        }
    }

    /// From which duration an execution is slow for this stable release, and which share of its own
    /// is at most; `None` while too little is known.
    fn slowness(&self) -> Option<(u64, f64)> {
        if self.durations.len() < MIN_BASELINE as usize {
            return None;
        }
        let mut sorted: Vec<u64> = self.durations.iter().copied().collect();
        sorted.sort_unstable();
        let median = sorted[sorted.len() / 2];
        let bound = median
            .saturating_mul(SLOW_FACTOR)
            .max(median.saturating_add(SLOW_BY_MS));
        let slow = sorted.iter().filter(|millis| **millis > bound).count();
        Some((bound, at_most(slow as u64, sorted.len() as u64).min(0.99)))
    }

    /// Returns whether its newest outcome, up to five minutes old, is a failure.
    fn has_just_failed(&self, now: Timestamp) -> bool {
        let newest = self.recent.back();
        newest.is_some_and(|(at, success)| !success && within(*at, now, FAILING_WITHIN))
    }

    /// Returns the share of failures that is to be expected of this stable release at most; `None`
    /// while it does worse than usual.
    fn expected(&self, now: Timestamp) -> Option<f64> {
        let expected = self.failures_at_most();
        let is_worse = NEWEST.iter().any(|count| {
            let newest = self.recent.iter().rev().take(*count);
            let newest = newest.filter(|(at, _)| within(*at, now, FAILING_WITHIN));
            let mut all = 0.0;
            let mut bad = 0.0;
            for (_, success) in newest {
                all += 1.0;
                bad += f64::from(u8::from(!success));
            }
            let deviation = (all * expected * (1.0 - expected)).sqrt();
            bad > all * expected + WORSE_BY * deviation
        });
        (!is_worse).then_some(expected)
    }

    /// Returns the share of failures of this stable release at most, in the long run.
    pub(super) fn failures_at_most(&self) -> f64 {
        let executions = self.executions;
        let failures = self.failures;
        let most = if executions < u64::from(MIN_BASELINE) {
            UNKNOWN_FAILURES.max(failures as f64 / executions.max(1) as f64)
        } else {
            at_most(failures, executions)
        };
        most.clamp(0.01, 0.99)
    }

    /// Returns whether this candidate's newest outcomes are worse than those of the stable release
    /// in the same time by more than chance explains one time in four (Fisher's exact test), so
    /// that an outage of both is not taken for the candidate's. Without outcomes of the stable
    /// release: whether it gets none.
    pub(super) fn is_worse_now(&self, stable: &Self, share: f64) -> bool {
        let newest = self.recent.iter().rev().take(COMPARED);
        let mut bad = 0;
        let mut all = 0;
        let mut since = None;
        for (at, success) in newest {
            (all, since) = (all + 1, Some(*at));
            bad += u64::from(!success);
        }
        let Some(since) = since else { return false };
        let (good_there, bad_there) = stable.counts_since(since);
        if good_there + bad_there == 0 {
            return share >= 1.0;
        }
        fisher((bad, all), (bad_there, good_there + bad_there)) <= ONE_IN_FOUR
    }

    /// Returns whether it is slowness and not failure that speaks against it.
    pub(super) fn is_slow_rather(&self) -> bool {
        self.slow.e_value() * OF_SLOWNESS > self.failing.e_value() * OF_FAILURES
    }

    /// Begins anew what led to a decision, so that the same outcomes do not lead to it again.
    pub(super) fn begin_anew(&mut self) {
        self.run.clear();
        self.run_length = 0;
        self.window.clear();
        self.failing.begin_anew();
        self.slow.begin_anew();
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

    /// Returns the signature of the newest failures in a row, and the number of them that share it;
    /// `None` if they have none.
    pub(super) fn repeated_signature(&self, span: Duration) -> Option<(&str, u64)> {
        let last = self.run.back().filter(|last| !last.signature.is_empty())?;
        let same = self
            .run
            .iter()
            .rev()
            .take_while(|it| it.signature == last.signature && within(it.at, last.at, span));
        Some((&last.signature, same.count() as u64))
    }

    /// Returns whether a failure with this signature was seen lately.
    pub(super) fn has_signature(&self, signature: &str) -> bool {
        self.signatures.iter().any(|known| known == signature)
    }

    /// Returns the time at which the present run of failures began; `None` if there is none.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.run.front().map(|failure| failure.at)
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

    /// Returns whether the newest outcomes, up to five minutes old, are all failures: then others
    /// fail for the same reason.
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

    /// Returns the value of the e-process; 1 before anything was compared.
    pub(super) fn e_value(&self) -> f64 {
        OF_FAILURES * self.failing.e_value() + OF_SLOWNESS * self.slow.e_value()
    }

    /// Returns the failures to expect that this release, as the stable one, shows; since `since`,
    /// if it failed more then.
    pub(super) fn baseline(
        &self,
        policy: &ReleasePolicy,
        since: Option<Timestamp>,
    ) -> Option<Baseline> {
        if self.window.len() < MIN_BASELINE.min(policy.min_executions) as usize {
            return None;
        }
        let executions = self.executions;
        let failures = self.failures;
        let success = 1.0 - failures as f64 / executions as f64;
        let mut success_now = success.min(self.window().1.max(success - policy.drop));
        if let Some(since) = since {
            let (good, bad) = self.counts_since(since);
            if bad > 0 {
                let share = (bad as f64 + 1.0) / ((good + bad) as f64 + 2.0);
                success_now = success_now.min(1.0 - share);
            }
        }
        Some(Baseline {
            success: success_now,
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

/// Returns the share of failures that `failures` of `executions` speak for at most, 19 times out of
/// 20: the mean of the Beta(1, 1) posterior and 1.64 of its standard deviations.
fn at_most(failures: u64, executions: u64) -> f64 {
    let n = executions as f64 + 2.0;
    let mean = (failures as f64 + 1.0) / n;
    mean + 1.64 * (mean * (1.0 - mean) / (n + 1.0)).sqrt()
}

/// Returns the probability that as many of the bad outcomes, or more, fall to the first of two
/// groups by chance (Fisher 1935); each group as its bad outcomes and all of them.
pub(super) fn fisher(first: (u64, u64), second: (u64, u64)) -> f64 {
    let bad = first.0 + second.0;
    let all = first.1 + second.1;
    // The hypergeometric probabilities by their ratios, from the least possible number on.
    let least = bad.saturating_sub(second.1);
    let mut weight = 1.0;
    let mut whole = 0.0;
    let mut tail = 0.0;
    for x in least..=bad.min(first.1) {
        whole += weight;
        if x >= first.0 {
            tail += weight;
        }
        let in_first = first.1 - x;
        let in_second = bad - x;
        weight *= (in_first * in_second) as f64;
        weight /= ((x + 1) * (all - first.1 + x + 1 - bad).max(1)) as f64;
    }
    tail / whole
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
