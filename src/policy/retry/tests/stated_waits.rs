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
fn a_gate_that_closed_for_the_stated_wait_is_waited_for_as_one_wait() {
    let now = Instant::now();
    let limited = stated(FailureClass::RateLimited, 10);
    for (gate, parked) in [(ms(11_900), false), (s(13), true)] {
        let candidates = [Candidate {
            availability: Availability::At(now + gate),
            ..called_once()
        }];
        match decide(
            &plain(),
            &Situation::new(now, now + s(60), &limited, &candidates),
        ) {
            Decision::Again { wait, .. } => {
                assert!(!parked, "{gate:?}");
                assert_eq!(
                    wait,
                    Wait {
                        duration: gate,
                        source: WaitSource::RetryAfter
                    }
                );
            }
            Decision::Park { until, .. } => assert!(parked && until >= now + gate, "{gate:?}"),
            Decision::Stop(reason) => panic!("{reason:?}"),
        }
    }
}

#[test]
fn a_stated_wait_that_the_gate_keeps_too_is_no_parking() {
    let now = Instant::now();
    let policy = RetryPolicy {
        park: ParkPolicy {
            enabled: false,
            ..ParkPolicy::default()
        },
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
