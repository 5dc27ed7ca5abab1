//! The closed list of failure classes, and the few codes that callers switch on.
//!
//! Policies, metrics and messages match on the class and on nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::FailureClass;

impl FailureClass {
    /// Returns the class's name in snake case, as in metrics, logs and configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the class of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns whether Relight itself refused, so that no target is to blame.
    #[must_use]
    pub const fn is_local_refusal(self) -> bool {
        matches!(
            self,
            Self::CircuitOpen | Self::Shed | Self::BudgetEmpty | Self::Deadline
        )
    }

    /// Returns the code that callers switch on.
    #[must_use]
    pub const fn code(self) -> FailureCode {
        self.row().code
    }

    /// Relight's own phrase for the class; free of upstream text, so it may enter a prompt.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        self.row().phrase
    }

    /// Returns whether a retry at the same target helps, if no rule or header decides otherwise.
    #[must_use]
    pub const fn retry_helps(self) -> bool {
        self.row().retry
    }

    /// Returns whether another target helps, if no rule or header decides otherwise.
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

/// Exact fault of an invalid request.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    /// Returns the detail's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the detail of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// A coarse failure code that callers can switch on.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
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
    /// Returns the code as callers see it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the code of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}
