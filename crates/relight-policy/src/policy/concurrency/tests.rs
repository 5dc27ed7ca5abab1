//! What moves the limit, and what must not.

use super::*;

/// Returns a limiter that begins with so many slots.
fn starting_at(start: u32) -> Limiter {
    Limiter {
        limit: start,
        ..Limiter::new(ConcurrencyPolicy::default())
    }
}

/// An attempt that began now gets an overload at once.
fn overload(limiter: &mut Limiter, now: Instant, p50: Duration, in_flight: u32) {
    limiter.on_back_pressure(
        now,
        p50,
        OverloadSignal {
            began: now,
            in_flight,
        },
    );
}

#[test]
fn there_is_no_limit_until_the_first_push_back_and_then_it_is_what_was_in_flight() {
    let now = Instant::now();
    let p50 = Duration::from_secs(1);
    for (in_flight, limit) in [
        (1, 1024),
        (7, 1024),
        (8, 11),
        (16, 11),
        (100, 70),
        (1000, 700),
    ] {
        let mut limiter = Limiter::new(ConcurrencyPolicy::default());
        assert_eq!(limiter.limit(), 1024);
        overload(&mut limiter, now, p50, in_flight);
        assert_eq!(limiter.limit(), limit, "{in_flight} in flight");
    }
}

fn limits(mut limiter: Limiter, times: u64, p50: Duration) -> Vec<u32> {
    let start = Instant::now();
    (0..times)
        .map(|step| {
            overload(
                &mut limiter,
                start + p50 * u32::try_from(step).unwrap(),
                p50,
                16,
            );
            limiter.limit()
        })
        .collect()
}

#[test]
fn back_pressure_lowers_the_limit_by_three_tenths_down_to_one() {
    let limiter = starting_at(16);
    assert_eq!(limiter.limit(), 16);
    assert_eq!(
        limits(limiter, 7, Duration::from_secs(1)),
        [11, 7, 4, 2, 1, 1, 1]
    );
}

#[test]
fn back_pressure_counts_at_most_once_per_median_first_token() {
    let start = Instant::now();
    let p50 = Duration::from_secs(1);
    let mut limiter = starting_at(16);
    for millis in [0, 1, 500, 999] {
        overload(&mut limiter, start + Duration::from_millis(millis), p50, 16);
        assert_eq!(limiter.limit(), 11, "after {millis} ms");
    }
    overload(&mut limiter, start + p50, p50, 16);
    assert_eq!(limiter.limit(), 7);
}

/// Returns a limiter at which so many attempts were in flight when the first of them was refused.
fn refused_of(in_flight: u32, began: Instant) -> Limiter {
    let mut limiter = Limiter::new(ConcurrencyPolicy::default());
    refuse(&mut limiter, began, in_flight);
    assert!(limiter.limit() < 1024);
    limiter
}

/// One of those that began then is refused a moment later.
fn refuse(limiter: &mut Limiter, began: Instant, in_flight: u32) {
    let now = began + Duration::from_millis(20);
    let p50 = Duration::from_secs(1);
    limiter.on_back_pressure(now, p50, OverloadSignal { began, in_flight });
}

#[test]
fn a_limit_is_undone_once_all_that_were_in_flight_are_refused() {
    let began = Instant::now();
    for in_flight in [8_u32, 9, 30, 500] {
        let mut limiter = refused_of(in_flight, began);
        for left in (2..in_flight).rev() {
            refuse(&mut limiter, began, left);
            assert!(limiter.limit() < 1024, "{left} of {in_flight} may pass");
        }
        refuse(&mut limiter, began, 1);
        assert_eq!(limiter.limit(), 1024, "{in_flight}");
        // Those that came after them are about the same trouble, until one passes.
        let after = began + Duration::from_millis(30);
        refuse(&mut limiter, after, in_flight);
        let passes = began + Duration::from_millis(90);
        limiter.on_success(passes, false);
        refuse(&mut limiter, passes - Duration::from_millis(1), in_flight);
        assert_eq!(limiter.limit(), 1024, "{in_flight}");
        refuse(&mut limiter, began + Duration::from_secs(1), in_flight);
        assert!(limiter.limit() < 1024, "{in_flight}");
    }
}

#[test]
fn a_limit_is_kept_while_one_that_was_in_flight_may_have_passed_unless_one_alone_is_refused() {
    let began = Instant::now();
    let mut limiter = refused_of(30, began);
    let limit = limiter.limit();
    for _ in 2..30 {
        refuse(&mut limiter, began, 2);
    }
    // Not one of them: it came after the decrease.
    let after = began + Duration::from_millis(30);
    refuse(&mut limiter, after, 2);
    assert_eq!(limiter.limit(), limit);
    refuse(&mut limiter, after, 1);
    assert_eq!(limiter.limit(), 1024);
}

/// Returns a limiter after an overload: 16 slots were too many, 11 are left.
fn lowered(now: Instant) -> Limiter {
    let mut limiter = starting_at(16);
    overload(&mut limiter, now, Duration::from_secs(1), 16);
    assert_eq!(limiter.limit(), 11);
    limiter
}

#[test]
fn limit_many_successes_at_the_limit_add_one_slot() {
    let start = Instant::now();
    let mut limiter = lowered(start);
    let now = start + Duration::from_secs(1);
    for _ in 0..1000 {
        limiter.on_success(now, false);
    }
    assert_eq!(limiter.limit(), 11, "the limit was never reached");
    for (successes, limit) in [(10, 11), (1, 12), (11, 12), (1, 13)] {
        for _ in 0..successes {
            limiter.on_success(now, true);
        }
        assert_eq!(limiter.limit(), limit);
    }
}

#[test]
fn until_a_target_pushes_back_each_success_at_the_limit_adds_two_slots() {
    let now = Instant::now();
    let mut limiter = starting_at(16);
    for _ in 0..16 {
        limiter.on_success(now, true);
    }
    assert_eq!(limiter.limit(), 48);
    limiter.on_success(now, false);
    assert_eq!(limiter.limit(), 48, "the limit was not reached");
}

#[test]
fn back_pressure_forgets_the_successes_before_it() {
    let start = Instant::now();
    let mut limiter = lowered(start);
    for _ in 0..100 {
        limiter.on_success(start + Duration::from_millis(999), true);
    }
    assert_eq!(limiter.limit(), 11, "these began before the decrease");
    let now = start + Duration::from_secs(1);
    for _ in 0..10 {
        limiter.on_success(now, true);
    }
    assert_eq!(limiter.limit(), 11);
    limiter.on_success(now, true);
    assert_eq!(limiter.limit(), 12);
}

#[test]
fn a_target_that_answers_most_calls_fails_by_chance_and_not_by_too_many_at_once() {
    let start = Instant::now();
    let p50 = Duration::from_millis(600);
    let mut limiter = starting_at(100);
    for step in 0..1000_u32 {
        let now = start + Duration::from_millis(20) * step;
        if step % 10 < 6 && step > 10 {
            overload(&mut limiter, now, p50, 100);
        } else {
            limiter.on_success(now, false);
        }
    }
    assert_eq!(limiter.limit(), 100);
    for step in 0..64_u32 {
        overload(
            &mut limiter,
            start + Duration::from_secs(30) + p50 * step,
            p50,
            100,
        );
    }
    assert_eq!(limiter.limit(), 1, "one that answers nobody has too many");
}

#[test]
fn an_overload_does_not_concern_a_limit_of_which_less_than_half_is_used() {
    let now = Instant::now();
    let mut limiter = starting_at(16);
    overload(&mut limiter, now, Duration::from_secs(1), 7);
    assert_eq!(limiter.limit(), 16);
    overload(&mut limiter, now, Duration::from_secs(1), 8);
    assert_eq!(limiter.limit(), 11);
}

#[test]
fn an_overload_of_an_attempt_from_before_the_last_decrease_is_ignored_however_late_it_comes() {
    let start = Instant::now();
    let p50 = Duration::from_secs(1);
    let mut limiter = starting_at(100);
    let refused = |began: Instant| OverloadSignal {
        began,
        in_flight: 100,
    };
    limiter.on_back_pressure(start + Duration::from_secs(4), p50, refused(start));
    assert_eq!(limiter.limit(), 70);
    for step in 0..50 {
        let began = start + Duration::from_millis(100) * step;
        limiter.on_back_pressure(began + Duration::from_secs(4), p50, refused(began));
    }
    assert_eq!(
        limiter.limit(),
        70,
        "these were sent when a hundred were allowed"
    );
    limiter.on_back_pressure(
        start + Duration::from_secs(9),
        p50,
        refused(start + Duration::from_secs(5)),
    );
    assert_eq!(limiter.limit(), 49);
}

#[test]
fn an_attempt_from_before_an_outage_changes_nothing_after_it() {
    let start = Instant::now();
    let mut limiter = starting_at(16);
    let late = start + Duration::from_secs(4);
    limiter.on_outage(late, true);
    let silent = OverloadSignal {
        began: start,
        in_flight: 100,
    };
    limiter.on_back_pressure(late, Duration::from_secs(1), silent);
    limiter.on_success(start, true);
    assert_eq!(limiter.limit(), 16);
    limiter.on_success(late, true);
    assert_eq!(
        limiter.limit(),
        16,
        "half of where the way led is no more than the start"
    );
    for _ in 0..15 {
        limiter.on_success(late, true);
    }
    assert_eq!(limiter.limit(), 17);
}

#[test]
fn a_large_limit_grows_by_a_sixteenth_a_round() {
    let start = Instant::now();
    let mut limiter = starting_at(200);
    overload(&mut limiter, start, Duration::from_secs(1), 200);
    assert_eq!(limiter.limit(), 140);
    for _ in 0..140 {
        limiter.on_success(start + Duration::from_secs(1), true);
    }
    assert_eq!(limiter.limit(), 148);
}

#[test]
fn after_silence_the_way_up_begins_anew_and_is_fast_up_to_half_of_where_it_led() {
    let now = Instant::now();
    let mut limiter = starting_at(16);
    for _ in 0..42 {
        limiter.on_success(now, true);
    }
    assert_eq!(limiter.limit(), 100);
    limiter.on_outage(now, true);
    assert_eq!(limiter.limit(), 16);
    for _ in 0..17 {
        limiter.on_success(now, true);
    }
    assert_eq!(limiter.limit(), 50);
    for _ in 0..49 {
        limiter.on_success(now, true);
    }
    assert_eq!(limiter.limit(), 50);
    limiter.on_success(now, true);
    assert_eq!(limiter.limit(), 53);
}

#[test]
fn decreases_during_an_outage_are_undone_and_earlier_ones_are_not() {
    let start = Instant::now();
    let p50 = Duration::from_secs(1);
    let mut limiter = lowered(start);
    let outage = start + Duration::from_mins(1);
    for step in 0..3_u32 {
        overload(&mut limiter, outage + p50 * step, p50, 16);
    }
    assert_eq!(limiter.limit(), 2);
    limiter.on_outage(outage + p50 * 3, false);
    assert_eq!(limiter.limit(), 11);
    limiter.on_outage(outage + p50 * 4, false);
    assert_eq!(limiter.limit(), 11, "there is nothing left to unlearn");
}

#[test]
fn decreases_that_follow_each_other_are_one_trouble_however_long_it_lasts() {
    let start = Instant::now();
    let mut limiter = starting_at(16);
    for seconds in [0, 20, 40] {
        overload(
            &mut limiter,
            start + Duration::from_secs(seconds),
            Duration::from_secs(1),
            16,
        );
    }
    assert_eq!(limiter.limit(), 4);
    limiter.on_outage(start + Duration::from_mins(1), false);
    assert_eq!(limiter.limit(), 16);
}

#[test]
fn the_limit_stays_below_the_maximum() {
    let now = Instant::now();
    let mut limiter = starting_at(16);
    limiter.policy.max = 17;
    for _ in 0..1000 {
        limiter.on_success(now, true);
    }
    assert_eq!(limiter.limit(), 17);
    limiter.reconfigure(ConcurrencyPolicy {
        max: 1,
        ..ConcurrencyPolicy::default()
    });
    assert_eq!(limiter.limit(), 1);
    limiter.reconfigure(ConcurrencyPolicy {
        enabled: false,
        ..ConcurrencyPolicy::default()
    });
    assert_eq!(limiter.limit(), u32::MAX);
}

#[test]
fn other_numbers_are_the_limit_at_once_where_the_target_taught_none() {
    let policy = |max| ConcurrencyPolicy {
        max,
        ..ConcurrencyPolicy::default()
    };
    let mut limiter = Limiter::new(policy(2));
    for max in [100, 9, 90, 30] {
        limiter.reconfigure(policy(max));
        assert_eq!(limiter.limit(), max);
    }
    let now = Instant::now();
    limiter.on_back_pressure(
        now,
        Duration::ZERO,
        OverloadSignal {
            began: now,
            in_flight: 30,
        },
    );
    limiter.reconfigure(policy(100));
    assert_eq!(limiter.limit(), 21, "what was learned stays");
}

#[test]
fn nonsense_is_named_by_its_field() {
    for (max, seconds, expected) in [
        (0, 601, &["max", "max_queue_wait"][..]),
        (100_001, 600, &["max"]),
        (1, 600, &[]),
        (100_000, 0, &[]),
    ] {
        let policy = ConcurrencyPolicy {
            max,
            max_queue_wait: Duration::from_secs(seconds),
            ..ConcurrencyPolicy::default()
        };
        let fields: Vec<_> = policy
            .validate()
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        assert_eq!(fields, expected);
    }
}

#[test]
fn one_answer_in_five_is_chance_and_less_is_not() {
    let now = Instant::now();
    let mut limiter = starting_at(16);
    limiter.on_success(now, false);
    for (word, limit) in [(1, 16), (2, 16), (3, 16), (4, 11)] {
        overload(&mut limiter, now, Duration::from_secs(1), 16);
        assert_eq!(limiter.limit(), limit, "after {word} to one answer");
    }
}

#[test]
fn old_overloads_weigh_less_and_less() {
    let now = Instant::now();
    let mut limiter = starting_at(16);
    for _ in 0..40 {
        limiter.on_success(now, false);
    }
    let lasted = (1..1000).find(|_| {
        overload(&mut limiter, now, Duration::from_secs(1), 16);
        limiter.limit() < 16
    });
    assert_eq!(
        lasted,
        Some(74),
        "40 answers would outweigh 160 words, if they weighed as much as newer ones"
    );
}

#[test]
fn a_decrease_of_half_a_minute_ago_is_another_trouble() {
    for (seconds, limit) in [(29, 16), (30, 11)] {
        let now = Instant::now();
        let mut limiter = lowered(now);
        limiter.on_outage(now + Duration::from_secs(seconds), false);
        assert_eq!(limiter.limit(), limit, "{seconds} s later");
    }
}

#[test]
fn only_a_limit_or_an_overload_that_the_target_reports_is_back_pressure() {
    for class in FailureClass::ALL {
        let expected = matches!(class, FailureClass::RateLimited | FailureClass::Overloaded);
        assert_eq!(
            is_back_pressure(&Failure::local(class, "")),
            expected,
            "{class}"
        );
    }
    for (fault, expected) in [
        (TransportFault::Deadline, false),
        (TransportFault::Cancelled, false),
        (TransportFault::Reset, true),
    ] {
        let failure = Failure {
            fault: Some(fault),
            ..Failure::local(FailureClass::Overloaded, "")
        };
        assert_eq!(is_back_pressure(&failure), expected, "{fault:?}");
    }
}

proptest::proptest! {
    /// Replicas that share a limit have together at most that, but each at least one slot, whatever
    /// came before; alone again, one has all of it.
    #[test]
    fn replicas_share_the_largest_limit(max in 1_u32..2000, counts in proptest::collection::vec(1_u32..30, 1..6)) {
        let now = Instant::now();
        let policy = ConcurrencyPolicy { max, ..ConcurrencyPolicy::default() };
        let mut limiter = Limiter::new(policy.clone());
        for replicas in counts {
            limiter.share_with(replicas);
            let all = limiter.limit() * replicas;
            proptest::prop_assert!(all <= max.max(replicas), "{replicas} replicas have {all} of {max}");
            proptest::prop_assert!(all + replicas > max, "{replicas} replicas have {all} of {max}");
            for _ in 0..50 {
                limiter.on_success(now, true);
            }
            proptest::prop_assert!(limiter.limit() * replicas <= max.max(replicas));
            limiter.reconfigure(policy.clone());
        }
        limiter.share_with(1);
        proptest::prop_assert_eq!(limiter.limit(), max);
    }
}
