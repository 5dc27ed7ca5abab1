//! Whether refusals show a limit on the rate of calls, or hit calls at random.
//!
//! Providers that share a pool among their customers refuse a few calls in a hundred, however
//! slowly they come. A gate that closes for each of them would let almost no call pass. What
//! distinguishes the two is the rate: a limit does not refuse calls that pass more slowly than it
//! was measured to allow. After two such refusals within a minute, refusals are taken for random,
//! until more than half of the last calls are refused.

use std::time::Duration;

use tokio::time::Instant;

use crate::policy::sliding::Sliding;

/// How many refusals that no limit explains show that refusals are random, and within which time.
const UNEXPLAINED: u32 = 2;
const WITHIN: Duration = Duration::from_mins(1);
/// How many calls must have passed before the share of refused ones shows a limit.
const CALLS: u32 = 32;
/// The time over which they are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// How long no refusal must have come before all is forgotten.
const FORGET: Duration = Duration::from_mins(1);
/// For how long refusals are not taken for random after that proved to be wrong.
const REFUTED: Duration = Duration::from_secs(10);

/// The refusals of a rate gate.
#[derive(Debug)]
pub(super) struct RefusalPattern {
    /// Refusals of late that no limit explains, and the first of them.
    unexplained: Option<(u32, Instant)>,
    /// The last calls, while refusals are taken for random.
    random: Option<RecentCalls>,
    /// When refusals may be taken for random again.
    doubted_until: Option<Instant>,
}

/// How many calls passed and were refused of late. Refusals arrive sooner than answers, so that
/// calls are counted when they pass.
#[derive(Debug)]
struct RecentCalls {
    passed: Sliding<u32>,
    refused: Sliding<u32>,
    refused_at: Instant,
}

// === impl RefusalPattern ===

impl RefusalPattern {
    pub(super) const fn none() -> Self {
        Self {
            unexplained: None,
            random: None,
            doubted_until: None,
        }
    }

    /// A call passed the gate.
    pub(super) fn passed(&mut self, now: Instant) {
        if let Some(calls) = &mut self.random {
            calls.passed.add(now, 1);
        }
    }

    /// A call was refused; `explained`: by a limit on the rate of calls, as far as that was
    /// measured. Returns whether refusals are random.
    pub(super) fn refused(&mut self, now: Instant, explained: bool) -> bool {
        self.random
            .take_if(|calls| now >= calls.refused_at + FORGET);
        if let Some(calls) = &mut self.random {
            calls.refused.add(now, 1);
            calls.refused_at = now;
            if calls.show_a_limit(now) {
                (self.random, self.doubted_until) = (None, Some(now + REFUTED));
            }
        } else if !explained && self.doubted_until.is_none_or(|until| now >= until) {
            let (count, first) = self
                .unexplained
                .filter(|(_, first)| now < *first + WITHIN)
                .unwrap_or((0, now));
            self.unexplained = Some((count + 1, first));
            if count + 1 >= UNEXPLAINED {
                (self.unexplained, self.random) = (None, Some(RecentCalls::none(now)));
            }
        }
        self.random.is_some()
    }
}

// === impl RecentCalls ===

impl RecentCalls {
    fn none(now: Instant) -> Self {
        Self {
            passed: Sliding::new(WINDOW),
            refused: Sliding::new(WINDOW),
            refused_at: now,
        }
    }

    fn show_a_limit(&mut self, now: Instant) -> bool {
        let (passed, refused) = (self.passed.total(now), self.refused.total(now));
        passed >= CALLS && refused * 2 > passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Refusals that two unexplained ones showed to be random, at `now`.
    fn random(now: Instant) -> RefusalPattern {
        let mut refusals = RefusalPattern::none();
        assert!(!refusals.refused(now, false), "one may be chance");
        assert!(refusals.refused(now, false));
        refusals
    }

    #[test]
    fn two_unexplained_refusals_within_a_minute_show_that_refusals_are_random() {
        let now = Instant::now();
        random(now);
        let mut explained = RefusalPattern::none();
        assert!((0..100).all(|second| !explained.refused(now + secs(second), true)));
        let mut rare = RefusalPattern::none();
        assert!((0..10).all(|number| !rare.refused(now + secs(61) * number, false)));
    }

    #[test]
    fn they_are_random_until_more_than_half_of_the_last_calls_are_refused_and_then_in_doubt_for_ten_seconds()
     {
        let now = Instant::now();
        let mut refusals = random(now);
        for second in 0..40 {
            (0..8).for_each(|_| refusals.passed(now + secs(second)));
            assert!(
                (0..3).all(|_| refusals.refused(now + secs(second), true)),
                "three of eight"
            );
        }
        let now = now + secs(60);
        (0..500).for_each(|_| refusals.passed(now));
        assert!(
            (0..250).all(|_| refusals.refused(now, true)),
            "many at once, whose answers are not there yet"
        );
        assert!(!refusals.refused(now, true));
        assert!((0..10).all(|_| !refusals.refused(now + secs(9), false)));
        assert!(!refusals.refused(now + secs(10), false));
        assert!(refusals.refused(now + secs(10), false));
    }

    #[test]
    fn a_minute_without_a_refusal_ends_it() {
        let now = Instant::now();
        assert!(random(now).refused(now + secs(59), true));
        assert!(!random(now).refused(now + secs(60), true));
    }
}
