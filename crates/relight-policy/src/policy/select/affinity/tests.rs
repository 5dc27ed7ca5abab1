//! Conversations and targets, drawn by the thousand.

use proptest::prelude::*;

use super::*;
use crate::{
    domain::message::Message,
    policy::{
        retry::Availability,
        rng::SeededRng,
        select::{Choice, choose},
    },
};

const CONVERSATIONS: u32 = 10_000;

fn shuffled() -> SelectPolicy {
    SelectPolicy {
        order: Order::Shuffled,
        ..SelectPolicy::default()
    }
}

fn named(count: usize) -> Vec<Candidate> {
    let names = (0..count).map(|index| TargetId::from(format!("t{index}")));
    names.map(Candidate::new).collect()
}

fn conversation(policy: &SelectPolicy, number: u32) -> Conversation {
    let given = format!("thread-{number}");
    let key = policy.affinity_key(&"acme".into(), Some(&given), &ModelCall::default());
    Conversation {
        key: key.unwrap(),
        kept_by: None,
    }
}

/// Returns the target of a conversation; `seed` must not matter.
fn place(policy: &SelectPolicy, candidates: &[Candidate], talk: &Conversation, seed: u64) -> usize {
    let mut rng = SeededRng::new(seed, &"call".into(), 1);
    match choose(policy, candidates, None, None, Some(talk), &mut rng) {
        Choice::Target(index) => index,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn all_replicas_choose_alike_and_each_target_has_its_share_within_two_points(
        weights in prop::collection::vec(1_u32..9, 2..6), seeds in any::<(u64, u64)>(),
    ) {
        let candidates = named(weights.len());
        let names = candidates.iter().map(|one| one.target.clone());
        let policy = SelectPolicy {
            order: Order::Weighted,
            weights: names.zip(weights.iter().copied()).collect(),
            ..SelectPolicy::default()
        };
        let mut counts = vec![0_u32; weights.len()];
        for number in 0..CONVERSATIONS {
            let talk = conversation(&policy, number);
            let chosen = place(&policy, &candidates, &talk, seeds.0);
            prop_assert_eq!(chosen, place(&policy, &candidates, &talk, seeds.1));
            counts[chosen] += 1;
        }
        let total = f64::from(weights.iter().sum::<u32>());
        for (count, weight) in counts.iter().zip(&weights) {
            let share = f64::from(*count) / f64::from(CONVERSATIONS);
            prop_assert!((share - f64::from(*weight) / total).abs() < 0.02, "{counts:?} by {weights:?}");
        }
    }

    #[test]
    fn only_the_conversations_of_a_target_that_is_out_move_and_it_keeps_none(
        count in 2_usize..6, out in 0_usize..6, gone in any::<bool>(), first in any::<u32>(),
    ) {
        let out = out % count;
        let well = named(count);
        let mut candidates = well.clone();
        if gone {
            candidates[out].availability = Availability::Never;
        } else {
            candidates[out].healthy = false;
        }
        for number in 0..300 {
            let mut talk = conversation(&shuffled(), first.wrapping_add(number));
            let before = place(&shuffled(), &well, &talk, 1);
            let during = place(&shuffled(), &candidates, &talk, 1);
            prop_assert_eq!(during == before, before != out);
            prop_assert_ne!(during, out);
            talk.kept_by = Some(well[during].target.clone());
            prop_assert_eq!(place(&shuffled(), &well, &talk, 1), during, "it stays after the outage");
            talk.kept_by = Some(well[out].target.clone());
            prop_assert_ne!(place(&shuffled(), &candidates, &talk, 1), out, "nor is it kept by one that is out");
        }
    }
}

#[test]
fn a_conversation_without_a_name_is_known_by_its_start() {
    let any = SelectPolicy {
        affinity: AffinityPolicy {
            by: Some(AffinityKeys::Any),
            ..AffinityPolicy::default()
        },
        ..shuffled()
    };
    let talk = |texts: &[(Role, &str)]| {
        let messages = texts.iter().map(|(role, text)| Message::text(*role, *text));
        let call = ModelCall {
            messages: messages.collect(),
            ..ModelCall::default()
        };
        any.affinity_key(&"acme".into(), None, &call)
    };
    let first = [(Role::System, "Be brief."), (Role::User, "Why?")];
    let longer = [
        first[0],
        first[1],
        (Role::Assistant, "So."),
        (Role::User, "How?"),
    ];
    assert_eq!(talk(&first), talk(&longer));
    assert_ne!(talk(&first), talk(&[first[0], (Role::User, "How?")]));
    assert_ne!(talk(&first), talk(&[(Role::System, "Be long."), first[1]]));
    let call = ModelCall::default();
    assert_eq!(shuffled().affinity_key(&"acme".into(), None, &call), None);
    assert_ne!(
        any.affinity_key(&"acme".into(), Some("t"), &call),
        any.affinity_key(&"rival".into(), Some("t"), &call)
    );
    assert_eq!(
        SelectPolicy::default().affinity_key(&"acme".into(), Some("t"), &call),
        None,
        "a list is called in its order"
    );
}
