//! An invocation: its request, its attempts, and its one outcome.

mod history;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::history::HistoryPatch;
pub use super::tool::SideEffects;
use super::{
    completion::{Completion, Usage},
    failure::{Failure, FailureClass, Wait},
    ids::{InvocationId, Operation, RequestId, RouteName, TargetId, TenantId, ThreadId},
    message::ModelCall,
    tool::ExecutedTool,
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
    /// What the caller is doing.
    pub operation: Operation,
    /// The caller's labels, for filters and spans.
    pub labels: BTreeMap<String, String>,
    /// The model or tool call.
    pub call: Call,
    /// What the caller wants done otherwise, within the operator's bounds.
    pub overrides: Overrides,
    /// When everything must be over.
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
}

/// What an invocation calls: a model or a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A model.
    Model(Arc<ModelCall>),
    /// A tool.
    Tool(ToolInvocation),
}

impl Call {
    /// Whether this calls a tool rather than a model.
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
    /// What the caller wants to reach with it.
    pub goal: String,
    /// Id of the call in the caller's conversation; unset where Relight mints one.
    #[serde(default)]
    pub call_id: Option<String>,
    /// The tool's side effects as declared by the caller; unset where it declares none.
    #[serde(default)]
    pub side_effects: Option<SideEffects>,
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
    /// When a note about the failure is added for the model.
    pub injection: Option<InjectionMode>,
    /// Only these targets may be used.
    pub allowed_targets: Vec<TargetId>,
    /// A preset of the configuration in place of the operation's policy.
    pub preset: Option<String>,
    /// How a stream revokes what it sent.
    pub rewind_mode: Option<RewindMode>,
    /// How long the invocation continues without its client.
    pub resumable_grace: Option<Duration>,
    /// Whether a cut text may be continued by a prompt that quotes it.
    pub allow_continuation_prompt: bool,
}

/// When a note about a failure is added for the model.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum InjectionMode {
    /// Where it can do something about it.
    #[default]
    WhenActionable,
    /// After every retryable failure.
    Always,
    /// No note is added.
    Never,
}

/// How a stream revokes what it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RewindMode {
    /// It sends a rewind, and the client discards.
    Rewind,
    /// It sends late, so that little has to be revoked.
    HoldBack {
        /// How many bytes are held back; 0 means until the block ends.
        bytes: u64,
    },
    /// It sends only what is final.
    Atomic,
    /// What was sent only grows, for clients that cannot discard; a new attempt is delivered where
    /// it repeats the sent text.
    AppendOnly,
}

/// Why an attempt was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    /// Continues an answer that reached its output limit.
    Extend,
    /// Reads the response that an earlier owner of the invocation had requested.
    Attach(FailureClass),
    /// One chunk of a tool call that was split.
    Chunk(FailureClass),
}

impl AttemptCause {
    /// The cause as in spans and displays: `initial`, `retry:timeout`, `fallback:overloaded`, …
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Initial => "initial".to_owned(),
            Self::Retry(class) => format!("retry:{class}"),
            Self::Fallback(class) => format!("fallback:{class}"),
            Self::Hedge => "hedge".to_owned(),
            Self::Continue(class) => format!("continue:{class}"),
            Self::Adapt(class) => format!("adapt:{class}"),
            Self::Extend => "continue:length".to_owned(),
            Self::Attach(class) => format!("attach:{class}"),
            Self::Chunk(class) => format!("chunk:{class}"),
        }
    }

    /// What an attempt for this cause means as a recovery; `None` for the first.
    #[must_use]
    pub const fn strategy(self) -> Option<RecoveryStrategy> {
        match self {
            Self::Initial => None,
            Self::Retry(_) => Some(RecoveryStrategy::Retry),
            Self::Fallback(_) | Self::Hedge => Some(RecoveryStrategy::Fallback),
            Self::Continue(_) | Self::Extend | Self::Attach(_) => Some(RecoveryStrategy::Continue),
            Self::Adapt(_) => Some(RecoveryStrategy::Adapt),
            Self::Chunk(_) => Some(RecoveryStrategy::Chunk),
        }
    }

    /// Whether the attempt makes no new request of the model, and so costs nothing more.
    #[must_use]
    pub const fn reads_existing_response(self) -> bool {
        matches!(self, Self::Attach(_))
    }
}

/// What was done to recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
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
    /// A cut answer was continued.
    Continue,
    /// Nothing can help; the failure names the reason.
    Impossible,
}

impl RecoveryStrategy {
    /// The strategy as callers see it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Retry => "RETRY",
            Self::Fallback => "FALLBACK",
            Self::Adapt => "ADAPT",
            Self::Chunk => "CHUNK",
            Self::Continue => "CONTINUE",
            Self::Impossible => "IMPOSSIBLE",
        }
    }
}

/// One attempt, as reported to callers, in spans and in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent fact about the attempt"
)]
pub struct AttemptRecord {
    /// 1 for the first.
    pub number: u32,
    /// Why it was made.
    pub cause: AttemptCause,
    /// The target; `None` when none could be called.
    pub target: Option<TargetId>,
    /// The model that was called.
    pub model: String,
    /// When it began, after its wait.
    pub started_at: Timestamp,
    /// The wait before it.
    pub wait: Option<Wait>,
    /// From its begin to its end, wait not included.
    pub duration: Duration,
    /// From the request to the first token.
    pub first_token: Option<Duration>,
    /// Whether anything was sent to the provider.
    pub sent: bool,
    /// Its failure; `None` when it succeeded or is running.
    pub failure: Option<Failure>,
    /// The note that the model was given.
    pub note: Option<String>,
    /// Why no note was added for the model, where one should have been.
    pub injection_skipped: Option<String>,
    /// Whether the target refused the request because of its note.
    pub note_refused: bool,
    /// Whether it ended with the replica that made it: then it counts neither against the caller's
    /// attempts nor against its target.
    #[serde(default)]
    pub lost_with_replica: bool,
    /// What is changed in the request when the same target is called again because of this failure,
    /// in words.
    #[serde(default)]
    pub adaptation: Option<String>,
    /// What of the caller's request was repaired or left out for it, in words, unless an earlier
    /// attempt reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repaired: Option<String>,
    /// Why the shape of its response was not checked, where it should have been.
    #[serde(default)]
    pub unchecked: Option<String>,
    /// What it cost.
    pub usage: Usage,
    /// Hex trace id; empty without tracing.
    pub trace_id: String,
    /// Hex id of its span; empty without tracing.
    #[serde(default)]
    pub span_id: String,
    /// The provider's id of the request, to quote to its support; empty where it sent none.
    #[serde(default)]
    pub upstream_request_id: String,
    /// Whether its answer was kept.
    pub winner: bool,
    /// The execution that it was, where a tool was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Box<ExecutedTool>>,
}

impl AttemptRecord {
    /// An attempt at this target's model that begins at this time: nothing was sent, and its end is
    /// not known.
    #[must_use]
    pub fn begun(
        number: u32,
        cause: AttemptCause,
        target: TargetId,
        model: String,
        started_at: Timestamp,
    ) -> Self {
        Self {
            number,
            cause,
            target: Some(target),
            model,
            started_at,
            wait: None,
            duration: Duration::ZERO,
            first_token: None,
            sent: false,
            failure: None,
            note: None,
            injection_skipped: None,
            note_refused: false,
            lost_with_replica: false,
            adaptation: None,
            repaired: None,
            unchecked: None,
            usage: Usage::default(),
            trace_id: String::new(),
            span_id: String::new(),
            upstream_request_id: String::new(),
            winner: false,
            tool: None,
        }
    }

    /// What of the request was changed before it and because of it, in words.
    pub fn changes(&self) -> impl Iterator<Item = &String> {
        self.repaired.iter().chain(&self.adaptation)
    }

    /// Whether Relight itself refused it: such an attempt costs nothing and is not counted.
    #[must_use]
    pub fn refused_locally(&self) -> bool {
        !self.sent
            && self
                .failure
                .as_ref()
                .is_some_and(|failure| failure.class.is_local_refusal())
    }

    /// Whether no end of it is known: it neither failed nor is its answer the one that was kept.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.failure.is_none() && !self.winner
    }
}

/// The single result of an invocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The invocation.
    pub invocation: InvocationId,
    /// What the caller was doing; `None` where nothing ran.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// The answer, or the decisive failure: a local refusal does not hide an upstream failure.
    pub result: Result<Completion, Failure>,
    /// Every attempt, in order.
    pub attempts: Vec<AttemptRecord>,
    /// What was done to recover, in order, without repetition.
    pub recovery_applied: Vec<RecoveryStrategy>,
    /// Why it ended as it did: one sentence.
    pub reasoning: String,
    /// What else could be tried, in words.
    pub alternatives: Vec<String>,
    /// What all attempts cost together.
    pub usage: Usage,
    /// What the caller appends to its history to be at one with the model.
    pub history_patch: HistoryPatch,
    /// The target whose answer this is.
    pub target: Option<TargetId>,
    /// The local refusal that ended recovery after a real failure; `None` where none did.
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

    /// The local refusal that ended recovery after a real failure; `None` where none did, or the
    /// refusal is the failure.
    #[must_use]
    pub fn stopped_by(&self) -> Option<FailureClass> {
        let decisive = self.result.as_ref().err()?.class;
        let last = || Some(self.attempts.last()?.failure.as_ref()?.class);
        let refused = self
            .stopped_by
            .or_else(|| last().filter(|class| class.is_local_refusal()));
        refused.filter(|_| !decisive.is_local_refusal())
    }

    /// The class of its first failure: a cancelled attempt does not count, a local refusal only
    /// where nothing else failed.
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

    /// Whether it was shed before its first attempt, as in `EventBody::is_refused_call`.
    #[must_use]
    pub fn is_refused_call(&self) -> bool {
        self.attempts.is_empty()
            && matches!(&self.result, Err(failure) if failure.class == FailureClass::Shed)
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
