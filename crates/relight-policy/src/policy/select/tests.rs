//! Target selection, rule by rule.

use proptest::prelude::*;

use std::time::Duration;

use super::*;
use crate::domain::ids::InvocationId;

fn rng(seed: u64) -> SeededRng {
    SeededRng::new(seed, &InvocationId::from("select"), 1)
}

fn abc() -> Vec<Candidate> {
    ["a", "b", "c"]
        .map(|name| Candidate::new(TargetId::from(name)))
        .to_vec()
}

fn chosen(candidates: &[Candidate], failed_last: Option<&str>, hint: Option<&str>) -> Choice {
    let failed_last = failed_last.map(TargetId::from);
    let hint = hint.map(TargetId::from);
    choose(
        &SelectPolicy::default(),
        candidates,
        failed_last.as_ref(),
        hint.as_ref(),
        None,
        &mut rng(1),
    )
}

#[test]
fn the_first_of_the_list_is_chosen_while_it_is_free_and_healthy() {
    assert_eq!(chosen(&abc(), None, None), Choice::Target(0));
}

#[test]
fn the_healthy_are_preferred_to_the_degraded_and_the_degraded_to_none() {
    let mut candidates = abc();
    candidates[0].healthy = false;
    assert_eq!(chosen(&candidates, None, None), Choice::Target(1));
    candidates[1].healthy = false;
    candidates[2].healthy = false;
    assert_eq!(chosen(&candidates, None, None), Choice::Target(0));
}

#[test]
fn the_one_to_avoid_is_chosen_only_when_no_other_is_free() {
    let mut candidates = abc();
    assert_eq!(chosen(&candidates, Some("a"), None), Choice::Target(1));
    candidates[1].healthy = false;
    candidates[2].availability = Availability::Never;
    assert_eq!(
        chosen(&candidates, Some("a"), None),
        Choice::Target(1),
        "even a degraded one"
    );
    candidates[1].availability = Availability::Never;
    assert_eq!(chosen(&candidates, Some("a"), None), Choice::Target(0));
}

#[test]
fn the_planned_target_is_chosen_if_it_is_still_free() {
    let mut candidates = abc();
    candidates[2].healthy = false;
    assert_eq!(chosen(&candidates, Some("c"), Some("c")), Choice::Target(2));
    candidates[2].availability = Availability::Never;
    assert_eq!(chosen(&candidates, None, Some("c")), Choice::Target(0));
}

#[test]
fn one_that_stayed_silent_is_chosen_again_only_if_there_is_no_other() {
    let mut candidates = abc();
    candidates[0].failed_silent = true;
    assert_eq!(
        chosen(&candidates, None, Some("a")),
        Choice::Target(1),
        "even if it was planned"
    );
    let soon = Instant::now() + Duration::from_secs(5);
    candidates[1].availability = Availability::At(soon);
    candidates[2].availability = Availability::Never;
    assert!(matches!(chosen(&candidates, None, None), Choice::WaitUntil(at, 1) if at >= soon));
    assert_eq!(
        chosen(&candidates, None, Some("a")),
        Choice::Target(0),
        "the plan knew that b returns too late"
    );
    candidates[0].availability = Availability::At(soon - Duration::from_secs(1));
    assert!(matches!(chosen(&candidates, None, None), Choice::WaitUntil(at, 1) if at >= soon));
    candidates[0].availability = Availability::Now;
    candidates[1].availability = Availability::Never;
    assert_eq!(chosen(&candidates, None, None), Choice::Target(0));
}

#[test]
fn no_target_is_chosen_before_its_time_and_the_soonest_is_waited_for() {
    let now = Instant::now();
    let mut candidates = abc();
    for (candidate, seconds) in candidates.iter_mut().zip([9, 3, 6]) {
        candidate.availability = Availability::At(now + Duration::from_secs(seconds));
    }
    assert_eq!(
        chosen(&candidates, None, None),
        Choice::WaitUntil(now + Duration::from_secs(3), 1)
    );
}

#[test]
fn none_is_chosen_where_all_are_ruled_out_or_never_available() {
    let mut candidates = abc();
    candidates[0].ruled_out = true;
    candidates[1].availability = Availability::Never;
    candidates[2].ruled_out = true;
    assert_eq!(chosen(&candidates, None, Some("a")), Choice::None);
    assert_eq!(chosen(&[], None, None), Choice::None);
}

#[test]
fn equal_targets_share_the_load_when_the_order_is_shuffled() {
    let policy = SelectPolicy {
        order: Order::Shuffled,
        ..SelectPolicy::default()
    };
    let mut candidates = abc();
    candidates[0].healthy = false;
    let mut asked = [0_u32; 3];
    for seed in 0..400 {
        if let Choice::Target(index) =
            choose(&policy, &candidates, None, None, None, &mut rng(seed))
        {
            asked[index] += 1;
        }
    }
    assert_eq!(asked[0], 0, "the healthy come first here too");
    assert!(asked[1] > 160 && asked[2] > 160, "{asked:?}");
}

#[test]
fn the_cause_of_an_attempt_follows_from_the_last_failure_and_the_target() {
    let class = FailureClass::Timeout;
    let last = TargetId::from("a");
    let given = Some(AttemptCause::Extend);
    let failed = AttemptFacts {
        after: Some(class),
        last: Some(&last),
        ..AttemptFacts::default()
    };
    let adapted = AttemptFacts {
        adapted: true,
        ..failed
    };
    let continues = AttemptFacts {
        continues: true,
        ..adapted
    };
    let attaches = AttemptFacts {
        attaches: true,
        ..continues
    };
    for (facts, index, expected) in [
        (AttemptFacts::default(), 0, AttemptCause::Initial),
        (failed, 0, AttemptCause::Retry(class)),
        (failed, 1, AttemptCause::Fallback(class)),
        (adapted, 0, AttemptCause::Adapt(class)),
        (adapted, 1, AttemptCause::Fallback(class)),
        (continues, 0, AttemptCause::Continue(class)),
        (continues, 1, AttemptCause::Continue(class)),
        (attaches, 0, AttemptCause::Attach(class)),
        (AttemptFacts { given, ..attaches }, 0, AttemptCause::Extend),
        (
            AttemptFacts {
                given,
                ..AttemptFacts::default()
            },
            1,
            AttemptCause::Extend,
        ),
    ] {
        assert_eq!(
            cause(&facts, &abc(), index, |_| None),
            expected,
            "{facts:?} at {index}"
        );
    }
}

#[test]
fn a_first_attempt_elsewhere_is_a_fallback_only_where_something_is_wrong_with_the_first_target() {
    let gate = FailureClass::Authentication;
    let open = FailureClass::CircuitOpen;
    let fallback = AttemptCause::Fallback;
    for (availability, healthy, closed_by, expected) in [
        (Availability::Now, true, Some(gate), AttemptCause::Initial),
        (Availability::Now, false, None, fallback(open)),
        (Availability::Never, true, Some(gate), fallback(gate)),
        (Availability::At(Instant::now()), true, None, fallback(open)),
    ] {
        let mut candidates = abc();
        (candidates[0].availability, candidates[0].healthy) = (availability, healthy);
        let cause = |index| cause(&AttemptFacts::default(), &candidates, index, |_| closed_by);
        assert_eq!(
            (cause(0), cause(1)),
            (AttemptCause::Initial, expected),
            "{availability:?}, {healthy}"
        );
    }
}

proptest! {
    #[test]
    fn the_chosen_target_is_available_and_one_is_chosen_if_any_is_available(
        facts in prop::collection::vec((0_u8..3, any::<bool>(), any::<bool>(), any::<bool>()), 0..6),
        hint in prop::option::of(0_usize..6),
        avoid in prop::option::of(0_usize..6),
        order in prop::sample::select(vec![Order::Listed, Order::Shuffled, Order::Weighted, Order::LeastBusy]),
        weights in prop::collection::btree_map((0_u8..6).prop_map(|name| TargetId::from(name.to_string())), 0_u32..4, 0..4),
        seed in any::<u64>(),
    ) {
        let now = Instant::now();
        let candidates: Vec<_> = facts
            .iter()
            .enumerate()
            .map(|(index, (availability, healthy, failed_silent, ruled_out))| Candidate {
                availability: [Availability::Now, Availability::At(now), Availability::Never][usize::from(*availability)],
                failing: !healthy,
                healthy: *healthy,
                failed_silent: *failed_silent,
                ruled_out: *ruled_out,
                ..Candidate::new(TargetId::from(index.to_string()))
            })
            .collect();
        let name = |index: Option<usize>| index.map(|index| TargetId::from(index.to_string()));
        let policy = SelectPolicy { order, weights, ..SelectPolicy::default() };
        let choice = choose(&policy, &candidates, name(avoid).as_ref(), name(hint).as_ref(), None, &mut rng(seed));
        let usable = |one: &&Candidate| !one.ruled_out && one.availability != Availability::Never;
        let speaks = candidates.iter().filter(usable).any(|one| !one.failed_silent);
        match choice {
            Choice::Target(index) => {
                let one = &candidates[index];
                prop_assert!(one.availability == Availability::Now && !one.ruled_out);
                let speaker_is_free = candidates
                    .iter()
                    .any(|one| one.availability == Availability::Now && !one.ruled_out && !one.failed_silent);
                prop_assert!(!one.failed_silent || !speaks || (hint == Some(index) && !speaker_is_free));
            }
            Choice::WaitUntil(at, index) => {
                prop_assert!(at >= now && candidates[index].availability == Availability::At(now));
                prop_assert!(!candidates[index].ruled_out && (!candidates[index].failed_silent || !speaks));
            }
            Choice::None => prop_assert_eq!(candidates.iter().filter(usable).count(), 0),
        }
    }
}
