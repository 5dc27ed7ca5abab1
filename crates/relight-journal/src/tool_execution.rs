//! Executions of tools as the journal keeps them: one a row, with what they are found by.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    domain::{
        failure::FailureClass,
        fold::hex,
        ids::{InvocationId, Operation, RouteName, TargetId, TenantId, ThreadId},
        invocation::{AttemptRecord, Outcome},
    },
    policy::tool_recovery::history,
};

/// One execution of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolExecution {
    /// The invocation that it was made for.
    pub invocation: InvocationId,
    /// The number of its attempt.
    pub attempt: u32,
    /// Tenant that called.
    pub tenant: TenantId,
    /// The route.
    pub route: RouteName,
    /// Kind of work that the caller did.
    pub operation: Operation,
    /// The thread it was made on.
    pub thread: Option<ThreadId>,
    /// The tool, as `server/tool`.
    pub target: TargetId,
    /// By what it is found: a hash of its tenant, thread and goal; empty without a goal.
    pub goal_key: String,
    /// Cause for which it was made: `initial`, `adapt:invalid_request`, …
    pub cause: String,
    /// State in which it ended.
    pub state: ExecutionState,
    /// Class of its failure.
    pub class: Option<FailureClass>,
    /// The version of the tool.
    pub release: String,
    /// Time of its start.
    pub started_at: Timestamp,
    /// Time that it took.
    pub duration: Duration,
    /// Content; `None` if payloads are not kept.
    pub detail: Option<ExecutionDetail>,
}

/// The content of an execution, redacted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExecutionDetail {
    /// The arguments, raw JSON text.
    pub arguments: String,
    /// Purpose of the call.
    pub goal: String,
    /// Failure in words; empty if it did not fail.
    pub error: String,
}

/// End of an execution of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionState {
    /// The tool returned its result.
    Succeeded,
    /// It failed.
    Failed,
    /// It is not known whether it took place.
    Unknown,
    /// It was given up from this side.
    Cancelled,
}

/// Filter for the executions that are looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecutionListing {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those on these routes; empty for no limit.
    pub routes: Vec<RouteName>,
    /// Only those of this tool, as `server/tool`.
    pub target: Option<TargetId>,
    /// Only those of this operation.
    pub operation: Option<Operation>,
    /// Only those on this thread.
    pub thread: Option<ThreadId>,
    /// Only those of this invocation.
    pub invocation: Option<InvocationId>,
    /// Only those with this goal, by [`goal_key`].
    pub goal_key: Option<String>,
    /// Only those that ended so.
    pub state: Option<ExecutionState>,
    /// Only those that started then or later.
    pub since: Option<Timestamp>,
    /// Only those before this one in the order of the list: newest first.
    pub before: Option<(InvocationId, u32)>,
}

/// Returns the key by which the executions for a goal are found; empty if no goal is stated.
#[must_use]
pub fn goal_key(tenant: &TenantId, thread: Option<&ThreadId>, goal: &str) -> String {
    if goal.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new();
    let goal = history::goal_key(goal);
    for part in [
        tenant.as_str(),
        thread.map_or("", ThreadId::as_str),
        goal.as_str(),
    ] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

// === impl ToolExecution ===

impl ToolExecution {
    /// Returns the executions of an invocation that ended so; `keeps`: whether their content is
    /// kept.
    pub(super) fn of(whose: &Whose<'_>, outcome: &Outcome, keeps: bool) -> Vec<Self> {
        let execution = |record: &AttemptRecord| {
            let tool = record.tool.as_deref()?;
            let failure = record.failure.as_ref();
            // Whether it took place is not known of one that ran when its process died.
            let class = if record.lost_with_replica {
                Some(FailureClass::OutcomeUnknown)
            } else {
                failure.map(|failure| failure.class)
            };
            let error = failure
                .map(|failure| failure.message.clone())
                .unwrap_or_default();
            let detail = ExecutionDetail {
                arguments: tool.arguments.clone(),
                goal: tool.goal.clone(),
                error,
            };
            Some(Self {
                invocation: outcome.invocation.clone(),
                attempt: record.number,
                tenant: whose.tenant.clone(),
                route: whose.route.clone(),
                operation: whose.operation.clone(),
                thread: whose.thread.cloned(),
                target: record.target.clone()?,
                goal_key: goal_key(whose.tenant, whose.thread, &tool.goal),
                cause: record.cause.label(),
                state: ExecutionState::of(class),
                class,
                release: tool.release.clone(),
                started_at: record.started_at,
                duration: record.duration,
                detail: keeps.then_some(detail),
            })
        };
        outcome.attempts.iter().filter_map(execution).collect()
    }

    /// Roughly what it takes in memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let detail = self.detail.as_ref();
        let content = detail.map_or(0, |detail| {
            detail.arguments.len() + detail.goal.len() + detail.error.len()
        });
        (size_of::<Self>() + content) as u64
    }
}

/// Scope of the executions: whose they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) route: &'a RouteName,
    pub(super) operation: &'a Operation,
    pub(super) thread: Option<&'a ThreadId>,
}

// === impl ExecutionState ===

impl ExecutionState {
    /// Every one of them.
    pub const ALL: [Self; 4] = [
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::Cancelled,
    ];

    /// Returns the state's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the state of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    const fn of(class: Option<FailureClass>) -> Self {
        match class {
            None => Self::Succeeded,
            Some(FailureClass::OutcomeUnknown) => Self::Unknown,
            Some(FailureClass::Cancelled) => Self::Cancelled,
            Some(_) => Self::Failed,
        }
    }
}

// === impl ExecutionListing ===

impl ExecutionListing {
    /// Returns whether an execution is among them.
    pub(super) fn holds(&self, one: &ToolExecution) -> bool {
        self.tenant
            .as_ref()
            .is_none_or(|tenant| *tenant == one.tenant)
            && one.route.is_allowed_by(&self.routes)
            && self
                .target
                .as_ref()
                .is_none_or(|target| *target == one.target)
            && self
                .operation
                .as_ref()
                .is_none_or(|operation| *operation == one.operation)
            && self
                .thread
                .as_ref()
                .is_none_or(|thread| Some(thread) == one.thread.as_ref())
            && self
                .invocation
                .as_ref()
                .is_none_or(|invocation| *invocation == one.invocation)
            && self
                .goal_key
                .as_ref()
                .is_none_or(|key| *key == one.goal_key)
            && self.state.is_none_or(|state| state == one.state)
            && self.since.is_none_or(|since| one.started_at >= since)
            && self
                .before
                .as_ref()
                .is_none_or(|(id, attempt)| (&one.invocation, one.attempt) < (id, *attempt))
    }
}
