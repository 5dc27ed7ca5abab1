//! The closed list of failure classes, and the few codes that callers switch on.
//!
//! Policies, metrics and messages match on the class and on nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

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

    /// The code of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        FailureClass::ALL.into_iter().map(FailureClass::code).find(|code| code.as_str() == name)
    }
}
