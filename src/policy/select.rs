//! Selects the target of the next attempt.
//!
//! It runs before the first attempt and again after every wait, because the situation may have
//! changed since the wait was planned. It reads facts that others gathered (circuits, gates,
//! health) and takes no permit.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    retry::{Availability, Candidate},
    rng::{SeededRng, place},
};
use crate::domain::{failure::FailureClass, ids::TargetId, invocation::AttemptCause};

/// How a target of a route is chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SelectPolicy {
    /// `listed`: the first that is free and healthy; `shuffled`: any that is, with equal chance.
    /// Default `listed`.
    pub order: Order,
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

/// What is known of an attempt when its target is chosen.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttemptFacts<'a> {
    /// The cause that was decided before: of a tool call, or of an attempt that extends an answer.
    pub given: Option<AttemptCause>,
    /// The class of the last failure; `None` before any.
    pub after: Option<FailureClass>,
    /// The target of the attempt before it.
    pub last: Option<&'a TargetId>,
    /// Whether it reads an answer that was requested before.
    pub attaches: bool,
    /// Whether it continues the text of an abandoned attempt.
    pub continues: bool,
    /// Whether the request was changed so that the same target may take it now.
    pub adapted: bool,
}

/// Chooses a target that is not ruled out and will be available. Of those that are free: one that
/// stayed silent after all others, then `hint` (the planned target), then `failed_last` (the target
/// to avoid, where the failure requires it) after the others, the degraded after the healthy, and
/// equals in the policy's order. A silent one that was not planned is not chosen either while
/// another one will return. One random number is drawn whatever is chosen.
#[must_use]
pub fn choose(
    policy: &SelectPolicy,
    candidates: &[Candidate],
    failed_last: Option<&TargetId>,
    hint: Option<&TargetId>,
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
        let turn = match policy.order {
            Order::Listed => 0,
            Order::Shuffled => place(sample, equals.len()),
        };
        return equals
            .get(turn)
            .map_or(Choice::None, |index| Choice::Target(*index));
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

/// Why an attempt is made on the candidate at `index`; `closed_by`: the class of the failure that
/// closed a gate of a target, where one is closed.
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
        let first = candidates.first().filter(|_| index > 0);
        let passed_over = first.filter(|one| one.availability != Availability::Now || !one.healthy);
        return passed_over.map_or(AttemptCause::Initial, |one| {
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
        AttemptFacts { adapted: true, .. } => AttemptCause::Adapt(class),
        _ => AttemptCause::Retry(class),
    }
}

#[cfg(test)]
mod tests;
