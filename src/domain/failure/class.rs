//! The closed list of failure classes, and the few codes that callers switch on.
//!
//! Policies, metrics and messages match on the class and on nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::table::ROWS;

/// The kind of a failure; the only property of it that policies and metrics match on.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
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
    /// No response in time.
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
    /// A response came but cannot be used.
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
    /// The response was cut, stalled, or ended without its end mark.
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
    #[default]
    Unknown,
}

impl FailureClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [Self; ROWS.len()] = {
        let mut all = [Self::Unknown; ROWS.len()];
        let mut index = 0;
        while index < ROWS.len() {
            all[index] = ROWS[index].class;
            index += 1;
        }
        all
    };

    /// The class's name in snake case, as in metrics, logs and configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    /// The class of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Whether Relight itself refused, so that no target is to blame.
    #[must_use]
    pub const fn is_local_refusal(self) -> bool {
        matches!(
            self,
            Self::CircuitOpen | Self::Shed | Self::BudgetEmpty | Self::Deadline
        )
    }

    /// The code that callers switch on.
    #[must_use]
    pub const fn code(self) -> FailureCode {
        self.row().code
    }

    /// Relight's own phrase for the class; free of upstream text, so it may enter a prompt.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        self.row().phrase
    }

    /// Whether a retry at the same target helps, where no rule or header decides otherwise.
    #[must_use]
    pub const fn retry_helps(self) -> bool {
        self.row().retry
    }

    /// Whether another target helps, where no rule or header decides otherwise.
    #[must_use]
    pub const fn fallback_helps(self, detail: Option<InvalidRequestDetail>) -> bool {
        let unsupported = matches!(detail, Some(InvalidRequestDetail::UnsupportedParameter));
        self.row().fallback || (matches!(self, Self::InvalidRequest) && unsupported)
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What exactly is wrong with an invalid request.
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
        [
            Self::ParameterMismatch,
            Self::MessageOrder,
            Self::UnsupportedParameter,
            Self::BadSchema,
            Self::Other,
        ]
        .into_iter()
        .find(|detail| detail.as_str() == name)
    }
}

/// A coarse failure code that callers can switch on.
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
    /// A person rejected the action; nothing was done.
    ApprovalRejected,
    /// An auxiliary store failed; nothing was lost.
    CacheError,
    /// The response stream broke.
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
        FailureClass::ALL
            .into_iter()
            .map(FailureClass::code)
            .find(|code| code.as_str() == name)
    }
}
