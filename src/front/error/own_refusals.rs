//! What Relight itself refuses: requests that are wrong, and calls that it cannot take now.

use axum::http::StatusCode;

use super::Refused;
use crate::{
    domain::ids::RouteName,
    engine::Refusal,
    execution::{Lost, StartError},
    journal::JournalError,
};

/// When a client that was refused by a draining replica may retry: another replica is ready.
const TRY_ELSEWHERE_MS: u64 = 100;
/// When a client may retry whose thread is in use, or which met a journal that is away.
const RETRY_AFTER: u64 = 1_000;

// === impl Refused ===

impl Refused {
    /// A field or header of the request is wrong.
    pub(in crate::front) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let refused = Self::new(
            StatusCode::BAD_REQUEST,
            "invalid_request_error",
            "invalid_request",
            message,
        );
        Self {
            param: Some(param.into()),
            ..refused
        }
    }

    /// A field of the request asks for something that this front has not.
    pub(in crate::front) fn unsupported(
        param: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            code: "unsupported_parameter",
            ..Self::invalid(param, message)
        }
    }

    /// The body cannot be read: its status says why.
    pub(in crate::front) fn unreadable(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", "invalid_request", message)
    }

    /// No key, or one that is not known; it does not say which.
    pub(in crate::front) fn unauthenticated() -> Self {
        let message =
            "a valid API key is required, as `Authorization: Bearer <key>` or `x-api-key: <key>`";
        Self::new(
            StatusCode::UNAUTHORIZED,
            "authentication_error",
            "invalid_api_key",
            message,
        )
    }

    /// The key may not use this route.
    pub(in crate::front) fn route_not_allowed(route: &str) -> Self {
        let message = format!("this key may not use the model `{route}`");
        let refused = Self::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            "route_not_allowed",
            message,
        );
        Self {
            param: Some("model".to_owned()),
            ..refused
        }
    }

    /// There is no such route or target.
    pub(in crate::front) fn no_such_model(model: &str, nearest: Option<&str>) -> Self {
        let shown = &model[..model.floor_char_boundary(128)];
        let hint = nearest
            .map(|nearest| format!("; did you mean `{nearest}`?"))
            .unwrap_or_default();
        let message =
            format!("the model `{shown}` does not exist: a model is a route of this server{hint}");
        let refused = Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            "model_not_found",
            message,
        );
        Self {
            param: Some("model".to_owned()),
            ..refused
        }
    }

    /// There is no such response.
    pub(in crate::front) fn no_such_response(response: &str) -> Self {
        let shown = &response[..response.floor_char_boundary(128)];
        let message = format!("there is no response `{shown}` here, or it is no longer kept");
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            "response_not_found",
            message,
        )
    }

    /// There is no such response to go on with.
    pub(in crate::front) fn no_previous_response(response: &str) -> Self {
        let refused = Self {
            status: StatusCode::BAD_REQUEST,
            ..Self::no_such_response(response)
        };
        Self {
            code: "previous_response_not_found",
            param: Some("previous_response_id".to_owned()),
            ..refused
        }
    }

    /// The conversation went on behind the response, or it failed.
    pub(in crate::front) fn not_newest_response(response: &str) -> Self {
        let shown = &response[..response.floor_char_boundary(128)];
        let message = format!(
            "`{shown}` is not the newest answer of its conversation: only that one can be gone on with; send the \
             conversation as `input` to go on from an older one"
        );
        Self::unsupported("previous_response_id", message)
    }

    /// There is no such path.
    pub(in crate::front) fn no_such_path() -> Self {
        let message = "no such path; there are POST /v1/chat/completions, /v1/responses, /v1/messages, \
                       /v1/messages/count_tokens and /v1/embeddings, GET /v1/responses/{id}, /v1/models and \
                       /v1/models/{model}";
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            "not_found",
            message,
        )
    }

    /// The path takes another method.
    pub(in crate::front) fn wrong_method() -> Self {
        let message = "this path takes another method";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "invalid_request_error",
            "method_not_allowed",
            message,
        )
    }

    /// This process ends; another one takes the call.
    pub(in crate::front) fn draining() -> Self {
        let message = "this replica is draining; ask again, and another one will answer";
        let refused = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            "draining",
            message,
        );
        Self {
            retry_after_ms: Some(TRY_ELSEWHERE_MS),
            should_retry: true,
            ..refused
        }
    }

    /// The stream that was partly sent cannot go on.
    pub(in crate::front) fn diverged() -> Self {
        let message = "the answer broke off, and the new attempt's text is not the one that was sent; discard this \
                       answer and ask again";
        Self::new(
            StatusCode::BAD_GATEWAY,
            "server_error",
            "stream_interrupted",
            message,
        )
    }

    /// A fault of Relight itself.
    pub(in crate::front) fn internal(what: &str) -> Self {
        let message = format!("a fault in Relight: {what}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "server_error",
            "internal",
            message,
        )
    }

    /// Why no invocation began.
    pub(in crate::front) fn not_started(error: StartError) -> Self {
        const INVALID: &str = "invalid_request_error";
        let conflict =
            |code, message: String| Self::new(StatusCode::CONFLICT, INVALID, code, message);
        match error {
            StartError::Refused(refused) => Self::failure(&refused),
            StartError::Closing => Self::draining(),
            StartError::Conflict(earlier) => {
                let message = format!(
                    "the idempotency key was used for another request, by invocation {earlier}"
                );
                let refused = conflict("idempotency_key_reused", message);
                Self {
                    param: Some("idempotency-key".to_owned()),
                    ..refused
                }
            }
            StartError::ResultNotRetained(earlier) => {
                let message = format!(
                    "invocation {earlier} of the same key is finished, and its answer is not kept"
                );
                conflict("answer_not_kept", message)
            }
            StartError::ThreadBusy(running) => {
                let refused = conflict(
                    "thread_busy",
                    format!("invocation {running} runs on the thread"),
                );
                Self {
                    retry_after_ms: Some(RETRY_AFTER),
                    should_retry: true,
                    ..refused
                }
            }
            StartError::ThreadOfOtherRoute => {
                let message = "the thread began on a route that this key may not use";
                Self::new(
                    StatusCode::FORBIDDEN,
                    "permission_error",
                    "thread_not_allowed",
                    message,
                )
            }
            StartError::Journal(JournalError::NotKept(what)) => {
                let message = format!("the journal keeps no payloads, which {what} needs");
                Self::new(
                    StatusCode::BAD_REQUEST,
                    INVALID,
                    "payloads_not_kept",
                    message,
                )
            }
            StartError::Journal(error) => Self::without_journal(&error),
        }
    }

    /// Why the end of an invocation cannot be returned here.
    pub(in crate::front) fn lost(lost: &Lost) -> Self {
        match lost {
            Lost::Closing => Self::draining(),
            Lost::Gone => Self::internal("the invocation is no longer kept"),
            Lost::Journal(error) => Self::without_journal(error),
        }
    }

    /// The journal is away, and this needs it.
    pub(in crate::front) fn without_journal(error: &JournalError) -> Self {
        tracing::warn!(%error, "a call of the HTTP front needs the journal, which fails");
        let message = "the journal is not available; ask again";
        let refused = Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "server_error",
            "journal_unavailable",
            message,
        );
        Self {
            retry_after_ms: Some(RETRY_AFTER),
            should_retry: true,
            ..refused
        }
    }

    /// Why the engine found no plan.
    pub(in crate::front) fn unresolved(refusal: Refusal) -> Self {
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
                let faults: Vec<String> = faults
                    .into_iter()
                    .map(|(field, why)| format!("{field}: {why}"))
                    .collect();
                Self::invalid("headers", faults.join("; "))
            }
            Refusal::ToolNotFound { tool, .. }
            | Refusal::ToolAmbiguous { tool, .. }
            | Refusal::ToolsUnlisted { tool, .. } => {
                Self::invalid("model", format!("`{tool}` is called as a tool"))
            }
        }
    }
}
