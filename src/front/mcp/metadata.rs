//! Protected-resource metadata (RFC 9728): the place at which a client gets a token for the front,
//! if callers have tokens. It is for clients that have none yet, so it comes before the intake.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};
use serde_json::json;

use super::document;
use crate::{config::Config, engine::Engine};

/// Path of a resource's metadata, before the resource's own path.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The resource that the metadata are of.
#[derive(Clone)]
struct TokenResource {
    engine: Engine,
    path: Arc<str>,
}

/// Returns the routes of the metadata of the front at `path`, which tell those who are not identified
/// where they get a token.
pub fn token_metadata(engine: Engine, path: &str) -> Router {
    Router::new()
        .route(WELL_KNOWN, get(metadata))
        .route(&format!("{WELL_KNOWN}{path}"), get(metadata))
        .with_state(TokenResource {
            engine,
            path: path.into(),
        })
}

/// Returns the front at `path`, whose refusals for want of a token name the place of the metadata.
pub fn with_challenge(router: Router, engine: Engine, path: &str) -> Router {
    let resource = TokenResource {
        engine,
        path: path.into(),
    };
    router.layer(from_fn_with_state(resource, challenge))
}

/// Returns the metadata; nothing is there if no token is taken.
async fn metadata(State(resource): State<TokenResource>, headers: HeaderMap) -> Response {
    let config = resource.engine.config();
    match (&config.server.jwt, base(&config, headers.get(header::HOST))) {
        (Some(jwt), Some(base)) => document(&json!({
            "resource": format!("{base}{}", resource.path),
            "authorization_servers": [jwt.issuer],
            "bearer_methods_supported": ["header"],
        })),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Adds the place of the metadata to a refusal for want of a token.
async fn challenge(
    State(resource): State<TokenResource>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(header::HOST).cloned();
    let mut response = next.run(request).await;
    let config = resource.engine.config();
    if response.status() != StatusCode::UNAUTHORIZED || config.server.jwt.is_none() {
        return response;
    }
    let challenge = base(&config, host.as_ref())
        .map(|base| {
            format!(
                "Bearer resource_metadata=\"{base}{WELL_KNOWN}{}\"",
                resource.path
            )
        })
        .and_then(|challenge| HeaderValue::from_str(&challenge).ok());
    if let Some(challenge) = challenge {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Returns the front's own address, as the client wrote it.
fn base(config: &Config, host: Option<&HeaderValue>) -> Option<String> {
    let host = host?.to_str().ok()?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    let scheme = if config.server.tls.is_some() {
        "https"
    } else {
        "http"
    };
    host.chars()
        .all(is_host)
        .then(|| format!("{scheme}://{host}"))
}
