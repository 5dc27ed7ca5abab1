//! The decision: which rung of the ladder is tried next.
//!
//! Each cause of failure has its rungs, in order; a rung that cannot be taken (not allowed, used
//! up, no time, nothing found) passes to the next, and the last is the explanation.

mod cause;

use std::time::Duration;

use self::cause::{Cause, Rung};
use super::{
    MAX_ADAPTATIONS, MAX_ALTERNATIVES, ToolSituation, ToolStep,
    adapt::{self, ArgumentFit, Comparison},
    alternatives::{self, FailedTool, Grounds, OFFERED, RankedTool},
    arguments::{self, Arguments, quoted},
    chunk::{ChunkPlan, ChunkRule},
    effects::{ToolExecuted, execution},
    explain::{Explanation, ExplanationFacts},
};
use crate::{
    domain::failure::{Failure, FailureClass, InvalidRequestDetail},
    policy::{
        inject::{Finding, Mismatch},
        retry::BackoffKind,
        schema::misfit,
    },
};

/// A tool that is closed to calls for longer than this is left for another one.
const WAITS_FOR: Duration = Duration::from_secs(1);

/// Returns whether a tool that Relight refused to call for now is left for another one, if there is
/// one.
#[must_use]
pub fn is_left(refusal: &Failure) -> bool {
    refusal
        .retry_after
        .is_none_or(|wait| wait.duration > WAITS_FOR)
}

/// Decides what follows a failed execution of a tool.
#[must_use]
pub fn decide(situation: &ToolSituation<'_>) -> ToolStep {
    let failure = situation.failure;
    if failure.class == FailureClass::OutcomeUnknown || situation.effects.leave_open(failure) {
        return outcome_unknown(situation);
    }
    let cause = Cause::of(failure);
    if cause == Cause::Ended {
        let reason = format!("{}: nothing more is done", failure.phrase());
        return ToolStep::Fail {
            reason,
            finding: None,
        };
    }
    if !situation.policy.enabled {
        let reason = "recovery is switched off for this tool".to_owned();
        return ToolStep::Fail {
            reason,
            finding: None,
        };
    }
    if cause == Cause::Impossible {
        return explain(situation, "");
    }
    if situation.attempts_left == 0 {
        return explain(situation, "no attempts are left");
    }
    if situation
        .time_left
        .is_some_and(|left| left < situation.usual_duration || left.is_zero())
    {
        return explain(situation, "not enough time is left");
    }
    let rungs = cause.rungs(situation);
    let step = rungs.iter().find_map(|rung| match rung {
        Rung::Retry => retry(situation, cause),
        Rung::Adapt => adapt(situation),
        Rung::Alternative => alternative(situation, cause),
        Rung::Chunk => chunk(situation, cause),
    });
    step.unwrap_or_else(|| {
        let ended_by = match execution(failure) {
            ToolExecuted::Ended | ToolExecuted::Unknown if !situation.effects.repeatable => {
                format!(
                    "it is not executed again, because {}",
                    situation.effects.reason
                )
            }
            ToolExecuted::NotExecuted | ToolExecuted::Ended | ToolExecuted::Unknown => {
                String::new()
            }
        };
        explain(situation, &ended_by)
    })
}

fn outcome_unknown(situation: &ToolSituation<'_>) -> ToolStep {
    ToolStep::OutcomeUnknown {
        reason: format!(
            "It is not executed again, because {}.",
            situation.effects.reason
        ),
    }
}

fn retry(situation: &ToolSituation<'_>, cause: Cause) -> Option<ToolStep> {
    let ToolSituation {
        failure,
        tried,
        policy,
        effects,
        ..
    } = *situation;
    if failure.class.is_local_refusal() {
        // It is not called for now: the question is whether another tool is.
        return None;
    }
    // Nothing stated to come back for, and no reason to think that the same would end otherwise.
    let is_hopeful =
        failure.retryable || failure.never_sent || matches!(cause, Cause::TooSlow | Cause::Opaque);
    if !is_hopeful || tried.retries >= policy.max_retries || !effects.allow_again(failure) {
        return None;
    }
    if leaves_for_an_equal(situation, cause) {
        return None;
    }
    let stated = failure.retry_after;
    let wait = stated.map_or(Duration::ZERO, |wait| wait.duration);
    if situation
        .time_left
        .is_some_and(|left| left < wait.saturating_add(situation.usual_duration))
    {
        return None;
    }
    let is_throttled = matches!(
        failure.class,
        FailureClass::RateLimited | FailureClass::Overloaded
    );
    let backoff_kind = if is_throttled {
        BackoffKind::Throttle
    } else {
        BackoffKind::Backoff
    };
    let allowed = if effects.repeatable {
        effects.reason
    } else {
        "it was not executed"
    };
    let reason = format!(
        "{}: the call is repeated, which is allowed because {allowed}",
        failure.phrase()
    );
    Some(ToolStep::Retry {
        backoff_kind,
        stated,
        reason,
    })
}

/// Returns whether a tool that is declared equal is called before this one again: at once if time
/// does not mend the failure, or if this one is only on trial, and in any case as long as an
/// attempt is left for it.
fn leaves_for_an_equal(situation: &ToolSituation<'_>, cause: Cause) -> bool {
    let ToolSituation { failure, tried, .. } = *situation;
    let ranked = ranked(situation);
    let equals = ranked.iter().filter_map(|tool| tool.grounds);
    if !may_be_given_away(situation) || equals.clone().next().is_none() {
        return false;
    }
    let is_mended = cause == Cause::Opaque || failure.class == FailureClass::ServerError;
    !is_mended
        || situation.failing
        || tried.retries > 0
        || equals.clone().any(|grounds| grounds == Grounds::Release)
        || situation.attempts_left as usize <= equals.count()
}

/// Returns whether another tool may take the call.
fn may_be_given_away(situation: &ToolSituation<'_>) -> bool {
    situation.tried.alternatives < MAX_ALTERNATIVES
        && situation.effects.allow_again(situation.failure)
}

fn adapt(situation: &ToolSituation<'_>) -> Option<ToolStep> {
    let ToolSituation {
        failure,
        list,
        tried,
        effects,
        ..
    } = *situation;
    let refetch = |reason: &str| {
        Some(ToolStep::RefetchList {
            reason: reason.to_owned(),
        })
    };
    if !list.is_fresh {
        return refetch("the tool refused its arguments: its schema may have changed");
    }
    let Some(current) = list.current else {
        return alternative(situation, Cause::Missing);
    };
    let fit = adapt::fit(Comparison {
        old: list.old.map(|old| &*old.input_schema),
        new: &current.input_schema,
        arguments: situation.arguments,
        error: &failure.message,
        all_listed: false,
        filled: effects.key_argument.as_deref(),
    });
    match fit {
        ArgumentFit::Adapted(_) if tried.adaptations >= MAX_ADAPTATIONS => None,
        // What was not surely refused as a call may have been half done.
        ArgumentFit::Adapted(_) if !effects.allow_again(failure) && !names_arguments(failure) => {
            None
        }
        ArgumentFit::Adapted(adapted) if effects.destructive => {
            let reason = format!(
                "The arguments do not fit {}, which may destroy something: they are not adapted ({}).",
                quoted(situation.tool),
                adapted.words
            );
            Some(ToolStep::Fail {
                reason,
                finding: None,
            })
        }
        ArgumentFit::Adapted(adapted) => {
            let reason = format!(
                "the arguments did not fit {}: {}",
                quoted(situation.tool),
                adapted.words
            );
            Some(ToolStep::Adapt { adapted, reason })
        }
        ArgumentFit::Mistake { mismatch } => {
            chunk_of_limit(situation, &mismatch).or_else(|| Some(mistake(situation, mismatch)))
        }
        ArgumentFit::Ambiguous { differences } => {
            let reason = format!(
                "The arguments do not fit {}. {differences}",
                quoted(situation.tool)
            );
            Some(ToolStep::Fail {
                reason,
                finding: None,
            })
        }
        ArgumentFit::Unusable { reason } => Some(ToolStep::Fail {
            reason,
            finding: None,
        }),
        // What was refused before fits now: the list was changed meanwhile.
        ArgumentFit::Fits { changed: true }
            if tried.retries == 0 && effects.allow_again(failure) =>
        {
            let reason =
                "the tool's schema changed, and the arguments fit it as they are".to_owned();
            Some(ToolStep::Retry {
                backoff_kind: BackoffKind::AtOnce,
                stated: None,
                reason,
            })
        }
        // How much the tool takes at once is in its words, not in its schema.
        ArgumentFit::Fits { .. } => {
            let is_named = situation
                .chunk_rules
                .iter()
                .any(|rule| rule.is_named_in(&failure.message));
            if is_named {
                chunk(situation, Cause::TooLarge)
            } else {
                None
            }
        }
    }
}

/// Returns whether a failure is about the arguments themselves and not about the things that they
/// name.
const fn names_arguments(failure: &Failure) -> bool {
    matches!(
        failure.detail,
        Some(InvalidRequestDetail::ParameterMismatch | InvalidRequestDetail::BadSchema)
    )
}

/// Splits the call if it only wants more results at once than the tool gives.
fn chunk_of_limit(situation: &ToolSituation<'_>, mismatch: &Mismatch) -> Option<ToolStep> {
    let is_upper_bound = matches!(
        mismatch.keyword.as_str(),
        "maximum" | "exclusiveMaximum" | "maxItems"
    );
    if is_upper_bound {
        chunk(situation, Cause::TooLarge)
    } else {
        None
    }
}

fn mistake(situation: &ToolSituation<'_>, mismatch: Mismatch) -> ToolStep {
    let reason = format!(
        "The arguments do not fit the schema of {}, which has not changed: {}.",
        quoted(situation.tool),
        quoted(&misfit(&mismatch))
    );
    let finding = Finding::ToolArguments {
        tool: situation.tool.to_owned(),
        mismatch,
    };
    ToolStep::Fail {
        reason,
        finding: Some(finding),
    }
}

fn alternative(situation: &ToolSituation<'_>, cause: Cause) -> Option<ToolStep> {
    let ToolSituation { failure, list, .. } = *situation;
    // A tool that is gone is found again under another name only in a new list.
    if cause == Cause::Missing && !list.is_fresh {
        let reason =
            "what was called does not exist: the list of tools may have changed".to_owned();
        return Some(ToolStep::RefetchList { reason });
    }
    let ranked = ranked(situation);
    let automatic = ranked.iter().find_map(|tool| Some((tool, tool.grounds?)));
    if let Some((tool, grounds)) = automatic
        && may_be_given_away(situation)
    {
        let why = match grounds {
            Grounds::Release => "it is the stable release and the other one is its candidate",
            Grounds::Group => "its operator declared it as equivalent",
        };
        // Tools of one name are distinguished by their servers.
        let (called, failed) = if tool.name == situation.tool {
            (tool.target.as_str(), situation.target.as_str())
        } else {
            (tool.name.as_str(), situation.tool)
        };
        let reason = format!(
            "{}: {} is called in place of {}, because {why}",
            failure.phrase(),
            quoted(called),
            quoted(failed)
        );
        return Some(ToolStep::Alternative {
            tool: tool.clone(),
            reason,
        });
    }
    let is_offered = matches!(cause, Cause::Missing | Cause::OnlyElsewhere)
        && may_be_offered(situation)
        && !ranked.is_empty();
    is_offered.then(|| {
        let explanation = explanation(
            situation,
            &ranked,
            "no other tool that is declared as equivalent can take the call",
        );
        ToolStep::Offer {
            tools: ranked.into_iter().take(OFFERED).collect(),
            explanation,
        }
    })
}

fn chunk(situation: &ToolSituation<'_>, cause: Cause) -> Option<ToolStep> {
    if situation.tried.chunked {
        return None;
    }
    let arguments = without_key(situation);
    if !arguments::keep_their_digits(&arguments) {
        return None;
    }
    let plan = |rule: &ChunkRule| rule.plan(&arguments, situation.effects);
    let plan: ChunkPlan = situation.chunk_rules.iter().find_map(plan)?;
    let reason = format!("{}: {}", situation.failure.phrase(), plan.words());
    // What is limited is not sent several times at once.
    Some(match cause {
        Cause::Limited => ToolStep::Chunk {
            plan: plan.with_parallel(1),
            backoff_kind: Some(BackoffKind::Throttle),
            reason,
        },
        _ => ToolStep::Chunk {
            plan,
            backoff_kind: None,
            reason,
        },
    })
}

/// Returns the arguments without the key of this one call: its parts and other tools have their
/// own.
fn without_key(situation: &ToolSituation<'_>) -> Arguments {
    let mut arguments = situation.arguments.clone();
    if let Some(key) = &situation.effects.key_argument {
        arguments.shift_remove(key);
    }
    arguments
}

fn ranked(situation: &ToolSituation<'_>) -> Vec<RankedTool> {
    let arguments = without_key(situation);
    let failed = FailedTool {
        target: situation.target,
        name: situation.tool,
        spec: situation.list.current.or(situation.list.old),
        effects: situation.effects,
        arguments: &arguments,
        learner: situation.learner,
    };
    let others: Vec<_> = situation
        .candidates
        .iter()
        .filter(|it| it.target != *situation.target)
        .cloned()
        .collect();
    alternatives::rank(failed, &others, situation.learning)
}

fn explain(situation: &ToolSituation<'_>, ended_by: &str) -> ToolStep {
    let offered = if may_be_offered(situation) {
        ranked(situation)
    } else {
        Vec::new()
    };
    ToolStep::Explain {
        explanation: explanation(situation, &offered, ended_by),
    }
}

/// Returns whether other tools are named to the caller: an action with a side effect is not done by
/// another tool, unless the one that was called is gone.
fn may_be_offered(situation: &ToolSituation<'_>) -> bool {
    let is_gone = situation.list.is_fresh && situation.list.current.is_none();
    situation.effects.read_only || is_gone
}

fn explanation(
    situation: &ToolSituation<'_>,
    alternatives: &[RankedTool],
    ended_by: &str,
) -> Explanation {
    Explanation::of(ExplanationFacts {
        tool: situation.tool,
        goal: situation.goal,
        failure: situation.failure,
        tried: &situation.tried.words,
        ended_by,
        alternatives,
    })
}
