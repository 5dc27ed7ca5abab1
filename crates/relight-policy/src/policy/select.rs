//! Selects the target of the next attempt.
//!
//! It runs before the first attempt and again after every wait, because the situation may have
//! changed since the wait was planned. It reads facts that others gathered (circuits, gates,
//! health) and takes no permit.

use std::{cmp::Reverse, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

mod affinity;
mod busy;
mod keys;

pub use self::{
    affinity::{AffinityKey, AffinityKeys, AffinityPolicy, Conversation},
    keys::{KeyCandidate, choose_key, rest_of_a_key},
};
use super::{
    retry::{Availability, Candidate},
    rng::{SeededRng, place},
};
use crate::domain::{failure::FailureClass, ids::TargetId, invocation::AttemptCause};

/// Choice of a route's target.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SelectPolicy {
    /// `listed`: the first that is free and healthy; `shuffled`: any that is, with equal chance;
    /// `weighted`: any that is, by `weights`; `least_busy`: of two of them, drawn at random, the
    /// one that has less to do and is quicker. Default `listed`.
    pub order: Order,
    /// With `order: weighted`: the share of each target beside the others' (0 to 10000; 1 for those
    /// that are not named). One of weight 0 is called only if no other can be.
    #[schemars(with = "BTreeMap<String, u32>")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<TargetId, u32>,
    /// Affinity of conversations to the targets whose prompt cache holds them.
    pub affinity: AffinityPolicy,
}

/// In which order a route's targets are preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As listed: the first is the primary, the others are its fallbacks.
    #[default]
    Listed,
    /// All are equal: replicas of the same model.
    Shuffled,
    /// Each gets its share of the calls: deployments with different quotas, or a new one on trial.
    Weighted,
    /// The less busy of two that are drawn at random: deployments of different or changing speed.
    LeastBusy,
}

/// The largest weight of a target.
const MAX_WEIGHT: u32 = 10_000;

// === impl SelectPolicy ===

impl SelectPolicy {
    /// Returns the weight of a target.
    #[must_use]
    pub fn weight(&self, target: &TargetId) -> u32 {
        self.weights.get(target).copied().unwrap_or(1)
    }

    /// Returns its faults on a route of these targets: the field and the reason.
    #[must_use]
    pub fn validate(&self, targets: &[TargetId]) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        for (target, weight) in &self.weights {
            let field = format!("weights.{target}");
            if !targets.contains(target) {
                faults.push((field, "is no target of this route".to_owned()));
            } else if *weight > MAX_WEIGHT {
                faults.push((field, format!("must be from 0 to {MAX_WEIGHT}")));
            }
        }
        if !self.weights.is_empty() && self.order != Order::Weighted {
            let reason = "has no effect without order: weighted".to_owned();
            faults.push(("weights".to_owned(), reason));
        }
        let weighs = |target: &TargetId| self.weight(target) > 0;
        if !self.weights.is_empty() && !targets.is_empty() && !targets.iter().any(weighs) {
            let reason = "leaves no target a share; give one of them more than 0".to_owned();
            faults.push(("weights".to_owned(), reason));
        }
        faults.extend(self.affinity_faults());
        faults
    }
}

/// The chosen target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// This candidate, now.
    Target(usize),
    /// None is free now; this candidate is the first to be, then.
    WaitUntil(Instant, usize),
    /// No target.
    None,
}

/// Known facts of an attempt when its target is chosen.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and most attempts have none"
)]
pub struct AttemptFacts<'a> {
    /// Cause that was decided before: of a tool call, or of an attempt that extends a completion.
    pub given: Option<AttemptCause>,
    /// The class of the last failure; `None` before any.
    pub after: Option<FailureClass>,
    /// The target of the attempt before it.
    pub last: Option<&'a TargetId>,
    /// The place of the target that is called first while all are well: of a conversation its own.
    pub first: usize,
    /// `true` if it reads a completion that was requested before.
    pub attaches: bool,
    /// `true` if it continues the text of an abandoned attempt.
    pub continues: bool,
    /// `true` if the request was changed so that the same target may take it now.
    pub adapted: bool,
    /// `true` if the target is called again with another key of its pool.
    pub rotates: bool,
}

/// Chooses a target that is not ruled out and will be available. Of those that are free: one that
/// stayed silent after all others, then `hint` (the planned target), then `failed_last` (the target
/// to avoid, if the failure requires it) after the others, the degraded after the healthy, and
/// of equals the one at which `conversation` stays, or else in the policy's order. A silent one that
/// was not planned is not chosen either while another one will return. One random number is drawn
/// for every choice.
#[must_use]
pub fn choose(
    policy: &SelectPolicy,
    candidates: &[Candidate],
    failed_last: Option<&TargetId>,
    hint: Option<&TargetId>,
    conversation: Option<&Conversation>,
    rng: &mut SeededRng,
) -> Choice {
    let sample = rng.unit();
    let usable = || {
        candidates
            .iter()
            .enumerate()
            .filter(|(_, one)| is_usable(one))
    };
    let returns =
        usable().any(|(_, one)| !one.failed_silent && one.availability != Availability::Now);
    let is_hint = |one: &Candidate| Some(&one.target) == hint;
    let rank = |one: &Candidate| {
        (
            one.failed_silent,
            !is_hint(one),
            Some(&one.target) == failed_last,
            Reverse(one.healthy),
        )
    };
    let free = || {
        usable()
            .filter(|(_, one)| one.availability == Availability::Now)
            // The planner knows the deadline: it plans a silent one only if no other returns in
            // time.
            .filter(|(_, one)| !one.failed_silent || !returns || is_hint(one))
    };
    if let Some(best) = free().map(|(_, one)| rank(one)).min() {
        let equals: Vec<_> = free()
            .filter(|(_, one)| rank(one) == best)
            .map(|(index, _)| index)
            .collect();
        let stays = conversation.and_then(|one| policy.staying(one, candidates, &equals));
        let chosen = stays.or_else(|| in_order(policy, candidates, &equals, sample));
        return chosen.map_or(Choice::None, Choice::Target);
    }
    let first = usable()
        .filter(|(_, one)| !returns || !one.failed_silent)
        .filter_map(|(index, one)| match one.availability {
            Availability::At(instant) => Some((instant, index)),
            Availability::Now | Availability::Never => None,
        });
    first.min().map_or(Choice::None, |(instant, index)| {
        Choice::WaitUntil(instant, index)
    })
}

fn is_usable(candidate: &Candidate) -> bool {
    !candidate.ruled_out && candidate.availability != Availability::Never
}

/// Returns the reason for which an attempt is made on the candidate at `index`; `closed_by`: the
/// class of the failure that closed a gate of a target, if one is closed.
#[must_use]
pub fn cause(
    facts: &AttemptFacts<'_>,
    candidates: &[Candidate],
    index: usize,
    closed_by: impl FnOnce(&TargetId) -> Option<FailureClass>,
) -> AttemptCause {
    if let Some(given) = facts.given {
        return given;
    }
    let Some(class) = facts.after else {
        // Another target is called first: because of what is wrong with the route's first, or else
        // by the order.
        let first = candidates.get(facts.first).filter(|_| index != facts.first);
        let passed_over = first
            .filter(|one| one.outgrown || one.availability != Availability::Now || !one.healthy);
        return passed_over.map_or(AttemptCause::Initial, |one| {
            if one.outgrown {
                return AttemptCause::Fallback(FailureClass::ContextLength);
            }
            AttemptCause::Fallback(closed_by(&one.target).unwrap_or(FailureClass::CircuitOpen))
        });
    };
    let is_same = candidates
        .get(index)
        .is_some_and(|one| facts.last == Some(&one.target));
    match facts {
        AttemptFacts { attaches: true, .. } => AttemptCause::Attach(class),
        AttemptFacts {
            continues: true, ..
        } => AttemptCause::Continue(class),
        _ if !is_same => AttemptCause::Fallback(class),
        AttemptFacts { rotates: true, .. } => AttemptCause::Rotate(class),
        AttemptFacts { adapted: true, .. } => AttemptCause::Adapt(class),
        _ => AttemptCause::Retry(class),
    }
}

/// Returns, of the candidates at `equals`, the one whose turn it is in the policy's order;
/// `sample`: from 0 (included) to 1 (excluded).
#[must_use]
pub fn in_order(
    policy: &SelectPolicy,
    candidates: &[Candidate],
    equals: &[usize],
    sample: f64,
) -> Option<usize> {
    match policy.order {
        Order::Listed => equals.first().copied(),
        Order::Shuffled => equals.get(place(sample, equals.len())).copied(),
        Order::Weighted => {
            let weight = |index: &usize| {
                candidates
                    .get(*index)
                    .map_or(0, |one| policy.weight(&one.target))
            };
            weighted(equals, weight, sample)
        }
        Order::LeastBusy => busy::less_busy(candidates, equals, sample),
    }
}

/// Returns one of `equals` by its weight; the first if none has any.
fn weighted(equals: &[usize], weight: impl Fn(&usize) -> u32, sample: f64) -> Option<usize> {
    let total: u32 = equals.iter().map(&weight).sum();
    let mut ends = 0.0;
    let drawn = equals
        .iter()
        .filter(|index| weight(index) > 0)
        .find(|index| {
            ends += f64::from(weight(index));
            sample * f64::from(total) < ends
        });
    drawn.or(equals.first()).copied()
}

#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;
