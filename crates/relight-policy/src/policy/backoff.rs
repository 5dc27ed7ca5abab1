//! The wait before a retry: a pure function of the retry's number and random numbers.
//!
//! Longer waits after each failure spread a spike; jitter separates callers that failed together.
//! Neither reduces the work that many independent callers bring: that is what `retry_budget` is
//! for. A wait that the provider stated is handled elsewhere (`retry` adds its own spread to it).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::units;

/// Randomisation of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// Not at all: callers that failed together come back together.
    None,
    /// The wait, plus up to `jitter_share` of it.
    #[default]
    Additive,
    /// Anything from zero to the wait.
    Full,
    /// Half of the wait, plus anything up to the other half.
    Equal,
    /// Anything from the base to three times the wait before; grows by chance and not by count.
    Decorrelated,
}

/// Factor by which each wait is longer than the one before.
const FACTOR: f64 = 2.0;

/// An exponential wait: `base × 2^(retry − 1)`, at most `cap`, randomised by `jitter`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// The wait before the first retry. A duration above 0 and at most `cap`; default `1s`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub base: Duration,
    /// The longest wait before jitter is added. A duration of at most `5m`; default `32s`. With
    /// `additive` jitter a wait may be longer by `jitter_share`.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub cap: Duration,
    /// Spread of a wait: `none`, `additive`, `full`, `equal` or `decorrelated`; default `additive`.
    pub jitter: Jitter,
    /// The largest share of a wait that `additive` jitter adds to it. A number from 0 to 1; default
    /// 0.25. Other kinds of jitter ignore it. Smaller brings callers that failed together back
    /// together.
    pub jitter_share: f64,
}

// === impl Backoff ===

impl Default for Backoff {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_secs(32),
            jitter: Jitter::Additive,
            jitter_share: 0.25,
        }
    }
}

impl Backoff {
    /// Returns the wait before retry number `retry` (1 for the first), if `previous` was the wait
    /// before it and `rng` is a throw of 0 (included) to 1 (excluded).
    #[must_use]
    pub fn wait(&self, retry: u32, previous: Option<Duration>, rng: f64) -> Duration {
        let whole = self.exponential(retry);
        match self.jitter {
            Jitter::None => whole,
            Jitter::Additive => whole + whole.mul_f64(self.jitter_share * rng),
            Jitter::Full => whole.mul_f64(rng),
            Jitter::Equal => whole.mul_f64(0.5 + 0.5 * rng),
            Jitter::Decorrelated => {
                let upper = previous
                    .unwrap_or(self.base)
                    .saturating_mul(3)
                    .clamp(self.base, self.cap.max(self.base));
                self.base
                    .saturating_add(upper.saturating_sub(self.base).mul_f64(rng))
                    .min(self.cap)
            }
        }
    }

    /// Returns its faults: the field and the reason.
    #[must_use]
    pub fn validate(&self) -> Vec<(&'static str, String)> {
        self.validate_as(["base", "cap", "jitter_share"])
    }

    /// Validates like `validate`, if the policy that holds it knows the fields by other names
    /// (base, cap, jitter share).
    pub(super) fn validate_as(&self, names: [&'static str; 3]) -> Vec<(&'static str, String)> {
        let [base, cap, jitter_share] = names;
        let mut faults = Vec::new();
        if self.base.is_zero() || self.base > self.cap {
            faults.push((base, "must be above 0 and at most the cap".to_owned()));
        }
        if self.cap > Duration::from_mins(5) {
            faults.push((cap, "must be at most 5m".to_owned()));
        }
        if !(0.0..=1.0).contains(&self.jitter_share) {
            faults.push((
                jitter_share,
                format!("must be from 0 to 1, not {}", self.jitter_share),
            ));
        }
        faults
    }

    fn exponential(&self, retry: u32) -> Duration {
        let steps = i32::try_from(retry.saturating_sub(1)).unwrap_or(i32::MAX);
        // Infinity, and anything else that is not a valid duration, is beyond the cap.
        Duration::try_from_secs_f64(self.base.as_secs_f64() * FACTOR.powi(steps))
            .unwrap_or(self.cap)
            .min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(jitter: Jitter, rng: f64) -> Vec<f64> {
        let backoff = Backoff {
            jitter,
            ..Backoff::default()
        };
        (1..=7)
            .map(|retry| backoff.wait(retry, None, rng).as_secs_f64())
            .collect()
    }

    #[test]
    fn each_wait_is_twice_the_one_before_until_the_cap() {
        assert_eq!(
            seconds(Jitter::None, 0.9),
            [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]
        );
    }

    #[test]
    fn jitter_spreads_a_wait_by_its_kind() {
        for (jitter, rng, first, last) in [
            (Jitter::Additive, 0.0, 1.0, 32.0),
            (Jitter::Additive, 0.5, 1.125, 36.0),
            (Jitter::Full, 0.0, 0.0, 0.0),
            (Jitter::Full, 0.5, 0.5, 16.0),
            (Jitter::Equal, 0.0, 0.5, 16.0),
            (Jitter::Equal, 0.5, 0.75, 24.0),
            (Jitter::Decorrelated, 0.0, 1.0, 1.0),
            (Jitter::Decorrelated, 0.5, 2.0, 2.0),
        ] {
            let waits = seconds(jitter, rng);
            assert_eq!((waits[0], waits[6]), (first, last), "{jitter:?} at {rng}");
        }
    }

    #[test]
    fn decorrelated_grows_from_the_wait_before_and_stays_below_the_cap() {
        let backoff = Backoff {
            jitter: Jitter::Decorrelated,
            ..Backoff::default()
        };
        assert_eq!(
            backoff.wait(2, Some(Duration::from_secs(5)), 0.5),
            Duration::from_secs(8)
        );
        assert_eq!(
            backoff.wait(9, Some(Duration::from_hours(1)), 0.999_999),
            Duration::from_secs_f64(31.999_969)
        );
    }

    #[test]
    fn nonsense_is_named_by_its_field() {
        let backoff = Backoff {
            base: Duration::from_secs(400),
            jitter_share: 1.5,
            ..Backoff::default()
        };
        let fields: Vec<_> = backoff
            .validate()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(fields, ["base", "jitter_share"]);
        let fields: Vec<_> = Backoff {
            cap: Duration::from_secs(301),
            ..Backoff::default()
        }
        .validate()
        .into_iter()
        .map(|f| f.0)
        .collect();
        assert_eq!(fields, ["cap"]);
        let longest = Duration::from_mins(5);
        assert!(
            Backoff {
                base: longest,
                cap: longest,
                ..Backoff::default()
            }
            .validate()
            .is_empty()
        );
    }

    proptest! {
        #[test]
        fn no_wait_is_longer_than_the_cap_and_its_jitter(
            retry in 0_u32..=u32::MAX,
            rng in 0.0..1.0_f64,
            base in 1_u64..60_000,
            cap in 1_u64..300_000,
            previous in proptest::option::of(0_u64..10_000_000),
            kind in 0_usize..5,
        ) {
            let jitter =
                [Jitter::None, Jitter::Additive, Jitter::Full, Jitter::Equal, Jitter::Decorrelated][kind];
            let cap = Duration::from_millis(cap);
            let backoff = Backoff { base: Duration::from_millis(base), cap, jitter, ..Backoff::default() };
            let wait = backoff.wait(retry, previous.map(Duration::from_millis), rng);
            let longest = if jitter == Jitter::Additive { cap.mul_f64(1.25) } else { cap };
            prop_assert!(wait <= longest, "{wait:?} is longer than {longest:?}");
        }
    }
}
