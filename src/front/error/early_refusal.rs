//! What is refused before a request reaches its handler: by its headers, its size, or the time that
//! its body takes.

use axum::{http::StatusCode, response::Response};

use super::{Protocol, Refused};

/// When a client may come again that met a limit of bytes.
const NO_ROOM_RETRY_MS: u64 = 1_000;

/// A refusal that is made before a request reaches its handler.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlyRefusal(Refused);

// === impl EarlyRefusal ===

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
        Self(Refused::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            "role_not_allowed",
            message,
        ))
    }

    /// A page of another origin.
    #[must_use]
    pub fn origin() -> Self {
        let message = "requests of this origin are not accepted; it would have to be in server.cors.allow_origins";
        Self(Refused::new(
            StatusCode::FORBIDDEN,
            "permission_error",
            "origin_not_allowed",
            message,
        ))
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

    /// A body that is compressed.
    #[must_use]
    pub fn content_encoding() -> Self {
        let message = "the body must be sent as it is: `content-encoding` may be `identity` alone";
        let refused = Refused::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "invalid_request_error",
            "unsupported_content_encoding",
            message,
        );
        Self(Refused {
            param: Some("content-encoding".to_owned()),
            ..refused
        })
    }

    /// A request beyond a limit that is one request's own.
    #[must_use]
    pub fn too_large(limit: &str) -> Self {
        let message = format!("the request is larger than {limit} allows");
        Self(Refused::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "invalid_request_error",
            "request_too_large",
            message,
        ))
    }

    /// A limit that is shared was reached.
    #[must_use]
    pub fn no_room(limit: &str) -> Self {
        let message = format!("too many requests at once: {limit} is reached");
        let refused = Refused::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "shed",
            message,
        );
        Self(Refused {
            retry_after_ms: Some(NO_ROOM_RETRY_MS),
            should_retry: true,
            ..refused
        })
    }

    /// The body did not come in time.
    #[must_use]
    pub fn late() -> Self {
        let message = "the body took longer than server.timeouts.body";
        Self(Refused::new(
            StatusCode::REQUEST_TIMEOUT,
            "invalid_request_error",
            "request_timeout",
            message,
        ))
    }

    /// The body broke off.
    #[must_use]
    pub fn broken() -> Self {
        Self(Refused::unreadable(
            StatusCode::BAD_REQUEST,
            "the body broke off",
        ))
    }

    /// The response, in the words of the client's protocol.
    #[must_use]
    pub fn respond(self, protocol: Protocol) -> Response {
        self.0.respond(protocol)
    }
}
