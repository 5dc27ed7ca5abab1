//! The response where there is no answer: a status, the error object of its protocol, and when to
//! retry.
//!
//! | what | status | `code` |
//! |---|---|---|
//! | the request | 400 | `invalid_request`, or the field's own |
//! | a context window, a content policy | 400 | `context_length_exceeded`, `content_filter` |
//! | the caller's key, its routes | 401, 403 | `invalid_api_key`, `route_not_allowed`, `thread_not_allowed` |
//! | an idempotency key of another body, a thread in use | 409 | `idempotency_key_reused`, `thread_busy` |
//! | a model, here or at the provider | 404 | `model_not_found` |
//! | a limit of the provider, or of Relight | 429 | `rate_limit_exceeded`, `insufficient_quota`, `shed` |
//! | no target free, overload, draining, no journal | 503 | `overloaded`, `no_target_available`, `draining`, `journal_unavailable` |
//! | no answer in time | 504 | `timeout` |
//! | the provider failed, or refused Relight's own credential | 502 | `upstream_…` |
//!
//! A provider that refuses Relight's credential is 502 and not 401: the caller's key is right. What
//! Relight tried again already carries `x-should-retry: false`, which the official SDKs obey, so
//! that their retries do not multiply with ours; `true` is sent where another request may succeed
//! and Relight made at most one attempt. Messages come from the classifier, redacted; those about a
//! credential are Relight's own words. `param` is the field of the request that Relight refused, or
//! that the provider named in its rejection.

mod early_refusal;
mod own_refusals;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

pub use self::early_refusal::EarlyRefusal;
use super::headers::{HeaderFault, ResponseHeaders};
use crate::domain::{
    failure::{Failure, FailureClass},
    ids::TargetId,
    invocation::Outcome,
};

/// The header by which the official SDKs let a server decide about their retries.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The wait in milliseconds, which the official SDKs read before `retry-after`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// In whose words a client is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `OpenAI`'s, for all paths but Anthropic's.
    Openai,
    /// Anthropic's.
    Anthropic,
}

/// An answer that is none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refused {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    param: Option<String>,
    message: String,
    retry_after_ms: Option<u64>,
    should_retry: bool,
    details: Option<Box<Value>>,
    own_headers: Option<Box<ResponseHeaders>>,
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

// === impl Refused ===

impl Refused {
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            kind,
            code,
            param: None,
            message: message.into(),
            retry_after_ms: None,
            should_retry: false,
            details: None,
            own_headers: None,
        }
    }

    /// An invocation that failed, with its attempts.
    pub(super) fn outcome(
        outcome: &Outcome,
        failure: &Failure,
        own_headers: ResponseHeaders,
    ) -> Self {
        let details = json!({
            "invocation": outcome.invocation.as_str(),
            "class": failure.class.as_str(),
            "target": failure.target.as_ref().map(TargetId::as_str),
            "attempts": outcome.attempts.len(),
            "reasoning": outcome.reasoning,
            "recovery_hint": failure.recovery_hint,
        });
        let refused = Self::failure(failure);
        let sent = outcome
            .attempts
            .iter()
            .filter(|attempt| attempt.sent)
            .count();
        let should_retry = refused.should_retry && sent <= 1;
        Self {
            details: Some(Box::new(details)),
            own_headers: Some(Box::new(own_headers)),
            should_retry,
            ..refused
        }
    }

    /// A failure by its class.
    pub(super) fn failure(failure: &Failure) -> Self {
        let (status, code) = failure.class.row().http;
        let kind = kind(failure.class, status);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let about_credential = matches!(
            failure.class,
            FailureClass::Authentication | FailureClass::PermissionDenied
        );
        let message = if failure.message.is_empty() || about_credential {
            failure.class.phrase().to_owned()
        } else {
            failure.message.clone()
        };
        let retry_after_ms = failure
            .retry_after
            .map(|wait| u64::try_from(wait.duration.as_millis()).unwrap_or(u64::MAX));
        // Only a wait that somebody stated, and that mends something, makes the client's own retry
        // worth its while.
        let should_retry =
            failure.retryable && retry_after_ms.is_some() && matches!(status.as_u16(), 429 | 503);
        let param = failure.param.clone();
        Self {
            param,
            retry_after_ms,
            should_retry,
            ..Self::new(status, kind, code, message)
        }
    }

    /// The error object, as the body has it and as an error event within a stream has it.
    pub(super) fn object(&self, protocol: Protocol) -> Value {
        let kind = match protocol {
            Protocol::Openai => self.kind,
            Protocol::Anthropic => anthropic_type(self.status),
        };
        let mut error =
            json!({"message": self.message, "type": kind, "param": self.param, "code": self.code});
        if let (Some(details), Some(fields)) = (&self.details, error.as_object_mut()) {
            fields.insert("relight".to_owned(), (**details).clone());
        }
        match protocol {
            Protocol::Openai => json!({"error": error}),
            Protocol::Anthropic => {
                let id = self
                    .own_headers
                    .as_ref()
                    .map(|own_headers| own_headers.invocation.as_str());
                json!({"type": "error", "error": error, "request_id": id})
            }
        }
    }

    /// The response, in the words of the client's protocol.
    pub(super) fn respond(self, protocol: Protocol) -> Response {
        let mut response = Response::new(Body::from(self.object(protocol).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        let again = if self.should_retry { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(again));
        if let Some(wait) = self.retry_after_ms {
            headers.insert(
                header::RETRY_AFTER,
                HeaderValue::from(wait.div_ceil(1000).max(1)),
            );
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait));
        }
        if let Some(own_headers) = &self.own_headers {
            own_headers.write(headers);
        }
        response
    }
}

impl From<HeaderFault> for Refused {
    fn from(fault: HeaderFault) -> Self {
        Self::invalid(
            fault.name,
            format!("the header {} {}", fault.name, fault.reason),
        )
    }
}

/// The `type` of an error of Anthropic's API, by its status.
fn anthropic_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    }
}

/// The `type` of an error object, by the class and status of the failure.
const fn kind(class: FailureClass, status: u16) -> &'static str {
    match (class, status) {
        (FailureClass::QuotaExceeded, _) => "insufficient_quota",
        (_, 429) => "rate_limit_error",
        (_, 403) => "permission_error",
        (_, 400..=404) => "invalid_request_error",
        _ => "server_error",
    }
}

#[cfg(test)]
mod tests;
