//! An invocation: its request, its attempts, and its one outcome.

mod attempt_record;
mod history;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::{
    attempt_record::{AttemptIds, AttemptRecord, InjectionRecord},
    history::HistoryPatch,
};
pub use super::tool::SideEffects;
use super::{
    completion::{Completion, Usage},
    failure::{Failure, FailureClass},
    ids::{InvocationId, Operation, RequestId, RouteName, TargetId, TenantId, ThreadId},
    message::ModelCall,
};

/// The operation of callers that name none.
pub const DEFAULT_OPERATION: &str = "executor";

/// A request with its identity, route and deadline.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Its id.
    pub id: InvocationId,
    /// The caller's idempotency key.
    pub request_id: Option<RequestId>,
    /// The conversation that Relight keeps.
    pub thread: Option<ThreadId>,
    /// The tenant.
    pub tenant: TenantId,
    /// The route that was named, or the default one.
    pub route: RouteName,
    /// Activity of the caller.
    pub operation: Operation,
    /// The caller's labels, for filters and spans.
    pub labels: BTreeMap<String, String>,
    /// The model or tool call.
    pub call: Call,
    /// Changes that the caller wants, within the operator's bounds.
    pub overrides: Overrides,
    /// Time at which everything must be over.
    pub deadline: Instant,
    /// The caller's trace context.
    pub trace: TraceContext,
}

impl Invocation {
    /// A call for the default tenant and operation, with every option at its default.
    #[must_use]
    pub fn new(id: InvocationId, route: RouteName, call: Call, deadline: Instant) -> Self {
        Self {
            id,
            request_id: None,
            thread: None,
            tenant: TenantId::from("default"),
            route,
            operation: Operation::from(DEFAULT_OPERATION),
            labels: BTreeMap::new(),
            call,
            overrides: Overrides::default(),
            deadline,
            trace: TraceContext::default(),
        }
    }

    /// Returns whether the caller reads the completion piece by piece, rather than once it is whole.
    #[must_use]
    pub const fn is_streamed(&self) -> bool {
        self.overrides.rewind_mode.is_some()
    }

    /// Returns whether more is promised than to serve this call: it is found again by its request
    /// id, or can be resumed.
    #[must_use]
    pub const fn is_promised(&self) -> bool {
        self.request_id.is_some() || self.overrides.resumable_grace.is_some()
    }
}

/// Subject that an invocation calls: a model or a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A model.
    Model(Arc<ModelCall>),
    /// A tool.
    Tool(ToolInvocation),
}

impl Call {
    /// Returns whether this calls a tool rather than a model.
    #[must_use]
    pub const fn is_tool(&self) -> bool {
        matches!(self, Self::Tool(_))
    }
}

/// A tool to call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolInvocation {
    /// The tool's name.
    pub name: String,
    /// Raw JSON text of its arguments.
    pub arguments: String,
    /// Goal of the caller.
    pub goal: String,
    /// Id of the call in the caller's conversation; unset if Relight mints one.
    #[serde(default)]
    pub call_id: Option<String>,
    /// Side effects of the tool as declared by the caller; unset if it declares none.
    #[serde(default)]
    pub side_effects: Option<SideEffects>,
    /// Raw JSON text of an object that goes to an MCP server as `_meta`; unset for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
}

/// A W3C trace context as received.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The `traceparent` header.
    pub traceparent: Option<String>,
    /// The `tracestate` header.
    pub tracestate: Option<String>,
    /// The `baggage` header.
    pub baggage: Option<String>,
}

/// A caller's overrides of the route's policies; each is checked against what the operator allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// Attempts after the first.
    pub max_retries: Option<u32>,
    /// Condition under which a note about the failure is added for the model.
    pub injection: Option<InjectionMode>,
    /// Only these targets may be used.
    pub allowed_targets: Vec<TargetId>,
    /// These targets in place of the route's, in this order; empty for the route's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetId>,
    /// A preset of the configuration in place of the operation's policy.
    pub preset: Option<String>,
    /// Way in which a stream revokes the content that it sent.
    pub rewind_mode: Option<RewindMode>,
    /// Time for which the invocation continues without its client.
    pub resumable_grace: Option<Duration>,
    /// If set, a cut text may be continued by a prompt that quotes it.
    pub allow_continuation_prompt: bool,
}

/// Condition under which a note about a failure is added for the model.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InjectionMode {
    /// If it can do something about it.
    #[default]
    WhenActionable,
    /// After every retryable failure.
    Always,
    /// No note is added.
    Never,
}

/// Way in which a stream revokes the content that it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewindMode {
    /// It sends a rewind, and the client discards.
    Rewind,
    /// It sends late, so that little has to be revoked.
    HoldBack {
        /// Number of bytes that are held back; 0 means until the block ends.
        bytes: u64,
    },
    /// It sends only what is final.
    Atomic,
    /// Sent content only grows, for clients that cannot discard; a new attempt is delivered if it
    /// repeats the sent text.
    AppendOnly,
}

/// Reason for which an attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AttemptCause {
    /// The first one.
    Initial,
    /// Again on the same target.
    Retry(FailureClass),
    /// Another target.
    Fallback(FailureClass),
    /// Beside a slow one.
    Hedge,
    /// Going on from what was delivered.
    Continue(FailureClass),
    /// The request was changed to fit the target.
    Adapt(FailureClass),
    /// Continues a completion that reached its output limit.
    Extend,
    /// Reads the response that an earlier owner of the invocation had requested.
    Attach(FailureClass),
    /// One chunk of a tool call that was split.
    Chunk(FailureClass),
    /// The same target with another key of its pool.
    Rotate(FailureClass),
}

impl AttemptCause {
    /// Returns the cause as in spans and displays: `initial`, `retry:timeout`, …
    #[must_use]
    pub fn label(self) -> String {
        match (self, self.class()) {
            (Self::Extend, _) => "continue:length".to_owned(),
            (_, Some(class)) => format!("{}:{class}", self.as_str()),
            (_, None) => self.as_str().to_owned(),
        }
    }

    /// Returns the cause's name in snake case, without the class.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the class of the failure that led to the attempt; `None` if none did.
    #[must_use]
    pub const fn class(self) -> Option<FailureClass> {
        match self {
            Self::Retry(class)
            | Self::Fallback(class)
            | Self::Continue(class)
            | Self::Attach(class)
            | Self::Chunk(class)
            | Self::Rotate(class)
            | Self::Adapt(class) => Some(class),
            Self::Initial | Self::Hedge | Self::Extend => None,
        }
    }

    /// Returns the meaning of an attempt for this cause as a recovery; `None` for the first.
    #[must_use]
    pub const fn strategy(self) -> Option<RecoveryStrategy> {
        match self {
            Self::Initial => None,
            Self::Retry(_) | Self::Rotate(_) => Some(RecoveryStrategy::Retry),
            Self::Fallback(_) | Self::Hedge => Some(RecoveryStrategy::Fallback),
            Self::Continue(_) | Self::Extend | Self::Attach(_) => Some(RecoveryStrategy::Continue),
            Self::Adapt(_) => Some(RecoveryStrategy::Adapt),
            Self::Chunk(_) => Some(RecoveryStrategy::Chunk),
        }
    }

    /// Returns whether the attempt makes no new request of the model, and so costs nothing more.
    #[must_use]
    pub const fn reads_existing_response(self) -> bool {
        matches!(self, Self::Attach(_))
    }
}

/// Recovery that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum RecoveryStrategy {
    /// Nothing was needed.
    None,
    /// The same target was called again.
    Retry,
    /// Another target was called.
    Fallback,
    /// The request was changed to fit the target.
    Adapt,
    /// The work was split.
    Chunk,
    /// A cut completion was continued.
    Continue,
    /// Nothing can help; the failure names the reason.
    Impossible,
}

impl RecoveryStrategy {
    /// Returns the strategy as callers see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The single result of an invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The invocation.
    pub invocation: InvocationId,
    /// Operation of the caller; `None` if nothing ran.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// The completion, or the decisive failure: a local refusal does not hide an upstream failure.
    pub result: Result<Completion, Failure>,
    /// Every attempt, in order.
    pub attempts: Vec<AttemptRecord>,
    /// Steps taken to recover, in order, without repetition.
    pub recovery_applied: Vec<RecoveryStrategy>,
    /// Reason why it ended as it did: one sentence.
    pub reasoning: String,
    /// Other options to try, in words.
    pub alternatives: Vec<String>,
    /// Cost of all attempts together.
    pub usage: Usage,
    /// Patch that the caller appends to its history to be at one with the model.
    pub history_patch: HistoryPatch,
    /// Target whose completion this is.
    pub target: Option<TargetId>,
    /// Local refusal that ended recovery after a real failure; `None` if none did.
    #[serde(default)]
    pub stopped_by: Option<FailureClass>,
}

impl Outcome {
    /// Attempts after the first.
    #[must_use]
    pub fn retries(&self) -> u32 {
        u32::try_from(self.attempts.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1)
    }

    /// Returns the local refusal that ended recovery after a real failure; `None` if none did, or
    /// the refusal is the failure.
    #[must_use]
    pub fn stopped_by(&self) -> Option<FailureClass> {
        let decisive = self.result.as_ref().err()?.class;
        let last = || Some(self.attempts.last()?.failure.as_ref()?.class);
        let refused = self
            .stopped_by
            .or_else(|| last().filter(|class| class.is_local_refusal()));
        refused.filter(|_| !decisive.is_local_refusal())
    }

    /// Returns the class of its first failure: a cancelled attempt does not count, a local refusal
    /// only if nothing else failed.
    #[must_use]
    pub fn first_failure(&self) -> Option<FailureClass> {
        let classes = || {
            self.attempts
                .iter()
                .filter_map(|record| record.failure.as_ref())
                .map(|failure| failure.class)
        };
        let real =
            classes().find(|class| !class.is_local_refusal() && *class != FailureClass::Cancelled);
        real.or_else(|| classes().find(|class| class.is_local_refusal()))
    }

    /// Returns whether it was refused before its first attempt, as in `EventBody::is_refused_call`.
    #[must_use]
    pub fn is_refused_call(&self) -> bool {
        self.attempts.is_empty()
            && matches!(
                &self.result,
                Err(failure) if matches!(failure.class, FailureClass::Shed | FailureClass::RateLimited)
            )
    }

    /// `succeeded`, `recovered`, `cancelled` or `failed`.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match &self.result {
            Ok(_) if self.attempts.len() <= 1 => "succeeded",
            Ok(_) => "recovered",
            Err(failure) if failure.class == FailureClass::Cancelled => "cancelled",
            Err(_) => "failed",
        }
    }
}
