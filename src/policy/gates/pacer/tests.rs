//! The rate of calls at a rate gate, in isolation.

use super::*;
use crate::policy::gates::tests::passed_in;

const SECOND: Duration = Duration::from_secs(1);
const TOOK: Duration = Duration::from_millis(20);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Calls that pass in that time when a caller is always waiting.
fn passed(pacer: &mut Pacer, from: Instant, time: Duration) -> u32 {
    passed_in(from, time, |now| pacer.take(now))
}

/// A pacer that measured so many calls per second, whose gate opens now.
fn measured(now: Instant, rate: f64) -> Pacer {
    Pacer {
        rate: Some(rate),
        ..Pacer::new(now, TOOK, now)
    }
}

#[test]
fn no_call_passes_before_the_stated_wait_is_over() {
    let now = Instant::now();
    for mut pacer in [Pacer::new(now, TOOK, now + SECOND), {
        let mut it = measured(now, 20.0);
        it.hold(now, now + SECOND);
        it
    }] {
        assert_eq!(pacer.take(now), Err(SECOND));
        assert_eq!(pacer.take(now + SECOND - ms(1)), Err(ms(1)));
        assert_eq!(pacer.take(now + SECOND), Ok(()));
    }
}

#[test]
fn refused_probes_slow_no_call_and_the_end_of_a_limit_is_detected_within_half_a_second() {
    let now = Instant::now();
    let mut pacer = Pacer::new(now, TOOK, now + SECOND);
    for probe in 1..20 {
        let at = now + SECOND * probe;
        assert_eq!(pacer.take(at), Ok(()));
        assert!(pacer.take(at + TOOK).is_err(), "one probe at a time");
        pacer.limited(at + TOOK, TOOK, at + SECOND);
    }
    let opens = now + SECOND * 20;
    let count = passed(&mut pacer, opens, ms(500));
    assert!(count > 500, "{count}");
    assert!(pacer.is_over(opens + ms(500)));
}

#[test]
fn where_refusals_take_long_probes_wait_for_them_until_one_is_accepted() {
    let now = Instant::now();
    let mut pacer = Pacer::new(now, ms(300), now);
    assert!(passed(&mut pacer, now, ms(290)) <= 2);
    pacer.accepted(now + ms(300));
    assert!(passed(&mut pacer, now + ms(300), ms(500)) > 500);
}

#[test]
fn of_a_limit_as_many_calls_are_used_as_it_fills_up_by_and_hardly_any_is_refused() {
    for (limit, burst, min) in [
        (20.0, 20.0, 0.75),
        (20.0, 2.0, 0.5),
        (5.0, 5.0, 0.7),
        (100.0, 200.0, 0.75),
    ] {
        let start = Instant::now();
        let mut pacer = Pacer::new(start, TOOK, start + SECOND);
        let (mut held, mut counted, mut now, mut used, mut refused) =
            (0.0_f64, start, start, 0_u32, 0_u32);
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
                pacer.accepted(now);
            } else {
                refused += 1;
                pacer.limited(now, TOOK, now + SECOND / 2);
            }
        }
        let possible = limit * 120.0;
        let share = f64::from(used) / possible;
        assert!(
            share > min && share <= 1.02,
            "{limit}/s, {burst} at once: {share}"
        );
        assert!(
            f64::from(refused) < 0.08 * f64::from(used),
            "{limit}/s, {burst} at once: {refused} of {used}"
        );
    }
}

#[test]
fn a_measured_rate_is_held_for_a_while_and_then_grows_until_the_limit_is_reached() {
    let now = Instant::now();
    let mut pacer = measured(now, 20.0);
    let held = passed(&mut pacer, now, SECOND * 2);
    assert!((39..=41).contains(&held), "{held}");
    let mut count = held;
    for second in 2..9 {
        let more = passed(&mut pacer, now + SECOND * second, SECOND);
        assert!(more >= 20, "{more} in second {second}");
        count += more;
    }
    assert!(count > 500, "{count}");
}

#[test]
fn who_comes_after_others_passes_when_it_was_announced() {
    for before in [0_u32, 20, 59, 60, 100, 400] {
        for rate in [None, Some(20.0)] {
            let now = Instant::now();
            let mut pacer = Pacer {
                rate,
                ..Pacer::new(now, TOOK, now + SECOND)
            };
            let announced = pacer.ready_at(now, before);
            let mut at = now;
            for _ in 0..=before {
                while let Err(wait) = pacer.take(at) {
                    at += wait;
                }
            }
            let off = announced.max(at) - announced.min(at);
            assert!(
                announced >= now + SECOND && off < ms(600),
                "{before}, {rate:?}: off by {off:?}"
            );
        }
    }
}

#[test]
fn a_measured_rate_is_forgotten_after_ten_seconds_without_a_waiting_caller() {
    let now = Instant::now();
    let mut pacer = measured(now, 10.0);
    for step in 0..9 {
        assert_eq!(pacer.take(now + SECOND * step), Ok(()));
        assert!(!pacer.is_over(now + SECOND * step));
    }
    assert!(pacer.is_over(now + SECOND * 10));
    let mut later = now + SECOND * 10;
    while pacer.take(later).is_ok() {}
    assert!(!pacer.is_over(later + SECOND * 9), "somebody had to wait");
    later += SECOND * 10;
    assert!(pacer.is_over(later));
}

#[test]
fn a_limit_fills_up_by_what_passed_since_it_was_reached_and_for_a_second_of_the_wait() {
    let now = Instant::now();
    for (wait, count, accepted, rate) in [
        (SECOND, 31, 1, Some(9.5)),
        (SECOND * 3, 31, 1, Some(9.5)),
        (SECOND / 2, 26, 1, Some(9.5)),
        (SECOND, 31, 0, None),
        (SECOND, 3, 1, None),
    ] {
        let opens = now + wait;
        let mut pacer = Pacer::new(now, TOOK, opens);
        pacer.passes = Passes {
            passed: count,
            accepted,
            ..pacer.passes
        };
        pacer.limited(opens + SECOND * 2, TOOK, opens + SECOND * 3);
        pacer.take(opens + SECOND * 3).unwrap();
        assert_eq!(
            pacer.rate.map(|rate| format!("{rate:.3}")),
            rate.map(|rate| format!("{rate:.3}")),
            "{count} after {wait:?}"
        );
    }
}

#[test]
fn who_reaches_the_limit_by_catching_up_lowers_what_is_caught_up_and_not_the_rate() {
    let now = Instant::now();
    let opens = now + SECOND;
    for (after_ms, catch_up, lowered) in [(0, 0.25, false), (249, 0.25, false), (250, 0.5, true)] {
        let mut pacer = measured(now, 35.0);
        pacer.hold(now, opens);
        pacer.limited(opens + ms(after_ms), TOOK, opens + SECOND);
        assert_eq!(
            (pacer.catch_up, pacer.rate < Some(35.0)),
            (catch_up, lowered),
            "after {after_ms} ms"
        );
    }
}
