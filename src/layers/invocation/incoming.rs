//! An invocation as it comes in, with what earlier owners did for it.

use std::sync::Arc;

use super::Plan;
use crate::{
    domain::{
        fold::Block,
        ids::RouteName,
        invocation::{AttemptRecord, Invocation},
        upstream::{BackgroundResponses, UpstreamHandle},
    },
    layers::{append_only::AppendOnly, cancel::Cancel, spans::EntryPoint},
};

/// An invocation as it comes in.
#[derive(Debug, Clone)]
pub struct InvocationContext {
    /// The request.
    pub invocation: Arc<Invocation>,
    /// Plan by which it is served.
    pub plan: Arc<Plan>,
    /// Entry point, as its span is called.
    pub entry: EntryPoint,
    /// Results of an earlier owner; empty for a new one.
    pub before: PreviousRun,
    /// Request for it to end, if any.
    pub cancel: Cancel,
    /// Links to responses that are made in the background.
    pub background: BackgroundResponses,
    /// The word of a front that cannot take back.
    pub append_only: AppendOnly,
    /// The routes that its caller is limited to; empty for no limit.
    pub caller_routes: Vec<RouteName>,
}

impl InvocationContext {
    /// A new invocation, which is not cancelled.
    #[must_use]
    pub fn new(invocation: Invocation, plan: Arc<Plan>, entry: EntryPoint) -> Self {
        let invocation = Arc::new(invocation);
        Self {
            invocation,
            plan,
            entry,
            before: PreviousRun::default(),
            cancel: Cancel::default(),
            background: BackgroundResponses::default(),
            append_only: AppendOnly::default(),
            caller_routes: Vec::new(),
        }
    }
}

/// Results of an earlier owner of an invocation, for the one that continues it.
#[derive(Debug, Clone, Default)]
pub struct PreviousRun {
    /// `true` if there was an earlier owner.
    pub was_owned: bool,
    /// The attempts that were made. Where the last one failed, what follows is decided as after any
    /// failure.
    pub attempts: Vec<AttemptRecord>,
    /// Blocks that followers of the invocation hold.
    pub blocks: Vec<Block>,
    /// Highest number that a block had; 0 if there was none.
    pub last_block: u32,
    /// Response that was being made in the background for the blocks that followers hold, and that
    /// may be read on.
    pub upstream: Option<UpstreamHandle>,
}
