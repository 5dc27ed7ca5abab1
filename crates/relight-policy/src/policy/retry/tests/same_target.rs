//! Whether the target that failed is called again or another one.

use super::*;

#[test]
fn a_target_may_be_stayed_with_once_where_time_mends_its_failure() {
    let now = Instant::now();
    let policy = RetryPolicy {
        prefer_same_target: s(4),
        ..plain()
    };
    for (failure, retries_made, expected) in [
        (failure(FailureClass::ServerError), 0, "a"),
        (failure(FailureClass::Network), 0, "b"),
        (stated(FailureClass::RateLimited, 2), 0, "a"),
        (stated(FailureClass::RateLimited, 5), 0, "b"),
        (failure(FailureClass::RateLimited), 0, "b"),
        (failure(FailureClass::Overloaded), 0, "b"),
        (failure(FailureClass::Timeout), 0, "b"),
        (failure(FailureClass::ServerError), 1, "b"),
    ] {
        for failing in [false, true] {
            let candidates = [
                Candidate {
                    failing,
                    ..called_once()
                },
                fresh("b"),
            ];
            let situation = Situation {
                retries_made,
                ..Situation::new(now, now + s(60), &failure, &candidates)
            };
            let (target, ..) = again(decide(&policy, &situation));
            let expected = if failing { "b" } else { expected };
            assert_eq!(
                target, expected,
                "{} after {retries_made}, failing: {failing}",
                failure.class
            );
        }
    }
}

#[test]
fn a_target_with_two_unusable_answers_is_called_after_the_others() {
    let now = Instant::now();
    let failure = failure(FailureClass::MalformedResponse);
    for (attempts, expected) in [(1, "a"), (2, "b")] {
        let candidates = [
            Candidate {
                attempts,
                ..called_once()
            },
            fresh("b"),
        ];
        let situation = Situation {
            retries_made: attempts - 1,
            ..Situation::new(now, now + s(60), &failure, &candidates)
        };
        let (target, ..) = again(decide(&plain(), &situation));
        assert_eq!(target, expected, "after {attempts} attempts");
    }
}

#[test]
fn one_that_failed_twice_is_called_before_a_closed_one_is_waited_for_unless_its_answers_are_flawed()
{
    let now = Instant::now();
    let closed_for = |wait| Candidate {
        availability: Availability::At(now + wait),
        ..fresh("b")
    };
    let target = |class, wait| {
        let candidates = [
            Candidate {
                attempts: 2,
                ..called_once()
            },
            closed_for(wait),
        ];
        let failure = failure(class);
        let situation = Situation {
            retries_made: 1,
            ..Situation::new(now, now + s(60), &failure, &candidates)
        };
        match decide(&plain(), &situation) {
            Decision::Again { target_hint, .. } => target_hint,
            Decision::Park { target, .. } => Some(target),
            Decision::Stop(_) => None,
        }
        .expect("a target")
    };
    for class in [
        FailureClass::Overloaded,
        FailureClass::ServerError,
        FailureClass::Network,
    ] {
        assert_eq!(target(class, s(30)).as_str(), "a", "{class}");
        assert_eq!(target(class, ms(1)).as_str(), "b", "{class}");
    }
    let flawed = FailureClass::MalformedResponse;
    assert_eq!(target(flawed, s(30)).as_str(), "b");
}

#[test]
fn after_a_target_was_stayed_with_in_vain_an_untried_other_is_called_at_once_unless_it_fails_others()
 {
    let now = Instant::now();
    let server = failure(FailureClass::ServerError);
    for failing in [true, false] {
        let candidates = [
            Candidate {
                attempts: 2,
                failing: true,
                ..called_once()
            },
            Candidate {
                failing,
                ..fresh("b")
            },
        ];
        let situation = Situation {
            retries_made: 1,
            ..Situation::new(now, now + s(60), &server, &candidates)
        };
        let (target, wait, ..) = again(decide(&plain(), &situation));
        assert_eq!(
            (target.as_str(), wait.duration <= ms(50)),
            ("b", !failing),
            "{wait:?}"
        );
    }
}

#[test]
fn a_target_is_stayed_with_only_where_retries_are_left_for_the_others() {
    let now = Instant::now();
    let server = failure(FailureClass::ServerError);
    let candidates = [called_once(), fresh("b")];
    for (max_retries, target) in [(1, "b"), (2, "a")] {
        let policy = RetryPolicy {
            max_retries,
            ..plain()
        };
        assert_eq!(
            again(decide(
                &policy,
                &Situation::new(now, now + s(60), &server, &candidates)
            ))
            .0,
            target
        );
    }
}

#[test]
fn one_that_fell_silent_is_called_after_all_others_even_if_it_wrote_what_was_sent() {
    let now = Instant::now();
    let stalled = Failure {
        fault: Some(TransportFault::IdleTimeout),
        ..failure(FailureClass::StreamInterrupted)
    };
    let candidates = [
        Candidate {
            failed_silent: true,
            ..called_once()
        },
        fresh("b"),
    ];
    let situation = Situation {
        relayed: Relayed::AppendOnly,
        ..Situation::new(now, now + s(60), &stalled, &candidates)
    };
    let (target, wait, ..) = again(decide(&plain(), &situation));
    assert_eq!((target.as_str(), wait.duration <= ms(50)), ("b", true));
}

#[test]
fn a_call_that_was_only_told_to_come_later_uses_up_no_retry() {
    let now = Instant::now();
    let limit = failure(FailureClass::RateLimited);
    let candidates = [Candidate {
        attempts: 4,
        ..called_once()
    }];
    for (limited_made, uniform_waits, goes_on) in [
        (4, false, true),
        (10, false, true),
        (11, false, false),
        (4, true, true),
    ] {
        let policy = RetryPolicy {
            uniform_waits,
            ..plain()
        };
        let situation = Situation {
            limited_made,
            ..Situation::new(now, now + s(600), &limit, &candidates)
        };
        let decided = decide(&policy, &situation);
        assert_eq!(
            matches!(decided, Decision::Again { .. }),
            goes_on,
            "{limited_made}: {decided:?}"
        );
    }
}
