//! Which web pages may call: those of the origins in `server.cors.allow_origins`.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, request::Parts};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::config::server::CorsConfig;

/// Time for which a browser may remember what it is allowed.
const MAX_AGE: Duration = Duration::from_hours(1);

/// Headers of a response that pages may read, beside those that they always may.
const EXPOSED: [&str; 12] = [
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "grpc-retry-pushback-ms",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
    "x-relight-invocation",
    "x-relight-attempts",
    "x-relight-target",
    "x-relight-adapted",
];

/// Answers browsers' preflight requests, and marks responses as readable for allowed pages.
pub(super) fn layer(settings: CorsConfig) -> CorsLayer {
    let allowed = move |origin: &HeaderValue, _: &Parts| settings.allows(origin.as_bytes());
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(allowed))
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers(EXPOSED.map(HeaderName::from_static))
        .max_age(MAX_AGE)
}
