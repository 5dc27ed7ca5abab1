//! Relight as an MCP server (streamable HTTP): the tools of all configured servers, each call
//! recovered like any other.
//!
//! An MCP client changes one URL. `tools/list` names every tool as its server does, and as
//! `server_tool` where several servers have one of a name; `tools/call` is an invocation. A failure
//! is a result that is marked as an error and explains what was tried, so that the model which
//! called reads it. A request may say by the headers of the OpenAI-compatible front what it wants
//! (`x-relight-operation`, `x-relight-thread`, `x-relight-deadline-ms`, …), and by `relight/goal`
//! in `_meta` what the call is for. There are no sessions: each request stands alone.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::{Map, Value, json};

use super::{
    Authenticate, Front, PeerCertificate,
    error::{Protocol, Refused},
    headers::RequestHeaders,
};
use crate::{
    domain::{
        invocation::{Call, Outcome, Overrides, ToolInvocation},
        message::{Media, MediaSource},
        tool::{ToolContent, ToolOutput, ToolSpec},
    },
    engine::{Arrival, Engine, InvocationRequest, Refusal},
    execution::Executions,
    layers::spans::EntryPoint,
};

/// How a call is named in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/mcp",
};

/// The versions of the protocol that it speaks, the newest first.
const PROTOCOLS: [&str; 3] = ["2025-06-18", "2025-03-26", "2024-11-05"];

/// Longest goal that is taken, in bytes.
const MAX_GOAL_BYTES: usize = 1024;

/// Codes of JSON-RPC.
const NOT_A_REQUEST: i64 = -32600;
const NO_SUCH_METHOD: i64 = -32601;
const WRONG_PARAMETERS: i64 = -32602;
const UNREADABLE: i64 = -32700;
const INTERNAL: i64 = -32603;

/// An error of the protocol.
struct RpcError {
    code: i64,
    message: String,
}

/// The front's only route, at `path`. Bodies larger than `max_body_bytes` are refused.
pub fn mcp_router(
    engine: Engine,
    executions: Executions,
    authenticate: Arc<dyn Authenticate>,
    path: &str,
    max_body_bytes: usize,
) -> Router {
    Router::new()
        .route(path, post(handle))
        .fallback(async || Refused::no_such_path().respond(Protocol::Openai))
        .method_not_allowed_fallback(async || StatusCode::METHOD_NOT_ALLOWED)
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(Front::new(engine, executions, authenticate))
}

async fn handle(
    State(front): State<Front>,
    shown: PeerCertificate,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match answer(&front, &shown, &headers, body).await {
        Ok(response) => response,
        Err(refused) => refused.respond(Protocol::Openai),
    }
}

async fn answer(
    front: &Front,
    shown: &PeerCertificate,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let caller = front.identify(headers, shown)?;
    let body =
        body.map_err(|rejection| Refused::unreadable(rejection.status(), rejection.body_text()))?;
    let by_headers = RequestHeaders::read(headers)?;
    let Ok(mut message) = serde_json::from_slice::<Value>(&body) else {
        return Ok(failed(
            &Value::Null,
            &RpcError::new(UNREADABLE, "the body is no JSON"),
        ));
    };
    let Some(method) = message["method"].as_str().map(str::to_owned) else {
        // A response of the client: nothing was requested of it.
        let is_message = message
            .get("result")
            .or_else(|| message.get("error"))
            .is_some();
        let error = RpcError::new(NOT_A_REQUEST, "one request is expected, with a method");
        return Ok(if is_message {
            StatusCode::ACCEPTED.into_response()
        } else {
            failed(&Value::Null, &error)
        });
    };
    let Some(id) = message
        .get("id")
        .filter(|id| id.is_string() || id.is_number())
        .cloned()
    else {
        return Ok(StatusCode::ACCEPTED.into_response());
    };
    let parameters = message["params"].take();
    let result = match method.as_str() {
        "initialize" => Ok(initialized(&parameters)),
        "ping" => Ok(json!({})),
        "tools/list" => {
            let tools = named(front.engine.listed_tools().await);
            let tools: Vec<Value> = tools
                .iter()
                .map(|(name, _, tool)| listed(name, tool))
                .collect();
            Ok(json!({ "tools": tools }))
        }
        "tools/call" => {
            let arrival = Arrival {
                tenant: caller.tenant,
                routes: caller.routes,
                timeout: by_headers.time_allowed,
                trace: by_headers.trace.clone(),
                entry: ENTRY,
            };
            called(front, arrival, by_headers, parameters).await
        }
        method => Err(RpcError::new(
            NO_SUCH_METHOD,
            format!("there is no method `{method}`"),
        )),
    };
    Ok(match result {
        Ok(result) => document(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
        Err(error) => failed(&id, &error),
    })
}

async fn called(
    front: &Front,
    arrival: Arrival,
    by_headers: RequestHeaders,
    mut parameters: Value,
) -> Result<Value, RpcError> {
    let Some(name) = parameters["name"].as_str().map(str::to_owned) else {
        return Err(RpcError::new(WRONG_PARAMETERS, "params.name is missing"));
    };
    let goal = parameters["_meta"]["relight/goal"]
        .as_str()
        .unwrap_or_default();
    let goal = goal[..goal.floor_char_boundary(MAX_GOAL_BYTES)].to_owned();
    let arguments = match parameters["arguments"].take() {
        Value::Null => Value::Object(Map::new()),
        arguments @ Value::Object(_) => arguments,
        _ => {
            return Err(RpcError::new(
                WRONG_PARAMETERS,
                "params.arguments is no object",
            ));
        }
    };
    let tools = named(front.engine.listed_tools().await);
    let known = tools.iter().find(|(known, _, _)| *known == name);
    let tool = known.map_or_else(
        || name.clone(),
        |(_, server, tool)| format!("{server}/{}", tool.name),
    );
    let call = ToolInvocation {
        name: tool,
        arguments: arguments.to_string(),
        goal,
        ..ToolInvocation::default()
    };
    let request = InvocationRequest {
        operation: by_headers.operation,
        request_id: by_headers.request_id,
        thread: by_headers.thread,
        overrides: Overrides {
            max_retries: by_headers.max_retries,
            ..Overrides::default()
        },
        ..InvocationRequest::new(arrival, Call::Tool(call))
    };
    let routes = request.arrival.routes.clone();
    let incoming = front.engine.prepare(request).await.map_err(unresolved)?;
    if !incoming.plan.route.is_allowed_by(&routes) {
        return Err(RpcError::new(
            WRONG_PARAMETERS,
            "this key may not call tools on this route",
        ));
    }
    let started = front.executions.start(incoming).await;
    let mut started = started
        .map_err(|error| RpcError::new(INTERNAL, format!("the call was not begun: {error:?}")))?;
    let outcome = started.follower.outcome().await;
    let outcome = outcome
        .map_err(|_| RpcError::new(INTERNAL, "the call was lost; its outcome is not known"))?;
    Ok(result(&outcome))
}

/// The result of a call: what the tool returned, or why it did not.
fn result(outcome: &Outcome) -> Value {
    let strategies: Vec<&str> = outcome
        .recovery_applied
        .iter()
        .map(|strategy| strategy.as_str())
        .collect();
    let about = json!({
        "relight/invocation": outcome.invocation.as_str(),
        "relight/attempts": outcome.attempts.len(),
        "relight/recovery_applied": strategies,
        "relight/reasoning": outcome.reasoning,
    });
    match &outcome.result {
        Ok(completion) => {
            let output = completion
                .tool_output
                .as_deref()
                .cloned()
                .unwrap_or_default();
            let mut result =
                json!({ "content": content(&output), "isError": false, "_meta": about });
            let structured = output.reply.structured.as_deref();
            // The protocol has objects alone.
            if let Some(structured) =
                structured.and_then(|text| serde_json::from_str::<Map<_, _>>(text).ok())
            {
                result["structuredContent"] = Value::Object(structured);
            }
            result
        }
        Err(failure) => {
            let mut sentences = vec![failure.user_message.clone(), outcome.reasoning.clone()];
            if !outcome.alternatives.is_empty() {
                sentences.push(format!("Alternatives: {}", outcome.alternatives.join(" ")));
            }
            sentences.retain(|sentence| !sentence.is_empty());
            let text = sentences.join("\n\n");
            json!({ "content": [{ "type": "text", "text": text }], "isError": true, "_meta": about })
        }
    }
}

/// What the tool returned; where it was not all that was asked for, that comes first.
fn content(output: &ToolOutput) -> Vec<Value> {
    let incomplete = output
        .coverage
        .as_ref()
        .filter(|coverage| !coverage.missing.is_empty())
        .map(|coverage| {
            let missing = coverage.missing.join(", ");
            let text = format!(
                "Incomplete: {} of {} parts; missing: {missing}.",
                coverage.done, coverage.total
            );
            json!({ "type": "text", "text": text })
        });
    let pieces = output.reply.content.iter().map(|piece| match piece {
        ToolContent::Text(text) => json!({ "type": "text", "text": text }),
        ToolContent::Image(media) => of_media("image", media),
        ToolContent::File(media) if media.mime_type.starts_with("audio/") => {
            of_media("audio", media)
        }
        ToolContent::File(media) => resource(media),
    });
    incomplete.into_iter().chain(pieces).collect()
}

fn of_media(kind: &str, media: &Media) -> Value {
    match &media.source {
        MediaSource::Bytes(bytes) => {
            json!({ "type": kind, "data": BASE64.encode(bytes), "mimeType": media.mime_type })
        }
        MediaSource::Url(_) => resource(media),
    }
}

fn resource(media: &Media) -> Value {
    let name = media.name.as_deref().unwrap_or("file");
    match &media.source {
        MediaSource::Bytes(bytes) => json!({ "type": "resource", "resource": {
            "uri": format!("file:///{name}"), "mimeType": media.mime_type, "blob": BASE64.encode(bytes),
        } }),
        MediaSource::Url(url) => {
            json!({ "type": "resource_link", "uri": url, "name": name, "mimeType": media.mime_type })
        }
    }
}

fn initialized(parameters: &Value) -> Value {
    let wanted = parameters["protocolVersion"].as_str().unwrap_or_default();
    let protocol = PROTOCOLS
        .into_iter()
        .find(|known| *known == wanted)
        .unwrap_or(PROTOCOLS[0]);
    json!({
        "protocolVersion": protocol,
        "capabilities": { "tools": { "listChanged": false } },
        "serverInfo": { "name": "relight", "version": env!("CARGO_PKG_VERSION") },
    })
}

/// Every tool with the name by which clients call it: its own, or `server_tool` where several
/// servers have it.
fn named(tools: Vec<(Arc<str>, ToolSpec)>) -> Vec<(String, Arc<str>, ToolSpec)> {
    let mut times: HashMap<String, u32> = HashMap::new();
    for (_, tool) in &tools {
        *times.entry(tool.name.clone()).or_default() += 1;
    }
    let name = |(server, tool): (Arc<str>, ToolSpec)| {
        let is_shared = times.get(&tool.name).is_some_and(|times| *times > 1);
        let name = if is_shared {
            format!("{server}_{}", tool.name)
        } else {
            tool.name.clone()
        };
        (name, server, tool)
    };
    tools.into_iter().map(name).collect()
}

fn listed(name: &str, tool: &ToolSpec) -> Value {
    let mut listed =
        json!({ "name": name, "description": tool.description, "inputSchema": *tool.input_schema });
    if let Some(schema) = &tool.output_schema {
        listed["outputSchema"] = Value::clone(schema);
    }
    let hints = tool.annotations;
    let mut annotations = Map::new();
    for (hint, value) in [
        ("readOnlyHint", hints.read_only),
        ("idempotentHint", hints.idempotent),
        ("destructiveHint", hints.destructive),
        ("openWorldHint", hints.open_world),
    ] {
        annotations.extend(value.map(|value| (hint.to_owned(), Value::Bool(value))));
    }
    if !annotations.is_empty() {
        listed["annotations"] = Value::Object(annotations);
    }
    listed
}

fn unresolved(refusal: Refusal) -> RpcError {
    match refusal {
        Refusal::ToolNotFound { tool, nearest } => {
            let near = if nearest.is_empty() {
                String::new()
            } else {
                format!("; did you mean {}?", nearest.join(", "))
            };
            RpcError::new(WRONG_PARAMETERS, format!("there is no tool `{tool}`{near}"))
        }
        Refusal::ToolAmbiguous { tool, candidates } => RpcError::new(
            WRONG_PARAMETERS,
            format!(
                "`{tool}` is the name of several tools; name one of {}",
                candidates.join(", ")
            ),
        ),
        Refusal::ToolsUnlisted { tool, servers } => {
            let servers: Vec<String> = servers
                .iter()
                .map(|(server, error)| format!("{server} ({error})"))
                .collect();
            RpcError::new(
                INTERNAL,
                format!(
                    "`{tool}` cannot be looked up; no tools are listed by {}",
                    servers.join(", ")
                ),
            )
        }
        Refusal::RouteNotFound { route, .. } => {
            RpcError::new(WRONG_PARAMETERS, format!("there is no route `{route}`"))
        }
        Refusal::Overrides(faults) => {
            let faults: Vec<String> = faults
                .into_iter()
                .map(|(field, why)| format!("{field}: {why}"))
                .collect();
            RpcError::new(WRONG_PARAMETERS, faults.join("; "))
        }
    }
}

fn failed(id: &Value, error: &RpcError) -> Response {
    let RpcError { code, message } = error;
    document(&json!({"jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message }}))
}

fn document(document: &Value) -> Response {
    let mut response = Response::new(Body::from(document.to_string()));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

// === impl RpcError ===

impl RpcError {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}
