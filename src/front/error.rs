//! Writes an error of a call as the APIs of `OpenAI` and Anthropic have theirs.
//!
//! `x-should-retry`, which the official SDKs obey, is `true` only if another request may succeed
//! and Relight made at most one attempt, so that their retries do not multiply with ours. A
//! provider that refuses Relight's credential is 502 and not 401: the caller's key is right.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

use super::headers::{HeaderFault, ResponseHeaders};
pub(super) use crate::call_error::CallError;
use crate::domain::ids::TargetId;

/// The header by which the official SDKs let a server decide about their retries.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The wait in milliseconds, which the official SDKs read before `retry-after`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// Wording in which a client gets its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `OpenAI`'s, for all paths but Anthropic's.
    Openai,
    /// Anthropic's.
    Anthropic,
}

// === impl Protocol ===

impl Protocol {
    /// That of a request: Anthropic's paths are its own, and its clients name its version.
    #[must_use]
    pub fn of(path: &str, headers: &HeaderMap) -> Self {
        let is_anthropic =
            path.starts_with("/v1/messages") || headers.contains_key("anthropic-version");
        if is_anthropic {
            Self::Anthropic
        } else {
            Self::Openai
        }
    }
}

// === impl CallError ===

impl CallError {
    /// Returns the error object, as the body has it and as an error event within a stream has it.
    pub(super) fn object(&self, protocol: Protocol) -> Value {
        let row = self.row();
        let kind = match protocol {
            Protocol::Openai => row.openai,
            Protocol::Anthropic => row.anthropic,
        };
        let mut error = json!({
            "message": self.full_text(), "type": kind, "param": self.param(), "code": row.code
        });
        let outcome = self.outcome();
        if let Some((outcome, Err(failure))) = outcome.map(|outcome| (outcome, &outcome.result)) {
            error["relight"] = json!({
                "invocation": outcome.invocation.as_str(),
                "class": failure.class.as_str(),
                "target": failure.target.as_ref().map(TargetId::as_str),
                "attempts": outcome.attempts.len(),
                "reasoning": outcome.reasoning,
                "recovery_hint": failure.recovery_hint,
            });
        }
        match protocol {
            Protocol::Openai => json!({"error": error}),
            Protocol::Anthropic => {
                let id = outcome.map(|outcome| outcome.invocation.as_str());
                json!({"type": "error", "error": error, "request_id": id})
            }
        }
    }

    /// Returns the response, in the words of the client's protocol.
    #[must_use]
    pub fn respond(self, protocol: Protocol) -> Response {
        let mut response = Response::new(Body::from(self.object(protocol).to_string()));
        let status = StatusCode::from_u16(self.row().http);
        *response.status_mut() = status.unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let again = if self.may_retry() { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(again));
        if let Some(wait) = self.retry_after() {
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(millis.div_ceil(1000).max(1)),
            );
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        if let Some(outcome) = self.outcome() {
            ResponseHeaders::of(outcome).write(headers);
        }
        response
    }

    /// Returns the text with all faults: an error object has no other place for them.
    fn full_text(&self) -> String {
        let faults = self.violations().map_or(&[][..], |faults| faults.kept());
        let others = faults.get(1..).unwrap_or_default().iter();
        others.fold(self.to_string(), |text, fault| {
            format!("{text}; `{}` {}", fault.field, fault.reason)
        })
    }
}

impl From<HeaderFault> for CallError {
    fn from(fault: HeaderFault) -> Self {
        Self::invalid(
            fault.name,
            format_args!("the header {} {}", fault.name, fault.reason),
        )
    }
}

#[cfg(test)]
mod tests;
