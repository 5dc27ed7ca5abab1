//! Failures: raw facts (`ProviderError`) on the wire side, one classified `Failure` above it.
//!
//! `FailureClass` is a closed set: policies, metrics and messages match on it and on nothing else.

mod class;
mod evidence;
mod facts;
mod table;
pub mod words;

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    class::{FailureCode, InvalidRequestDetail},
    evidence::VerdictBasis,
    facts::{ProviderError, Surface, TransportFault},
    table::{CircuitEffect, FailureClass},
};
use super::{adaptation::Adaptation, ids::TargetId, tool::ToolReply};

/// Part of a response that stated a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
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
    /// Returns the source's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A stated wait and the place where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// Length of the wait.
    pub duration: Duration,
    /// Place where the wait was found.
    pub source: WaitSource,
}

impl Wait {
    /// Returns the wait in milliseconds, rounded up.
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
    /// Fault of the request, for `invalid_request` only.
    pub detail: Option<InvalidRequestDetail>,
    /// `true` if the same request to the same target would plausibly succeed after a wait.
    pub retryable: bool,
    /// `true` if another target would plausibly succeed.
    pub fallback_helps: bool,
    /// The wait that the failure itself states.
    pub retry_after: Option<Wait>,
    /// Technical message, redacted and bounded.
    pub message: String,
    /// Plain words for an end user, without technical detail.
    pub user_message: String,
    /// Action that an operator or developer can take.
    pub recovery_hint: String,
    /// The classifier's rule that decided.
    pub rule: String,
    /// The fact that the rule keyed on, redacted and bounded.
    pub fact: String,
    /// Kind of that fact.
    #[serde(default)]
    pub evidence: VerdictBasis,
    /// Target that failed, if one was called.
    pub target: Option<TargetId>,
    /// HTTP status, if there was one.
    pub status: Option<u16>,
    /// Typed transport fault, if there was one.
    pub fault: Option<TransportFault>,
    /// The field of the request that the provider names as the faulty one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// `true` if the request surely never reached the provider.
    pub never_sent: bool,
    /// Change of the request after which the target may take it, if the failure states one.
    #[serde(default)]
    pub adaptation: Option<Adaptation>,
    /// The tool that failed, and what it returned.
    #[serde(flatten)]
    pub tool: ToolFault,
    /// Time at which it happened.
    pub at: Timestamp,
}

/// The part of a failure that only a tool has; empty if a model was called.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ToolFault {
    /// The tool, by its name at its server.
    #[serde(rename = "tool", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `true` if the tool returned this as its result, so that it surely ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returned: bool,
    /// Error that the tool returned, word for word; kept with the end of an invocation, and not
    /// with each attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Arc<ToolReply>>,
}

impl ToolFault {
    /// The part of a failure that a tool has with this error; its name is added once it is known.
    #[must_use]
    pub fn of(error: &ProviderError) -> Self {
        Self {
            name: None,
            returned: error.returned,
            reply: error.reply.clone(),
        }
    }
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
            user_message: words::for_user(class, None, false).into_owned(),
            recovery_hint: words::for_operator(class, None, None, false).into_owned(),
            rule: "local".to_owned(),
            fact: class.as_str().to_owned(),
            evidence: VerdictBasis::Own,
            target: None,
            status: None,
            fault: None,
            param: None,
            never_sent: true,
            adaptation: None,
            tool: ToolFault::default(),
            at: super::clock::wall_now(),
        }
    }

    /// Returns a description of the failure without upstream text, for logs, events and spans.
    /// Upstream text may quote a prompt: only `message` holds it, and only the caller of the failed
    /// invocation receives that.
    #[must_use]
    pub fn own_words(&self) -> Cow<'_, str> {
        let is_own = self.rule == "local" || self.rule.starts_with("finding:");
        match self.status {
            _ if is_own => Cow::Borrowed(&self.message),
            Some(status) => Cow::Owned(format!("{} (HTTP {status})", self.phrase())),
            None if self.fault.is_some() => Cow::Borrowed(&self.message),
            None => Cow::Borrowed(self.phrase()),
        }
    }

    /// Relight's own phrase for it, free of upstream text.
    #[must_use]
    pub const fn phrase(&self) -> &'static str {
        if self.tool.name.is_some() {
            words::phrase_of_tool(self.class)
        } else {
            self.class.phrase()
        }
    }

    /// Returns the code that callers switch on: of a tool, what would be an error of a model is one
    /// of the tool.
    #[must_use]
    pub fn code(&self) -> FailureCode {
        match self.class.code() {
            FailureCode::LlmError | FailureCode::StreamingError if self.tool.name.is_some() => {
                FailureCode::ToolError
            }
            code => code,
        }
    }

    /// Returns whether it may bind other callers than its own. Words may be quoted from the request
    /// of one of them, unless the status says of the same response that a key or a limit is
    /// refused.
    #[must_use]
    pub const fn binds_others(&self) -> bool {
        !matches!(self.evidence, VerdictBasis::Words)
            || matches!(self.status, Some(401..=403 | 429))
    }

    /// The same failure, of this tool, in words that fit a tool.
    #[must_use]
    pub fn of_tool(mut self, tool: &str) -> Self {
        let wait = self.retry_after.and_then(words::wait_text);
        self.user_message = words::for_user(self.class, wait.as_deref(), true).into_owned();
        self.recovery_hint =
            words::for_operator(self.class, self.detail, wait.as_deref(), true).into_owned();
        // Its server is started again.
        self.retryable |= self.fault == Some(TransportFault::ProcessExited);
        self.tool.name = Some(tool.to_owned());
        self
    }

    /// The same failure for others than its own caller, without what a tool returned to that.
    #[must_use]
    pub fn without_reply(&self) -> Self {
        let mut failure = self.clone();
        failure.tool.reply = None;
        failure
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
            user_message: words::for_user(FailureClass::Network, None, false).into_owned(),
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
