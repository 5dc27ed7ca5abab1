//! The settings of the circuit breaker: what an operator may change, in which range, and the effect
//! of wrong values.
//!
//! Every default was measured with the scenarios; `validate` names values that cannot work
//! together.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FailKind;

/// How a circuit judges its target.
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
    /// How the target is judged; `consecutive` reads only the last three settings, and the probe
    /// lease.
    pub mode: CircuitMode,
    /// After this time without a first token an attempt counts as failed, even without a report,
    /// and a probe's lease ends `probe_grace` later. Not a setting of its own: it is the longest
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
    /// Failures in a row that open at `low_rate` calls and below. 2 to 1000; lower opens on bad
    /// luck.
    pub run_at_low_rate: u32,
    /// Failures in a row that open at `high_rate` calls and above; in between it grows with the
    /// logarithm of the rate. `run_at_low_rate` to 1000. 14 is the smallest run that 30 %
    /// independent failures at 50 calls per second produce in ten hours with a probability under 6
    /// % (12 would be 49 %), at the price of 0.04 s.
    pub run_at_high_rate: u32,
    /// Calls per second up to which `run_at_low_rate` holds. Above 0.
    pub low_rate: f64,
    /// Calls per second from which `run_at_high_rate` holds. Above `low_rate`.
    pub high_rate: f64,
    /// The window in which shares and the rate of calls are counted, in 20 parts. 1 s to 10 min;
    /// longer finds a partial outage later.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub window: Duration,
    /// Outcomes below which no share is judged. 2 to 1000.
    pub min_outcomes: u32,
    /// With fewer than `min_outcomes` in the window, the last `min_outcomes` count while the oldest
    /// of them is younger than this. `window` to 24 h.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub sparse_window: Duration,
    /// Share of failures that opens. Above 0, to 1.
    pub failure_share: f64,
    /// Share of failures that opens when another target is healthy, and that is called degraded
    /// when none is. Above 0, to `failure_share`.
    pub failure_share_with_alternative: f64,
    /// Share of slow outcomes from which a target is degraded; it does not open the circuit. Above
    /// 0, to 1.
    pub slow_share: f64,
    /// Failures in a row from which a target is degraded when no call succeeded for
    /// `degraded_after` either: other targets are then preferred, long before `run_at_low_rate`
    /// failures have accumulated where calls are few. 2 to 1000.
    pub degraded_run: u32,
    /// How long no call has succeeded before `degraded_run` failures make the target degraded. 0 to
    /// 10 min; with a shorter time, two chance failures among many calls move the others to another
    /// target.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub degraded_after: Duration,
    /// How long a target that is degraded by such a run is left to itself at most before a call
    /// looks how it is: twice as long as the run has lasted, and at least `open_base`. It also
    /// limits the open time while another target is healthy, where calls are few. 1 s to 1 h;
    /// longer leaves a healthy target unused.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub look_again: Duration,
    /// The first open time; doubled for each recovery that failed since the circuit was last
    /// closed. 10 ms to 10 min.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub open_base: Duration,
    /// Longest open time after fast failures, before jitter. `open_base` to 1 h; longer leaves a
    /// healthy target unused. Where there were many calls it is shorter, down to `open_base`:
    /// probes may be one in twenty of the usual calls.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub open_max_fast: Duration,
    /// Longest open time after timeouts, before jitter: each probe of a silent target delays one
    /// caller. `open_base` to 1 h. Where there were many calls it is shorter too: such probes may
    /// be one in a hundred.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub open_max_slow: Duration,
    /// Open times are spread by plus or minus this share, so that replicas do not probe together. 0
    /// to 0.9.
    pub open_jitter: f64,
    /// A wait that the tripping failure states is a floor of the open time, up to this. 0 to 1 h.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub retry_after_max: Duration,
    /// Probes that may be out at once. 1 to 100.
    pub max_probes: u32,
    /// Successful probes after which the circuit recovers. 1 to 100.
    pub probe_successes: u32,
    /// A probe without a response this long after `first_token_timeout` has failed. 0 to 1 min.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub probe_grace: Duration,
    /// Probes in a row without a verdict (limited, cancelled) after which they are spaced by
    /// `open_base`. 1 to 1000.
    pub inconclusive_probes: u32,
    /// Shares of the calls, in percent, that the stages of recovery admit. At least one, each 1 to
    /// 100, not falling.
    pub recovering_percent: Vec<u32>,
    /// A stage ends after this time, when at least one call succeeded in it ... 0 to 10 min.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub stage_time: Duration,
    /// ... or after this many outcomes, whichever comes first. 1 to 10 000.
    pub stage_outcomes: u32,
    /// Outcomes below which no share is judged while recovering. 1 to `min_outcomes`.
    pub recovering_min_outcomes: u32,
    /// Undecided attempts that are remembered, 24 bytes each; beyond, the oldest is dropped. 64 to
    /// 1 000 000; below the first-token timer times the rate of calls, a hang is detected by its
    /// cancelled calls only.
    pub max_pending: u32,
    /// Whether every failure of a call counts, including those that show nothing about the target's
    /// health: a limit, a used-up quota, a rejected key, a wrong request. Default false. With true,
    /// one caller's own mistakes can close the target for all others.
    pub any_failure: bool,
    /// Mode `consecutive`: failures in a row that open. 1 to 1000.
    pub consecutive_failures: u32,
    /// Mode `consecutive`: the open time, always the same. 10 ms to 1 h.
    #[serde(with = "crate::domain::units::duration")]
    #[schemars(with = "String")]
    pub consecutive_open: Duration,
}

/// How many times as long as its failures have lasted a target is left to itself while another one
/// is healthy: a short outage then costs a short absence, and a minute of failures at few calls is
/// met by four attempts.
const LOOK_TIMES: u32 = 2;
/// What part of the usual calls may be probes that fail at once: they cost their callers a short
/// wait.
const PROBE_SHARE_FAST: f64 = 0.05;
/// The same of probes that time out: they cost their callers their patience.
const PROBE_SHARE_SLOW: f64 = 0.01;

// === impl CircuitPolicy ===

impl Default for CircuitPolicy {
    fn default() -> Self {
        Self {
            mode: CircuitMode::Evidence,
            first_token_timeout: Duration::from_secs(30),
            slow_threshold: Duration::from_millis(2500),
            run_at_low_rate: 8,
            run_at_high_rate: 14,
            low_rate: 1.0,
            high_rate: 50.0,
            window: Duration::from_secs(10),
            min_outcomes: 20,
            sparse_window: Duration::from_mins(5),
            failure_share: 0.8,
            failure_share_with_alternative: 0.5,
            slow_share: 0.8,
            degraded_run: 2,
            degraded_after: Duration::from_secs(3),
            look_again: Duration::from_secs(25),
            open_base: Duration::from_secs(1),
            open_max_fast: Duration::from_secs(5),
            open_max_slow: Duration::from_secs(30),
            open_jitter: 0.2,
            retry_after_max: Duration::from_mins(5),
            max_probes: 2,
            probe_successes: 2,
            probe_grace: Duration::from_secs(1),
            inconclusive_probes: 5,
            recovering_percent: vec![25, 50, 100],
            stage_time: Duration::from_secs(1),
            stage_outcomes: 20,
            recovering_min_outcomes: 10,
            max_pending: 16_384,
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

    /// What cannot work, as the field's name and the reason; empty when all is well.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        [
            self.wrong_durations(),
            self.wrong_counts(),
            self.wrong_shares(),
            self.wrong_rates_and_stages(),
        ]
        .concat()
    }

    fn wrong_durations(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let ms = Duration::from_millis;
        let hour = Duration::from_hours(1);
        let minutes = Duration::from_mins(10);
        for (field, value, min, max) in [
            ("slow_threshold", self.slow_threshold, ms(1), minutes),
            ("window", self.window, ms(1000), minutes),
            ("sparse_window", self.sparse_window, self.window, hour * 24),
            (
                "degraded_after",
                self.degraded_after,
                Duration::ZERO,
                minutes,
            ),
            ("look_again", self.look_again, ms(1000), hour),
            ("open_base", self.open_base, ms(10), minutes),
            ("open_max_fast", self.open_max_fast, self.open_base, hour),
            ("open_max_slow", self.open_max_slow, self.open_base, hour),
            (
                "retry_after_max",
                self.retry_after_max,
                Duration::ZERO,
                hour,
            ),
            (
                "probe_grace",
                self.probe_grace,
                Duration::ZERO,
                Duration::from_mins(1),
            ),
            ("stage_time", self.stage_time, Duration::ZERO, minutes),
            ("consecutive_open", self.consecutive_open, ms(10), hour),
        ] {
            if value < min || value > max {
                faults.push((field, format!("is {value:?}; must be {min:?} to {max:?}")));
            }
        }
        faults
    }

    fn wrong_counts(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (field, value, min, max) in [
            ("run_at_low_rate", self.run_at_low_rate, 2, 1000),
            (
                "run_at_high_rate",
                self.run_at_high_rate,
                self.run_at_low_rate,
                1000,
            ),
            ("min_outcomes", self.min_outcomes, 2, 1000),
            ("degraded_run", self.degraded_run, 2, 1000),
            ("max_probes", self.max_probes, 1, 100),
            ("probe_successes", self.probe_successes, 1, 100),
            ("inconclusive_probes", self.inconclusive_probes, 1, 1000),
            ("stage_outcomes", self.stage_outcomes, 1, 10_000),
            (
                "recovering_min_outcomes",
                self.recovering_min_outcomes,
                1,
                self.min_outcomes,
            ),
            ("max_pending", self.max_pending, 64, 1_000_000),
            ("consecutive_failures", self.consecutive_failures, 1, 1000),
        ] {
            if !(min..=max).contains(&value) {
                faults.push((field, format!("is {value}; must be {min} to {max}")));
            }
        }
        faults
    }

    fn wrong_shares(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        for (field, value, max) in [
            ("failure_share", self.failure_share, 1.0),
            (
                "failure_share_with_alternative",
                self.failure_share_with_alternative,
                self.failure_share,
            ),
            ("slow_share", self.slow_share, 1.0),
        ] {
            if !(value > 0.0 && value <= max) {
                faults.push((field, format!("is {value}; must be above 0, to {max}")));
            }
        }
        if !(0.0..=0.9).contains(&self.open_jitter) {
            faults.push((
                "open_jitter",
                format!("is {}; must be 0 to 0.9", self.open_jitter),
            ));
        }
        faults
    }

    fn wrong_rates_and_stages(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !(self.low_rate > 0.0 && self.low_rate.is_finite()) {
            faults.push(("low_rate", format!("is {}; must be above 0", self.low_rate)));
        }
        if !(self.high_rate > self.low_rate && self.high_rate.is_finite()) {
            faults.push((
                "high_rate",
                format!(
                    "is {}; must be above low_rate ({})",
                    self.high_rate, self.low_rate
                ),
            ));
        }
        let stages = &self.recovering_percent;
        if stages.is_empty()
            || stages.iter().any(|percent| !(1..=100).contains(percent))
            || !stages.is_sorted()
        {
            faults.push((
                "recovering_percent",
                format!("is {stages:?}; must be rising shares, each 1 to 100"),
            ));
        }
        faults
    }

    /// Failures in a row that open at that many calls per second.
    #[must_use]
    pub fn run_at(&self, rate: f64) -> u32 {
        if rate <= self.low_rate {
            return self.run_at_low_rate;
        }
        if rate >= self.high_rate {
            return self.run_at_high_rate;
        }
        // The number of false runs grows with the rate, and falls by a factor with each further
        // failure that is required: so the run length that keeps them equally rare grows with the
        // logarithm.
        let way = (rate / self.low_rate).ln() / (self.high_rate / self.low_rate).ln();
        let more = f64::from(self.run_at_high_rate.saturating_sub(self.run_at_low_rate)) * way;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 1000"
        )]
        let more = more.round() as u32;
        self.run_at_low_rate + more
    }

    /// The longest open time after failures of this kind where there were so many calls per second:
    /// the more callers wait, the sooner it is worth one of them to look.
    pub(super) fn longest_open(
        &self,
        kind: FailKind,
        usual_rate: f64,
        alternative_healthy: bool,
    ) -> Duration {
        let (longest, share) = match kind {
            FailKind::Fast => (self.open_max_fast, PROBE_SHARE_FAST),
            FailKind::Slow => (self.open_max_slow, PROBE_SHARE_SLOW),
        };
        let longest = if alternative_healthy {
            longest.max(self.look_again)
        } else {
            longest
        };
        let enough = f64::from(self.probes_at_once()) / (share * usual_rate).max(1e-9);
        let enough = Duration::try_from_secs_f64(enough).unwrap_or(Duration::MAX);
        longest.min(enough.max(self.open_base))
    }

    /// How long a target whose failures have lasted so long is left to itself while another one is
    /// healthy.
    pub(super) fn look_after(&self, failing_for: Duration) -> Duration {
        failing_for
            .saturating_mul(LOOK_TIMES)
            .min(self.look_again)
            .max(self.open_base)
    }

    /// How long a probe's lease lasts.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.first_token_timeout + self.probe_grace
    }

    /// Probes that may be out at once, by the mode.
    #[must_use]
    pub fn probes_at_once(&self) -> u32 {
        match self.mode {
            CircuitMode::Evidence => self.max_probes,
            CircuitMode::Consecutive | CircuitMode::Off => 1,
        }
    }

    /// Probes that must succeed, by the mode.
    pub(super) fn successes_needed(&self) -> u32 {
        match self.mode {
            CircuitMode::Evidence => self.probe_successes,
            CircuitMode::Consecutive | CircuitMode::Off => 1,
        }
    }
}
