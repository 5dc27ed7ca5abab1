//! Waits that a provider states: at least as long, and another target where they end too late.

use super::*;

#[test]
fn a_stated_wait_is_a_minimum_with_a_second_or_a_fifth_of_spread() {
    let now = Instant::now();
    for (stated_seconds, min, spread) in [
        (2, s(2), s(1)),
        (5, s(5), s(1)),
        (40, s(40), s(8)),
        (3600, s(300), s(60)),
    ] {
        let limited = stated(FailureClass::RateLimited, stated_seconds);
        let candidates = [called_once()];
        let situation = Situation::new(now, now + s(1000), &limited, &candidates);
        let (_, wait, ..) = again(decide(&plain(), &situation));
        assert_eq!(wait.source, WaitSource::RetryAfter);
        assert_eq!(
            wait.duration,
            min + spread.mul_f64(samples().0),
            "{stated_seconds} s"
        );
    }
}

#[test]
fn a_stated_wait_of_nothing_is_no_statement() {
    let now = Instant::now();
    let candidates = [called_once()];
    let limited = stated(FailureClass::RateLimited, 0);
    let (_, wait, ..) = again(decide(
        &plain(),
        &Situation::new(now, now + s(60), &limited, &candidates),
    ));
    assert_eq!(
        wait,
        Wait {
            duration: s(1),
            source: WaitSource::Backoff
        }
    );
}

#[test]
fn a_stated_wait_beyond_the_deadline_means_another_target_now_or_the_time() {
    let limited = stated(FailureClass::RateLimited, 90);
    assert_eq!(again(after(&limited, &[called_once(), fresh("b")])).0, "b");
    let expected = s(90) + s(18).mul_f64(samples().0);
    assert_eq!(
        after(&limited, &[called_once()]),
        Decision::Stop(StopReason::NoTarget {
            retry_in: Some(expected)
        })
    );
}

#[test]
fn a_call_that_was_told_a_wait_waits_by_itself_whatever_the_gate_says() {
    let now = Instant::now();
    let limited = stated(FailureClass::RateLimited, 10);
    for gate in [s(1), ms(11_900), s(13)] {
        let candidates = [Candidate {
            availability: Availability::At(now + gate),
            ..called_once()
        }];
        let decided = |deadline| {
            decide(
                &plain(),
                &Situation::new(now, now + deadline, &limited, &candidates),
            )
        };
        let (target, wait, ..) = again(decided(s(60)));
        assert_eq!(
            (target.as_str(), wait.source),
            ("a", WaitSource::RetryAfter)
        );
        assert!(wait.duration >= s(10) && wait.duration <= s(12), "{wait:?}");
        assert!(matches!(decided(s(10)), Decision::Stop(_)), "too late");
    }
}

#[test]
fn a_stated_wait_that_the_gate_keeps_too_is_no_parking() {
    let now = Instant::now();
    let policy = RetryPolicy {
        park: ParkPolicy { enabled: false },
        ..plain()
    };
    let limited = stated(FailureClass::RateLimited, 2);
    let candidates = [Candidate {
        availability: Availability::At(now + s(2)),
        ..called_once()
    }];
    let (target, wait, ..) = again(decide(
        &policy,
        &Situation::new(now, now + s(60), &limited, &candidates),
    ));
    assert_eq!(target, "a");
    assert!(wait.duration >= s(2));
}
