//! A candidate beside what the stable release does at the same time.

use super::*;

#[test]
fn a_candidate_that_alone_fails_is_rolled_back_also_at_the_endpoint_of_the_stable_release() {
    for class in [
        FailureClass::ServerError,
        FailureClass::RateLimited,
        FailureClass::Network,
        FailureClass::MalformedResponse,
    ] {
        for history in [0, 100] {
            let mut trial = Trial::new(ReleaseMode::Adaptive);
            trial.monitor.candidate.as_mut().unwrap().version.endpoint = "http://old".to_owned();
            trial.stable(history, 0);
            let caught = (1..=5).find(|_| {
                let decided = trial.fails(class, "");
                lane(decided.or_else(|| trial.stable(1, 0)).as_ref()).is_some()
            });
            assert!(caught.is_some(), "{class} after {history}");
        }
    }
}

#[test]
fn an_outage_of_a_shared_provider_is_not_the_candidates() {
    for share in [0.1, 0.5, 0.9] {
        let mut trial = Trial::new(ReleaseMode::Adaptive);
        trial.monitor.candidate.as_mut().unwrap().version.endpoint = "http://old".to_owned();
        trial.stable(100, 0);
        let of_stable = |n: u32| f64::from(n % 10) >= share * 10.0;
        for n in 0..60 {
            // Both fail from the 20th to the 40th call.
            let is_down = (20..40).contains(&n);
            let failure = is_down.then_some(FailureClass::ServerError);
            let outcome = trial.outcome(failure, "");
            let decided = if of_stable(n * 7) {
                trial.stable_takes(&outcome)
            } else {
                trial.take(&outcome)
            };
            assert_eq!(decided, None, "call {n} at a share of {share}");
        }
        assert_eq!(trial.state(), ReleaseState::Active);
    }
}

#[test]
fn a_candidate_that_is_much_slower_is_rolled_back_and_one_with_the_same_spread_is_not() {
    for (factor, is_caught) in [(20, true), (8, true), (2, false), (1, false)] {
        let mut trial = Trial::new(ReleaseMode::Adaptive);
        let mut caught = false;
        for n in 0..60_u64 {
            // From 50 to 250 ms.
            let millis = 50 + (n * 37) % 200;
            let outcome = ReleaseOutcome {
                duration_ms: Some(millis),
                ..trial.outcome(None, "")
            };
            trial.stable_takes(&outcome);
            if n < 20 || caught {
                continue;
            }
            let outcome = ReleaseOutcome {
                duration_ms: Some((50 + (n * 71) % 200) * factor),
                ..trial.outcome(None, "")
            };
            let decided = trial.take(&outcome);
            let next = ReleaseOutcome {
                duration_ms: Some(millis),
                ..trial.outcome(None, "")
            };
            let decided = decided.or_else(|| trial.stable_takes(&next));
            caught = lane(decided.as_ref()).is_some();
            if let Some(decision) = decided {
                assert!(decision.reason.contains("slower"), "{decision:?}");
            }
        }
        assert_eq!(caught, is_caught, "{factor} times as long");
    }
}

#[test]
fn results_that_are_of_no_use_count_if_the_stable_release_returns_fewer() {
    for (of_stable, is_caught) in [(20, true), (1, false)] {
        let mut trial = Trial::new(ReleaseMode::Adaptive);
        let mut caught = false;
        for n in 0..80_u32 {
            let outcome = ReleaseOutcome {
                is_flawed: n % of_stable == 0,
                ..trial.outcome(None, "")
            };
            let mut decided = trial.stable_takes(&outcome);
            if n >= 20 && !caught {
                let outcome = ReleaseOutcome {
                    is_flawed: true,
                    ..trial.outcome(None, "")
                };
                decided = decided.or_else(|| trial.take(&outcome));
            }
            caught |= lane(decided.as_ref()).is_some();
        }
        assert_eq!(
            caught, is_caught,
            "one in {of_stable} of the stable release's"
        );
    }
}

#[test]
fn further_attempts_of_one_call_say_nothing_new() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(100, 0);
    for attempt in [1, 2, 3, 4, 5] {
        let outcome = ReleaseOutcome {
            attempt,
            ..trial.outcome(Some(FailureClass::ServerError), "")
        };
        assert_eq!(trial.take(&outcome), None);
        assert_eq!(trial.stable(1, 0), None);
    }
}
