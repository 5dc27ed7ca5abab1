//! Selects the key of a provider's pool with which a target is called.

use std::{cmp::Reverse, time::Duration};

use tokio::time::Instant;

use super::AffinityKey;
use crate::policy::retry::Availability;

/// Longest time for which other keys come before one that was refused: nobody needs to know sooner
/// whether it is good again.
const LONGEST_REST: Duration = Duration::from_mins(1);

/// A key of a pool, as the next call sees it.
#[derive(Debug, Clone, Copy)]
pub struct KeyCandidate<'a> {
    /// Label of the key.
    pub label: &'a str,
    /// Time at which it can be used.
    pub availability: Availability,
    /// `true` if a gate of it is closed.
    pub closed: bool,
    /// `true` if it was refused lately, see [`rest_of_a_key`].
    pub rests: bool,
    /// `true` if it was refused in this call for a reason that time does not mend.
    pub refused: bool,
    /// Number of times that it reached its limit in this call.
    pub limited: u32,
}

/// Returns the time for which other keys come before one that was refused: as long as the provider
/// stated, and at most a minute. One refusal keeps nobody from a key that is needed.
#[must_use]
pub fn rest_of_a_key(stated: Option<Duration>) -> Duration {
    stated.map_or(LONGEST_REST, |wait| wait.min(LONGEST_REST))
}

/// Returns the key of the next attempt. Of those that were not refused in this call, the one that can
/// be used first; of those that can be used now one that does not rest; of these one whose gate is
/// closed, which thereby gets its probe; then the one that was limited least in this call, then the one
/// with which the conversation stays, else the next in turn. `None` if there are no keys.
#[must_use]
pub fn choose_key(
    keys: &[KeyCandidate<'_>],
    conversation: Option<AffinityKey>,
    turn: usize,
    now: Instant,
) -> Option<usize> {
    let stays = conversation.and_then(|key| {
        let usable = keys.iter().enumerate().filter(|(_, one)| {
            let is_open = one.availability == Availability::Now && !one.closed;
            is_open && !one.refused && !one.rests
        });
        usable
            .max_by(|(_, one), (_, other)| {
                key.draw(one.label, 1).total_cmp(&key.draw(other.label, 1))
            })
            .map(|(index, _)| index)
    });
    let rank = |index: usize, one: &KeyCandidate<'_>| {
        let ready = one.availability.ready_at(now);
        (
            one.refused || ready.is_none(),
            ready,
            one.rests,
            Reverse(one.closed),
            one.limited,
            stays != Some(index),
        )
    };
    let ranks: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(index, one)| rank(index, one))
        .collect();
    let best = ranks.iter().min()?;
    let equals: Vec<usize> = (0..keys.len())
        .filter(|index| ranks[*index] == *best)
        .collect();
    equals.get(turn % equals.len()).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        domain::{ids::TenantId, message::ModelCall},
        policy::select::SelectPolicy,
    };

    const LABELS: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn good(label: &str) -> KeyCandidate<'_> {
        KeyCandidate {
            label,
            availability: Availability::Now,
            closed: false,
            rests: false,
            refused: false,
            limited: 0,
        }
    }

    fn conversation(name: &str) -> Option<AffinityKey> {
        let call = ModelCall::default();
        SelectPolicy::default().pool_key(&TenantId::from("t"), Some(name), &call)
    }

    fn key(index: usize) -> impl Strategy<Value = KeyCandidate<'static>> {
        let availability = prop_oneof![
            Just(Availability::Now),
            Just(Availability::Never),
            (1u64..100)
                .prop_map(|secs| Availability::At(Instant::now() + Duration::from_secs(secs))),
        ];
        (availability, any::<[bool; 3]>(), 0u32..3).prop_map(
            move |(availability, [closed, rests, refused], limited)| KeyCandidate {
                label: LABELS[index],
                availability,
                closed,
                rests,
                refused,
                limited,
            },
        )
    }

    proptest! {
        #[test]
        fn a_key_that_was_refused_is_not_used_while_a_good_one_is_there(
            keys in (key(0), key(1), key(2), key(3), key(4)), turn in 0usize..50, name in "[a-z]{0,3}",
        ) {
            let keys = [keys.0, keys.1, keys.2, keys.3, keys.4];
            let stays = conversation(&name).filter(|_| !name.is_empty());
            let chosen = keys[choose_key(&keys, stays, turn, Instant::now()).unwrap()];
            let is_good = |one: &&KeyCandidate<'_>| {
                one.availability == Availability::Now && !one.refused && !one.rests
            };
            if keys.iter().any(|one| is_good(&one)) {
                prop_assert!(is_good(&&chosen), "{:?} of {:?}", chosen, keys);
            }
        }

        #[test]
        fn a_conversation_moves_only_if_its_own_key_is_out(name in "[a-z]{1,8}", out in 0usize..5, turn in 0usize..50) {
            let now = Instant::now();
            let mut keys = LABELS.map(good);
            let own = choose_key(&keys, conversation(&name), turn, now).unwrap();
            keys[out].refused = true;
            let chosen = choose_key(&keys, conversation(&name), turn + 1, now).unwrap();
            prop_assert!(chosen != out);
            prop_assert_eq!(chosen == own, own != out);
        }
    }

    #[test]
    fn calls_without_a_conversation_take_the_good_keys_in_turn() {
        let mut keys = LABELS.map(good);
        keys[2].limited = 1;
        let mut used = [0; 5];
        for turn in 0..100 {
            used[choose_key(&keys, None, turn, Instant::now()).unwrap()] += 1;
        }
        assert_eq!(used, [25, 25, 0, 25, 25], "one was limited in this call");
    }

    #[test]
    fn conversations_are_spread_over_the_keys() {
        let keys = LABELS.map(good);
        let mut used = [0; 5];
        for number in 0..1_000 {
            let stays = conversation(&format!("c{number}"));
            used[choose_key(&keys, stays, 0, Instant::now()).unwrap()] += 1;
        }
        assert!(
            used.iter().all(|used| (140..=260).contains(used)),
            "{used:?}"
        );
    }
}
