//! How a tool call is served: the tool that is called, those that may take its place, and what is
//! known of all tools.

mod knowledge;

use std::{fmt, sync::Arc, time::Duration};

pub use self::knowledge::{Lesson, ToolKnowledge};
use super::BoxFuture;
use crate::{
    domain::{
        failure::ProviderError, ids::TargetId, invocation::SideEffects, target::Target,
        tool::ToolSpec,
    },
    policy::tool_recovery::{
        ToolRecoveryPolicy, chunk::ChunkRule, effects::Effects, history::PastAttempt,
    },
};

/// What is known of the tools of all servers: layers and tool servers do not know each other, both
/// know this.
pub trait ToolCatalogue: fmt::Debug + Send + Sync {
    /// Fetches the list of a server anew, once for all that want that at the same time.
    fn refetch(&self, server: &str) -> BoxFuture<Result<(), ProviderError>>;

    /// A tool as its server listed it last, for a caller that states these side effects; `None`
    /// where it is not listed.
    fn offer(&self, server: &str, tool: &str, stated: Option<SideEffects>) -> Option<ToolOffer>;

    /// Every tool that is listed, for a caller that states these side effects of the tool that it
    /// called.
    fn all(&self) -> Vec<ToolOffer>;

    /// Arguments as they may be kept.
    fn redacted(&self, offer: &ToolOffer, arguments: &str) -> String;
}

/// How a tool call is served.
#[derive(Debug, Clone)]
pub struct ToolPlan {
    /// The tool that was called, then those of its declared group, then those of which it was
    /// learnt that they are meant; the targets of the plan, in the same order.
    pub offers: Vec<ToolOffer>,
    /// How many of them are the tool that was called and its declared group.
    pub declared: usize,
    /// The tool that was named, for which the arguments were written, where another release of its
    /// server is called first.
    pub named: Option<TargetId>,
    /// What is known of all tools.
    pub catalogue: Arc<dyn ToolCatalogue>,
    /// What was learnt, shared by all calls.
    pub knowledge: ToolKnowledge,
    /// Earlier attempts at the same goal, oldest first.
    pub past: Vec<EarlierAttempt>,
}

/// A tool that a call may be made with.
#[derive(Debug, Clone)]
pub struct ToolOffer {
    /// The tool as a target.
    pub target: Arc<Target>,
    /// The tool as its server lists it.
    pub spec: Arc<ToolSpec>,
    /// What it does to the world, as far as it is known.
    pub effects: Effects,
    /// How long one execution may take.
    pub timeout: Duration,
    /// How its calls may be split.
    pub chunk_rules: Arc<[ChunkRule]>,
    /// How far its recovery goes.
    pub recovery: Arc<ToolRecoveryPolicy>,
    /// The version of it: a hash of its schema.
    pub release: String,
}

/// An earlier attempt at the goal of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierAttempt {
    /// The tool that was called, as a target.
    pub target: TargetId,
    /// Whether it did not take the call: the tool that was meant was another one, perhaps.
    pub refused: bool,
    /// The attempt in words.
    pub attempt: PastAttempt,
}

// === impl ToolPlan ===

impl ToolPlan {
    /// The offer that is this target.
    #[must_use]
    pub fn offer(&self, target: &TargetId) -> Option<&ToolOffer> {
        self.offers.iter().find(|offer| offer.target.id == *target)
    }
}
