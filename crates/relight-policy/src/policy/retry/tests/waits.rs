//! How long the waits are, and when something else is done instead.

use super::*;

#[test]
fn the_same_target_is_waited_for_longer_after_each_of_its_failures() {
    let now = Instant::now();
    let policy = RetryPolicy {
        max_retries: 5,
        ..plain()
    };
    for (class, attempts, wait) in [
        (FailureClass::ServerError, 1, s(1)),
        (FailureClass::ServerError, 2, s(2)),
        (FailureClass::ServerError, 4, s(8)),
        (FailureClass::Overloaded, 1, s(1)),
        (FailureClass::RateLimited, 3, s(4)),
        (FailureClass::Unknown, 1, s(1)),
    ] {
        let failure = failure(class);
        let candidates = [Candidate {
            attempts,
            failing: true,
            ..called_once()
        }];
        let situation = Situation {
            retries_made: attempts - 1,
            ..Situation::new(now, now + s(600), &failure, &candidates)
        };
        let (target, planned, strategy, _) = again(decide(&policy, &situation));
        assert_eq!((target.as_str(), strategy), ("a", RecoveryStrategy::Retry));
        assert_eq!(
            planned,
            Wait {
                duration: wait,
                source: WaitSource::Backoff
            },
            "{class} after {attempts}"
        );
    }
}

#[test]
fn uniform_waits_are_those_of_backoff_whatever_failed() {
    let now = Instant::now();
    let policy = RetryPolicy {
        uniform_waits: true,
        retry_crash: true,
        max_retries: 3,
        ..plain()
    };
    for class in [
        FailureClass::RateLimited,
        FailureClass::Overloaded,
        FailureClass::ServerError,
        FailureClass::Timeout,
        FailureClass::Network,
        FailureClass::Crash,
        FailureClass::Unknown,
    ] {
        for (attempts, wait) in [(1, s(1)), (2, s(2)), (3, s(4))] {
            let failure = Failure {
                never_sent: class == FailureClass::Network,
                ..failure(class)
            };
            let candidates = [Candidate {
                attempts,
                failing: true,
                ..called_once()
            }];
            let situation = Situation {
                retries_made: attempts - 1,
                ..Situation::new(now, now + s(600), &failure, &candidates)
            };
            assert_eq!(
                again(decide(&policy, &situation)).1.duration,
                wait,
                "{class} after {attempts}"
            );
        }
    }
    for (seconds, min, max) in [(3, s(3), s(4)), (0, s(1), s(1)), (3600, s(300), s(360))] {
        let failure = stated(FailureClass::RateLimited, seconds);
        let candidates = [called_once()];
        let situation = Situation::new(now, now + s(900), &failure, &candidates);
        let wait = again(decide(&policy, &situation)).1.duration;
        assert!(
            min <= wait && wait <= max,
            "{seconds} s were stated, {wait:?} is waited"
        );
    }
}

#[test]
fn throttling_has_its_own_cap() {
    let now = Instant::now();
    let candidates = [Candidate {
        attempts: 30,
        failing: true,
        ..called_once()
    }];
    for (class, wait) in [
        (FailureClass::RateLimited, s(20)),
        (FailureClass::ServerError, s(32)),
    ] {
        let failure = failure(class);
        let situation = Situation::new(now, now + s(600), &failure, &candidates);
        assert_eq!(
            again(decide(&plain(), &situation)).1.duration,
            wait,
            "{class}"
        );
    }
}

#[test]
fn another_target_that_is_free_is_called_within_fifty_milliseconds() {
    let failing = Candidate {
        failing: true,
        ..called_once()
    };
    let (target, wait, strategy, cost) = again(after(
        &failure(FailureClass::ServerError),
        &[failing, fresh("b")],
    ));
    assert_eq!(
        (target.as_str(), strategy, cost),
        ("b", RecoveryStrategy::Fallback, Cost::Transient)
    );
    assert_eq!(
        wait,
        Wait {
            duration: ms(50).mul_f64(samples().1),
            source: WaitSource::Backoff
        }
    );
}

#[test]
fn a_target_that_failed_before_is_waited_for_like_the_one_that_just_failed() {
    let now = Instant::now();
    let failure = Failure {
        target: Some(TargetId::from("b")),
        ..failure(FailureClass::ServerError)
    };
    let candidates = [
        called_once(),
        Candidate {
            attempts: 1,
            failing: true,
            ..fresh("b")
        },
    ];
    let candidates = candidates.map(|one| Candidate {
        failing: true,
        ..one
    });
    let situation = Situation {
        retries_made: 0,
        ..Situation::new(now, now + s(60), &failure, &candidates)
    };
    let (_, wait, ..) = again(decide(&plain(), &situation));
    assert_eq!(wait.duration, s(1));
}

#[test]
fn a_request_that_was_never_sent_is_sent_at_once_and_free_the_first_time_only() {
    let now = Instant::now();
    let unsent = Failure {
        never_sent: true,
        ..failure(FailureClass::Network)
    };
    let candidates = [called_once()];
    let situation = Situation::new(now, now + s(60), &unsent, &candidates);
    let (target, wait, _, cost) = again(decide(&plain(), &situation));
    assert_eq!(
        (target.as_str(), wait.duration, cost),
        ("a", Duration::ZERO, Cost::Free)
    );
    let candidates = [Candidate {
        attempts: 2,
        failing: true,
        ..called_once()
    }];
    let situation = Situation {
        unsent_made: 2,
        candidates: &candidates,
        ..situation
    };
    let (_, wait, _, cost) = again(decide(
        &RetryPolicy {
            max_retries: 3,
            ..plain()
        },
        &situation,
    ));
    assert_eq!((wait.duration, cost), (s(2), Cost::Transient));
}

#[test]
fn a_request_that_was_never_sent_goes_to_an_untried_other_and_the_last_attempt_waits() {
    let now = Instant::now();
    let unsent = Failure {
        never_sent: true,
        ..failure(FailureClass::Network)
    };
    for (healthy, expected) in [(true, "b"), (false, "a")] {
        let other = Candidate {
            healthy,
            ..fresh("b")
        };
        let candidates = [called_once(), other];
        let situation = Situation::new(now, now + s(60), &unsent, &candidates);
        let (target, wait, _, cost) = again(decide(&plain(), &situation));
        assert_eq!((target.as_str(), cost), (expected, Cost::Free));
        assert!(wait.duration <= ms(50), "{wait:?}");
    }
    let called = |name| Candidate {
        attempts: 1,
        ..fresh(name)
    };
    let candidates = [called("a"), called("b")];
    let target = TargetId::from("b");
    let situation = Situation {
        failed_target: Some(&target),
        unsent_made: 2,
        ..Situation::new(now, now + s(60), &unsent, &candidates)
    };
    let (_, wait, ..) = again(decide(&plain(), &situation));
    assert!(wait.duration >= s(1), "{wait:?}");
}

#[test]
fn overload_and_timeouts_prefer_another_target_and_a_rate_limit_costs_nothing() {
    for (class, cost) in [
        (FailureClass::Overloaded, Cost::Throttle),
        (FailureClass::Timeout, Cost::Transient),
    ] {
        // Not sent, so that the same target could be called without any wait: still another one
        // comes first.
        let failure = Failure {
            never_sent: true,
            ..failure(class)
        };
        let now = Instant::now();
        let candidates = [
            Candidate {
                attempts: 2,
                ..called_once()
            },
            Candidate {
                healthy: false,
                ..fresh("b")
            },
        ];
        let situation = Situation {
            retries_made: 1,
            unsent_made: 2,
            ..Situation::new(now, now + s(60), &failure, &candidates)
        };
        let (target, _, _, planned) = again(decide(&plain(), &situation));
        assert_eq!((target.as_str(), planned), ("b", cost), "{class}");
        let first = Situation {
            retries_made: 0,
            ..situation
        };
        assert_eq!(again(decide(&plain(), &first)).0, "b", "{class}");
    }
    assert_eq!(
        again(after(&failure(FailureClass::RateLimited), &[called_once()])).3,
        Cost::Free
    );
}

#[test]
fn other_first_does_not_mean_to_wait_for_another() {
    let now = Instant::now();
    let overloaded = failure(FailureClass::Overloaded);
    let called_once = Candidate {
        failing: true,
        ..called_once()
    };
    let candidates = [
        called_once,
        Candidate {
            availability: Availability::At(now + s(30)),
            ..fresh("b")
        },
    ];
    let (target, wait, ..) = again(decide(
        &plain(),
        &Situation::new(now, now + s(60), &overloaded, &candidates),
    ));
    assert_eq!((target.as_str(), wait.duration), ("a", s(1)));
}

#[test]
fn nothing_is_begun_without_room_for_the_first_token() {
    let now = Instant::now();
    let server = failure(FailureClass::ServerError);
    for (p50, left, begun) in [
        (ms(700), ms(1700), true),
        (ms(700), ms(1699), false),
        (ms(10), ms(1300), true),
        (ms(10), ms(1299), false),
    ] {
        let candidates = [Candidate {
            first_token_p50: p50,
            failing: true,
            ..called_once()
        }];
        let decision = decide(
            &plain(),
            &Situation::new(now, now + left, &server, &candidates),
        );
        if begun {
            assert_eq!(again(decision).1.duration, s(1));
        } else {
            let needed = s(1) + p50.max(ms(300));
            assert_eq!(
                decision,
                Decision::Stop(StopReason::DeadlineTooClose { needed })
            );
        }
    }
}

#[test]
fn where_the_wait_does_not_fit_a_slower_choice_that_fits_is_taken() {
    let now = Instant::now();
    let malformed = failure(FailureClass::MalformedResponse);
    let slow = Candidate {
        first_token_p50: s(5),
        ..called_once()
    };
    let candidates = [
        slow,
        Candidate {
            healthy: false,
            first_token_p50: ms(400),
            ..fresh("b")
        },
    ];
    let situation = Situation::new(now, now + s(2), &malformed, &candidates);
    assert_eq!(again(decide(&plain(), &situation)).0, "b");
}

#[test]
fn the_target_that_could_finish_first_decides_how_much_time_was_needed() {
    let now = Instant::now();
    let server = failure(FailureClass::ServerError);
    let candidates = [
        Candidate {
            failing: true,
            ..called_once()
        },
        Candidate {
            first_token_p50: s(5),
            ..fresh("b")
        },
    ];
    let decision = decide(
        &plain(),
        &Situation::new(now, now + s(1), &server, &candidates),
    );
    let needed = s(1) + candidates[0].first_token_p50.max(ms(300));
    assert_eq!(
        decision,
        Decision::Stop(StopReason::DeadlineTooClose { needed })
    );
}

#[test]
fn a_lone_failure_is_waited_for_shortly_and_an_outage_for_long_before_the_last_attempt() {
    let now = Instant::now();
    let server = failure(FailureClass::ServerError);
    for (failing, erratic, retries_made, wait) in [
        (false, false, 0, ms(100)),
        (true, false, 0, s(1)),
        (false, true, 1, ms(100)),
        (false, false, 1, s(5)),
        (true, false, 1, s(5)),
    ] {
        let candidates = [Candidate {
            failing,
            erratic,
            ..called_once()
        }];
        let situation = Situation {
            retries_made,
            ..Situation::new(now, now + s(60), &server, &candidates)
        };
        let (_, planned, ..) = again(decide(&plain(), &situation));
        assert_eq!(
            planned.duration, wait,
            "failing: {failing}, erratic: {erratic}, after {retries_made}"
        );
    }
    let candidates = [Candidate {
        failing: true,
        ..called_once()
    }];
    let situation = Situation {
        retries_made: 1,
        ..Situation::new(now, now + s(4), &server, &candidates)
    };
    assert_eq!(
        again(decide(&plain(), &situation)).1.duration,
        s(3),
        "what the deadline leaves"
    );
    let situation = Situation {
        failing_since: now - s(3),
        deadline: now + s(60),
        ..situation
    };
    assert_eq!(
        again(decide(&plain(), &situation)).1.duration,
        s(2),
        "the rest of an outage that began with the first failure"
    );
}

#[test]
fn where_every_target_failed_the_last_attempt_is_made_after_a_wait_whatever_was_stated() {
    let now = Instant::now();
    let candidates = [
        called_once(),
        Candidate {
            attempts: 1,
            ..fresh("b")
        },
    ];
    for failure in [
        failure(FailureClass::ServerError),
        stated(FailureClass::ServerError, 1),
    ] {
        let situation = Situation {
            retries_made: 1,
            ..Situation::new(now, now + s(60), &failure, &candidates)
        };
        let (_, wait, ..) = again(decide(&plain(), &situation));
        assert!(wait.duration >= s(5), "{wait:?} after {}", failure.class);
    }
}

#[test]
fn silence_is_not_waited_for_once_more() {
    let silent = Failure {
        fault: Some(TransportFault::FirstTokenTimeout),
        ..failure(FailureClass::Timeout)
    };
    assert!(
        again(after(
            &silent,
            &[Candidate {
                failing: true,
                ..called_once()
            }]
        ))
        .1
        .duration
            <= ms(50)
    );
    let now = Instant::now();
    let candidates = [
        Candidate {
            attempts: 2,
            ..called_once()
        },
        fresh("b"),
    ];
    let situation = Situation {
        retries_made: 1,
        ..Situation::new(now, now + s(60), &silent, &candidates)
    };
    let (target, wait, ..) = again(decide(&plain(), &situation));
    assert_eq!(target, "b");
    assert!(wait.duration <= ms(50), "{wait:?}");
}
