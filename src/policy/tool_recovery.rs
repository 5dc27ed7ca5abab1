//! What is done when a tool fails: retry, adapt its arguments, call another tool, split the call,
//! or explain.
//!
//! One failed execution in, one step out, with its reason. The ladder is climbed in that order, as
//! far as the cause of the failure lets a rung help; what the operator's and the caller's limits
//! leave decides the rest. An execution that may have taken place and may not be repeated ends it:
//! nothing is done to find out, and nothing is claimed.

pub mod adapt;
pub mod alternatives;
pub mod arguments;
pub mod chunk;
pub mod effects;
pub mod explain;
pub mod history;
mod ladder;
pub mod learning;
pub mod similarity;

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::ladder::{decide, is_left};
use self::{
    adapt::AdaptedArguments,
    alternatives::{AlternativeTool, RankedTool},
    arguments::Arguments,
    chunk::{ChunkPlan, ChunkRule},
    effects::Effects,
    explain::Explanation,
    learning::ToolLearning,
};
use super::{inject::Finding, retry::BackoffKind};
use crate::domain::{
    failure::{Failure, Wait},
    ids::{Operation, TargetId},
    tool::ToolSpec,
};

/// How far recovery goes after a tool failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolRecoveryPolicy {
    /// Whether anything is done after the first failure; default true.
    pub enabled: bool,
    /// Retries of one tool with the same arguments; a number from 0 to 5, default 2.
    pub max_retries: u32,
    /// Retries after a time-out before a call that can be split is split; a number from 0 to 5,
    /// default 0.
    pub retries_before_chunk: u32,
    /// Changes of the arguments of one call; a number from 0 to 3, default 1.
    pub max_adaptations: u32,
    /// Other tools that are called in place of the one that failed; a number from 0 to 5,
    /// default 2.
    pub max_alternatives: u32,
    /// Whether arguments of tools that may destroy something are adapted too; default false.
    pub adapt_destructive: bool,
}

/// The list of tools, as far as it concerns the tool that failed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListFacts<'a> {
    /// The tool as it was listed when the arguments were written; `None` where that is not known.
    pub old: Option<&'a ToolSpec>,
    /// The tool as it is listed now; `None` where it is not listed (any more).
    pub current: Option<&'a ToolSpec>,
    /// Whether the list was fetched after the failure, or that was tried in vain.
    pub is_fresh: bool,
}

/// What was done so far for one call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolTrials {
    /// Retries of the tool that failed, with the arguments that failed.
    pub retries: u32,
    /// Changes of the arguments.
    pub adaptations: u32,
    /// Other tools that were called.
    pub alternatives: u32,
    /// Whether the call was split.
    pub chunked: bool,
    /// All of it in words, in order, one sentence without its full stop each.
    pub words: Vec<String>,
}

/// Everything that is known when the execution of a tool has failed.
#[derive(Debug, Clone, Copy)]
pub struct ToolSituation<'a> {
    /// What just happened.
    pub failure: &'a Failure,
    /// The target of the tool that failed.
    pub target: &'a TargetId,
    /// The tool's name.
    pub tool: &'a str,
    /// What the caller wants to reach; empty where it is not known.
    pub goal: &'a str,
    /// What the caller is doing.
    pub operation: &'a Operation,
    /// The arguments of the call; an idempotency key that Relight fills may be left out.
    pub arguments: &'a Arguments,
    /// The tool's side effects.
    pub effects: &'a Effects,
    /// What the list of tools holds now.
    pub list: ListFacts<'a>,
    /// What was done so far.
    pub tried: &'a ToolTrials,
    /// How far recovery goes.
    pub policy: &'a ToolRecoveryPolicy,
    /// How its calls may be split; the first rule that fits the arguments counts.
    pub chunk_rules: &'a [ChunkRule],
    /// Executions that the invocation may still make.
    pub attempts_left: u32,
    /// The time that is left; `None` for no deadline.
    pub time_left: Option<Duration>,
    /// The time that an execution of this tool usually takes.
    pub usual_duration: Duration,
    /// Other tools, in no order.
    pub candidates: &'a [AlternativeTool<'a>],
    /// What was learnt, and the time.
    pub learning: Option<(&'a ToolLearning, Timestamp)>,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolStep {
    /// The same call again.
    Retry {
        /// How it is waited for.
        backoff_kind: BackoffKind,
        /// The wait that the failure states, which is a minimum.
        stated: Option<Wait>,
        /// Why, in words.
        reason: String,
    },
    /// The list of tools is fetched, and it is decided anew.
    RefetchList {
        /// Why, in words.
        reason: String,
    },
    /// The same tool with changed arguments.
    Adapt {
        /// The arguments and what was changed.
        adapted: AdaptedArguments,
        /// Why, in words.
        reason: String,
    },
    /// Another tool.
    Alternative {
        /// The tool and its arguments.
        tool: RankedTool,
        /// Why, in words.
        reason: String,
    },
    /// The call is split.
    Chunk {
        /// The parts.
        plan: ChunkPlan,
        /// How the first part is waited for; `None` for not at all.
        backoff_kind: Option<BackoffKind>,
        /// Why, in words.
        reason: String,
    },
    /// It ends: other tools may do it, but not automatically.
    Offer {
        /// At most three, best first.
        tools: Vec<RankedTool>,
        /// Why it ends, with the tools in words.
        explanation: Explanation,
    },
    /// It ends: it cannot work, for these reasons.
    Explain {
        /// The reasons.
        explanation: Explanation,
    },
    /// It ends: the tool may or may not have done it, and it may not be repeated.
    OutcomeUnknown {
        /// That in neutral words.
        reason: String,
    },
    /// It ends with the failure itself.
    Fail {
        /// What the caller or its model can do about it, in words.
        reason: String,
        /// What is wrong with the arguments, where that is known.
        finding: Option<Finding>,
    },
}

// === impl ToolRecoveryPolicy ===

impl Default for ToolRecoveryPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 2,
            retries_before_chunk: 0,
            max_adaptations: 1,
            max_alternatives: 2,
            adapt_destructive: false,
        }
    }
}

// === impl ToolStep ===

#[cfg(test)]
impl ToolStep {
    /// What the step means as a recovery; `None` where it recovers nothing.
    #[must_use]
    pub const fn strategy(&self) -> Option<crate::domain::invocation::RecoveryStrategy> {
        use crate::domain::invocation::RecoveryStrategy;
        match self {
            Self::Retry { .. } => Some(RecoveryStrategy::Retry),
            Self::Adapt { .. } => Some(RecoveryStrategy::Adapt),
            Self::Alternative { .. } => Some(RecoveryStrategy::Fallback),
            Self::Chunk { .. } => Some(RecoveryStrategy::Chunk),
            Self::Offer { .. } | Self::Explain { .. } => Some(RecoveryStrategy::Impossible),
            Self::RefetchList { .. } | Self::OutcomeUnknown { .. } | Self::Fail { .. } => None,
        }
    }

    /// Why the step is taken, in one sentence or some.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Retry { reason, .. }
            | Self::RefetchList { reason }
            | Self::Adapt { reason, .. }
            | Self::Alternative { reason, .. }
            | Self::Chunk { reason, .. }
            | Self::OutcomeUnknown { reason }
            | Self::Fail { reason, .. } => reason.clone(),
            Self::Offer { explanation, .. } | Self::Explain { explanation } => explanation.text(),
        }
    }

    /// Whether the tool, or another one, is executed once more.
    #[must_use]
    pub const fn executes(&self) -> bool {
        matches!(
            self,
            Self::Retry { .. } | Self::Adapt { .. } | Self::Alternative { .. } | Self::Chunk { .. }
        )
    }
}

#[cfg(test)]
mod tests;
