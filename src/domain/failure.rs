//! What can go wrong: bare facts (`ProviderError`) on the wire side, one judged `Failure` above it.
//!
//! `FailureClass` is closed: policies, metrics and messages match on it and on nothing else.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ids::TargetId;

/// What kind of failure it was; the only thing that policies and metrics match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The caller's request, token or concurrency limit was reached.
    RateLimited,
    /// Credits, billing, plan or long-window quota are used up.
    QuotaExceeded,
    /// The provider is out of capacity.
    Overloaded,
    /// The provider failed internally, nothing more is known.
    ServerError,
    /// No answer in time.
    Timeout,
    /// The connection failed.
    Network,
    /// The process behind the provider died.
    Crash,
    /// The credential was refused.
    Authentication,
    /// A known caller is not allowed to do this.
    PermissionDenied,
    /// The request is wrong.
    InvalidRequest,
    /// The prompt, or prompt plus answer, is too long.
    ContextLength,
    /// Refused by the provider's safety policy.
    ContentFiltered,
    /// The model, deployment, tool or resource does not exist.
    NotFound,
    /// An answer came but cannot be used.
    MalformedResponse,
    /// Something on this side is not configured or not started.
    Configuration,
    /// The caller or a user cancelled.
    Cancelled,
    /// A person rejected the action.
    ApprovalRejected,
    /// A tool failed.
    ToolFailed,
    /// Something may or may not have happened.
    OutcomeUnknown,
    /// The answer was cut, stalled, or ended without its end mark.
    StreamInterrupted,
    /// The state store failed.
    State,
    /// A conversation could not be loaded or saved.
    Checkpoint,
    /// An auxiliary store failed.
    Cache,
    /// Refused locally: the target's circuit is open, or a gate is closed.
    CircuitOpen,
    /// Refused locally: too much work.
    Shed,
    /// Refused locally: the retry budget is empty.
    BudgetEmpty,
    /// Refused locally: no time left.
    Deadline,
    /// Cannot be decided from what is known.
    Unknown,
}

impl FailureClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [Self; 28] = [
        Self::RateLimited,
        Self::QuotaExceeded,
        Self::Overloaded,
        Self::ServerError,
        Self::Timeout,
        Self::Network,
        Self::Crash,
        Self::Authentication,
        Self::PermissionDenied,
        Self::InvalidRequest,
        Self::ContextLength,
        Self::ContentFiltered,
        Self::NotFound,
        Self::MalformedResponse,
        Self::Configuration,
        Self::Cancelled,
        Self::ApprovalRejected,
        Self::ToolFailed,
        Self::OutcomeUnknown,
        Self::StreamInterrupted,
        Self::State,
        Self::Checkpoint,
        Self::Cache,
        Self::CircuitOpen,
        Self::Shed,
        Self::BudgetEmpty,
        Self::Deadline,
        Self::Unknown,
    ];

    /// The class's name in snake case, as in metrics, logs and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Crash => "crash",
            Self::Authentication => "authentication",
            Self::PermissionDenied => "permission_denied",
            Self::InvalidRequest => "invalid_request",
            Self::ContextLength => "context_length",
            Self::ContentFiltered => "content_filtered",
            Self::NotFound => "not_found",
            Self::MalformedResponse => "malformed_response",
            Self::Configuration => "configuration",
            Self::Cancelled => "cancelled",
            Self::ApprovalRejected => "approval_rejected",
            Self::ToolFailed => "tool_failed",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::StreamInterrupted => "stream_interrupted",
            Self::State => "state",
            Self::Checkpoint => "checkpoint",
            Self::Cache => "cache",
            Self::CircuitOpen => "circuit_open",
            Self::Shed => "shed",
            Self::BudgetEmpty => "budget_empty",
            Self::Deadline => "deadline",
            Self::Unknown => "unknown",
        }
    }

    /// The class of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether Relight itself refused, so that no target is to blame.
    #[must_use]
    pub const fn is_local_refusal(self) -> bool {
        matches!(self, Self::CircuitOpen | Self::Shed | Self::BudgetEmpty | Self::Deadline)
    }

    /// The code that callers switch on.
    #[must_use]
    pub const fn code(self) -> FailureCode {
        match self {
            Self::ToolFailed | Self::OutcomeUnknown => FailureCode::ToolError,
            Self::Configuration | Self::State => FailureCode::StateError,
            Self::Checkpoint => FailureCode::ContextError,
            Self::Cancelled | Self::ApprovalRejected => FailureCode::ApprovalRejected,
            Self::Cache => FailureCode::CacheError,
            Self::StreamInterrupted => FailureCode::StreamingError,
            Self::RateLimited
            | Self::QuotaExceeded
            | Self::Overloaded
            | Self::ServerError
            | Self::Timeout
            | Self::Network
            | Self::Crash
            | Self::Authentication
            | Self::PermissionDenied
            | Self::InvalidRequest
            | Self::ContextLength
            | Self::ContentFiltered
            | Self::NotFound
            | Self::MalformedResponse
            | Self::CircuitOpen
            | Self::Shed
            | Self::BudgetEmpty
            | Self::Deadline
            | Self::Unknown => FailureCode::LlmError,
        }
    }

    /// Relight's own phrase for the class; never holds upstream text, so it may enter a prompt.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::RateLimited => "Rate limit reached",
            Self::QuotaExceeded => "Quota or credits used up",
            Self::Overloaded => "The provider is overloaded",
            Self::ServerError => "The provider failed internally",
            Self::Timeout => "Request timeout",
            Self::Network => "Connection failed",
            Self::Crash => "The model process exited",
            Self::Authentication => "The credential was refused",
            Self::PermissionDenied => "Permission denied",
            Self::InvalidRequest => "The request was refused as invalid",
            Self::ContextLength => "The prompt is too long",
            Self::ContentFiltered => "Refused by the provider's content policy",
            Self::NotFound => "The model or resource was not found",
            Self::MalformedResponse => "The answer could not be used",
            Self::Configuration => "Not configured",
            Self::Cancelled => "Cancelled",
            Self::ApprovalRejected => "Rejected by approval",
            Self::ToolFailed => "The tool failed",
            Self::OutcomeUnknown => "The outcome is unknown",
            Self::StreamInterrupted => "The answer was interrupted",
            Self::State => "The state store failed",
            Self::Checkpoint => "The conversation could not be loaded or saved",
            Self::Cache => "An auxiliary store failed",
            Self::CircuitOpen => "Not available now",
            Self::Shed => "Too much work at once",
            Self::BudgetEmpty => "The retry budget is empty",
            Self::Deadline => "The deadline was reached",
            Self::Unknown => "An unknown error",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is wrong with an invalid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InvalidRequestDetail {
    /// Arguments do not fit the function.
    ParameterMismatch,
    /// Roles, tool calls and results are out of order.
    MessageOrder,
    /// Well formed, but this model or provider does not take it.
    UnsupportedParameter,
    /// A malformed body or tool schema.
    BadSchema,
    /// Anything else.
    Other,
}

impl InvalidRequestDetail {
    /// The detail's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ParameterMismatch => "parameter_mismatch",
            Self::MessageOrder => "message_order",
            Self::UnsupportedParameter => "unsupported_parameter",
            Self::BadSchema => "bad_schema",
            Self::Other => "other",
        }
    }

    /// The detail of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::ParameterMismatch, Self::MessageOrder, Self::UnsupportedParameter, Self::BadSchema, Self::Other]
            .into_iter()
            .find(|detail| detail.as_str() == name)
    }
}

/// The few codes that a caller switches on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureCode {
    /// The model or its provider failed.
    LlmError,
    /// A tool failed.
    ToolError,
    /// Relight's state, or its configuration, failed.
    StateError,
    /// The conversation could not be loaded.
    ContextError,
    /// Nothing was done because somebody said no.
    ApprovalRejected,
    /// An auxiliary store failed; nothing was lost.
    CacheError,
    /// The answer's stream broke.
    StreamingError,
}

impl FailureCode {
    /// The code as callers see it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LlmError => "LLM_ERROR",
            Self::ToolError => "TOOL_ERROR",
            Self::StateError => "STATE_ERROR",
            Self::ContextError => "CONTEXT_ERROR",
            Self::ApprovalRejected => "APPROVAL_REJECTED",
            Self::CacheError => "CACHE_ERROR",
            Self::StreamingError => "STREAMING_ERROR",
        }
    }
}

/// Where a failure was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// A provider's or gateway's HTTP answer.
    #[default]
    Http,
    /// No answer: socket, DNS, TLS, child process.
    Transport,
    /// After the stream began, or an error event inside a 200.
    Stream,
    /// A gRPC status.
    Grpc,
    /// A tool.
    Tool,
}

/// A fault of the transport, as this service's own client saw it: typed, so that nothing matches on its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportFault {
    /// The name did not resolve.
    Dns,
    /// The connection was refused.
    Refused,
    /// The connection was not made in time.
    ConnectTimeout,
    /// The host or network cannot be reached.
    Unreachable,
    /// The TLS handshake failed.
    Tls,
    /// The peer's certificate was not accepted.
    Certificate,
    /// The peer reset the connection.
    Reset,
    /// The connection closed before the answer's head.
    ClosedEarly,
    /// This host ran out of ports, descriptors or memory.
    LocalExhaustion,
    /// No first token in time.
    FirstTokenTimeout,
    /// Silence after the first token.
    IdleTimeout,
    /// The answer was cut: it ended without its dialect's end mark.
    Cut,
    /// The answer, or a part of it, exceeded a bound.
    TooLarge,
    /// The bytes are not what the protocol allows.
    Protocol,
    /// The process behind the target exited.
    ProcessExited,
    /// The call's deadline passed while the attempt ran.
    Deadline,
    /// The attempt was cancelled from this side.
    Cancelled,
}

impl TransportFault {
    /// Whether the request surely never reached the provider.
    #[must_use]
    pub const fn never_sent(self) -> bool {
        matches!(
            self,
            Self::Dns
                | Self::Refused
                | Self::ConnectTimeout
                | Self::Unreachable
                | Self::Tls
                | Self::Certificate
                | Self::LocalExhaustion
        )
    }

    /// Whether the cause lies on this host or its network, not at the provider.
    #[must_use]
    pub const fn local_origin(self) -> bool {
        matches!(self, Self::Dns | Self::Unreachable | Self::LocalExhaustion)
    }
}

/// Bare facts of a failed attempt; judged by `policy::classify` and by nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderError {
    /// The provider's family or name (`openai`, `anthropic`, …), lower case; empty where unknown.
    pub provider: Arc<str>,
    /// Where the failure was seen.
    pub surface: Surface,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// gRPC status code, where there was one.
    pub grpc_status: Option<i32>,
    /// Kept headers: lower-case names, only those that the classifier or people need.
    pub headers: Vec<(String, String)>,
    /// The body as received, bounded, lossily decoded.
    pub body: Option<String>,
    /// A text in place of a body: what an SDK, a transport or a tool said.
    pub message: Option<String>,
    /// A typed transport fault, where this service's own client saw one.
    pub fault: Option<TransportFault>,
}

impl ProviderError {
    /// A fault of the transport, with words for people.
    pub fn transport(provider: impl Into<Arc<str>>, fault: TransportFault, message: impl Into<String>) -> Self {
        let surface = match fault {
            TransportFault::IdleTimeout | TransportFault::Cut => Surface::Stream,
            _ => Surface::Transport,
        };
        Self {
            provider: provider.into(),
            surface,
            fault: Some(fault),
            message: Some(message.into()),
            ..Self::default()
        }
    }

    /// The value of a kept header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(kept, _)| kept == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.status, self.fault) {
            (Some(status), _) => write!(f, "status {status}")?,
            (None, Some(fault)) => write!(f, "{fault:?}")?,
            (None, None) => write!(f, "provider error")?,
        }
        if let Some(text) = self.message.as_deref().or(self.body.as_deref()) {
            let end = text.floor_char_boundary(200);
            write!(f, ": {}", &text[..end])?;
        }
        Ok(())
    }
}

impl std::error::Error for ProviderError {}

/// Where a stated wait was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitSource {
    /// Relight's own backoff.
    Backoff,
    /// The `retry-after` header.
    RetryAfter,
    /// The `retry-after-ms` or `x-ms-retry-after-ms` header.
    RetryAfterMs,
    /// The reset of an exhausted rate-limit window.
    RateLimitReset,
    /// A `google.rpc.RetryInfo`.
    RetryInfo,
    /// A field of the body that names a wait.
    BodyField,
    /// The message's own words.
    Text,
    /// Until a circuit or gate lets calls through again.
    Parked,
}

impl WaitSource {
    /// The source's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backoff => "backoff",
            Self::RetryAfter => "retry_after",
            Self::RetryAfterMs => "retry_after_ms",
            Self::RateLimitReset => "rate_limit_reset",
            Self::RetryInfo => "retry_info",
            Self::BodyField => "body_field",
            Self::Text => "text",
            Self::Parked => "parked",
        }
    }
}

/// A wait and where it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// How long.
    pub duration: Duration,
    /// Who said so.
    pub source: WaitSource,
}

/// A judged error: what a caller, a policy and a person need to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The one class that everything matches on.
    pub class: FailureClass,
    /// What is wrong with the request, for `invalid_request` only.
    pub detail: Option<InvalidRequestDetail>,
    /// Whether the same request to the same target would plausibly succeed after a wait.
    pub retryable: bool,
    /// Whether another target would plausibly succeed.
    pub fallback_helps: bool,
    /// The wait that the failure itself states.
    pub retry_after: Option<Wait>,
    /// Technical message, redacted and bounded.
    pub message: String,
    /// Plain words for an end user; never a stack trace.
    pub user_message: String,
    /// What an operator or developer can do.
    pub recovery_hint: String,
    /// The classifier's rule that decided.
    pub rule: String,
    /// The fact that the rule keyed on, redacted and bounded.
    pub fact: String,
    /// The target that failed, where one was asked.
    pub target: Option<TargetId>,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// The typed transport fault, where there was one.
    pub fault: Option<TransportFault>,
    /// Whether the request surely never reached the provider.
    pub never_sent: bool,
    /// When it happened.
    pub at: Timestamp,
}

impl Failure {
    /// A failure that Relight itself decided, without a target to blame.
    pub fn local(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            detail: None,
            retryable: false,
            fallback_helps: false,
            retry_after: None,
            message: message.into(),
            user_message: class.phrase().to_owned(),
            recovery_hint: String::new(),
            rule: "local".to_owned(),
            fact: class.as_str().to_owned(),
            target: None,
            status: None,
            fault: None,
            never_sent: true,
            at: super::clock::wall_now(),
        }
    }

    /// The same failure, saying when to come back.
    #[must_use]
    pub fn with_retry_after(mut self, duration: Duration, source: WaitSource) -> Self {
        self.retry_after = Some(Wait { duration, source });
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for Failure {}
