//! The latency of a target: percentiles of its first tokens.
//!
//! Only the first token is measured: the duration of a whole completion depends on its length, and
//! shows nothing about the target's health. Old samples do not count, so a target that was slow an
//! hour ago is not slow for ever. There is one `Latency` per target.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// The median first token that is assumed of a target nothing is known about.
pub const GUESSED_P50: Duration = Duration::from_secs(1);

/// Number of completions that must be known before documents are requested, each of its two
/// measures.
const DOCUMENT_SAMPLES: usize = 20;

/// The most samples that are kept.
const CAPACITY: usize = 256;
/// Time for which a sample counts.
const MAX_AGE: Duration = Duration::from_mins(5);

/// The recent first-token times of one target.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    samples: VecDeque<(Instant, Duration)>,
    /// The same in ascending order: every attempt reads percentiles, and adds one sample.
    sorted: Vec<Duration>,
    /// `true` if an attempt was given up without a first token since the last one came.
    gave_up: bool,
    /// `true` if the next attempt of two waits.
    waits: bool,
}

/// Returns whether completions are usually whole so soon that a document shows no less than a
/// stream would: 99 of 100 recent ones within half of `patience`, the silence after which something
/// is done about a target. Of fewer than a hundred that is all of them: one that takes much longer
/// would be raced or given up, and paid twice.
///
/// First tokens are known of streams alone and count for five minutes, so that streams are
/// requested again and again, and what they show stays fresh.
#[must_use]
pub fn document_in_time(
    first_tokens: &Latency,
    whole: &Latency,
    patience: Duration,
    now: Instant,
) -> bool {
    first_tokens.samples(now) >= DOCUMENT_SAMPLES
        && whole.samples(now) >= DOCUMENT_SAMPLES
        && whole
            .percentile(now, 99)
            .is_some_and(|long| long * 2 <= patience)
}

// === impl Latency ===

impl Latency {
    /// Without samples.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A first token came `first_token` after its request was sent.
    pub fn record(&mut self, now: Instant, first_token: Duration) {
        while self.samples.len() >= CAPACITY
            || self.samples.front().is_some_and(|(at, _)| is_old(*at, now))
        {
            if let Some((_, gone)) = self.samples.pop_front()
                && let Ok(place) = self.sorted.binary_search(&gone)
            {
                self.sorted.remove(place);
            }
        }
        self.gave_up = false;
        self.samples.push_back((now, first_token));
        let place = self.sorted.partition_point(|known| *known <= first_token);
        self.sorted.insert(place, first_token);
    }

    /// An attempt was given up before its first token.
    pub fn give_up(&mut self) {
        self.gave_up = true;
    }

    /// Returns the time in which a first token is expected: the median, or the newest if that is longer;
    /// `None` without a recent sample.
    #[must_use]
    pub fn expected(&self, now: Instant) -> Option<Duration> {
        let newest = self.samples.back().map(|(_, first_token)| *first_token);
        self.p50(now).max(newest.filter(|_| self.samples(now) > 0))
    }

    /// Returns whether an attempt at a lone target should wait for as long as it may, and leave no time
    /// for another one: every second one, as long as nothing shows whether the target is slow or does
    /// not respond. That is if no first token is known, or an attempt was given up since the last one.
    pub fn is_to_wait(&mut self, now: Instant) -> bool {
        if !self.gave_up && self.samples(now) > 0 {
            return false;
        }
        let waits = self.waits;
        self.waits = !waits;
        waits
    }

    /// Returns the median; `None` without a recent sample.
    #[must_use]
    pub fn p50(&self, now: Instant) -> Option<Duration> {
        self.percentile(now, 50)
    }

    /// Returns the time that 95 of 100 first tokens do not exceed; `None` without a recent sample.
    /// See `samples` for its worth.
    #[must_use]
    pub fn p95(&self, now: Instant) -> Option<Duration> {
        self.percentile(now, 95)
    }

    /// Returns the number of recent samples, at most 256.
    #[must_use]
    pub fn samples(&self, now: Instant) -> usize {
        if self.are_all_recent(now) {
            self.samples.len()
        } else {
            self.recent(now).count()
        }
    }

    /// Returns the nearest-rank percentile: the smallest sample that at least `percent` % do not
    /// exceed.
    fn percentile(&self, now: Instant, percent: usize) -> Option<Duration> {
        let rank = |count: usize| (count * percent).div_ceil(100).checked_sub(1);
        if self.are_all_recent(now) {
            return self.sorted.get(rank(self.sorted.len())?).copied();
        }
        let mut recent: Vec<_> = self.recent(now).collect();
        recent.sort_unstable();
        recent.get(rank(recent.len())?).copied()
    }

    fn are_all_recent(&self, now: Instant) -> bool {
        self.samples.front().is_none_or(|(at, _)| !is_old(*at, now))
    }

    fn recent(&self, now: Instant) -> impl Iterator<Item = Duration> {
        self.samples
            .iter()
            .filter(move |(at, _)| !is_old(*at, now))
            .map(|(_, first_token)| *first_token)
    }
}

fn is_old(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) > MAX_AGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_sample_from_above() {
        let now = Instant::now();
        let mut latency = Latency::new();
        assert_eq!(
            (latency.p50(now), latency.p95(now), latency.samples(now)),
            (None, None, 0)
        );
        for millis in (1..=100).rev() {
            latency.record(now, Duration::from_millis(millis));
        }
        assert_eq!(latency.p50(now), Some(Duration::from_millis(50)));
        assert_eq!(latency.p95(now), Some(Duration::from_millis(95)));
        assert_eq!(latency.samples(now), 100);
    }

    #[test]
    fn documents_are_requested_while_enough_completions_are_whole_in_half_of_the_patience() {
        let now = Instant::now();
        let [mut first_tokens, mut whole] = [Latency::new(), Latency::new()];
        let patience = Duration::from_secs(1);
        let in_time = |first_tokens: &Latency, whole: &Latency, later: u64| {
            document_in_time(
                first_tokens,
                whole,
                patience,
                now + Duration::from_secs(later),
            )
        };
        for known in 0..DOCUMENT_SAMPLES {
            assert!(!in_time(&first_tokens, &whole, 0), "{known}");
            first_tokens.record(now, Duration::from_millis(1));
            whole.record(now, Duration::from_millis(500));
        }
        assert!(in_time(&first_tokens, &whole, 0));
        let mut longer = whole.clone();
        longer.record(now, Duration::from_millis(501));
        assert!(!in_time(&first_tokens, &longer, 0), "one of 21 took longer");
        for _ in 0..80 {
            longer.record(now, Duration::from_millis(500));
        }
        assert!(in_time(&first_tokens, &longer, 0), "one of 101 took longer");
        assert!(
            !in_time(&Latency::new(), &whole, 0),
            "no first token is known"
        );
        assert!(!in_time(&first_tokens, &whole, 301), "what is known is old");
    }

    #[test]
    fn one_sample_is_every_percentile() {
        let now = Instant::now();
        let mut latency = Latency::new();
        latency.record(now, Duration::from_millis(700));
        assert_eq!(latency.p50(now), latency.p95(now));
        assert_eq!(latency.p50(now), Some(Duration::from_millis(700)));
    }

    #[test]
    fn every_second_attempt_waits_until_it_is_known_whether_the_target_is_slow() {
        let now = Instant::now();
        let mut latency = Latency::new();
        let turns = |latency: &mut Latency| [(); 4].map(|()| latency.is_to_wait(now));
        assert_eq!(turns(&mut latency), [false, true, false, true]);
        latency.record(now, Duration::from_secs(1));
        assert_eq!(turns(&mut latency), [false; 4]);
        latency.give_up();
        assert_eq!(turns(&mut latency), [false, true, false, true]);
        assert_eq!(latency.expected(now), Some(Duration::from_secs(1)));
        latency.record(now, Duration::from_secs(20));
        assert_eq!(turns(&mut latency), [false; 4]);
        assert_eq!(latency.expected(now), Some(Duration::from_secs(20)));
    }

    #[test]
    fn a_sample_counts_for_five_minutes_and_no_longer() {
        let start = Instant::now();
        let mut latency = Latency::new();
        latency.record(start, Duration::from_secs(9));
        assert_eq!(latency.samples(start + Duration::from_mins(5)), 1);
        assert_eq!(latency.samples(start + Duration::from_millis(300_001)), 0);
        latency.record(start + Duration::from_secs(301), Duration::from_secs(1));
        assert_eq!(
            latency.p95(start + Duration::from_secs(301)),
            Some(Duration::from_secs(1))
        );
    }

    #[test]
    fn no_more_than_256_samples_are_kept_and_the_newest_stay() {
        let now = Instant::now();
        let mut latency = Latency::new();
        for millis in 0..1000 {
            latency.record(now, Duration::from_millis(millis));
        }
        assert_eq!(latency.samples(now), 256);
        assert_eq!(
            latency.samples.front().map(|sample| sample.1),
            Some(Duration::from_millis(744))
        );
    }

    #[test]
    fn percentiles_are_those_of_the_samples_that_count_whatever_order_they_came_in() {
        let start = Instant::now();
        let mut latency = Latency::new();
        for step in 0..400_u64 {
            latency.record(
                start + Duration::from_secs(step),
                Duration::from_millis(step * 7919 % 1000),
            );
        }
        for later in [399, 500, 698] {
            let now = start + Duration::from_secs(later);
            let mut recent: Vec<_> = latency.recent(now).collect();
            recent.sort_unstable();
            assert_eq!(
                latency.p50(now),
                recent.get((recent.len() * 50).div_ceil(100) - 1).copied(),
                "{later}"
            );
        }
    }
}
