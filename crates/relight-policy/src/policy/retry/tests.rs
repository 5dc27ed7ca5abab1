//! The planner's rules, one by one; the class table and the invariants of any sequence are in the
//! submodules.

use super::*;
use crate::{
    domain::{
        failure::{TransportFault, WaitSource},
        ids::InvocationId,
    },
    policy::backoff::{Backoff, Jitter},
};

mod properties;
mod refusals;
mod same_target;
mod settings;
mod stated_waits;
mod table;
mod waits;

/// Returns the defaults without jitter.
fn plain() -> RetryPolicy {
    let none = |backoff: Backoff| Backoff {
        jitter: Jitter::None,
        ..backoff
    };
    let defaults = RetryPolicy::default();
    RetryPolicy {
        backoff: none(defaults.backoff),
        ..defaults
    }
}

/// Returns a failure of target `a` against which, as far as the classifier knows, everything may
/// help.
fn failure(class: FailureClass) -> Failure {
    Failure {
        retryable: true,
        fallback_helps: true,
        never_sent: false,
        target: Some(TargetId::from("a")),
        ..Failure::local(class, "it failed")
    }
}

fn stated(class: FailureClass, seconds: u64) -> Failure {
    failure(class).with_retry_after(s(seconds), WaitSource::RetryAfter)
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Target `a`, called once.
fn called_once() -> Candidate {
    Candidate {
        attempts: 1,
        ..fresh("a")
    }
}

fn fresh(name: &str) -> Candidate {
    Candidate {
        larger_window: true,
        other_credential: true,
        ..Candidate::new(TargetId::from(name))
    }
}

fn rng() -> SeededRng {
    SeededRng::new(7, &InvocationId::from("plan"), 1)
}

/// Returns the throws that `rng` gives the planner.
fn samples() -> (f64, f64) {
    let mut rng = rng();
    (rng.unit(), rng.unit())
}

fn decide(policy: &RetryPolicy, situation: &Situation<'_>) -> Decision {
    plan(policy, situation, &mut rng())
}

/// What the defaults decide after the first attempt, a minute before the deadline.
fn after(failure: &Failure, candidates: &[Candidate]) -> Decision {
    let now = Instant::now();
    decide(
        &RetryPolicy::default(),
        &Situation::new(now, now + s(60), failure, candidates),
    )
}

/// Returns the parts of a decision to try again: the target, the wait, the strategy and the cost.
fn again(decision: Decision) -> (String, Wait, RecoveryStrategy, Cost) {
    match decision {
        Decision::Again {
            wait,
            strategy,
            target_hint: Some(target),
            cost,
        } => (target.to_string(), wait, strategy, cost),
        other => panic!("should try again: {other:?}"),
    }
}

#[test]
fn the_reasons_against_a_retry_are_checked_in_order() {
    let now = Instant::now();
    let hopeless = failure(FailureClass::Cancelled);
    let server = failure(FailureClass::ServerError);
    let off = RetryPolicy {
        enabled: false,
        ..RetryPolicy::default()
    };
    let on = RetryPolicy::default();
    let candidates = [called_once()];
    // Everything forbids another attempt; each step removes the first reason.
    let mut situation = Situation {
        relayed: Relayed::Irrevocable,
        retries_made: 2,
        first_attempt_tokens: 100,
        spent_tokens: 201,
        ..Situation::new(now, now, &hopeless, &candidates)
    };
    let stop = |policy: &RetryPolicy, situation: &Situation<'_>| match decide(policy, situation) {
        Decision::Stop(reason) => reason,
        other => panic!("should stop: {other:?}"),
    };
    assert_eq!(stop(&off, &situation), StopReason::NotRetryable);
    situation.failure = &server;
    assert_eq!(stop(&off, &situation), StopReason::Disabled);
    assert_eq!(stop(&on, &situation), StopReason::Irrevocable);
    situation.relayed = Relayed::Rewindable;
    assert_eq!(stop(&on, &situation), StopReason::AttemptsUsedUp);
    situation.retries_made = 1;
    assert_eq!(stop(&on, &situation), StopReason::TokensUsedUp);
    situation.spent_tokens = 200;
    assert!(matches!(
        stop(&on, &situation),
        StopReason::DeadlineTooClose { .. }
    ));
    situation.deadline = now + s(60);
    assert_eq!(again(decide(&on, &situation)).0, "a");
}

#[test]
fn every_attempt_that_was_sent_uses_the_same_allowance() {
    let now = Instant::now();
    let candidates = [called_once()];
    for (max_retries, allowed) in [(0, 0), (1, 1), (2, 2), (5, 5), (9, MAX_RETRIES)] {
        let policy = RetryPolicy {
            max_retries,
            ..RetryPolicy::default()
        };
        for class in [FailureClass::ServerError, FailureClass::MalformedResponse] {
            for (retries_made, adapted) in (0..8).flat_map(|made| [(made, false), (made, true)]) {
                let failure = failure(class);
                let situation = Situation {
                    retries_made,
                    adapted,
                    ..Situation::new(now, now + s(600), &failure, &candidates)
                };
                let goes_on = matches!(decide(&policy, &situation), Decision::Again { .. });
                assert_eq!(
                    goes_on,
                    retries_made < allowed,
                    "{class} after {retries_made} of {max_retries}"
                );
            }
        }
    }
}

#[test]
fn attempts_that_reached_nobody_have_an_allowance_of_their_own() {
    let now = Instant::now();
    let candidates = [called_once()];
    let unsent = Failure {
        never_sent: true,
        ..failure(FailureClass::Network)
    };
    for (retries_made, unsent_made, goes_on) in [
        (0, 1, true),
        (0, 2, true),
        (0, 3, false),
        (1, 2, true),
        (2, 1, false),
    ] {
        let situation = Situation {
            retries_made,
            unsent_made,
            ..Situation::new(now, now + s(600), &unsent, &candidates)
        };
        let decision = decide(&RetryPolicy::default(), &situation);
        assert_eq!(
            matches!(decision, Decision::Again { .. }),
            goes_on,
            "{retries_made} sent, {unsent_made} not"
        );
    }
}

#[test]
fn without_retries_there_is_one_attempt_whatever_fails() {
    let now = Instant::now();
    let candidates = [called_once()];
    let policy = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    for class in [
        FailureClass::MalformedResponse,
        FailureClass::ServerError,
        FailureClass::RateLimited,
    ] {
        let failure = failure(class);
        for adapted in [false, true] {
            let situation = Situation {
                adapted,
                ..Situation::new(now, now + s(60), &failure, &candidates)
            };
            assert_eq!(
                decide(&policy, &situation),
                Decision::Stop(StopReason::AttemptsUsedUp),
                "{class}"
            );
        }
    }
}

#[test]
fn an_answer_beyond_the_size_limit_is_paid_for_twice_at_most() {
    let now = Instant::now();
    let candidates = [called_once()];
    let large = Failure {
        fault: Some(TransportFault::TooLarge),
        ..failure(FailureClass::MalformedResponse)
    };
    let situation = Situation::new(now, now + s(60), &large, &candidates);
    assert_eq!(again(decide(&RetryPolicy::default(), &situation)).0, "a");
    let situation = Situation {
        retries_made: 1,
        ..situation
    };
    assert_eq!(
        decide(&RetryPolicy::default(), &situation),
        Decision::Stop(StopReason::AttemptsUsedUp)
    );
}

#[test]
fn a_retry_after_an_unusable_answer_is_made_at_once_and_costs_no_budget() {
    let now = Instant::now();
    let malformed = failure(FailureClass::MalformedResponse);
    let candidates = [called_once()];
    let situation = Situation::new(now, now + s(60), &malformed, &candidates);
    let (target, wait, strategy, cost) = again(decide(&RetryPolicy::default(), &situation));
    assert_eq!(
        (target.as_str(), wait.duration),
        ("a", Duration::ZERO),
        "the target is well"
    );
    assert_eq!((strategy, cost), (RecoveryStrategy::Retry, Cost::Free));
}

#[test]
fn the_state_is_read_again_once() {
    let now = Instant::now();
    let candidates = [called_once()];
    let state = failure(FailureClass::State);
    let situation = Situation::new(now, now + s(60), &state, &candidates);
    assert!(matches!(
        decide(&RetryPolicy::default(), &situation),
        Decision::Again { .. }
    ));
    let situation = Situation {
        retries_made: 1,
        ..situation
    };
    assert_eq!(
        decide(&RetryPolicy::default(), &situation),
        Decision::Stop(StopReason::AttemptsUsedUp)
    );
}

#[test]
fn what_is_billed_never_exceeds_three_times_the_estimate() {
    let policy = RetryPolicy::default();
    for (estimate, spent, used_up) in [
        (100, 0, false),
        (100, 200, false),
        (100, 201, true),
        (0, 9000, false),
    ] {
        assert_eq!(
            policy.tokens_used_up(estimate, spent),
            used_up,
            "{spent} of {estimate}"
        );
    }
}

#[test]
fn a_request_that_was_adapted_is_retried_at_once() {
    let now = Instant::now();
    let invalid = failure(FailureClass::InvalidRequest);
    let candidates = [called_once()];
    let situation = Situation::new(now, now + s(60), &invalid, &candidates);
    assert_eq!(
        decide(&RetryPolicy::default(), &situation),
        Decision::Stop(StopReason::NoTarget { retry_in: None })
    );
    let situation = Situation {
        adapted: true,
        ..situation
    };
    let (target, wait, strategy, cost) = again(decide(&RetryPolicy::default(), &situation));
    assert_eq!((target.as_str(), wait.duration), ("a", Duration::ZERO));
    assert_eq!((strategy, cost), (RecoveryStrategy::Adapt, Cost::Free));
}

#[test]
fn only_a_target_that_could_help_is_called() {
    let small = Candidate {
        larger_window: false,
        ..fresh("b")
    };
    let same_key = Candidate {
        other_credential: false,
        ..fresh("b")
    };
    let denied = Candidate {
        ruled_out: true,
        ..fresh("b")
    };
    let gone = Candidate {
        availability: Availability::Never,
        ..fresh("b")
    };
    for (class, unfit) in [
        (FailureClass::ContextLength, small),
        (FailureClass::Authentication, same_key.clone()),
        (FailureClass::QuotaExceeded, same_key),
        (FailureClass::ServerError, denied),
        (FailureClass::ServerError, gone),
    ] {
        let failure = Failure {
            retryable: false,
            ..failure(class)
        };
        let alone = after(&failure, &[called_once(), unfit.clone()]);
        assert_eq!(
            alone,
            Decision::Stop(StopReason::NoTarget { retry_in: None }),
            "{class}"
        );
        let (target, wait, strategy, _) =
            again(after(&failure, &[called_once(), unfit, fresh("c")]));
        assert_eq!(
            (target.as_str(), strategy),
            ("c", RecoveryStrategy::Fallback),
            "{class}"
        );
        assert!(wait.duration < ms(50), "{class}");
    }
}

#[test]
fn a_target_that_stayed_silent_is_not_called_again_while_another_exists() {
    let now = Instant::now();
    let timeout = failure(FailureClass::Timeout);
    let silent = Candidate {
        failed_silent: true,
        ..called_once()
    };
    let returns = Candidate {
        availability: Availability::At(now + s(20)),
        ..fresh("b")
    };
    let (target, ..) = again(after(&timeout, &[silent.clone(), fresh("b")]));
    assert_eq!(target, "b");
    assert!(
        matches!(after(&timeout, &[silent.clone(), returns]), Decision::Park { target, .. } if target.as_str() == "b")
    );
    let (target, ..) = again(after(&timeout, &[silent]));
    assert_eq!(target, "a");
}

#[test]
fn healthy_targets_come_before_degraded_ones_and_these_before_waiting() {
    let server = failure(FailureClass::ServerError);
    let failing = Candidate {
        failing: true,
        ..called_once()
    };
    let degraded = Candidate {
        healthy: false,
        ..fresh("b")
    };
    assert_eq!(
        again(after(
            &server,
            &[failing.clone(), degraded.clone(), fresh("c")]
        ))
        .0,
        "c"
    );
    assert_eq!(again(after(&server, &[failing, degraded])).0, "b");
}
