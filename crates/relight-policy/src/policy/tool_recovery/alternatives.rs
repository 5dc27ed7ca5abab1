//! Finds another tool that may do what one could not, and decides whether that is sure enough to be
//! done automatically.
//!
//! Hard conditions sort out tools that must not or cannot be called; the rest is ranked. Names,
//! descriptions and learnt facts only rank: a tool is called in place of another one only if
//! it is the stable release of it, or if the operator declared both as equivalent.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::{
    adapt::{self, AdaptedArguments, ArgumentFit, Comparison},
    arguments::Arguments,
    effects::Effects,
    learning::{Learner, ToolLearning},
    similarity,
};
use crate::domain::{ids::TargetId, tool::ToolSpec};

/// Number of tools that are offered if none is called automatically.
pub const OFFERED: usize = 3;
/// Most tools that are looked at; more are not compared.
const MAX_COMPARED: usize = 500;

/// A tool that may replace one that failed.
#[derive(Debug, Clone)]
pub struct AlternativeTool<'a> {
    /// Its target.
    pub target: TargetId,
    /// As its server lists it.
    pub spec: &'a ToolSpec,
    /// Arguments that were written for it; `None` if those of the failed call are taken.
    pub arguments: Option<&'a Arguments>,
    /// Reason for which it is as good as the tool that failed; `None` if nothing says so.
    pub equivalence: Option<Equivalence>,
    /// `true` if the operator gave both the same capability.
    pub same_capability: bool,
    /// Its side effects.
    pub effects: Effects,
    /// `true` if calls pass its circuit and its gates.
    pub healthy: bool,
    /// `true` if it was called in this invocation.
    pub tried: bool,
}

/// Reason for which a tool is as good as the one that failed; the preferred one comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Equivalence {
    /// It is the stable release, and the one that failed is a candidate for its place.
    StableRelease,
    /// The operator declared both in one group; its place in that, from 0.
    Group(usize),
}

/// The tool that failed, and what it was called with.
#[derive(Debug, Clone, Copy)]
pub struct FailedTool<'a> {
    /// Its target.
    pub target: &'a TargetId,
    /// Its name.
    pub name: &'a str,
    /// Specification as its server lists it, or listed it last; `None` if it was never listed.
    pub spec: Option<&'a ToolSpec>,
    /// Its side effects.
    pub effects: &'a Effects,
    /// The arguments.
    pub arguments: &'a Arguments,
    /// Caller, and its operation.
    pub learner: &'a Learner,
}

/// Reason for which a tool may be called automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grounds {
    /// It is the stable release of the one that failed.
    Release,
    /// The operator declared both as equivalent.
    Group,
}

/// A tool that may be called in place of the one that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedTool {
    /// Its target.
    pub target: TargetId,
    /// Its name.
    pub name: String,
    /// Arguments that it is called with, if they are not those of the call.
    pub adapted: Option<AdaptedArguments>,
    /// Reason for which it may be called automatically; `None` if it is only offered.
    pub grounds: Option<Grounds>,
    /// Reason for which the arguments of the call are not enough for it, in words; empty if they
    /// are.
    pub needs: String,
}

/// Returns the tools that may be called in place of one that failed, best first.
#[must_use]
pub fn rank(
    failed: FailedTool<'_>,
    candidates: &[AlternativeTool<'_>],
    learning: Option<(&ToolLearning, Timestamp)>,
) -> Vec<RankedTool> {
    let preferred = learning
        .and_then(|(learning, now)| learning.prefer(failed.learner, failed.target.as_str(), now));
    let success = |target: &TargetId| {
        let success = learning
            .and_then(|(learning, now)| learning.success(failed.learner, target.as_str(), now));
        // Nothing known ranks as one half.
        per_mille(success.unwrap_or(0.5))
    };
    let mut ranked: Vec<(_, RankedTool)> = candidates
        .iter()
        .take(MAX_COMPARED)
        .filter(|it| may_be_called(&failed, it))
        .filter_map(|it| {
            let name = &it.spec.name;
            let learnt = preferred
                .as_ref()
                .filter(|preferred| preferred.tool == it.target.as_str());
            let is_related = it.equivalence.is_some()
                || it.same_capability
                || learnt.is_some()
                || similarity::same_subject(failed.name, name);
            let (adapted, needs) = is_related.then(|| satisfied(&failed, it))?;
            let grounds = it.equivalence.map(|equivalence| match equivalence {
                Equivalence::StableRelease => Grounds::Release,
                Equivalence::Group(_) => Grounds::Group,
            });
            let alike = similarity::of_names(failed.name, name)
                + failed.spec.map_or(0.0, |spec| {
                    similarity::of_texts(&spec.description, &it.spec.description)
                });
            let order = (
                !needs.is_empty(),
                learnt.is_none(),
                (it.equivalence.is_none(), it.equivalence),
                Reverse(success(&it.target)),
                adapted.as_ref().map_or(0, |adapted| adapted.changes.len()),
                Reverse(per_mille(alike)),
            );
            let grounds = grounds.filter(|_| needs.is_empty());
            let name = name.clone();
            Some((
                order,
                RankedTool {
                    target: it.target.clone(),
                    name,
                    adapted,
                    grounds,
                    needs,
                },
            ))
        })
        .collect();
    ranked.sort_by_key(|(order, _)| *order);
    ranked.into_iter().map(|(_, tool)| tool).collect()
}

/// Returns the tool that is called at once in place of the one that the caller chose, and the
/// reason: only one that is declared equal to it. `None` if nothing was learnt, or the learnt facts
/// do not fit these arguments.
#[must_use]
pub fn preferred(
    chosen: FailedTool<'_>,
    candidates: &[AlternativeTool<'_>],
    learning: &ToolLearning,
    now: Timestamp,
) -> Option<(RankedTool, String)> {
    let preference = learning.prefer(chosen.learner, chosen.target.as_str(), now)?;
    let wanted: Vec<_> = candidates
        .iter()
        .filter(|it| it.target.as_str() == preference.tool)
        .cloned()
        .collect();
    let tool = rank(chosen, &wanted, Some((learning, now)))
        .into_iter()
        .find(|tool| tool.grounds.is_some())?;
    Some((tool, preference.reason))
}

/// Checks the hard conditions.
fn may_be_called(failed: &FailedTool<'_>, it: &AlternativeTool<'_>) -> bool {
    it.healthy && !it.tried && it.effects.not_worse_than(failed.effects)
}

/// Returns the arguments with which a tool can be called, or what is missing.
fn satisfied(
    failed: &FailedTool<'_>,
    tool: &AlternativeTool<'_>,
) -> (Option<AdaptedArguments>, String) {
    let spec = tool.spec;
    // Of two tools only the names of their arguments show which is which: no schema has become
    // another one.
    let comparison = Comparison {
        old: None,
        new: &spec.input_schema,
        arguments: tool.arguments.unwrap_or(failed.arguments),
        error: "",
        all_listed: true,
        filled: tool.effects.key_argument.as_deref(),
    };
    match adapt::fit(comparison) {
        ArgumentFit::Fits { .. } => (None, String::new()),
        ArgumentFit::Adapted(adapted) => (Some(adapted), String::new()),
        ArgumentFit::Mistake { mismatch } => {
            (None, format!("{} at {}", mismatch.keyword, mismatch.path))
        }
        ArgumentFit::Ambiguous { .. } => (None, adapt::taken(&spec.input_schema)),
        ArgumentFit::Unusable { reason } => (None, reason),
    }
}

/// Returns a share or likeness as a number that has an order.
#[expect(clippy::cast_possible_truncation, reason = "from 0 to 2,000")]
fn per_mille(share: f64) -> i64 {
    (share * 1_000.0).round() as i64
}

#[cfg(test)]
mod tests;
