//! The response where there is no answer: a status, the error object of its protocol, and when to retry.
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
//! A provider that refuses Relight's credential is 502 and not 401: the caller's key is right. What Relight tried
//! again already carries `x-should-retry: false`, which the official SDKs obey, so that their retries do not multiply
//! with ours; `true` is sent where another request may succeed and Relight made at most one attempt. Messages come from the classifier, redacted; those about a credential are Relight's own words.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::{Value, json};

use super::headers::{HeaderFault, ResponseHeaders};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        ids::{RouteName, TargetId},
        invocation::Outcome,
    },
    engine::Refusal,
    execution::{Lost, StartError},
    journal::JournalError,
};

/// The header by which the official SDKs let a server decide about their retries.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The wait in milliseconds, which the official SDKs read before `retry-after`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// When a client that was refused by a draining replica may retry: another replica is ready.
const TRY_ELSEWHERE_MS: u64 = 100;
/// When a client may retry whose thread is in use, or which met a journal that is away.
const RETRY_AFTER: u64 = 1_000;

/// When a client may come again that met a limit of bytes.
const NO_ROOM_RETRY_MS: u64 = 1_000;

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
    told: Option<Box<ResponseHeaders>>,
}

// === impl Protocol ===

impl Protocol {
    /// That of a request: Anthropic's paths are its own, and its clients name its version.
    #[must_use]
    pub fn of(path: &str, headers: &HeaderMap) -> Self {
        let is_anthropic = path.starts_with("/v1/messages") || headers.contains_key("anthropic-version");
        if is_anthropic { Self::Anthropic } else { Self::Openai }
    }
}

// === impl Refused: what Relight itself refuses ===

impl Refused {
    fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            code,
            param: None,
            message: message.into(),
            retry_after_ms: None,
            should_retry: false,
            details: None,
            told: None,
        }
    }

    /// A field or header of the request is wrong.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let refused = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", "invalid_request", message);
        Self { param: Some(param.into()), ..refused }
    }

    /// A field of the request asks for something that this front has not.
    pub(super) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: "unsupported_parameter", ..Self::invalid(param, message) }
    }

    /// The body cannot be read: its status says why.
    pub(super) fn unreadable(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", "invalid_request", message)
    }

    /// No key, or one that is not known; it does not say which.
    pub(super) fn unauthenticated() -> Self {
        let message = "a valid API key is required, as `Authorization: Bearer <key>` or `x-api-key: <key>`";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "invalid_api_key", message)
    }

    /// The key may not use this route.
    pub(super) fn route_not_allowed(route: &str) -> Self {
        let message = format!("this key may not use the model `{route}`");
        let refused = Self::new(StatusCode::FORBIDDEN, "permission_error", "route_not_allowed", message);
        Self { param: Some("model".to_owned()), ..refused }
    }

    /// There is no such route or target.
    pub(super) fn no_such_model(model: &str, nearest: Option<&str>) -> Self {
        let shown = &model[..model.floor_char_boundary(128)];
        let hint = nearest.map(|nearest| format!("; did you mean `{nearest}`?")).unwrap_or_default();
        let message = format!("the model `{shown}` does not exist: a model is a route of this server{hint}");
        let refused = Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "model_not_found", message);
        Self { param: Some("model".to_owned()), ..refused }
    }

    /// There is no such response.
    pub(super) fn no_such_response(response: &str) -> Self {
        let shown = &response[..response.floor_char_boundary(128)];
        let message = format!("there is no response `{shown}` here, or it is no longer kept");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "response_not_found", message)
    }

    /// There is no such response to go on with.
    pub(super) fn no_previous_response(response: &str) -> Self {
        let refused = Self { status: StatusCode::BAD_REQUEST, ..Self::no_such_response(response) };
        Self { code: "previous_response_not_found", param: Some("previous_response_id".to_owned()), ..refused }
    }

    /// The conversation went on behind the response, or it failed.
    pub(super) fn not_newest_response(response: &str) -> Self {
        let shown = &response[..response.floor_char_boundary(128)];
        let message = format!(
            "`{shown}` is not the newest answer of its conversation: only that one can be gone on with; send the \
             conversation as `input` to go on from an older one"
        );
        Self::unsupported("previous_response_id", message)
    }

    /// There is no such path.
    pub(super) fn no_such_path() -> Self {
        let message = "no such path; there are POST /v1/chat/completions, /v1/responses, /v1/messages, \
                       /v1/messages/count_tokens and /v1/embeddings, GET /v1/responses/{id}, /v1/models and \
                       /v1/models/{model}";
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
    }

    /// The path takes another method.
    pub(super) fn wrong_method() -> Self {
        let message = "this path takes another method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "method_not_allowed", message)
    }

    /// This process ends; another one takes the call.
    pub(super) fn draining() -> Self {
        let message = "this replica is draining; ask again, and another one will answer";
        let refused = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "draining", message);
        Self { retry_after_ms: Some(TRY_ELSEWHERE_MS), should_retry: true, ..refused }
    }

    /// The stream that was partly sent cannot go on.
    pub(super) fn diverged() -> Self {
        let message = "the answer broke off, and the new attempt's text is not the one that was sent; discard this \
                       answer and ask again";
        Self::new(StatusCode::BAD_GATEWAY, "server_error", "stream_interrupted", message)
    }

    /// A fault of Relight itself.
    pub(super) fn internal(what: &str) -> Self {
        let message = format!("a fault in Relight: {what}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal", message)
    }

    /// Why no invocation began.
    pub(super) fn not_started(error: StartError) -> Self {
        const INVALID: &str = "invalid_request_error";
        let conflict = |code, message: String| Self::new(StatusCode::CONFLICT, INVALID, code, message);
        match error {
            StartError::Refused(refused) => Self::failure(&refused),
            StartError::Closing => Self::draining(),
            StartError::Conflict(earlier) => {
                let message = format!("the idempotency key was used for another request, by invocation {earlier}");
                let refused = conflict("idempotency_key_reused", message);
                Self { param: Some("idempotency-key".to_owned()), ..refused }
            }
            StartError::ResultNotRetained(earlier) => {
                let message = format!("invocation {earlier} of the same key is finished, and its answer is not kept");
                conflict("answer_not_kept", message)
            }
            StartError::ThreadBusy(running) => {
                let refused = conflict("thread_busy", format!("invocation {running} runs on the thread"));
                Self { retry_after_ms: Some(RETRY_AFTER), should_retry: true, ..refused }
            }
            StartError::ThreadOfOtherRoute => {
                let message = "the thread began on a route that this key may not use";
                Self::new(StatusCode::FORBIDDEN, "permission_error", "thread_not_allowed", message)
            }
            StartError::Journal(JournalError::NotKept(what)) => {
                let message = format!("the journal keeps no payloads, which {what} needs");
                Self::new(StatusCode::BAD_REQUEST, INVALID, "payloads_not_kept", message)
            }
            StartError::Journal(error) => Self::without_journal(&error),
        }
    }

    /// Why the end of an invocation cannot be returned here.
    pub(super) fn lost(lost: &Lost) -> Self {
        match lost {
            Lost::Closing => Self::draining(),
            Lost::Gone => Self::internal("the invocation is no longer kept"),
            Lost::Journal(error) => Self::without_journal(error),
        }
    }

    /// The journal is away, and this needs it.
    pub(super) fn without_journal(error: &JournalError) -> Self {
        tracing::warn!(%error, "a call of the HTTP front needs the journal, which fails");
        let message = "the journal is not available; ask again";
        let refused = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "journal_unavailable", message);
        Self { retry_after_ms: Some(RETRY_AFTER), should_retry: true, ..refused }
    }

    /// Why the engine found no plan.
    pub(super) fn unresolved(refusal: Refusal) -> Self {
        match refusal {
            Refusal::RouteNotFound { route, nearest } => {
                Self::no_such_model(route.as_str(), nearest.as_ref().map(RouteName::as_str))
            }
            Refusal::Overrides(faults) => {
                if let [(field, why)] = &faults[..]
                    && field == "model"
                {
                    return Self::invalid("model", why.clone());
                }
                let faults: Vec<String> = faults.into_iter().map(|(field, why)| format!("{field}: {why}")).collect();
                Self::invalid("headers", faults.join("; "))
            }
            Refusal::ToolNotFound { tool, .. }
            | Refusal::ToolAmbiguous { tool, .. }
            | Refusal::ToolsUnlisted { tool, .. } => Self::invalid("model", format!("`{tool}` is called as a tool")),
        }
    }
}

// === impl EarlyRefusal ===

/// A refusal that is made before a request reaches its handler.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlyRefusal(Refused);

impl EarlyRefusal {
    /// No key, or one that is not known.
    #[must_use]
    pub fn unauthenticated() -> Self {
        Self(Refused::unauthenticated())
    }

    /// A caller that may look and not call.
    #[must_use]
    pub fn watcher() -> Self {
        let message = "a watcher may look and not call";
        Self(Refused::new(StatusCode::FORBIDDEN, "permission_error", "role_not_allowed", message))
    }

    /// A page of another origin.
    #[must_use]
    pub fn origin() -> Self {
        let message = "requests of this origin are not accepted; it would have to be in server.cors.allow_origins";
        Self(Refused::new(StatusCode::FORBIDDEN, "permission_error", "origin_not_allowed", message))
    }

    /// A body of another kind.
    #[must_use]
    pub fn content_type() -> Self {
        let message = "the body must be JSON, with `content-type: application/json`";
        Self(Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "invalid_request_error",
            "unsupported_media_type",
            message,
        ))
    }

    /// A request beyond a limit that is one request's own.
    #[must_use]
    pub fn too_large(limit: &str) -> Self {
        let message = format!("the request is larger than {limit} allows");
        Self(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", "request_too_large", message))
    }

    /// A limit that is shared was reached.
    #[must_use]
    pub fn no_room(limit: &str) -> Self {
        let message = format!("too many requests at once: {limit} is reached");
        let refused = Refused::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "shed", message);
        Self(Refused { retry_after_ms: Some(NO_ROOM_RETRY_MS), should_retry: true, ..refused })
    }

    /// The body did not come in time.
    #[must_use]
    pub fn late() -> Self {
        let message = "the body took longer than server.timeouts.body";
        Self(Refused::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", "request_timeout", message))
    }

    /// The body broke off.
    #[must_use]
    pub fn broken() -> Self {
        Self(Refused::unreadable(StatusCode::BAD_REQUEST, "the body broke off"))
    }

    /// The response, in the words of the client's protocol.
    #[must_use]
    pub fn respond(self, protocol: Protocol) -> Response {
        self.0.respond(protocol)
    }
}

// === impl Refused: what an invocation ended in ===

impl Refused {
    /// An invocation that failed, with its attempts.
    pub(super) fn outcome(outcome: &Outcome, failure: &Failure, told: ResponseHeaders) -> Self {
        let details = json!({
            "invocation": outcome.invocation.as_str(),
            "class": failure.class.as_str(),
            "target": failure.target.as_ref().map(TargetId::as_str),
            "attempts": outcome.attempts.len(),
            "reasoning": outcome.reasoning,
            "recovery_hint": failure.recovery_hint,
        });
        let refused = Self::failure(failure);
        let sent = outcome.attempts.iter().filter(|attempt| attempt.sent).count();
        let should_retry = refused.should_retry && sent <= 1;
        Self { details: Some(Box::new(details)), told: Some(Box::new(told)), should_retry, ..refused }
    }

    /// A failure by its class.
    pub(super) fn failure(failure: &Failure) -> Self {
        let (status, code) = failure.class.row().http;
        let kind = kind(failure.class, status);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let about_credential = matches!(failure.class, FailureClass::Authentication | FailureClass::PermissionDenied);
        let message = if failure.message.is_empty() || about_credential {
            failure.class.phrase().to_owned()
        } else {
            failure.message.clone()
        };
        let retry_after_ms =
            failure.retry_after.map(|wait| u64::try_from(wait.duration.as_millis()).unwrap_or(u64::MAX));
        // Only a wait that somebody stated, and that mends something, makes the client's own retry worth its while.
        let should_retry = failure.retryable && retry_after_ms.is_some() && matches!(status.as_u16(), 429 | 503);
        Self { retry_after_ms, should_retry, ..Self::new(status, kind, code, message) }
    }

    /// The error object, as the body has it and as an error event within a stream has it.
    pub(super) fn object(&self, protocol: Protocol) -> Value {
        let kind = match protocol {
            Protocol::Openai => self.kind,
            Protocol::Anthropic => anthropic_type(self.status),
        };
        let mut error = json!({"message": self.message, "type": kind, "param": self.param, "code": self.code});
        if let (Some(details), Some(fields)) = (&self.details, error.as_object_mut()) {
            fields.insert("relight".to_owned(), (**details).clone());
        }
        match protocol {
            Protocol::Openai => json!({"error": error}),
            Protocol::Anthropic => {
                let id = self.told.as_ref().map(|told| told.invocation.as_str());
                json!({"type": "error", "error": error, "request_id": id})
            }
        }
    }

    /// The response, in the words of the client's protocol.
    pub(super) fn respond(self, protocol: Protocol) -> Response {
        let mut response = Response::new(Body::from(self.object(protocol).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let again = if self.should_retry { "true" } else { "false" };
        headers.insert(SHOULD_RETRY, HeaderValue::from_static(again));
        if let Some(wait) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1000).max(1)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(wait));
        }
        if let Some(told) = &self.told {
            told.write(headers);
        }
        response
    }
}

impl From<HeaderFault> for Refused {
    fn from(fault: HeaderFault) -> Self {
        Self::invalid(fault.name, format!("the header {} {}", fault.name, fault.reason))
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
