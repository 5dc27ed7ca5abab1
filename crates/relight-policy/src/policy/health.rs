//! The health of a target, from its last attempts in the order in which they began.
//!
//! Errors are fast and answers slow, so counting completed attempts alone would make a healthy
//! target look failed. Here an attempt that is still silent after twice the time in which others
//! failed counts as a coming success, and one that is silent for longer than the fastest of them as
//! not failed so far. Failures in a row mean an outage only if so many among so many attempts
//! are too rare at the earlier share of failures.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Number of attempts that are remembered.
const REMEMBERED: usize = 64;
/// A run of failures that is less probable than this is an outage.
const CHANCE: f64 = 0.01;
/// The same if the target is known to fail now and then: there runs are seen often, so they must be
/// rarer to mean it.
const CHANCE_WHERE_ERRATIC: f64 = 0.001;
/// Assumption before anything is known: this many failures in that many attempts.
const ASSUMED: (f64, f64) = (0.8, 10.0);
/// From how many outcomes on, and from which share of failures on, a target is known to fail now
/// and then.
const ERRATIC: (f64, f64) = (20.0, 0.05);

/// From how many failures in a row on a success is a recovery.
const FAILED_IN_A_ROW: u32 = 2;

/// The last attempts of one target.
#[derive(Debug, Clone, Default)]
pub struct Health {
    attempts: VecDeque<AttemptSample>,
    /// The number of the oldest attempt.
    first: u64,
    run: Option<RunOfFailures>,
}

/// The failures since the last success.
#[derive(Debug, Clone, Copy)]
struct RunOfFailures {
    number: u32,
    /// Times at which the first and the last one were reported.
    first: Instant,
    last: Instant,
}

#[derive(Debug, Clone, Copy)]
struct AttemptSample {
    began: Instant,
    /// Its outcome; `None` while it is silent.
    ended: Option<SampleEnd>,
}

#[derive(Debug, Clone, Copy)]
enum SampleEnd {
    Answered,
    Failed {
        took: Duration,
    },
    /// It shows nothing about the target.
    Neutral,
}

/// Evidence of the last attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthVerdict {
    /// `true` if its last failures are not chance: the next attempt would probably fail, too.
    pub failing: bool,
    /// It fails now and then, and succeeds in between.
    pub erratic: bool,
}

// === impl Health ===

impl Health {
    /// Records that an attempt began; returns its number.
    pub fn began(&mut self, now: Instant) -> u64 {
        if self.attempts.len() >= REMEMBERED {
            self.attempts.pop_front();
            self.first += 1;
        }
        self.attempts.push_back(AttemptSample {
            began: now,
            ended: None,
        });
        self.first + self.attempts.len() as u64 - 1
    }

    /// Records the end of an attempt: success or failure; `None` if it shows nothing. Returns whether
    /// it is the first success after failures in a row, of an attempt that began after the first of
    /// them.
    pub fn ended(&mut self, number: u64, now: Instant, answered: Option<bool>) -> bool {
        let index = number
            .checked_sub(self.first)
            .and_then(|index| usize::try_from(index).ok());
        let Some(attempt) = index.and_then(|index| self.attempts.get_mut(index)) else {
            return false;
        };
        let mut recovered = false;
        match (answered, self.run) {
            (Some(false), before) => {
                self.run = Some(RunOfFailures {
                    number: before.map_or(1, |run| run.number.saturating_add(1)),
                    first: before.map_or(now, |run| run.first),
                    last: now,
                });
            }
            (Some(true), Some(run)) if attempt.began >= run.first => {
                recovered = run.number >= FAILED_IN_A_ROW;
                self.run = None;
            }
            (Some(true) | None, _) => {}
        }
        attempt.ended = Some(match answered {
            Some(true) => SampleEnd::Answered,
            Some(false) => SampleEnd::Failed {
                took: now.saturating_duration_since(attempt.began),
            },
            None => SampleEnd::Neutral,
        });
        recovered
    }

    /// Records that another replica's probe failed, if this one's last attempt did, too.
    pub fn failed_elsewhere(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.last = now;
        }
    }

    /// Returns the time of the last failure, if no attempt succeeded since.
    #[must_use]
    pub fn failed_last(&self) -> Option<Instant> {
        self.run.map(|run| run.last)
    }

    /// Returns the evidence of the last attempts.
    #[must_use]
    pub fn verdict(&self, now: Instant) -> HealthVerdict {
        let mut run = 0_u32;
        let mut failed = 0.0;
        let mut known = 0.0;
        let mut in_run = true;
        let mut fastest = Duration::MAX;
        let mut slowest = Duration::ZERO;
        let mut silent = Vec::new();
        for attempt in self.attempts.iter().rev() {
            let age = || now.saturating_duration_since(attempt.began);
            match attempt.ended {
                Some(SampleEnd::Failed { took }) if in_run => {
                    run += 1;
                    (fastest, slowest) = (fastest.min(took), slowest.max(took));
                }
                Some(SampleEnd::Failed { .. }) => (failed, known) = (failed + 1.0, known + 1.0),
                Some(SampleEnd::Answered) => {
                    (in_run, known) = (false, known + 1.0);
                }
                None if run > 0 && age() > slowest * 2 => (in_run, known) = (false, known + 1.0),
                None if in_run => silent.push(age()),
                Some(SampleEnd::Neutral) | None => {}
            }
        }
        let share = (failed + ASSUMED.0) / (known + ASSUMED.1);
        let silent: u32 = silent.iter().map(|age| u32::from(*age > fastest)).sum();
        let erratic = known >= ERRATIC.0 && failed / known >= ERRATIC.1;
        let chance = if erratic {
            CHANCE_WHERE_ERRATIC
        } else {
            CHANCE
        };
        let failing = run > 0 && at_least(run, run + silent, share) < chance;
        HealthVerdict {
            failing,
            erratic: erratic && !failing,
        }
    }
}

/// Returns the probability of at least `failures` of so many attempts if each fails with this
/// probability: the upper tail of the binomial distribution.
fn at_least(failures: u32, attempts: u32, share: f64) -> f64 {
    let odds = share / (1.0 - share);
    let mut exactly = f64::powf(1.0 - share, attempts.into());
    let mut fewer = 0.0;
    for number in 0..failures {
        fewer += exactly;
        exactly *= odds * f64::from(attempts - number) / f64::from(number + 1);
    }
    1.0 - fewer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Returns the verdict after attempts one after the other, `x` for a failure and `.` for a
    /// success.
    fn after(outcomes: &str) -> HealthVerdict {
        let mut health = Health::default();
        let mut now = Instant::now();
        for outcome in outcomes.chars() {
            let number = health.began(now);
            now += ms(100);
            health.ended(number, now, Some(outcome == '.'));
        }
        health.verdict(now)
    }

    #[test]
    fn one_failure_is_a_hiccup_and_two_are_an_outage_unless_failures_are_usual() {
        let often = ".x..x...x.".repeat(5);
        for (outcomes, failing) in [
            (String::new(), false),
            ("x".to_owned(), false),
            ("xx".to_owned(), true),
            (format!("{}x", ".".repeat(60)), false),
            (format!("{}xx", ".".repeat(60)), true),
            (format!("{}xx.", ".".repeat(60)), false),
            (format!("{often}xx"), false),
            (format!("{often}xxxx"), false),
            (format!("{often}xxxxxxx"), true),
        ] {
            assert_eq!(after(&outcomes).failing, failing, "{outcomes}");
        }
        assert!(
            after(&format!("{often}x")).erratic
                && !after(&".".repeat(60)).erratic
                && !after("xx").erratic
        );
    }

    #[test]
    fn attempts_that_are_silent_for_longer_than_failures_take_will_be_answered() {
        let mut health = Health::default();
        let now = Instant::now();
        let mut failures = 0;
        for call in 0..30_u32 {
            let number = health.began(now + ms(20) * call);
            if call % 3 == 0 {
                failures += 1;
                health.ended(number, now + ms(20) * call + ms(30), Some(false));
            }
        }
        assert!(failures == 10 && !health.verdict(now + ms(600)).failing);
        for call in 30..38_u32 {
            let number = health.began(now + ms(20) * call);
            health.ended(number, now + ms(20) * call + ms(5), Some(false));
        }
        assert!(health.verdict(now + ms(770)).failing);
    }

    #[test]
    fn failures_among_attempts_that_could_have_failed_as_fast_and_did_not_are_chance() {
        let burst = |silent: u32, age: u64| {
            let mut health = Health::default();
            let now = Instant::now();
            for _ in 0..2 {
                let number = health.began(now);
                health.ended(number, now + ms(100), Some(false));
            }
            for _ in 0..silent {
                health.began(now);
            }
            health.verdict(now + ms(age)).failing
        };
        assert!(burst(0, 150) && !burst(4, 150));
        assert!(
            burst(4, 90),
            "those who began later could not have failed yet"
        );
    }

    #[test]
    fn the_tail_of_the_binomial_distribution_is_right() {
        for (failures, attempts, share, tail) in [
            (0, 5, 0.3, 1.0),
            (4, 4, 0.3, 0.0081),
            (1, 3, 0.5, 0.875),
            (4, 8, 0.3, 0.194_104_35),
        ] {
            assert!(
                (at_least(failures, attempts, share) - tail).abs() < 1e-9,
                "{failures} of {attempts}"
            );
        }
    }

    #[test]
    fn neutral_outcomes_change_nothing_and_late_reports_of_old_attempts_are_ignored() {
        let mut health = Health::default();
        let now = Instant::now();
        let first = health.began(now);
        for _ in 0..REMEMBERED {
            let number = health.began(now);
            health.ended(number, now, None);
        }
        health.ended(first, now, Some(false));
        assert_eq!(health.verdict(now), HealthVerdict::default());
    }

    #[test]
    fn failures_of_other_replicas_prolong_a_run_and_begin_none() {
        let mut health = Health::default();
        let now = Instant::now();
        health.failed_elsewhere(now);
        assert_eq!(health.failed_last(), None);
        let number = health.began(now);
        health.ended(number, now + ms(10), Some(false));
        health.failed_elsewhere(now + ms(3000));
        assert_eq!(health.failed_last(), Some(now + ms(3000)));
        let number = health.began(now + ms(4000));
        health.ended(number, now + ms(4010), Some(true));
        assert_eq!(health.failed_last(), None);
    }
}
