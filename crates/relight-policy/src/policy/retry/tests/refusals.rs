//! What follows when Relight itself refused: no target failed, so nothing is counted and nothing
//! hides an upstream failure.

use super::*;

fn refusal(class: FailureClass) -> Failure {
    Failure {
        target: Some(TargetId::from("a")),
        ..Failure::local(class, "refused")
    }
}

/// Returns a minute before the deadline, target `a` refused and no call was made before.
fn refused<'a>(failure: &'a Failure, candidates: &'a [Candidate], now: Instant) -> Situation<'a> {
    Situation {
        refusals: 1,
        ..Situation::new(now, now + s(60), failure, candidates)
    }
}

fn opens_in(name: &str, now: Instant, wait: Duration) -> Candidate {
    Candidate {
        availability: Availability::At(now + wait),
        ..fresh(name)
    }
}

#[test]
fn a_first_attempt_that_was_refused_goes_to_a_free_target_and_costs_nothing() {
    let now = Instant::now();
    let open = refusal(FailureClass::CircuitOpen);
    let candidates = [opens_in("a", now, s(5)), fresh("b")];
    // Even where retries are switched off: this is still the first attempt.
    for preset in ["standard", "none"] {
        let policy = RetryPolicy::preset(preset).unwrap();
        let (target, wait, strategy, cost) =
            again(decide(&policy, &refused(&open, &candidates, now)));
        assert_eq!(
            (target.as_str(), strategy, cost),
            ("b", RecoveryStrategy::Fallback, Cost::Free),
            "{preset}"
        );
        assert!(wait.duration < ms(50));
    }
}

#[test]
fn where_no_target_is_free_the_call_parks_until_the_first_one_returns() {
    let now = Instant::now();
    let open = refusal(FailureClass::CircuitOpen);
    let candidates = [opens_in("a", now, s(5)), opens_in("b", now, s(3))];
    let Decision::Park { until, target, .. } =
        decide(&RetryPolicy::default(), &refused(&open, &candidates, now))
    else {
        panic!("should park");
    };
    assert_eq!(target.as_str(), "b");
    assert_eq!(
        until,
        now + s(3) + ms(50).mul_f64(samples().1),
        "spread, so that not all come at once"
    );
}

#[test]
fn a_target_that_returns_too_late_means_failing_now_with_the_time() {
    let now = Instant::now();
    let open = refusal(FailureClass::CircuitOpen);
    let candidates = [opens_in("a", now, ms(59_800))];
    let Decision::Stop(StopReason::NoTarget {
        retry_in: Some(wait),
    }) = decide(&RetryPolicy::default(), &refused(&open, &candidates, now))
    else {
        panic!("should stop");
    };
    assert!(wait >= ms(59_800) && wait < ms(59_850), "{wait:?}");
    let gone = [Candidate {
        availability: Availability::Never,
        ..fresh("a")
    }];
    let decision = decide(&RetryPolicy::default(), &refused(&open, &gone, now));
    assert_eq!(
        decision,
        Decision::Stop(StopReason::NoTarget { retry_in: None })
    );
}

#[test]
fn without_parking_or_beyond_its_bound_the_call_fails_with_the_time() {
    let now = Instant::now();
    let open = refusal(FailureClass::CircuitOpen);
    for (enabled, opens) in [(false, 5), (true, 301)] {
        let candidates = [opens_in("a", now, s(opens))];
        let policy = RetryPolicy {
            park: ParkPolicy { enabled },
            ..RetryPolicy::default()
        };
        let situation = Situation {
            deadline: now + s(600),
            ..refused(&open, &candidates, now)
        };
        let decision = decide(&policy, &situation);
        assert!(
            matches!(
                decision,
                Decision::Stop(StopReason::NoTarget { retry_in: Some(_) })
            ),
            "{decision:?}"
        );
    }
}

#[test]
fn after_an_upstream_failure_a_refusal_keeps_that_failures_recovery_options() {
    let now = Instant::now();
    let open = Failure {
        target: Some(TargetId::from("b")),
        ..refusal(FailureClass::CircuitOpen)
    };
    let key = failure(FailureClass::Authentication);
    let b = opens_in("b", now, s(5));
    let candidates = [called_once(), b.clone()];
    let situation = Situation {
        decisive: Some(&key),
        ..refused(&open, &candidates, now)
    };
    // `a` is free, but its credential was refused: only `b` may help.
    let decision = decide(&RetryPolicy::default(), &situation);
    assert!(
        matches!(&decision, Decision::Park { target, .. } if target.as_str() == "b"),
        "{decision:?}"
    );
    let candidates = [called_once(), b, fresh("c")];
    let (target, _, _, cost) = again(decide(
        &RetryPolicy::default(),
        &Situation {
            candidates: &candidates,
            ..situation
        },
    ));
    assert_eq!(
        (target.as_str(), cost),
        ("c", Cost::Transient),
        "it is a retry, and pays"
    );
}

#[test]
fn after_a_real_failure_a_refusal_needs_an_attempt_left() {
    let now = Instant::now();
    let open = refusal(FailureClass::CircuitOpen);
    let server = failure(FailureClass::ServerError);
    let candidates = [called_once(), fresh("b")];
    let situation = Situation {
        decisive: Some(&server),
        retries_made: 2,
        ..refused(&open, &candidates, now)
    };
    assert_eq!(
        decide(&RetryPolicy::default(), &situation),
        Decision::Stop(StopReason::AttemptsUsedUp)
    );
}

#[test]
fn an_empty_budget_means_another_target_or_the_end_and_never_a_wait_for_the_budget() {
    let now = Instant::now();
    let empty = refusal(FailureClass::BudgetEmpty);
    let server = failure(FailureClass::ServerError);
    let candidates = [called_once(), fresh("b")];
    let situation = Situation {
        decisive: Some(&server),
        ..refused(&empty, &candidates, now)
    };
    assert_eq!(again(decide(&RetryPolicy::default(), &situation)).0, "b");
    let situation = Situation {
        candidates: &candidates[..1],
        ..situation
    };
    assert_eq!(
        decide(&RetryPolicy::default(), &situation),
        Decision::Stop(StopReason::BudgetEmpty)
    );
}

#[test]
fn a_deadline_that_is_reached_ends_it() {
    let now = Instant::now();
    let deadline = refusal(FailureClass::Deadline);
    let candidates = [fresh("a"), fresh("b")];
    let decision = decide(
        &RetryPolicy::default(),
        &refused(&deadline, &candidates, now),
    );
    assert!(matches!(
        decision,
        Decision::Stop(StopReason::DeadlineTooClose { .. })
    ));
}

#[test]
fn a_target_that_refuses_though_it_seems_free_is_not_called_in_a_hot_loop() {
    let now = Instant::now();
    let shed = refusal(FailureClass::Shed);
    let alone = [fresh("a")];
    let wait = |refusals, candidates: &[Candidate]| {
        let situation = Situation {
            refusals,
            candidates,
            ..refused(&shed, &[], now)
        };
        again(decide(&RetryPolicy::default(), &situation))
    };
    let spread = ms(50).mul_f64(samples().1);
    assert_eq!(wait(1, &alone).1.duration, ms(25) + spread);
    assert_eq!(wait(4, &alone).1.duration, ms(100) + spread);
    assert_eq!(wait(4000, &alone).1.duration, s(1) + spread);
    // Another one is free: it has its turn first, but two that refuse in turn are not called for
    // ever either.
    let both = [fresh("a"), fresh("b")];
    assert_eq!(
        (wait(1, &both).0.as_str(), wait(1, &both).1.duration),
        ("b", spread)
    );
    assert_eq!(wait(6, &both).1.duration, ms(100) + spread);
}

#[test]
fn without_parking_no_call_waits_for_a_target_that_refused_however_short_the_wait_is() {
    let mut policy = RetryPolicy::default();
    policy.park.enabled = false;
    let now = Instant::now();
    let refused = {
        let mut refused = Failure::local(FailureClass::CircuitOpen, "the circuit is open");
        refused.target = Some(TargetId::from("a"));
        refused
    };
    let mut candidate = Candidate::new(TargetId::from("a"));
    candidate.availability = Availability::At(now + Duration::from_millis(10));
    let candidates = [candidate];
    for refusals in 1..20 {
        let mut situation = Situation::new(now, now + s(60), &refused, &candidates);
        situation.refusals = refusals;
        let mut rng = SeededRng::new(1, &InvocationId::from("call"), 1);
        let decision = plan(&policy, &situation, &mut rng);
        assert!(
            matches!(decision, Decision::Stop(StopReason::NoTarget { .. })),
            "{refusals}: {decision:?}"
        );
    }
}

#[test]
fn a_wait_counts_from_the_failure_that_it_follows_and_not_from_a_refusal() {
    let now = Instant::now();
    let server = failure(FailureClass::ServerError);
    let open = refusal(FailureClass::CircuitOpen);
    let candidates = [Candidate {
        failing: true,
        ..called_once()
    }];
    for (waited, left) in [(ms(0), s(1)), (ms(400), ms(600)), (s(3), ms(0))] {
        let situation = Situation {
            decisive: Some(&server),
            failed_at: now - waited,
            ..refused(&open, &candidates, now)
        };
        let (_, wait, ..) = again(decide(&plain(), &situation));
        assert!(
            left <= wait.duration && wait.duration <= left + ms(50),
            "{wait:?} after {waited:?}"
        );
    }
}
