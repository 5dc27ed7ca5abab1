//! The HTTP front: the protocols of `OpenAI` (chat completions, responses, embeddings) and of
//! Anthropic (messages), for clients that do not speak gRPC.
//!
//! A model name there is a route here, and every call is an invocation like one over gRPC: it goes
//! through the same policies, is recorded, and can be looked up, cancelled and taken over, so that
//! an official SDK needs nothing but another base URL. What the gRPC stream can say and this one
//! cannot is "discard what I sent": a restarted answer continues if its text agrees with what was
//! delivered, is continued if a target can do that, and ends in an error event if neither holds.
//! The front never sends a text that no model wrote, and never ends a broken answer as if it were
//! whole.
//!
//! Request headers: `x-relight-operation` (default `executor`), `x-relight-max-retries`,
//! `x-relight-deadline-ms` (or `x-request-timeout`, in seconds), `idempotency-key` (the gRPC API's
//! `request_id`: the same key and body join the call that runs, or get its completion once more),
//! `x-relight-thread` (the conversation that Relight keeps; messages are then only the new ones),
//! `x-relight-resumable` (`true`, or the time for which the call continues without a client: the
//! events of its stream have ids, and the same request with `last-event-id` gets what follows that
//! event), and W3C trace context. Response headers: `x-relight-invocation` and `x-request-id` (both the id
//! of the invocation), `x-relight-attempts`, `x-relight-target` (the target that answers, if that
//! is certain), and `x-relight-adapted` (the changes to the request so that a model takes it; never
//! silent); and, if the tenant has limits, what is left of them, in the words of the protocol
//! (`rate_limits`). A stream has them as they are when it starts: the attempts and changes so far, and the
//! target that was called last; the comment before the end of a whole completion has them all. A
//! refusal has its status, its error object and its `retry-after` as the table of errors has them
//! (`call_error`), and `x-should-retry`, which the official SDKs obey. A stream that broke, or that failed
//! after it started with a comment, ends with an `error` event and without `[DONE]`.

mod call;
mod carried;
mod chat;
mod embeddings;
pub mod entries;
mod error;
mod fields;
mod headers;
mod incoming;
mod mcp;
mod media;
mod messages;
mod models;
mod place;
mod rate_limits;
mod responses;
mod resume;
mod stream;

use std::{ops::Deref, sync::Arc};

use axum::{
    Extension, Router,
    extract::ConnectInfo,
    http::{HeaderMap, Uri},
    routing::{get, post},
};
use futures_util::future::BoxFuture;

pub use self::{
    error::Protocol,
    mcp::{mcp_router, token_metadata, with_challenge},
    rate_limits::LimitHeaders,
};
use crate::{
    call_error::{
        CallError,
        table::{METHOD_NOT_ALLOWED, PATH_NOT_FOUND, UNAUTHENTICATED},
    },
    config::server::OpenaiFrontConfig,
    domain::ids::{RouteName, TenantId},
    engine::Engine,
    execution::Executions,
};

/// Identity of the caller, as authentication knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Tenant of the caller.
    pub tenant: TenantId,
    /// The routes that it may name; empty for all.
    pub routes: Vec<RouteName>,
}

/// Decides who is let in. The server provides it, so that both fronts have one list of keys.
pub trait Authenticate: Send + Sync + 'static {
    /// Returns who sent this request; `certificate` is the first one that its connection showed,
    /// DER. `None` if the sender is not known.
    fn identify(&self, headers: &HeaderMap, certificate: Option<&[u8]>) -> Option<Principal>;

    /// Ends when who sent this request may call this route no longer, as the tenant that it is now;
    /// returns what its stream then ends with.
    fn withdrawn(
        &self,
        headers: &HeaderMap,
        certificate: Option<&[u8]>,
        route: RouteName,
    ) -> BoxFuture<'static, CallError>;
}

/// The certificate that a client's connection showed, DER, if it did; the listener gives it as
/// `ConnectInfo`.
#[derive(Debug, Clone, Default)]
pub struct ClientCertificate(pub Option<Arc<[u8]>>);

/// Certificate as handlers get it; a listener without TLS gives none.
type PeerCertificate = Option<Extension<ConnectInfo<ClientCertificate>>>;

/// State that all handlers share, in one `Arc`: each request clones it.
#[derive(Clone)]
pub(crate) struct Front(Arc<FrontState>);

/// Parts that all handlers need.
pub(crate) struct FrontState {
    engine: Engine,
    executions: Executions,
    authenticate: Arc<dyn Authenticate>,
    max_body_bytes: usize,
    started_unix: i64,
}

/// Returns the front's routes. Bodies larger than `max_body_bytes` are refused.
pub fn router(
    engine: Engine,
    executions: Executions,
    authenticate: Arc<dyn Authenticate>,
    max_body_bytes: usize,
) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/responses", post(responses::create))
        .route(
            "/v1/responses/{response}",
            get(responses::one).delete(responses::delete),
        )
        .route("/v1/responses/{response}/cancel", post(responses::cancel))
        .route(
            "/v1/responses/{response}/input_items",
            get(responses::input_items),
        )
        .route("/v1/messages", post(messages::create))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/embeddings", post(embeddings::create))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
        .fallback(async |uri: Uri, headers: HeaderMap| {
            CallError::new(PATH_NOT_FOUND).respond(Protocol::of(uri.path(), &headers))
        })
        .method_not_allowed_fallback(async |uri: Uri, headers: HeaderMap| {
            CallError::new(METHOD_NOT_ALLOWED).respond(Protocol::of(uri.path(), &headers))
        })
        .with_state(Front::new(engine, executions, authenticate, max_body_bytes))
}

/// Returns whether a body is a request that one of the front's protocols takes.
#[must_use]
pub fn is_request(body: &[u8]) -> bool {
    let is_chat = chat::request::ChatRequest::read(body).is_ok();
    let is_messages = messages::request::MessagesRequest::read(body).is_ok();
    let is_responses = responses::request::ResponsesRequest::read(body)
        .and_then(|it| it.messages())
        .is_ok();
    is_chat || is_messages || is_responses
}

/// Returns the credential of a request, as an `authorization` header has it: clients of Anthropic's
/// API send `x-api-key`.
#[must_use]
pub fn authorization(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let of_key = || text("x-api-key").map(|key| format!("Bearer {key}"));
    text("authorization").map(str::to_owned).or_else(of_key)
}

// === impl Principal ===

impl Principal {
    /// Returns whether it may name this route.
    #[must_use]
    pub fn may_use(&self, route: &RouteName) -> bool {
        route.is_allowed_by(&self.routes)
    }
}

impl Deref for Front {
    type Target = FrontState;

    fn deref(&self) -> &FrontState {
        &self.0
    }
}

// === impl Front ===

impl Front {
    fn new(
        engine: Engine,
        executions: Executions,
        authenticate: Arc<dyn Authenticate>,
        max_body_bytes: usize,
    ) -> Self {
        let started_unix = crate::domain::clock::wall_now().as_second();
        Self(Arc::new(FrontState {
            engine,
            executions,
            authenticate,
            max_body_bytes,
            started_unix,
        }))
    }

    /// Returns the identity of the caller.
    fn identify(
        &self,
        headers: &HeaderMap,
        shown: &PeerCertificate,
    ) -> Result<Principal, CallError> {
        let certificate = shown.as_ref().and_then(|shown| shown.0.0.0.as_deref());
        self.authenticate
            .identify(headers, certificate)
            .ok_or_else(|| CallError::new(UNAUTHENTICATED))
    }

    /// Ends when who sent this request may call this route no longer.
    fn withdrawn(
        &self,
        (headers, shown): (&HeaderMap, &PeerCertificate),
        route: RouteName,
    ) -> BoxFuture<'static, CallError> {
        let certificate = shown.as_ref().and_then(|shown| shown.0.0.0.as_deref());
        self.authenticate.withdrawn(headers, certificate, route)
    }

    /// Returns the front's settings in force.
    fn settings(&self) -> OpenaiFrontConfig {
        self.engine
            .config()
            .server
            .openai_front
            .clone()
            .unwrap_or_default()
    }
}
