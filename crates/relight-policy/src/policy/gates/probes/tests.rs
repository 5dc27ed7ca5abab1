//! When probes pass.

use super::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// When probes pass within a time, in milliseconds, if each is refused at once and states a wait.
fn passed(within: Duration, rate: f64, states: impl Fn(Duration) -> Option<Duration>) -> Vec<u128> {
    let start = Instant::now();
    let mut probes = ProbePlan::new(start);
    let mut stated = StatedEnd::default();
    let mut at = Vec::new();
    while probes.due() < start + within {
        let now = probes.due();
        at.push((now - start).as_millis());
        probes.next(now, stated.believed(now), rate, None);
        if let Some(end) = stated.stated(now, states(now - start)) {
            probes.believe(now, end);
        }
    }
    at
}

#[test]
fn one_passes_at_once_and_the_next_ones_after_half_of_the_time_that_it_lasts() {
    let at = passed(secs(600), 0.0, |_| None);
    assert_eq!(at[..6], [0, 1000, 2000, 3000, 4500, 6750]);
    assert!(at.windows(2).all(|two| two[1] - two[0] <= 60_000));
    assert!(at.len() < 25, "{at:?}");
}

#[test]
fn within_the_first_second_of_a_busy_limit_each_passes_after_as_long_again() {
    let start = Instant::now();
    for (rate, step, expected) in [
        (100.0, 50, [0, 50, 100, 200, 400, 800, 1600]),
        (100.0, 300, [0, 300, 600, 1200, 2200, 3200, 4200]),
        (10.0, 50, [0, 300, 600, 1200, 2200, 3300, 4950]),
        (2.0, 50, [0, 1000, 2000, 3000, 4500, 6750, 10_125]),
    ] {
        let mut probes = ProbePlan::new(start);
        for at in expected {
            let now = probes.due();
            assert_eq!((now - start).as_millis(), at, "{rate}, {step}");
            probes.next(now, None, rate, Some(Duration::from_millis(step)));
        }
    }
}

#[test]
fn where_many_calls_come_one_in_twenty_of_them_passes() {
    let at = passed(secs(60), 10.0, |_| None);
    assert!((28..=32).contains(&at.len()), "{at:?}");
    let at = passed(secs(60), 1000.0, |_| None);
    assert_eq!(at.len(), 60, "at most one in a second");
}

#[test]
fn where_few_calls_wait_one_passes_all_the_same_before_they_run_out_of_time() {
    for rate in [0.1, 1.0] {
        let at = passed(secs(600), rate, |_| None);
        assert!(at.windows(2).all(|two| two[1] - two[0] <= 8_000), "{at:?}");
        assert!(at.len() < 85, "{at:?}");
    }
}

#[test]
fn an_end_that_refusals_agree_on_is_waited_for_with_one_look_half_way() {
    for length in [20, 60, 300] {
        let at = passed(secs(length) + secs(1), 50.0, |since| {
            Some(secs(length).saturating_sub(since)).filter(|wait| !wait.is_zero())
        });
        assert!(
            at.len() <= 3 + (usize::try_from(length).unwrap() / 60).max(2),
            "{length}: {at:?}"
        );
        let last = *at.last().unwrap();
        assert!(
            last.abs_diff(u128::from(length) * 1000) <= 1000,
            "{length}: {at:?}"
        );
    }
}

#[test]
fn an_end_that_moves_with_each_refusal_is_not_believed() {
    for wait in [secs(1), secs(3600)] {
        let with_a_wait = passed(secs(60), 10.0, |_| Some(wait));
        let without = passed(secs(60), 10.0, |_| None);
        assert!(
            with_a_wait.len() + 2 >= without.len(),
            "{wait:?}: {with_a_wait:?}"
        );
    }
}
