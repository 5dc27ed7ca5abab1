//! The bucket's rules, its bounds over any history, and its effect on a provider that is half or
//! wholly failing.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{domain::ids::InvocationId, policy::rng::SeededRng};

fn full() -> (RetryBudget, Instant) {
    let now = Instant::now();
    (RetryBudget::new(BudgetPolicy::default(), now), now)
}

fn drained() -> (RetryBudget, Instant) {
    let (mut budget, now) = full();
    while let Some(reservation) = budget.reserve(now, Cost::Transient) {
        budget.settle(reservation, Settled::Failed, now);
    }
    (budget, now)
}

fn is(level: f64, expected: f64) -> bool {
    (level - expected).abs() < 1e-9
}

#[test]
fn a_full_bucket_pays_for_a_hundred_failing_retries_and_not_one_more() {
    let (mut budget, now) = full();
    for _ in 0..100 {
        let reservation = budget.reserve(now, Cost::Transient).unwrap();
        budget.settle(reservation, Settled::Failed, now);
    }
    assert!(is(budget.level(now), 0.0));
    assert_eq!(budget.reserve(now, Cost::Transient), None);
    assert_eq!(budget.reserve(now, Cost::Throttle), None);
    assert_eq!(budget.reserve(now, Cost::Hedge), None);
}

#[test]
fn the_price_is_taken_before_the_wait_and_comes_back_unless_the_attempt_failed() {
    for (settled, after) in [
        (Settled::Succeeded, 500.0),
        (Settled::NotUsed, 500.0),
        (Settled::Failed, 495.0),
    ] {
        let (mut budget, now) = full();
        let reservation = budget.reserve(now, Cost::Transient).unwrap();
        assert!(
            is(budget.level(now), 495.0),
            "sleeping retries must not evade the budget"
        );
        budget.settle(reservation, settled, now);
        assert!(is(budget.level(now), after), "{settled:?}");
    }
}

#[test]
fn a_dropped_reservation_is_paid() {
    let (mut budget, now) = full();
    drop(budget.reserve(now, Cost::Hedge));
    assert!(is(budget.level(now), 495.0));
}

#[test]
fn what_costs_nothing_passes_even_an_empty_bucket() {
    let (mut budget, now) = drained();
    let reservation = budget.reserve(now, Cost::Free).unwrap();
    budget.settle(reservation, Settled::Succeeded, now);
    assert!(is(budget.level(now), 0.0));
}

#[test]
fn an_empty_bucket_recovers_with_first_successes_and_with_time() {
    let (mut budget, now) = drained();
    assert_eq!(budget.reserve(now, Cost::Transient), None);
    budget.first_try_succeeded(now);
    for _ in 0..8 {
        let reservation = budget
            .reserve(now, Cost::Transient)
            .expect("a success pays for eight retries that fail");
        budget.settle(reservation, Settled::Failed, now);
    }
    assert_eq!(budget.reserve(now, Cost::Transient), None);
    let later = now + Duration::from_secs(10);
    assert!(is(budget.level(later), 5.0));
    assert!(budget.reserve(later, Cost::Transient).is_some());
    assert!(
        is(budget.level(later + Duration::from_hours(1)), 500.0),
        "never above the capacity"
    );
}

#[test]
fn time_that_goes_back_fills_nothing_twice() {
    let (mut budget, now) = drained();
    let later = now + Duration::from_secs(10);
    budget.first_try_succeeded(later);
    budget.first_try_succeeded(now);
    assert!(is(budget.level(later), 85.0));
}

#[test]
fn a_switched_off_budget_pays_for_everything() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(
        BudgetPolicy {
            enabled: false,
            ..BudgetPolicy::default()
        },
        now,
    );
    for _ in 0..1000 {
        let reservation = budget.reserve(now, Cost::Transient).unwrap();
        budget.settle(reservation, Settled::Failed, now);
    }
    assert!(is(budget.level(now), 500.0));
}

#[test]
fn a_reload_keeps_what_still_fits() {
    let (mut budget, now) = full();
    budget.reconfigure(
        BudgetPolicy {
            capacity: 20.0,
            ..BudgetPolicy::default()
        },
        now,
    );
    assert!(is(budget.level(now), 20.0));
    budget.reconfigure(BudgetPolicy::default(), now);
    assert!(is(budget.level(now), 20.0));
}

#[test]
fn nonsense_is_named_by_its_field() {
    let policy = BudgetPolicy {
        capacity: 0.0,
        ..BudgetPolicy::default()
    };
    let fields: Vec<_> = policy
        .validate()
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["capacity"]);
    assert!(BudgetPolicy::default().validate().is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Reserve(Cost),
    Settle(usize, Settled),
    FirstTry,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let cost = prop_oneof![
        Just(Cost::Free),
        Just(Cost::Transient),
        Just(Cost::Throttle),
        Just(Cost::Hedge)
    ];
    let settled = prop_oneof![
        Just(Settled::Succeeded),
        Just(Settled::Failed),
        Just(Settled::NotUsed)
    ];
    prop_oneof![
        4 => cost.prop_map(Step::Reserve),
        3 => (any::<usize>(), settled).prop_map(|(index, settled)| Step::Settle(index, settled)),
        1 => Just(Step::FirstTry),
        1 => (0_u64..4000).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn tokens_are_conserved_and_stay_within_the_bucket(steps in prop::collection::vec(step(), 1..400)) {
        let mut now = Instant::now();
        let policy = BudgetPolicy { capacity: 60.0, ..BudgetPolicy::default() };
        let mut budget = RetryBudget::new(policy, now);
        let mut held = Vec::new();
        // What came in, and what was taken for good, as a naive ledger knows them.
        let mut income = 60.0;
        let mut spent = 0.0;
        for step in steps {
            match step {
                Step::Reserve(cost) => {
                    let before = budget.level(now);
                    let reservation = budget.reserve(now, cost);
                    prop_assert_eq!(reservation.is_some(), cost == Cost::Free || before >= 5.0);
                    held.extend(reservation);
                }
                Step::Settle(index, settled) if !held.is_empty() => {
                    let reservation = held.swap_remove(index % held.len());
                    if settled == Settled::Failed {
                        spent += reservation.tokens;
                    }
                    budget.settle(reservation, settled, now);
                }
                Step::Settle(..) => {}
                Step::FirstTry => {
                    income += 40.0;
                    budget.first_try_succeeded(now);
                }
                Step::Pass(millis) => {
                    income += Duration::from_millis(millis).as_secs_f64() * 0.5;
                    now += Duration::from_millis(millis);
                }
            }
            let level = budget.level(now);
            prop_assert!((0.0..=60.0).contains(&level), "{level}");
            let reserved: f64 = held.iter().map(|reservation| reservation.tokens).sum();
            prop_assert!(level + reserved + spent <= income + 1e-6, "{level} + {reserved} + {spent} > {income}");
        }
    }
}

#[test]
fn the_bucket_reports_its_capacity() {
    let policy = BudgetPolicy {
        capacity: 60.0,
        ..BudgetPolicy::default()
    };
    assert!(is(
        RetryBudget::new(policy, Instant::now()).capacity(),
        60.0
    ));
}

/// The result of a minute of 50 calls a second, each with 3 retries.
struct Minute {
    success: f64,
    attempts_per_call: f64,
}

/// Plays calls against a target that fails with the probability `p`: failures come back after 50
/// ms, first tokens after 600 ms, retries wait 1 s, 2 s and 4 s with additive jitter.
fn minute(p: f64, seed: u64) -> Minute {
    const CALLS: u32 = 50 * 60;
    let start = Instant::now();
    let mut rng = SeededRng::new(seed, &InvocationId::from("minute"), 1);
    let mut budget = RetryBudget::new(BudgetPolicy::default(), start);
    let backoff = crate::policy::backoff::Backoff::default();
    // When an attempt ends, as (milliseconds, call, retry number, whether it succeeds).
    let mut ends = BinaryHeap::new();
    let mut held = BTreeMap::new();
    let mut successes = 0_u32;
    let mut attempts = 0_u32;
    let mut ask =
        |at: u64, call: u32, retry: u32, rng: &mut SeededRng, ends: &mut BinaryHeap<_>| {
            attempts += 1;
            let good = rng.unit() >= p;
            ends.push(Reverse((
                at + if good { 600 } else { 50 },
                call,
                retry,
                good,
            )));
        };
    for call in 0..CALLS {
        ask(u64::from(call) * 20, call, 0, &mut rng, &mut ends);
    }
    while let Some(Reverse((at, call, retry, good))) = ends.pop() {
        let now = start + Duration::from_millis(at);
        match held.remove(&call) {
            Some(reservation) => {
                budget.settle(
                    reservation,
                    if good {
                        Settled::Succeeded
                    } else {
                        Settled::Failed
                    },
                    now,
                );
            }
            None if good => budget.first_try_succeeded(now),
            None => {}
        }
        if good {
            successes += 1;
        } else if retry < 3
            && let Some(reservation) = budget.reserve(now, Cost::Transient)
        {
            held.insert(call, reservation);
            let wait =
                u64::try_from(backoff.wait(retry + 1, None, rng.unit()).as_millis()).unwrap();
            ask(at + wait, call, retry + 1, &mut rng, &mut ends);
        }
    }
    Minute {
        success: f64::from(successes) / f64::from(CALLS),
        attempts_per_call: f64::from(attempts) / f64::from(CALLS),
    }
}

#[test]
fn at_thirty_percent_of_independent_failures_it_keeps_98_5_percent_success() {
    for seed in 0..6 {
        let minute = minute(0.3, seed);
        assert!(minute.success >= 0.985, "seed {seed}: {}", minute.success);
    }
}

#[test]
fn at_fifty_percent_of_independent_failures_it_keeps_92_percent_success() {
    for seed in 0..6 {
        let minute = minute(0.5, seed);
        assert!(minute.success >= 0.92, "seed {seed}: {}", minute.success);
    }
}

#[test]
fn in_a_total_outage_it_adds_at_most_five_percent_load() {
    for seed in 0..6 {
        let minute = minute(1.0, seed);
        assert!(
            minute.attempts_per_call <= 1.05,
            "seed {seed}: {}",
            minute.attempts_per_call
        );
        assert!(
            minute.attempts_per_call >= 1.03,
            "seed {seed}: what the bucket holds is used"
        );
    }
}

#[test]
fn without_faults_nothing_is_taken() {
    let minute = minute(0.0, 1);
    assert!(is(minute.success, 1.0) && is(minute.attempts_per_call, 1.0));
}

#[test]
fn replicas_that_share_a_budget_have_together_what_one_alone_would_have() {
    let now = Instant::now();
    let policy = BudgetPolicy {
        capacity: 90.0,
        ..BudgetPolicy::default()
    };
    let paid = |budget: &mut RetryBudget| {
        let mut paid = 0;
        while let Some(reservation) = budget.reserve(now, Cost::Transient) {
            budget.settle(reservation, Settled::Failed, now);
            paid += 1;
        }
        paid
    };
    let alone = paid(&mut RetryBudget::new(policy.clone(), now));
    let mut together = 0;
    for _ in 0..3 {
        let mut budget = RetryBudget::new(policy.clone(), now);
        budget.share_with(3, now);
        together += paid(&mut budget);
    }
    assert_eq!(together, alone);
}

#[test]
fn a_budget_that_is_shared_and_then_not_any_more_holds_what_it_held() {
    let now = Instant::now();
    let mut budget = RetryBudget::new(BudgetPolicy::default(), now);
    let full = budget.level(now);
    for replicas in [3, 20, 1] {
        budget.share_with(replicas, now);
    }
    assert!((budget.level(now) - full).abs() < 1e-6);
    assert!((budget.capacity() - full).abs() < 1e-6);
}
