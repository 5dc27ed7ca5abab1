//! Hedging: a second attempt beside a slow first one, and the time at which it starts.
//!
//! A hedge trades tokens for the time of the slowest answers, so it is off by default, waits until
//! the first attempt is slower than nearly all before it, and is bounded as a share of all calls.
//! It is paid from the retry budget, goes to another target, and must not be used if tools with
//! side effects could run twice; the caller checks that.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::retry::{BackoffKind, MIN_ATTEMPT_TIME, RetryPolicy, WAIT_CAP, recovery_options};
use crate::domain::{failure::Failure, units};

/// Conditions and time at which a second attempt starts beside a slow first one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HedgePolicy {
    /// If set, there are hedges; default false.
    pub enabled: bool,
    /// Shortest silence before one. A duration from `1ms` to `10m`; default `500ms`. The target's
    /// 95th percentile counts if that is longer.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub min_delay: Duration,
    /// Largest share of calls in ten seconds that may be hedged. A ratio from 0 to 1; default
    /// 0.05. Below `1 / max_share` calls in ten seconds there is none.
    pub max_share: f64,
}

/// Counts calls and hedges of the last ten seconds, so that hedges stay a small share.
#[derive(Debug, Clone)]
pub struct HedgeShare {
    start: Instant,
    seconds: [SecondBucket; SECONDS],
}

#[derive(Debug, Clone, Copy, Default)]
struct SecondBucket {
    number: u64,
    calls: u32,
    hedges: u32,
}

/// Number of recent first tokens of the target that must be known: with fewer, one or two decide
/// its 95th percentile. Too short a delay costs no more than the share of calls that may be hedged.
pub const MIN_SAMPLES: usize = 50;
/// Number of seconds that count.
const SECONDS: usize = 10;

// === impl HedgePolicy ===

impl Default for HedgePolicy {
    fn default() -> Self {
        Self {
            enabled: false,
            min_delay: Duration::from_millis(500),
            max_share: 0.05,
        }
    }
}

impl HedgePolicy {
    /// Returns the silence after which a second attempt may start, if `p95` of the target's first
    /// tokens is known from `samples`; `None` for no hedge.
    #[must_use]
    pub fn delay(&self, p95: Option<Duration>, samples: usize) -> Option<Duration> {
        if !self.enabled || samples < MIN_SAMPLES {
            return None;
        }
        Some(p95?.max(self.min_delay))
    }

    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.min_delay < Duration::from_millis(1) || self.min_delay > Duration::from_mins(10) {
            faults.push(("min_delay", "must be from 1ms to 10m".to_owned()));
        }
        if !(0.0..=1.0).contains(&self.max_share) {
            faults.push((
                "max_share",
                format!("must be from 0 to 1, not {}", self.max_share),
            ));
        }
        faults
    }
}

// === impl HedgeShare ===

impl HedgeShare {
    /// Without calls.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            start: now,
            seconds: [SecondBucket::default(); SECONDS],
        }
    }

    /// Records that a call began.
    pub fn call_started(&mut self, now: Instant) {
        let second = self.second(now);
        second.calls = second.calls.saturating_add(1);
    }

    /// Counts a hedge if it is still within `max_share` of the calls; returns whether it may start.
    #[must_use = "a hedge that was counted must be started"]
    pub fn try_hedge(&mut self, now: Instant, max_share: f64) -> bool {
        let newest = self.number(now);
        let (calls, hedges) = self
            .seconds
            .iter()
            .filter(|second| newest - second.number.min(newest) < SECONDS as u64)
            .fold((0_u64, 0_u64), |(calls, hedges), second| {
                (
                    calls + u64::from(second.calls),
                    hedges + u64::from(second.hedges),
                )
            });
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of ten seconds are far below 2^53"
        )]
        let allowed = (hedges + 1) as f64 <= calls as f64 * max_share;
        if allowed {
            let second = self.second(now);
            second.hedges = second.hedges.saturating_add(1);
        }
        allowed
    }

    fn number(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.start).as_secs()
    }

    /// Returns the counts of the second that `now` is in, emptied if they were those of an older
    /// one.
    fn second(&mut self, now: Instant) -> &mut SecondBucket {
        let number = self.number(now);
        let second = &mut self.seconds[usize::try_from(number % SECONDS as u64).unwrap_or(0)];
        if second.number != number {
            *second = SecondBucket {
                number,
                ..SecondBucket::default()
            };
        }
        second
    }
}

/// Returns the time for which the target of an attempt that failed beside the first is left alone
/// after `made` attempts on it: the wait that the failure states, or the backoff; `None` if another
/// attempt is of no use, or too late.
#[must_use]
pub fn retry_wait(
    policy: &RetryPolicy,
    failure: &Failure,
    made: u32,
    time_left: Duration,
    sample: f64,
) -> Option<Duration> {
    let options = recovery_options(policy, failure);
    if !options.same_target || failure.class.is_local_refusal() {
        return None;
    }
    let backoff = if options.backoff_kind == BackoffKind::Throttle {
        &policy.throttle_backoff()
    } else {
        &policy.backoff
    };
    let own = backoff.wait(made, None, sample);
    let stated = failure
        .retry_after
        .map(|wait| wait.duration.min(WAIT_CAP))
        .filter(|wait| !wait.is_zero());
    let wait = match stated {
        Some(stated) if policy.uniform_waits => stated.max(own),
        Some(stated) => stated,
        None => own,
    };
    (wait + MIN_ATTEMPT_TIME <= time_left).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::{FailureClass, WaitSource};

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_hedge_waits_for_the_95th_percentile_but_never_less_than_the_minimum() {
        let policy = HedgePolicy {
            enabled: true,
            ..HedgePolicy::default()
        };
        assert_eq!(policy.delay(Some(ms(1800)), 50), Some(ms(1800)));
        assert_eq!(policy.delay(Some(ms(90)), 50), Some(ms(500)));
    }

    #[test]
    fn there_is_no_hedge_when_switched_off_or_with_too_few_samples() {
        assert_eq!(HedgePolicy::default().delay(Some(ms(1800)), 1000), None);
        let policy = HedgePolicy {
            enabled: true,
            ..HedgePolicy::default()
        };
        assert_eq!(policy.delay(Some(ms(1800)), 49), None);
        assert_eq!(policy.delay(None, 50), None);
    }

    #[test]
    fn hedges_are_at_most_five_in_a_hundred_calls_of_ten_seconds() {
        let start = Instant::now();
        let mut share = HedgeShare::new(start);
        assert!(!share.try_hedge(start, 0.05));
        for call in 0..100 {
            share.call_started(start + ms(call * 90));
        }
        let hedged = (0..20)
            .filter(|_| share.try_hedge(start + ms(9_000), 0.05))
            .count();
        assert_eq!(hedged, 5);
    }

    #[test]
    fn calls_and_hedges_older_than_ten_seconds_do_not_count() {
        let start = Instant::now();
        let mut share = HedgeShare::new(start);
        for _ in 0..20 {
            share.call_started(start);
        }
        assert!(
            !share.clone().try_hedge(start + ms(10_000), 0.05),
            "the calls are too old"
        );
        assert!(share.try_hedge(start + ms(9_999), 0.05));
        assert!(!share.try_hedge(start + ms(9_999), 0.05));
        for _ in 0..20 {
            share.call_started(start + ms(20_000));
        }
        assert!(
            share.try_hedge(start + ms(20_000), 0.05),
            "the hedge is too old"
        );
    }

    #[test]
    fn a_target_that_failed_beside_the_first_is_left_alone_for_the_stated_wait_or_the_backoff() {
        use FailureClass as C;
        let own = RetryPolicy::default();
        let uniform = RetryPolicy {
            uniform_waits: true,
            ..own.clone()
        };
        for (policy, class, stated, made, expected) in [
            (&own, C::ServerError, None, 1, Some(1000)),
            (&own, C::ServerError, None, 2, Some(2000)),
            (&own, C::ServerError, Some(0), 1, Some(1000)),
            (&own, C::ServerError, Some(300), 1, Some(300)),
            (&own, C::ServerError, Some(600_000), 1, Some(300_000)),
            (&uniform, C::ServerError, Some(300), 1, Some(1000)),
            (&uniform, C::ServerError, Some(3000), 1, Some(3000)),
            (&own, C::RateLimited, None, 1, Some(500)),
            (&own, C::Authentication, None, 1, None),
            (&own, C::Shed, Some(300), 1, None),
        ] {
            let failure = Failure {
                retryable: true,
                ..Failure::local(class, "")
            };
            let failure = stated.map_or(failure.clone(), |stated| {
                failure.with_retry_after(ms(stated), WaitSource::RetryAfter)
            });
            let wait = retry_wait(policy, &failure, made, ms(400_000), 0.0);
            assert_eq!(
                wait,
                expected.map(ms),
                "{class}, stated {stated:?}, {made} made"
            );
        }
        let failure = Failure {
            retryable: true,
            ..Failure::local(C::ServerError, "")
        };
        for (time_left, expected) in [(ms(1300), Some(ms(1000))), (ms(1299), None)] {
            assert_eq!(
                retry_wait(&own, &failure, 1, time_left, 0.0),
                expected,
                "{time_left:?}"
            );
        }
    }

    #[test]
    fn nonsense_is_named_by_its_field() {
        let policy = HedgePolicy {
            min_delay: ms(0),
            max_share: 1.1,
            ..HedgePolicy::default()
        };
        let fields: Vec<_> = policy
            .validate()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(fields, ["min_delay", "max_share"]);
        for (min_delay, faults) in [(ms(1), 0), (ms(600_000), 0), (ms(600_001), 1)] {
            assert_eq!(
                HedgePolicy {
                    min_delay,
                    ..HedgePolicy::default()
                }
                .validate()
                .len(),
                faults,
                "{min_delay:?}"
            );
        }
    }
}
