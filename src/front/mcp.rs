//! Relight as an MCP server (streamable HTTP): the tools of all configured servers, each call
//! recovered like any other.
//!
//! An MCP client changes one URL. `tools/list` names every tool as its server does, or as
//! `server_tool`; `tools/call` is an invocation. Its result is the one that the tool's server sent,
//! errors too; a failure explains what was tried behind that, so that the model which called reads
//! both. A request may say by the headers of the OpenAI-compatible front what it wants
//! (`x-relight-operation`, `x-relight-thread`, `x-relight-deadline-ms`, …), and by `relight/goal`
//! in `_meta` what the call is for; the rest of `_meta` goes to the tool's server. Each request is
//! independent, whatever revision it speaks.

mod error;
mod listing;
mod metadata;
mod parameter_headers;
mod reply;
mod results;
mod revision;
mod running;
mod subscription;

use std::{ops::Deref, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{FromRef, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

pub use self::metadata::{token_metadata, with_challenge};
use self::{
    reply::{BegunCall, CallResponse},
    revision::Revision,
    running::RunningCalls,
};
use super::{
    Authenticate, Front, PeerCertificate, Principal,
    error::{CallError, Protocol},
    headers::RequestHeaders,
    incoming::FrontRequest,
};
use crate::{
    call_error::table::{
        PATH_NOT_FOUND, ROUTE_NOT_ALLOWED, RPC_NO_SUCH_METHOD, RPC_NOT_A_REQUEST, RPC_UNREADABLE,
    },
    domain::{
        ids::InvocationId,
        invocation::{Call, Overrides, ToolInvocation},
        tool::{ToolSpec, passed_on_meta},
    },
    engine::{Arrival, Engine, InvocationRequest},
    execution::Executions,
    layers::{spans::EntryPoint, tools::ToolPlan},
};

/// Name of a call in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/mcp",
};

/// Tells the clients of a tenant apart, for what they cancel.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Longest goal that is taken, in bytes.
const MAX_GOAL_BYTES: usize = 1024;

/// State that the handlers of the front need.
#[derive(Clone)]
struct McpFront {
    front: Front,
    running: RunningCalls,
    draining: watch::Receiver<bool>,
}

/// Returns the front's routes: the protocol at `path`. Bodies larger than `max_body_bytes` are
/// refused; subscriptions end when `draining` says so.
pub fn mcp_router(
    engine: Engine,
    executions: Executions,
    authenticate: Arc<dyn Authenticate>,
    path: &str,
    max_body_bytes: usize,
    draining: watch::Receiver<bool>,
) -> Router {
    Router::new()
        .route(path, post(handle).get(listen))
        .fallback(async || CallError::new(PATH_NOT_FOUND).respond(Protocol::Openai))
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .with_state(McpFront {
            front: Front::new(engine, executions, authenticate, max_body_bytes),
            running: RunningCalls::default(),
            draining,
        })
}

async fn handle(State(front): State<McpFront>, request: FrontRequest) -> Response {
    let answered = answer(&front, request).await;
    answered.unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

/// Tells a client of an earlier revision what changes.
async fn listen(
    State(front): State<McpFront>,
    shown: PeerCertificate,
    headers: HeaderMap,
) -> Response {
    if !reply::takes_events(&headers) || revision::is_modern(&headers) {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")]).into_response();
    }
    match front.identify(&headers, &shown) {
        Ok(_) => subscription::listen_legacy(&front, is_over(&front, &headers, shown)),
        Err(refused) => refused.respond(Protocol::Openai),
    }
}

/// Returns when a client that listens is to be let go: when the server drains, or knows it no more.
fn is_over(
    front: &McpFront,
    headers: &HeaderMap,
    shown: PeerCertificate,
) -> impl Fn() -> bool + Send + 'static {
    let front = front.clone();
    let headers = headers.clone();
    move || *front.draining.borrow() || front.identify(&headers, &shown).is_err()
}

async fn answer(front: &McpFront, request: FrontRequest) -> Result<Response, CallError> {
    let FrontRequest {
        shown,
        headers,
        body,
        ..
    } = request;
    let headers = &headers;
    let caller = front.identify(headers, &shown)?;
    let body = body?;
    let by_headers = RequestHeaders::read(headers)?;
    let Ok(mut message) = serde_json::from_slice::<Value>(&body) else {
        return Ok(CallError::new(RPC_UNREADABLE).respond_to(&Value::Null));
    };
    drop(body);
    let Some(method) = message["method"].as_str().map(str::to_owned) else {
        // A response of the client: nothing was requested of it.
        let is_message = message
            .get("result")
            .or_else(|| message.get("error"))
            .is_some();
        return Ok(if is_message {
            StatusCode::ACCEPTED.into_response()
        } else {
            CallError::new(RPC_NOT_A_REQUEST).respond_to(&Value::Null)
        });
    };
    let parameters = message["params"].take();
    let Some(id) = message
        .get("id")
        .filter(|id| id.is_string() || id.is_number())
        .cloned()
    else {
        if method == "notifications/cancelled" {
            let session = session_of(headers);
            front
                .running
                .cancel(&caller.tenant, session, &parameters["requestId"]);
        }
        return Ok(StatusCode::ACCEPTED.into_response());
    };
    let revision = match revision::of(&method, &parameters, headers) {
        Ok(revision) => revision,
        Err(error) => return Ok(error.respond_to(&id)),
    };
    let request = RpcRequest {
        id,
        parameters,
        revision,
    };
    Ok(match (method.as_str(), revision) {
        ("tools/call", _) => front.call(caller, by_headers, headers, request).await,
        ("tools/list", _) => {
            let listed = front.engine.listed_tools().await;
            request.respond(listing::tools(&listed, revision))
        }
        ("initialize", Revision::Legacy) => {
            let mut response = request.respond(Ok(listing::initialized(&request.parameters)));
            let session = HeaderValue::from_str(InvocationId::mint().as_str());
            response
                .headers_mut()
                .extend(session.ok().map(|session| (SESSION, session)));
            response
        }
        ("ping", Revision::Legacy) => request.respond(Ok(json!({}))),
        ("server/discover", Revision::Modern) => request.respond(Ok(listing::discovered())),
        ("subscriptions/listen", Revision::Modern) => {
            let is_over = is_over(front, headers, shown);
            subscription::listen(front, &request.id, &request.parameters, is_over)
        }
        (method, _) => {
            let error = CallError::new(RPC_NO_SUCH_METHOD).fact("name", method);
            let mut response = error.respond_to(&request.id);
            if revision == Revision::Legacy {
                *response.status_mut() = StatusCode::OK;
            }
            response
        }
    })
}

/// A request of the protocol, without its method.
struct RpcRequest {
    id: Value,
    parameters: Value,
    revision: Revision,
}

// === impl RpcRequest ===

impl RpcRequest {
    fn respond(&self, result: Result<Value, CallError>) -> Response {
        match result {
            Ok(result) => {
                let result = listing::as_of(self.revision, result);
                document(&json!({ "jsonrpc": "2.0", "id": self.id, "result": result }))
            }
            Err(error) => error.respond_to(&self.id),
        }
    }
}

// === impl McpFront ===

impl FromRef<McpFront> for Front {
    fn from_ref(state: &McpFront) -> Self {
        state.front.clone()
    }
}

impl Deref for McpFront {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}

impl McpFront {
    async fn call(
        &self,
        caller: Principal,
        by_headers: RequestHeaders,
        headers: &HeaderMap,
        request: RpcRequest,
    ) -> Response {
        let RpcRequest {
            id,
            parameters,
            revision,
        } = request;
        let running = self.running.begin(&caller.tenant, session_of(headers), &id);
        let arrival = Arrival {
            tenant: caller.tenant,
            routes: caller.routes,
            timeout: by_headers.time_allowed,
            trace: by_headers.trace.clone(),
            entry: ENTRY,
        };
        let token = parameters["_meta"].get("progressToken");
        let reply = CallResponse {
            id: id.clone(),
            revision,
            token: token
                .filter(|token| token.is_string() || token.is_number())
                .cloned(),
            takes_events: reply::takes_events(headers),
            keepalive: self.settings().keepalive,
            running,
        };
        let headers = (revision == Revision::Modern).then_some(headers);
        match begun(self, arrival, (by_headers, headers), parameters).await {
            Ok(begun) => {
                let progress = self.engine.follow_progress(&begun.started.id);
                reply.respond(begun, progress).await
            }
            Err(error) => error.respond_to(&id),
        }
    }
}

/// Begins a call. `repeating` are headers that have to say what its arguments say.
async fn begun(
    front: &Front,
    arrival: Arrival,
    (by_headers, repeating): (RequestHeaders, Option<&HeaderMap>),
    mut parameters: Value,
) -> Result<BegunCall, CallError> {
    let Some(name) = parameters["name"].as_str().map(str::to_owned) else {
        return Err(CallError::invalid_field("params.name", "is missing"));
    };
    let goal = parameters["_meta"]["relight/goal"]
        .as_str()
        .unwrap_or_default();
    let goal = goal[..goal.floor_char_boundary(MAX_GOAL_BYTES)].to_owned();
    let meta = passed_on_meta(&parameters["_meta"].take().to_string());
    let arguments = match parameters["arguments"].take() {
        Value::Null => Value::Object(Map::new()),
        arguments @ Value::Object(_) => arguments,
        _ => {
            let reason = "is not an object";
            return Err(CallError::invalid_field("params.arguments", reason));
        }
    };
    let call = ToolInvocation {
        name,
        arguments: arguments.to_string(),
        goal,
        meta,
        ..ToolInvocation::default()
    };
    let request = InvocationRequest {
        operation: by_headers.operation,
        request_id: by_headers.request_id,
        thread: by_headers.thread,
        overrides: Overrides {
            max_retries: by_headers.max_retries,
            targets: by_headers.targets,
            ..Overrides::default()
        },
        ..InvocationRequest::new(arrival, Call::Tool(call))
    };
    let routes = request.arrival.routes.clone();
    let incoming = front.engine.prepare(request).await?;
    if !incoming.plan.route.is_allowed_by(&routes) {
        return Err(CallError::new(ROUTE_NOT_ALLOWED).word("name", &incoming.plan.route));
    }
    let listed = incoming.plan.tool.as_deref().and_then(listed);
    if let (Some(headers), Some(tool)) = (repeating, listed) {
        parameter_headers::check(headers, &arguments, &tool.input_schema)?;
    }
    drop((arguments, parameters));
    let schema = listed.and_then(|tool| tool.output_schema.clone());
    let started = front.executions.start(incoming).await?;
    Ok(BegunCall { started, schema })
}

/// Returns the tool that was named, as it is listed.
fn listed(plan: &ToolPlan) -> Option<&ToolSpec> {
    let named = plan.named.as_ref().and_then(|named| plan.offer(named));
    let named = named.or_else(|| plan.offers.first().filter(|_| plan.unlisted.is_none()))?;
    Some(&named.spec)
}

/// Returns what a client of an earlier revision was given to tell it apart; empty if it has none.
fn session_of(headers: &HeaderMap) -> &str {
    let session = headers
        .get(&SESSION)
        .and_then(|session| session.to_str().ok());
    session.unwrap_or_default()
}

/// Returns a message of JSON-RPC as a document.
fn document(message: &Value) -> Response {
    written(message.to_string())
}

/// Returns the same for one that is written already: it may be long, and is not copied.
fn written(message: String) -> Response {
    let mut response = Response::new(Body::from(message));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}
