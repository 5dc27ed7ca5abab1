//! The settings of the circuit breaker: what an operator may change, in which range, and the effect
//! of wrong values.
//!
//! Every default and constant was measured with the scenarios; `validate` names values that cannot
//! work.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FailKind;

/// Settings by which a circuit judges its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CircuitMode {
    /// By evidence in admission order: runs, shares in a window, probes, stages.
    #[default]
    Evidence,
    /// By failures in a row, with a fixed open time and one probe: the classic breaker.
    Consecutive,
    /// Not at all: everything is admitted and nothing is recorded.
    Off,
}

/// The settings of a target's circuit breaker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CircuitPolicy {
    /// Mode of judging the target; `consecutive` reads only the last three settings.
    pub mode: CircuitMode,
    /// After this time without a first token an attempt counts as failed, even without a report,
    /// and a probe's lease ends a second later. Not a setting of its own: it is the longest
    /// first-token timer of the target's routes.
    #[serde(with = "crate::domain::units::duration", skip_serializing)]
    #[schemars(skip)]
    pub first_token_timeout: Duration,
    /// A first token later than this is slow, and a caller who gives up later than this counts
    /// against the target. 1 ms to 10 min, and no later than the target's first-token timers; raise
    /// it for models that reason for long before their first token, or they count as degraded.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub slow_threshold: Duration,
    /// Failures in a row that open at one call per second and below. At 50 and above it takes two
    /// and a half times as many; in between the number grows with the logarithm of the rate. If the
    /// target fails often, more are required, so that chance explains them once in a billion: 30 if it
    /// fails half of at least 100 calls in ten seconds. 2 to 400; lower opens on bad luck.
    pub run_at_low_rate: u32,
    /// The first open time, and the measure of the other times: after timeouts an
    /// open time doubles for each recovery that failed, up to thirty times this (less if there are
    /// many calls), and while another target is healthy after errors too, up to 25 times; two failures without
    /// a success for three times this make the target degraded, so that others are preferred. 10 ms
    /// to 10 min, and no time derived from it is longer than an hour.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub open_base: Duration,
    /// If set, every failure of a call counts, including those that show nothing about the target's
    /// health: a limit, a used-up quota, a rejected key, a wrong request. Default false. If true,
    /// one caller's own mistakes can close the target for all others.
    pub any_failure: bool,
    /// Mode `consecutive`: failures in a row that open. 1 to 1000.
    pub consecutive_failures: u32,
    /// Mode `consecutive`: the open time, always the same. 10 ms to 1 h.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub consecutive_open: Duration,
}

// The constants of the mode `evidence`, with the scenarios (`scenarios/`) in which each matters
// most.

/// Calls per second up to which `run_at_low_rate` holds (scenario 18a: outages at few calls).
const LOW_RATE: f64 = 1.0;
/// Calls per second from which two and a half times as many failures in a row open. At the default
/// of 20, a run among `n` calls of which half fail independently is expected `n / 2^21` times: once
/// or twice in ten hours of 50 calls per second, at the price of 0.4 s until an outage is found
/// (scenarios 02c and 03).
const HIGH_RATE: f64 = 50.0;
/// Window in which shares and the rate of calls are counted; a longer one finds a partial outage
/// later (scenario 17).
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// Outcomes below which no share is judged: fewer open on chance at 30 % failures (scenario 02b).
pub(super) const MIN_OUTCOMES: u32 = 20;
/// Age up to which the last `MIN_OUTCOMES` count if there are fewer in the window: so that a share
/// is judged at few calls, too.
pub(super) const SPARSE_WINDOW: Duration = Duration::from_mins(5);
/// Share of failures among at least `MIN_OUTCOMES` that opens: higher ones leave a target that answers one
/// call in five to its callers.
pub(super) const FAILURE_SHARE: f64 = 0.8;
/// Share of failures from which a target is degraded, and opens while another one is healthy, which
/// then serves its callers better.
pub(super) const SHARE_WITH_ALTERNATIVE: f64 = 0.5;
/// Share of slow outcomes from which a target is degraded (scenarios 06a and 06b).
pub(super) const SLOW_SHARE: f64 = 0.8;
/// Failures in a row that make a target degraded, long before enough for opening have accumulated
/// at few calls (S15 of the public crash test, docs/proofs.md).
pub(super) const DEGRADED_RUN: u32 = 2;
/// Open times are shorter by up to this share, so that replicas do not probe together, and callers
/// are served within `open_base` of an outage's end.
pub(super) const OPEN_JITTER: f64 = 0.2;
/// Longest stated wait that is a floor of the open time (scenarios 16a to 16d).
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);
/// Probes that may be out at once, and that have to succeed: one success may be luck (scenario 10).
const PROBES: u32 = 2;
/// Time beyond `first_token_timeout` after which a probe without a response has failed.
const PROBE_GRACE: Duration = Duration::from_secs(1);
/// Probes in a row without a verdict (limited, cancelled) after which they are spaced by
/// `open_base`: a limit is not to be met by a hot loop of probes.
pub(super) const INCONCLUSIVE_PROBES: u32 = 5;
/// Shares of the calls, in percent, that the stages of recovery admit (scenario 03).
pub(super) const RECOVERING_PERCENT: [u32; 3] = [25, 50, 100];
/// A stage ends after this time, if at least one call succeeded in it, ...
pub(super) const STAGE_TIME: Duration = Duration::from_millis(250);
/// ... or after this many outcomes, whichever comes first.
pub(super) const STAGE_OUTCOMES: u32 = 20;
/// Outcomes below which no share is judged while recovering (scenario 10).
pub(super) const RECOVERING_MIN_OUTCOMES: u32 = 10;
/// Undecided attempts that are remembered, 24 bytes each; beyond, the oldest is dropped. Half a
/// minute of silence at 500 calls per second is remembered (scenario 05).
pub(super) const MAX_PENDING: usize = 16_384;
/// No time that is derived from `open_base` is longer.
const LONGEST: Duration = Duration::from_hours(1);
/// Factor by which a target is left to itself for longer than its failures have lasted, while
/// another one is healthy: a short outage then costs a short absence, and a minute of failures at
/// few calls is met by four attempts.
const LOOK_TIMES: u32 = 2;
/// The shortest open time if there are many calls and nobody else serves them.
const MIN_OPEN: Duration = Duration::from_millis(250);
/// Share of the usual calls that may be probes if nobody else serves their callers, who would wait
/// anyway.
const PROBE_SHARE: f64 = 0.2;
/// The same while another target is healthy, which serves the callers meanwhile: a late probe costs
/// little.
const PROBE_SHARE_SERVED: f64 = 0.05;
/// The same of probes that time out while another target is healthy: they cost their callers their
/// patience.
const PROBE_SHARE_SLOW_SERVED: f64 = 0.01;

// === impl CircuitPolicy ===

impl Default for CircuitPolicy {
    fn default() -> Self {
        Self {
            mode: CircuitMode::Evidence,
            first_token_timeout: Duration::from_secs(30),
            slow_threshold: Duration::from_millis(2500),
            run_at_low_rate: 8,
            open_base: Duration::from_secs(1),
            any_failure: false,
            consecutive_failures: 5,
            consecutive_open: Duration::from_mins(1),
        }
    }
}

impl CircuitPolicy {
    /// The classic breaker: 5 failures in a row open for 60 s, then one probe decides.
    #[must_use]
    pub fn consecutive() -> Self {
        Self {
            mode: CircuitMode::Consecutive,
            ..Self::default()
        }
    }

    /// Returns the settings that cannot work, as the field's name and the reason; empty if all is
    /// well.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let ms = Duration::from_millis;
        let minutes = Duration::from_mins(10);
        for (field, value, min, max) in [
            ("slow_threshold", self.slow_threshold, ms(1), minutes),
            ("open_base", self.open_base, ms(10), minutes),
            ("consecutive_open", self.consecutive_open, ms(10), LONGEST),
        ] {
            if value < min || value > max {
                faults.push((field, format!("is {value:?}; must be {min:?} to {max:?}")));
            }
        }
        for (field, value, min, max) in [
            ("run_at_low_rate", self.run_at_low_rate, 2, 400),
            ("consecutive_failures", self.consecutive_failures, 1, 1000),
        ] {
            if !(min..=max).contains(&value) {
                faults.push((field, format!("is {value}; must be {min} to {max}")));
            }
        }
        faults
    }

    /// Failures in a row that open at that many calls per second.
    #[must_use]
    pub fn run_at(&self, rate: f64) -> u32 {
        let at_high_rate = self.run_at_low_rate.saturating_mul(5) / 2;
        if rate <= LOW_RATE {
            return self.run_at_low_rate;
        }
        if rate >= HIGH_RATE {
            return at_high_rate;
        }
        // The number of false runs grows with the rate, and falls by a factor with each further
        // failure that is required: so the run length that keeps them equally rare grows with the
        // logarithm.
        let way = (rate / LOW_RATE).ln() / (HIGH_RATE / LOW_RATE).ln();
        let more = f64::from(at_high_rate - self.run_at_low_rate) * way;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 1000"
        )]
        let more = more.round() as u32;
        self.run_at_low_rate + more
    }

    /// Longest open time after timeouts, before jitter: each probe of a silent target delays one
    /// caller (scenario 05).
    pub(super) fn open_max_slow(&self) -> Duration {
        self.times(30)
    }

    /// Longest time for which a target that is degraded by a run of failures is left to itself
    /// before a call probes it. It also limits the open time at few calls while another target is
    /// healthy (S15 of the public crash test).
    fn look_again(&self) -> Duration {
        self.times(25)
    }

    /// Time without a successful call before `DEGRADED_RUN` failures make the target degraded; with
    /// a shorter one, two chance failures among many calls move the others to another target
    /// (scenario 02a).
    pub(super) fn degraded_after(&self) -> Duration {
        self.times(3)
    }

    fn times(&self, factor: u32) -> Duration {
        self.open_base.saturating_mul(factor).min(LONGEST)
    }

    /// Returns the longest open time after failures of this kind at this number of calls per
    /// second: the more callers wait, the sooner it is worth one of them to look, and fewer of them
    /// if another target serves them.
    pub(super) fn longest_open(
        &self,
        kind: FailKind,
        usual_rate: f64,
        alternative_healthy: bool,
    ) -> Duration {
        let longest = match kind {
            FailKind::Fast => self.open_base,
            FailKind::Slow => self.open_max_slow(),
        };
        let share = match kind {
            _ if !alternative_healthy => PROBE_SHARE,
            FailKind::Fast => PROBE_SHARE_SERVED,
            FailKind::Slow => PROBE_SHARE_SLOW_SERVED,
        };
        let longest = if alternative_healthy {
            longest.max(self.look_again())
        } else {
            longest
        };
        let enough = f64::from(self.probes_at_once()) / (share * usual_rate).max(1e-9);
        let enough = Duration::try_from_secs_f64(enough).unwrap_or(Duration::MAX);
        let least = if alternative_healthy {
            self.open_base
        } else {
            MIN_OPEN.min(self.open_base)
        };
        longest.min(enough.max(least))
    }

    /// Returns the time for which a target whose failures have lasted this long is left to itself
    /// while another one is healthy.
    pub(super) fn look_after(&self, failing_for: Duration) -> Duration {
        failing_for
            .saturating_mul(LOOK_TIMES)
            .min(self.look_again())
            .max(self.open_base)
    }

    /// Returns the duration of a probe's lease.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.first_token_timeout + PROBE_GRACE
    }

    /// Probes that may be out at once, by the mode.
    #[must_use]
    pub fn probes_at_once(&self) -> u32 {
        match self.mode {
            CircuitMode::Evidence => PROBES,
            CircuitMode::Consecutive | CircuitMode::Off => 1,
        }
    }

    /// Probes that must succeed, by the mode.
    pub(super) fn successes_needed(&self) -> u32 {
        match self.mode {
            CircuitMode::Evidence => PROBES,
            CircuitMode::Consecutive | CircuitMode::Off => 1,
        }
    }
}
