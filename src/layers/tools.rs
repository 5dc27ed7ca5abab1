//! How a tool call is served: the tool that is called, those that may take its place, and what is
//! known of all tools.

mod knowledge;

use std::{fmt, sync::Arc, time::Duration};

pub use self::knowledge::{Lesson, ToolKnowledge};
use serde_json::Value;

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

/// Known facts of the tools of all servers: layers and tool servers do not know each other, both
/// know this.
pub trait ToolCatalogue: fmt::Debug + Send + Sync {
    /// Fetches the list of a server anew, once for all that want that at the same time.
    fn refetch(&self, server: &str) -> BoxFuture<Result<(), ProviderError>>;

    /// Returns a tool as its server listed it last, for a caller that states these side effects;
    /// `None` if it is not listed.
    fn offer(&self, server: &str, tool: &str, stated: Option<SideEffects>) -> Option<ToolOffer>;

    /// Returns every tool that is listed, for a caller that states these side effects of the tool
    /// that it called.
    fn all(&self) -> Vec<ToolOffer>;

    /// Arguments as they may be kept.
    fn redacted(&self, offer: &ToolOffer, arguments: &str) -> String;
}

/// Plan by which a tool call is served.
#[derive(Debug, Clone)]
pub struct ToolPlan {
    /// The tool that was called, then those of its declared group; the targets of the plan, in the
    /// same order.
    pub offers: Vec<ToolOffer>,
    /// Tool that was named, for which the arguments were written, if another release of its server
    /// is called first.
    pub named: Option<TargetId>,
    /// Tool that was named, if its server does not list its tools, so that those which are declared
    /// equal to it take the call.
    pub unlisted: Option<TargetId>,
    /// Schema that the tool had before its current one, if that is known.
    pub before: Option<Arc<Value>>,
    /// Known facts of all tools.
    pub catalogue: Arc<dyn ToolCatalogue>,
    /// Learnt facts, shared by all calls.
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
    /// Effects on the world, as far as they are known.
    pub effects: Effects,
    /// Time that one execution may take.
    pub timeout: Duration,
    /// Rules by which its calls may be split.
    pub chunk_rules: Arc<[ChunkRule]>,
    /// Extent of its recovery.
    pub recovery: Arc<ToolRecoveryPolicy>,
    /// The version of it: a hash of its schema.
    pub release: String,
}

/// An earlier attempt at the goal of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierAttempt {
    /// The tool that was called, as a target.
    pub target: TargetId,
    /// `true` if it did not take the call: the tool that was meant was another one, perhaps.
    pub refused: bool,
    /// The attempt in words.
    pub attempt: PastAttempt,
}

/// Returns an id for a call of a tool whose caller did not name one.
#[must_use]
pub fn minted_call_id() -> String {
    format!("call_{}", uuid::Uuid::now_v7().simple())
}

// === impl ToolPlan ===

impl ToolPlan {
    /// Returns the offer that is this target.
    #[must_use]
    pub fn offer(&self, target: &TargetId) -> Option<&ToolOffer> {
        self.offers.iter().find(|offer| offer.target.id == *target)
    }
}
