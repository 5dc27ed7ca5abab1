//! Invariants of any sequence of failures, refusals and decisions.

use proptest::prelude::*;

use super::*;
use crate::policy::backoff::{Backoff, Jitter};

/// The result of one attempt, and the state of the targets by then.
#[derive(Debug, Clone)]
struct Turn {
    class: usize,
    retryable: bool,
    fallback_helps: bool,
    never_sent: bool,
    stated: Option<u64>,
    takes: u64,
    targets: Vec<(u8, u64, bool, u64)>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let target = (0_u8..4, 0_u64..40_000, any::<bool>(), 0_u64..5_000);
    (
        (
            0..FailureClass::ALL.len(),
            prop::bool::weighted(0.9),
            prop::bool::weighted(0.9),
            any::<bool>(),
        ),
        prop::option::weighted(0.3, 0_u64..600_000),
        0_u64..3_000,
        prop::collection::vec(target, 3),
    )
        .prop_map(
            |((class, retryable, fallback_helps, never_sent), stated, takes, targets)| Turn {
                class,
                retryable,
                fallback_helps,
                never_sent,
                stated,
                takes,
                targets,
            },
        )
}

fn policy() -> impl Strategy<Value = RetryPolicy> {
    (0_u32..12, any::<bool>(), 0_usize..5).prop_map(|(max_retries, parks, jitter)| {
        let jitter = [
            Jitter::None,
            Jitter::Additive,
            Jitter::Full,
            Jitter::Equal,
            Jitter::Decorrelated,
        ][jitter];
        RetryPolicy {
            max_retries,
            backoff: Backoff {
                jitter,
                ..Backoff::default()
            },
            park: ParkPolicy { enabled: parks },
            ..RetryPolicy::preset("agent").unwrap()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn attempts_waits_and_targets_stay_within_their_bounds(
        policy in policy(),
        turns in prop::collection::vec(turn(), 1..40),
        minutes in 0_u64..20,
        seed in any::<u64>(),
    ) {
        let begin = Instant::now();
        let deadline = begin + ms(minutes * 60_000 + 500);
        let mut now = begin;
        let names = ["a", "b", "c"];
        let mut called_times = [0_u32; 3];
        let mut sent = 0_u32;
        let mut unsent = 0_u32;
        let mut limited = 0_u32;
        let mut refusals = 0_u32;
        let mut decisive: Option<Failure> = None;
        let mut at = 0_usize;
        let mut previous_wait = None;
        for (number, turn) in turns.iter().enumerate() {
            let class = FailureClass::ALL[turn.class];
            let target = TargetId::from(names[at]);
            let failure = Failure {
                retryable: turn.retryable,
                fallback_helps: turn.fallback_helps,
                never_sent: turn.never_sent,
                target: Some(target.clone()),
                retry_after: turn.stated.map(|millis| Wait { duration: ms(millis), source: WaitSource::Text }),
                ..failure(class)
            };
            if class.is_local_refusal() {
                refusals += 1;
            } else {
                refusals = 0;
                match turn.never_sent {
                    true => unsent += 1,
                    false if class == FailureClass::RateLimited => limited += 1,
                    false => sent += 1,
                }
                prop_assert!(sent <= 1 + policy.max_retries.min(MAX_RETRIES), "more calls than are allowed");
                called_times[at] += 1;
                now += ms(turn.takes);
            }
            let retries = sent.saturating_sub(1);
            let candidates: Vec<_> = (0..3)
                .map(|index| {
                    let (availability, millis, healthy, p50) = turn.targets[index];
                    Candidate {
                        availability: match availability {
                            0 => Availability::At(now + ms(millis)),
                            1 => Availability::Never,
                            _ => Availability::Now,
                        },
                        healthy,
                        first_token_p50: ms(p50),
                        attempts: called_times[index],
                        failed_silent: called_times[index] > 0 && millis % 3 == 0,
                        larger_window: millis % 2 == 0,
                        other_credential: millis % 5 < 3,
                        ..Candidate::new(TargetId::from(names[index]))
                    }
                })
                .collect();
            let situation = Situation {
                decisive: decisive.as_ref(),
                retries_made: retries,
                unsent_made: unsent,
                limited_made: limited,
                refusals,
                previous_wait,
                ..Situation::new(now, deadline, &failure, &candidates)
            };
            let rng = SeededRng::new(seed, &InvocationId::from("walk"), u32::try_from(number).unwrap());
            let decision = plan(&policy, &situation, &mut rng.clone());
            prop_assert_eq!(&decision, &plan(&policy, &situation, &mut rng.clone()), "a replay agrees");
            if !class.is_local_refusal() {
                decisive = Some(failure.clone());
            }
            let place = |name: &TargetId| names.iter().position(|one| *one == name.as_str()).unwrap();
            let is_limited = decisive.as_ref().is_some_and(|it| it.class == FailureClass::RateLimited && !it.never_sent);
            let made = if decisive.is_some() && !is_limited { 1 + retries } else { 0 };
            prop_assert!(limited <= MAX_LIMITED + 1);
            match decision {
                Decision::Stop(_) => break,
                Decision::Park { until, target, .. } => {
                    let one = &candidates[place(&target)];
                    prop_assert!(policy.park.enabled && made < HARD_CAP_ATTEMPTS);
                    prop_assert!(matches!(one.availability, Availability::At(opens) if opens > now && until >= opens));
                    prop_assert!(until + one.first_token_p50.max(ms(300)) <= deadline, "parks past the deadline");
                    now = until;
                    at = place(&target);
                }
                Decision::Again { wait, strategy, target_hint, cost } => {
                    let hint = target_hint.unwrap();
                    let one = &candidates[place(&hint)];
                    prop_assert!(made < HARD_CAP_ATTEMPTS, "more attempts than the hard cap");
                    let starts = now + wait.duration;
                    prop_assert!(starts + one.first_token_p50.max(ms(300)) <= deadline, "sleeps past the deadline");
                    let real = decisive.as_ref();
                    // A wait that was stated to it is its own.
                    let was_stated = real.is_some_and(|real| real.retry_after.is_some() && real.target.as_ref() == Some(&hint));
                    prop_assert!(was_stated || one.availability.ready_at(now).is_some_and(|ready| ready <= starts));
                    if let Some(real) = real {
                        let recovery_options = recovery_options(&policy, real);
                        let same = real.target.as_ref() == Some(&hint);
                        prop_assert!(recovery_options.admits(one, same), "{hint} cannot help");
                        prop_assert_eq!(strategy == RecoveryStrategy::Retry, same);
                        if let Some(stated) = real.retry_after
                            && same
                            && recovery_options.backoff_kind != BackoffKind::AtOnce
                        {
                            prop_assert!(wait.duration >= stated.duration.min(WAIT_CAP), "sooner than stated");
                        }
                        if is_limited {
                            prop_assert!(policy.max_retries > 0 && limited <= MAX_LIMITED && cost == Cost::Free);
                        } else {
                            let made = if real.never_sent { unsent - 1 } else { retries };
                            prop_assert!(made < policy.max_retries);
                            prop_assert!(cost != Cost::Free || real.never_sent || !recovery_options.costs_budget);
                        }
                    } else {
                        prop_assert_eq!(cost, Cost::Free, "a first attempt costs nothing");
                    }
                    previous_wait = Some(wait.duration);
                    now = starts;
                    at = place(&hint);
                }
            }
        }
    }
}
