//! The timers of an attempt: the time for which it may be silent.
//!
//! The duration of a whole completion is limited by the call's deadline alone: a long completion is not a
//! fault. Silence is limited: until the first token, and between tokens. Keep-alives of the
//! provider count as silence; time in which the caller does not read does not. The connect timeout
//! is the provider's `http.connect_timeout`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::units;

/// Time for which an attempt may be silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimersPolicy {
    /// Time until the first token, counted from when the request was sent, if another target is
    /// ready. A duration from `1ms` to `1h`; default `30s`. A shorter time detects a hanging target
    /// sooner and abandons slow completions.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub first_token: Duration,
    /// The same if no other target is ready. A duration from `first_token` to `1h`; default `60s`,
    /// or `first_token` if that is longer. If one more attempt is allowed, it is left half of the
    /// time until the deadline, unless half is less than a first token usually takes; every second
    /// attempt waits, as long as it is not known whether the target is slow or does not respond.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub first_token_alone: Duration,
    /// Silence after which another target that is ready is called beside this one. A duration below
    /// `first_token`; default `10s`, or a third of `first_token` if that is `10s` or less; `0ms`
    /// switches it off.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub soft_first_token: Duration,
    /// Between two tokens. A duration from `1ms` to `1h`; default `20s`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub idle: Duration,
    /// Bytes of completion per second, averaged over 3 s of waiting after the first token, below which
    /// an attempt has stalled and is abandoned. A number above 0; unset by default: no such limit.
    pub min_bytes_per_second: Option<u64>,
}

/// The time limits of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTimers {
    /// Until the first token; then the attempt has failed.
    pub first_token: Duration,
    /// Time until another target is called beside this one; always before `first_token`.
    pub soft: Option<Duration>,
    /// Between two tokens.
    pub idle: Duration,
    /// Bytes per second below which the attempt has stalled.
    pub min_bytes_per_second: Option<u64>,
}

/// Multiple of the median by which a first token must be late to be a matter of the target and not
/// of the call.
const UNUSUAL: u32 = 8;
/// The shortest silence after which another target is called.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// Multiple of its median that a first token may take before half of the time that is left is no
/// longer enough for it.
const USUAL_TIMES: u32 = 4;
/// The least time that is enough, and what is enough for a target of which nothing is known.
const USUAL_MIN: Duration = Duration::from_millis(500);
const USUAL_UNKNOWN: Duration = Duration::from_secs(2);
/// Number of first tokens that must be known before they are called usual.
pub const USUAL_SAMPLES: usize = 20;

// === impl TimersPolicy ===

impl Default for TimersPolicy {
    fn default() -> Self {
        Self {
            first_token: Duration::from_secs(30),
            first_token_alone: Duration::from_mins(1),
            soft_first_token: Duration::from_secs(10),
            idle: Duration::from_secs(20),
            min_bytes_per_second: None,
        }
    }
}

impl TimersPolicy {
    /// The timers of a tool that may take so long: it returns its result at once, or not at all.
    #[must_use]
    pub fn of_tool(timeout: Duration) -> Self {
        Self {
            first_token: timeout,
            first_token_alone: timeout,
            soft_first_token: Duration::ZERO,
            idle: timeout,
            min_bytes_per_second: None,
        }
    }

    /// Returns the limits of an attempt that begins now, `remaining` before the deadline. None of
    /// them lies beyond the deadline, and the soft one leaves the other target at least half of the
    /// remaining time. `next`: if one more attempt may follow, the time in which the first token
    /// usually comes; then that attempt is left half of the remaining time.
    #[must_use]
    pub fn for_attempt(
        &self,
        other_target_ready: bool,
        remaining: Duration,
        next: Option<Duration>,
    ) -> AttemptTimers {
        let first_token = if other_target_ready {
            self.first_token
        } else {
            self.first_token_alone
        }
        .min(remaining);
        // Half of what is left is enough for a target that is well, and leaves time for one more
        // attempt.
        let half = remaining / 2;
        let first_token = match next {
            Some(usual) if half >= usual => first_token.min(half),
            Some(_) | None => first_token,
        };
        let soft = self.soft_first_token.min(remaining / 2);
        let soft = (other_target_ready && !soft.is_zero() && soft < first_token).then_some(soft);
        AttemptTimers {
            first_token,
            soft,
            idle: self.idle.min(remaining),
            min_bytes_per_second: self.min_bytes_per_second,
        }
    }

    /// Returns the least time in which the first token of a target that is well comes, whether its
    /// median is known or not.
    #[must_use]
    pub fn usual(first_token_p50: Option<Duration>) -> Duration {
        first_token_p50.map_or(USUAL_UNKNOWN, |p50| (p50 * USUAL_TIMES).max(USUAL_MIN))
    }

    /// Returns the silence after which another target is called, if the usual first token is known:
    /// `soft`, or eight times the median (at least one second), whichever is sooner. Such a completion
    /// takes eight times longer too, and would miss the deadline; and not one in ten thousand is
    /// that late by itself. Of a target that is degraded the usual time is not the wanted one:
    /// there the `slow_threshold` of its circuit counts in place of the median.
    #[must_use]
    pub fn hedge_delay(
        soft: Duration,
        first_token_p50: Option<Duration>,
        slow_threshold: Option<Duration>,
    ) -> Duration {
        let unusual = first_token_p50.map(|p50| (p50 * UNUSUAL).max(PATIENCE_MIN));
        slow_threshold
            .or(unusual)
            .map_or(soft, |late| soft.min(late))
    }

    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        let hour = Duration::from_hours(1);
        for (field, duration, max) in [
            ("first_token", self.first_token, hour),
            ("first_token_alone", self.first_token_alone, hour),
            ("idle", self.idle, hour),
        ] {
            // One that was raised to `first_token` is at fault only as far as that one is, which is
            // reported already.
            let is_raised = field == "first_token_alone" && duration == self.first_token;
            if !is_raised && (duration < Duration::from_millis(1) || duration > max) {
                faults.push((
                    field,
                    format!("must be from 1ms to {}", units::format_duration(max)),
                ));
            }
        }
        if self.first_token_alone < self.first_token {
            faults.push((
                "first_token_alone",
                "must not be shorter than first_token".to_owned(),
            ));
        }
        if self.min_bytes_per_second == Some(0) {
            faults.push((
                "min_bytes_per_second",
                "must be above 0; leave it out for no limit".to_owned(),
            ));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_bounded_by_the_policy_and_the_deadline() {
        let policy = TimersPolicy::default();
        for (other_ready, remaining, first_token, soft, idle) in [
            (true, s(600), s(30), Some(s(10)), s(20)),
            (false, s(600), s(60), None, s(20)),
            (true, s(20), s(20), Some(s(10)), s(20)),
            (true, s(6), s(6), Some(s(3)), s(6)),
            (false, s(6), s(6), None, s(6)),
            (true, s(1), s(1), Some(Duration::from_millis(500)), s(1)),
            (true, s(0), s(0), None, s(0)),
        ] {
            let timers = policy.for_attempt(other_ready, remaining, None);
            let expected = AttemptTimers {
                first_token,
                soft,
                idle,
                min_bytes_per_second: None,
            };
            assert_eq!(
                timers, expected,
                "other ready: {other_ready}, remaining: {remaining:?}"
            );
        }
    }

    #[test]
    fn one_more_attempt_is_left_half_of_the_time_unless_that_is_less_than_usual() {
        let policy = TimersPolicy::default();
        for (remaining, p50, first_token) in [
            (s(60), None, s(30)),
            (s(8), None, s(4)),
            (s(3), None, s(3)),
            (s(3), Some(s(0)), Duration::from_millis(1500)),
            (s(8), Some(s(2)), s(8)),
            (s(600), Some(s(1)), s(60)),
        ] {
            let timers = policy.for_attempt(false, remaining, Some(TimersPolicy::usual(p50)));
            assert_eq!(timers.first_token, first_token, "{remaining:?}, {p50:?}");
        }
    }

    #[test]
    fn the_soft_limit_can_be_switched_off_and_the_throughput_floor_on() {
        let policy = TimersPolicy {
            soft_first_token: s(0),
            min_bytes_per_second: Some(10),
            ..TimersPolicy::default()
        };
        assert!(policy.validate().is_empty());
        let timers = policy.for_attempt(true, s(600), None);
        assert_eq!((timers.soft, timers.min_bytes_per_second), (None, Some(10)));
        let policy = TimersPolicy {
            first_token: s(10),
            ..TimersPolicy::default()
        };
        assert_eq!(
            policy.for_attempt(true, s(600), None).soft,
            None,
            "it is not soft where the hard one ends it"
        );
    }

    #[test]
    fn patience_is_measured_by_what_is_usual_of_the_target() {
        for (p50, slow_threshold, hedge_delay) in [
            (None, None, s(10)),
            (Some(s(9)), None, s(10)),
            (Some(s(1)), None, s(8)),
            (Some(s(0)), None, s(1)),
            (None, Some(s(5)), s(5)),
            (Some(s(0)), Some(s(5)), s(5)),
            (Some(s(1)), Some(s(20)), s(10)),
        ] {
            assert_eq!(
                TimersPolicy::hedge_delay(s(10), p50, slow_threshold),
                hedge_delay,
                "{p50:?}, {slow_threshold:?}"
            );
        }
    }

    #[test]
    fn nonsense_is_named_by_its_field() {
        let policy = TimersPolicy {
            first_token: s(70),
            idle: s(0),
            min_bytes_per_second: Some(0),
            ..TimersPolicy::default()
        };
        let fields: Vec<_> = policy
            .validate()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(
            fields,
            ["idle", "first_token_alone", "min_bytes_per_second"]
        );
        let min = Duration::from_millis(1);
        let shortest = TimersPolicy {
            first_token: min,
            first_token_alone: min,
            soft_first_token: Duration::ZERO,
            idle: min,
            ..TimersPolicy::default()
        };
        let hour = s(3600);
        let longest = TimersPolicy {
            first_token: hour,
            first_token_alone: hour,
            idle: hour,
            ..TimersPolicy::default()
        };
        for policy in [TimersPolicy::default(), shortest, longest] {
            assert_eq!(policy.validate(), [], "{policy:?}");
        }
    }
}
