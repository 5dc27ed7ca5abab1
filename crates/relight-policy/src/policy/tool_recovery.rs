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
mod plea;
pub mod reported;
pub mod similarity;
pub mod told;

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
    learning::{Learner, ToolLearning},
};
use super::{inject::Finding, retry::BackoffKind};
use crate::domain::{
    failure::{Failure, Wait},
    ids::TargetId,
    tool::ToolSpec,
};

/// Changes of the arguments of one call. Those of a tool that may destroy something are never
/// changed.
const MAX_ADAPTATIONS: u32 = 1;
/// Other tools that are called in place of the one that failed.
const MAX_ALTERNATIVES: u32 = 2;

/// Extent of recovery after a tool failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolRecoveryPolicy {
    /// If set, recovery continues after the first failure; default true.
    pub enabled: bool,
    /// If set, a call whose arguments have names that the tool's schema does not list is made to
    /// fit it, or refused, before it is sent; default true. A server may ignore such names, so that
    /// the call does something else than was asked. To be switched off for a tool that takes more
    /// than it lists. A schema that allows further arguments itself is taken at its word.
    pub check_names: bool,
    /// Retries of one tool with the same arguments; a number from 0 to 5, default 2. Where another
    /// tool is declared equal, it is called before, as soon as no attempt would be left for it.
    pub max_retries: u32,
}

/// The list of tools, as far as it concerns the tool that failed.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListFacts<'a> {
    /// Tool as it was listed when the arguments were written; `None` if that is not known.
    pub old: Option<&'a ToolSpec>,
    /// Tool as it is listed now; `None` if it is not listed (any more).
    pub current: Option<&'a ToolSpec>,
    /// `true` if the list was fetched after the failure, or that was tried in vain.
    pub is_fresh: bool,
}

/// Steps so far for one call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolTrials {
    /// Retries of the tool that failed, with the arguments that failed.
    pub retries: u32,
    /// Changes of the arguments.
    pub adaptations: u32,
    /// Other tools that were called.
    pub alternatives: u32,
    /// `true` if the call was split.
    pub chunked: bool,
    /// All of it in words, in order, one sentence without its full stop each.
    pub words: Vec<String>,
}

/// Everything that is known when the execution of a tool has failed.
#[derive(Debug, Clone, Copy)]
pub struct ToolSituation<'a> {
    /// Failure that just happened.
    pub failure: &'a Failure,
    /// The target of the tool that failed.
    pub target: &'a TargetId,
    /// The tool's name.
    pub tool: &'a str,
    /// Goal of the caller; empty if it is not known.
    pub goal: &'a str,
    /// Caller and its operation.
    pub learner: &'a Learner,
    /// The arguments of the call; an idempotency key that Relight fills may be left out.
    pub arguments: &'a Arguments,
    /// The tool's side effects.
    pub effects: &'a Effects,
    /// Current content of the list of tools.
    pub list: ListFacts<'a>,
    /// Steps so far.
    pub tried: &'a ToolTrials,
    /// Extent of recovery.
    pub policy: &'a ToolRecoveryPolicy,
    /// Rules by which its calls may be split; the first that fits the arguments counts.
    pub chunk_rules: &'a [ChunkRule],
    /// `true` if the last failures of the tool are more than chance, so that it is hardly well the
    /// next time.
    pub failing: bool,
    /// Executions that the invocation may still make.
    pub attempts_left: u32,
    /// The time that is left; `None` for no deadline.
    pub time_left: Option<Duration>,
    /// The time that an execution of this tool usually takes.
    pub usual_duration: Duration,
    /// Other tools, in no order.
    pub candidates: &'a [AlternativeTool<'a>],
    /// Learnt facts, and the time.
    pub learning: Option<(&'a ToolLearning, Timestamp)>,
}

/// Next step.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolStep {
    /// The same call again.
    Retry {
        /// Kind of wait before it.
        backoff_kind: BackoffKind,
        /// The wait that the failure states, which is a minimum.
        stated: Option<Wait>,
        /// Reason, in words.
        reason: String,
    },
    /// The list of tools is fetched, and it is decided anew.
    RefetchList {
        /// Reason, in words.
        reason: String,
    },
    /// The same tool with changed arguments.
    Adapt {
        /// The arguments and what was changed.
        adapted: AdaptedArguments,
        /// Reason, in words.
        reason: String,
    },
    /// Another tool.
    Alternative {
        /// The tool and its arguments.
        tool: RankedTool,
        /// Reason, in words.
        reason: String,
    },
    /// The call is split.
    Chunk {
        /// The parts.
        plan: ChunkPlan,
        /// Kind of wait before the first part; `None` for not at all.
        backoff_kind: Option<BackoffKind>,
        /// Reason, in words.
        reason: String,
    },
    /// It ends: other tools may do it, but not automatically.
    Offer {
        /// At most three, best first.
        tools: Vec<RankedTool>,
        /// Reason for which it ends, with the tools in words.
        explanation: Explanation,
    },
    /// It ends: it cannot work, for these reasons.
    Explain {
        /// The reasons.
        explanation: Explanation,
    },
    /// It ends: the tool may or may not have done it, and it may not be repeated.
    OutcomeUnknown {
        /// Reason for which it is not repeated.
        reason: String,
    },
    /// It ends with the failure itself.
    Fail {
        /// Remedy for the caller or its model, in words.
        reason: String,
        /// Fault of the arguments, if that is known.
        finding: Option<Finding>,
    },
}

// === impl ToolRecoveryPolicy ===

impl Default for ToolRecoveryPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            check_names: true,
            max_retries: 2,
        }
    }
}

// === impl ToolStep ===

#[cfg(test)]
impl ToolStep {
    /// Returns the meaning of the step as a recovery; `None` if it recovers nothing.
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

    /// Returns the reason for which the step is taken, in one sentence or some.
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

    /// Returns whether the tool, or another one, is executed once more.
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
