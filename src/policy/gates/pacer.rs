//! How fast calls pass a rate gate after a limit was reached: one at a time, at a rate that is learnt.
//!
//! When a gate opens, everybody who waited would pass at once and reach the limit again. Between two moments at which
//! the limit was reached, as many calls passed as it filled up by: that is its rate, whatever its burst. So calls pass
//! a little slower than that for a while, and then faster and faster, because only more calls tell that a limit is
//! gone. It holds no stated wait back and shortens none: before the gate opens, nobody passes.

use std::time::Duration;

use tokio::time::Instant;

/// What is used of the rate at which a limit seems to fill up: at all of it, it would be reached again by chance.
const USED: f64 = 0.95;
/// What the first rate is of that at which calls passed before anything was known.
const FIRST: f64 = 0.35;
/// The least rate, per second.
const LEAST: f64 = 0.2;
/// The largest rate, per second.
const MOST: f64 = 10_000.0;
/// For how long the rate is kept: each search for more costs one stated wait where there is not more, and each second
/// without a search is lost where there is.
const KEPT: Duration = Duration::from_millis(2500);
/// For how many calls the rate is kept at least: of slow limits, one call in so many may be refused.
const KEPT_CALLS: f64 = 10.0;
/// After that, how much of itself the rate grows by in a second.
const GROWTH: f64 = 0.5;
/// The least time in which calls must have passed to tell how many may.
const SPAN: Duration = Duration::from_millis(500);
/// What is left of the rate when it was less.
const LOWER: f64 = 0.8;
/// How much of the time in which nobody passed is caught up: limits fill up meanwhile.
const CATCH_UP: f64 = 0.5;
/// The longest time in which nobody passed that a limit is taken to fill up in, and that is caught up.
const LAG: Duration = Duration::from_secs(1);
/// How long nobody must have waited before the rate is forgotten.
const FORGET: Duration = Duration::from_secs(10);

/// The pace of one gate.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pacer {
    /// The rate that is kept for a while, per second.
    rate: f64,
    /// When the limit was reached last, and how many calls passed since.
    reached: (Instant, u32),
    catch_up: f64,
    /// Before that nobody passes; the rate is kept from then on.
    opens: Instant,
    /// When the next call would pass if all had passed evenly; before now while there is something to catch up.
    next: Instant,
    /// When somebody had to wait last.
    bound_at: Instant,
}

// === impl Pacer ===

impl Pacer {
    /// After a limit was reached, at which calls passed so fast; nobody passes until then.
    pub(super) fn new(now: Instant, passed_per_second: f64, until: Instant) -> Self {
        let rate = (passed_per_second * FIRST).max(LEAST);
        let mut pacer = Self { rate, reached: (now, 0), catch_up: CATCH_UP, opens: now, next: now, bound_at: now };
        pacer.hold(now, until);
        pacer
    }

    /// The limit was reached again; nobody passes until then.
    pub(super) fn limited(&mut self, now: Instant, until: Instant) {
        let just_opened = now.saturating_duration_since(self.opens) < LAG / 4;
        if just_opened && self.rate * self.catch_up >= 1.0 {
            // By those who caught up: it does not fill up as much as was thought, which says nothing of its rate.
            self.catch_up /= 2.0;
        } else {
            let (since, passed) = self.reached;
            let closed = self.opens.saturating_duration_since(since);
            let filled = closed.min(LAG).mul_f64(self.catch_up / CATCH_UP);
            let span = now.saturating_duration_since(since).saturating_sub(closed) + filled;
            let filled_by = f64::from(passed.saturating_sub(1)) / span.as_secs_f64();
            self.rate = if span >= SPAN { filled_by * USED } else { self.rate * LOWER }.clamp(LEAST, MOST);
        }
        self.reached = (now, 0);
        self.hold(now, until);
    }

    /// Nobody passes until then.
    pub(super) fn hold(&mut self, now: Instant, until: Instant) {
        let held = until.saturating_duration_since(now).mul_f64(self.catch_up).min(LAG);
        self.opens = self.opens.max(until);
        self.bound_at = self.bound_at.max(until);
        self.next = self.next.max(until.checked_sub(held).unwrap_or(until));
    }

    /// Whether nobody had to wait for long.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.bound_at) >= FORGET
    }

    /// When the next call may pass, with so many before it; growth included, because a limit may be gone.
    pub(super) fn ready_at(&self, now: Instant, before: u32) -> Instant {
        let begins = self.opens.max(self.next).max(now);
        let kept = (self.kept_until().saturating_duration_since(begins)).as_secs_f64();
        let beyond = f64::from(before) - kept * self.rate;
        let wait = if beyond <= 0.0 {
            f64::from(before) / self.rate
        } else {
            kept + (1.0 + GROWTH * beyond / self.rate_at(begins)).ln() / GROWTH
        };
        begins + Duration::try_from_secs_f64(wait).unwrap_or(FORGET)
    }

    /// Passes a call if it is time.
    ///
    /// # Errors
    /// How long the next one has to wait.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let at = self.opens.max(self.next);
        if at > now {
            self.bound_at = self.bound_at.max(now);
            return Err(at - now);
        }
        self.reached.1 += 1;
        let even = Duration::from_secs_f64(1.0 / self.rate_at(now));
        let lag = now.saturating_duration_since(self.next).min(LAG);
        self.next = now.checked_sub(lag).unwrap_or(now) + even;
        Ok(())
    }

    fn kept_until(&self) -> Instant {
        self.opens + KEPT.max(Duration::from_secs_f64(KEPT_CALLS / self.rate))
    }

    fn rate_at(&self, now: Instant) -> f64 {
        let grown = now.saturating_duration_since(self.kept_until()).as_secs_f64();
        (self.rate * (GROWTH * grown).exp()).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::gates::tests::passed_in;

    const SECOND: Duration = Duration::from_secs(1);

    /// Calls that pass in that time when there is always somebody waiting.
    fn passed(pacer: &mut Pacer, from: Instant, time: Duration) -> u32 {
        passed_in(from, time, |now| pacer.take(now))
    }

    #[test]
    fn nobody_passes_before_the_stated_wait_is_over_and_half_of_a_short_one_is_caught_up() {
        let now = Instant::now();
        let mut pacer = Pacer::new(now, 20.0 / FIRST, now + SECOND);
        assert_eq!(pacer.take(now), Err(SECOND));
        assert_eq!(pacer.take(now + SECOND - Duration::from_millis(1)), Err(Duration::from_millis(1)));
        let at_once = (0..100).take_while(|_| pacer.take(now + SECOND).is_ok()).count();
        assert!((10..=11).contains(&at_once), "half of a second at twenty a second: {at_once}");
        let count = passed(&mut pacer, now + SECOND, SECOND);
        assert!((19..=21).contains(&count), "and then evenly: {count}");
    }

    #[test]
    fn of_a_limit_as_many_calls_are_used_as_it_fills_up_by_and_hardly_any_is_refused() {
        for (limit, burst, least) in [(20.0, 20.0, 0.75), (20.0, 1.0, 0.55), (5.0, 5.0, 0.75), (100.0, 200.0, 0.75)] {
            let start = Instant::now();
            let mut pacer = Pacer::new(start, limit * 3.0, start + SECOND);
            let (mut held, mut counted, mut now, mut used, mut refused) = (0.0_f64, start, start, 0_u32, 0_u32);
            while now < start + SECOND * 120 {
                if let Err(wait) = pacer.take(now) {
                    now += wait;
                    continue;
                }
                held = (held + (now - counted).as_secs_f64() * limit).min(burst);
                counted = now;
                if held >= 1.0 {
                    held -= 1.0;
                    used += 1;
                } else {
                    refused += 1;
                    pacer.limited(now, now + SECOND / 2);
                }
            }
            let possible = limit * 120.0;
            let share = f64::from(used) / possible;
            assert!(share > least && share <= 1.02, "{limit}/s, {burst} at once: {share}");
            assert!(f64::from(refused) < 0.08 * f64::from(used), "{limit}/s, {burst} at once: {refused} of {used}");
        }
    }

    #[test]
    fn a_rate_is_kept_for_a_while_and_then_grows_until_the_limit_is_reached() {
        let now = Instant::now();
        let mut pacer = Pacer::new(now, 20.0 / FIRST, now);
        let kept = passed(&mut pacer, now, SECOND * 2);
        assert!((39..=41).contains(&kept), "{kept}");
        let mut count = kept;
        for second in 2..9 {
            let more = passed(&mut pacer, now + SECOND * second, SECOND);
            assert!(more >= 20, "{more} in second {second}");
            count += more;
        }
        assert!(count > 500, "a limit that is gone is found to be gone within seconds: {count}");
        pacer.limited(now + SECOND * 9, now + SECOND * 10);
        passed(&mut pacer, now + SECOND * 10, SECOND);
        let slower = passed(&mut pacer, now + SECOND * 11, SECOND);
        assert!(slower <= count / 9, "{slower} after {count} in nine seconds");
    }

    #[test]
    fn a_slow_limit_is_searched_for_more_only_after_ten_calls() {
        let now = Instant::now();
        let mut pacer = Pacer::new(now, 0.5 / FIRST, now);
        let count = passed(&mut pacer, now, SECOND * 20);
        assert!((10..=11).contains(&count), "{count}");
        let more = passed(&mut pacer, now + SECOND * 20, SECOND * 10);
        assert!(more > 20, "{more}");
    }

    #[test]
    fn whoever_comes_after_others_is_told_when_his_turn_is() {
        for before in [0_u32, 20, 59, 60, 100, 400] {
            let now = Instant::now();
            let mut pacer = Pacer::new(now, 20.0 / FIRST, now + SECOND);
            let told = pacer.ready_at(now, before);
            let mut at = now;
            for _ in 0..=before {
                while let Err(wait) = pacer.take(at) {
                    at += wait;
                }
            }
            let off = told.max(at) - told.min(at);
            assert!(
                told >= now + SECOND && off < SECOND * 6 / 10,
                "{before}: told {:?}, was {:?}",
                told - now,
                at - now
            );
        }
    }

    #[test]
    fn it_is_idle_once_nobody_had_to_wait_for_ten_seconds() {
        let now = Instant::now();
        let mut pacer = Pacer::new(now, 10.0, now);
        for step in 0..9 {
            assert_eq!(pacer.take(now + SECOND * step), Ok(()));
            assert!(!pacer.is_idle(now + SECOND * step));
        }
        assert!(pacer.is_idle(now + SECOND * 10));
        let mut later = now + SECOND * 10;
        while pacer.take(later).is_ok() {}
        assert!(!pacer.is_idle(later + SECOND * 9), "somebody had to wait");
        later += SECOND * 10;
        assert!(pacer.is_idle(later));
    }

    #[test]
    fn a_turn_is_the_rate_while_it_is_kept_and_comes_sooner_when_it_grows() {
        let now = Instant::now();
        let opens = now + SECOND;
        let pacer = Pacer::new(now, 20.0 / FIRST, opens);
        let told = |before| format!("{:.3}", (pacer.ready_at(now, before) - opens).as_secs_f64());
        // 20 a second for 2.5 s; beyond, the integral of 20 e^(t/2): t = 2 ln(1 + n / 40).
        assert_eq!([told(0), told(7), told(50)], ["0.000", "0.350", "2.500"]);
        assert_eq!(told(150), format!("{:.3}", 2.5 + 2.0 * 3.5_f64.ln()));
        let later = opens + Duration::from_millis(4500);
        let grown = 20.0 * 1.0_f64.exp();
        let wait = pacer.ready_at(later, 10) - later;
        assert_eq!(format!("{:.3}", wait.as_secs_f64()), format!("{:.3}", 2.0 * (1.0 + 5.0 / grown).ln()));
    }

    #[test]
    fn a_limit_fills_up_by_what_passed_since_it_was_reached_and_for_a_second_of_the_wait() {
        let now = Instant::now();
        for (wait, passed, rate) in [(SECOND, 31, 9.5), (SECOND * 3, 31, 9.5), (SECOND / 2, 26, 9.5)] {
            let opens = now + wait;
            let mut pacer = Pacer { reached: (now, passed), ..Pacer::new(now, 100.0, opens) };
            pacer.limited(opens + SECOND * 2, opens + SECOND * 3);
            assert_eq!(format!("{:.3}", pacer.rate), format!("{rate:.3}"), "{passed} after {wait:?}");
        }
    }

    #[test]
    fn who_reaches_the_limit_by_catching_up_lowers_what_is_caught_up_and_not_the_rate() {
        let now = Instant::now();
        let opens = now + SECOND;
        for (after_ms, catch_up, lowered) in [(0, 0.25, false), (249, 0.25, false), (250, 0.5, true)] {
            let mut pacer = Pacer::new(now, 100.0, opens);
            let rate = pacer.rate;
            pacer.limited(opens + Duration::from_millis(after_ms), opens + SECOND);
            assert_eq!((pacer.catch_up, pacer.rate < rate), (catch_up, lowered), "after {after_ms} ms");
        }
    }
}
