//! Failures: raw facts (`ProviderError`) on the wire side, one classified `Failure` above it.
//!
//! `FailureClass` is a closed set: policies, metrics and messages match on it and on nothing else.

mod class;
mod facts;
mod table;
pub mod words;

use std::{borrow::Cow, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    class::{FailureClass, FailureCode, InvalidRequestDetail},
    facts::{ProviderError, Surface, TransportFault},
    table::CircuitEffect,
};
use super::{adaptation::Adaptation, ids::TargetId};

/// Which part of a response stated a wait.
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
    /// The text of the error message.
    Text,
    /// Until a circuit lets calls through again.
    Parked,
    /// Until a rate, credential or configuration gate opens.
    Gate,
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
            Self::Gate => "gate",
        }
    }
}

/// A stated wait and where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// How long to wait.
    pub duration: Duration,
    /// Where the wait was found.
    pub source: WaitSource,
}

impl Wait {
    /// The wait in milliseconds, rounded up.
    #[must_use]
    pub fn millis(self) -> u64 {
        u64::try_from(self.duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// A classified error: what a caller, a policy and a person need to know about it.
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
    /// Plain words for an end user, without technical detail.
    pub user_message: String,
    /// What an operator or developer can do.
    pub recovery_hint: String,
    /// The classifier's rule that decided.
    pub rule: String,
    /// The fact that the rule keyed on, redacted and bounded.
    pub fact: String,
    /// The target that failed, where one was called.
    pub target: Option<TargetId>,
    /// HTTP status, where there was one.
    pub status: Option<u16>,
    /// The typed transport fault, where there was one.
    pub fault: Option<TransportFault>,
    /// The field of the request that the provider names as the faulty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// Whether the request surely never reached the provider.
    pub never_sent: bool,
    /// The change of the request after which the target may take it, where the failure states one.
    #[serde(default)]
    pub adaptation: Option<Adaptation>,
    /// The tool that failed, by its name at its server; `None` where a model was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// When it happened.
    pub at: Timestamp,
}

impl Failure {
    /// A failure that Relight itself decided, without a target to blame.
    pub fn local(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            detail: None,
            retryable: matches!(
                class,
                FailureClass::CircuitOpen | FailureClass::Shed | FailureClass::BudgetEmpty
            ),
            fallback_helps: false,
            retry_after: None,
            message: message.into(),
            user_message: words::for_user(class, None).into_owned(),
            recovery_hint: words::for_operator(class, None, None, false).into_owned(),
            rule: "local".to_owned(),
            fact: class.as_str().to_owned(),
            target: None,
            status: None,
            fault: None,
            param: None,
            never_sent: true,
            adaptation: None,
            tool: None,
            at: super::clock::wall_now(),
        }
    }

    /// A description of the failure without upstream text, for logs, events and spans. Upstream
    /// text may quote a prompt: only `message` holds it, and only the caller of the failed
    /// invocation receives that.
    #[must_use]
    pub fn own_words(&self) -> Cow<'_, str> {
        let is_own = self.rule == "local" || self.rule.starts_with("finding:");
        match self.status {
            _ if is_own => Cow::Borrowed(&self.message),
            Some(status) => Cow::Owned(format!("{} (HTTP {status})", self.class.phrase())),
            None if self.fault.is_some() => Cow::Borrowed(&self.message),
            None => Cow::Borrowed(self.class.phrase()),
        }
    }

    /// The code that callers switch on: of a tool, what would be an error of a model is one of the
    /// tool.
    #[must_use]
    pub fn code(&self) -> FailureCode {
        match self.class.code() {
            FailureCode::LlmError | FailureCode::StreamingError if self.tool.is_some() => {
                FailureCode::ToolError
            }
            code => code,
        }
    }

    /// The same failure, of this tool, in words that fit a tool.
    #[must_use]
    pub fn of_tool(mut self, tool: &str) -> Self {
        if let Some(user) = words::for_user_of_tool(self.class) {
            user.clone_into(&mut self.user_message);
        }
        if let Some(operator) = words::for_operator_of_tool(self.class) {
            operator.clone_into(&mut self.recovery_hint);
        }
        self.tool = Some(tool.to_owned());
        self
    }

    /// A cancellation that a provider reports (such as a status 499 of a proxy), while the caller
    /// cancelled nothing, as the connection that was lost on the way; any other failure as it is.
    #[must_use]
    pub fn reported_cancellation_as_network(self) -> Self {
        if self.class != FailureClass::Cancelled || self.fault == Some(TransportFault::Cancelled) {
            return self;
        }
        Self {
            class: FailureClass::Network,
            retryable: true,
            fallback_helps: true,
            user_message: words::for_user(FailureClass::Network, None).into_owned(),
            recovery_hint: words::for_operator(FailureClass::Network, None, None, false)
                .into_owned(),
            ..self
        }
    }

    /// Returns the failure with a stated wait.
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
