//! An MCP server over streamable HTTP that misbehaves on demand, and plain HTTP tools beside it.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
    routing::{any, post},
};
use flate2::{Compression, write::GzEncoder};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::{sync::broadcast, task::JoinSet};

/// A running server; it ends when it is dropped.
pub(super) struct McpOverHttp {
    address: SocketAddr,
    seen: Arc<Seen>,
    _task: JoinSet<()>,
}

struct Seen {
    state: Mutex<SeenState>,
    changes: broadcast::Sender<()>,
}

#[derive(Default)]
struct SeenState {
    requests: usize,
    initializations: usize,
    /// Sessions up to this number are over.
    ended: usize,
    /// How that is told: a status and a body, in which `ID` is the request's; unset: a bare 404.
    told: Option<(u16, String)>,
    /// Requests to call a tool, also those that were refused for their session.
    tries: usize,
    refuse_initialization: Option<u16>,
    renamed: bool,
    listening: bool,
    /// Whether changes are reported without end.
    floods: bool,
    /// How many such reports their reader gave up.
    floods_left: usize,
    cancellations: usize,
    plain_requests: usize,
    calls: BTreeMap<String, usize>,
    headers: HeaderMap,
    /// What a stream that was cut goes on with.
    rest: Option<String>,
}

// === impl McpOverHttp ===

impl McpOverHttp {
    pub(super) async fn start() -> Self {
        let seen = Arc::new(Seen {
            state: Mutex::default(),
            changes: broadcast::channel(8).0,
        });
        let router = Router::new()
            .route(
                "/mcp",
                post(take).get(listen).delete(|| async { StatusCode::OK }),
            )
            .route("/plain/{*path}", any(plain))
            .with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut task = JoinSet::new();
        task.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            seen,
            _task: task,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub(super) fn plain_url(&self) -> String {
        format!("http://{}/plain", self.address)
    }

    pub(super) fn requests(&self) -> usize {
        self.seen.state().requests
    }

    pub(super) fn initializations(&self) -> usize {
        self.seen.state().initializations
    }

    pub(super) fn calls(&self, tool: &str) -> usize {
        self.seen
            .state()
            .calls
            .get(tool)
            .copied()
            .unwrap_or_default()
    }

    pub(super) fn cancellations(&self) -> usize {
        self.seen.state().cancellations
    }

    pub(super) fn plain_requests(&self) -> usize {
        self.seen.state().plain_requests
    }

    /// The headers of the last call.
    pub(super) fn last_headers(&self) -> HeaderMap {
        self.seen.state().headers.clone()
    }

    pub(super) fn end_sessions(&self) {
        let mut state = self.seen.state();
        state.ended = state.initializations;
    }

    /// The same, told in other words.
    pub(super) fn end_sessions_saying(&self, status: u16, body: &str) {
        self.end_sessions();
        self.seen.state().told = Some((status, body.to_owned()));
    }

    pub(super) fn tries(&self) -> usize {
        self.seen.state().tries
    }

    pub(super) fn refuse_initialization(&self, status: u16) {
        self.seen.state().refuse_initialization = Some(status);
    }

    /// Reports changes without end to whoever listens from now on, or no more.
    pub(super) fn flood(&self, floods: bool) {
        self.seen.state().floods = floods;
    }

    /// How many floods of reports their reader gave up.
    pub(super) fn floods_left(&self) -> usize {
        self.seen.state().floods_left
    }

    /// Renames a parameter and reports it, once somebody listens.
    pub(super) async fn rename(&self) {
        while !self.seen.state().listening {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.seen.state().renamed = true;
        self.seen.changes.send(()).unwrap();
    }
}

/// Counts a flood when its reader leaves.
struct Flood(Arc<Seen>);

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.state().floods_left += 1;
    }
}

impl Seen {
    fn state(&self) -> MutexGuard<'_, SeenState> {
        self.state.lock().unwrap()
    }
}

fn json_response(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

fn events(body: Body) -> Response {
    ([("content-type", "text/event-stream")], body).into_response()
}

fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}

/// A body that sends this and then breaks off.
fn cut_after(text: String) -> Body {
    let broken = stream::once(async {
        // What was sent before has to arrive.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Err(std::io::Error::other("cut"))
    });
    Body::from_stream(stream::once(async { Ok(text) }).chain(broken))
}

async fn take(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: Bytes) -> Response {
    match respond(&seen, headers, &body) {
        // The connection closes with the task that serves it.
        None if String::from_utf8_lossy(&body).contains("\"closes\"") => {
            panic!("the connection closes")
        }
        Some(response) => response,
        None => std::future::pending().await,
    }
}

/// The response to a message; none where the server hangs.
fn respond(seen: &Seen, headers: HeaderMap, body: &[u8]) -> Option<Response> {
    let message: Value = serde_json::from_slice(body).unwrap();
    let (id, params) = (&message["id"], &message["params"]);
    let mut state = seen.state();
    state.requests += 1;
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let method = message["method"].as_str().unwrap_or_default();
    state.tries += usize::from(method == "tools/call");
    if method != "initialize" {
        let session = headers
            .get("mcp-session-id")
            .and_then(|session| session.to_str().ok())
            .unwrap_or_default();
        let number: usize = session
            .rsplit('-')
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_default();
        if number <= state.ended {
            let Some((status, body)) = &state.told else {
                return Some(StatusCode::NOT_FOUND.into_response());
            };
            let kind = [("content-type", "application/json")];
            let body = body.replace("ID", &id.to_string());
            return Some((StatusCode::from_u16(*status).unwrap(), kind, body).into_response());
        }
    }
    Some(match method {
        "initialize" => {
            if let Some(status) = state.refuse_initialization {
                return Some((StatusCode::from_u16(status).unwrap(), "no").into_response());
            }
            state.initializations += 1;
            let session = format!("session-{}", state.initializations);
            let capabilities = json!({ "tools": { "listChanged": true } });
            let info = json!({ "name": "misbehaving", "version": "1" });
            let version = &params["protocolVersion"];
            let ready = json!({ "protocolVersion": version, "capabilities": capabilities, "serverInfo": info });
            ([("mcp-session-id", session)], json_response(&result(ready))).into_response()
        }
        "tools/list" => {
            let parameter = if state.renamed {
                "max_results"
            } else {
                "limit"
            };
            let schema =
                json!({ "type": "object", "properties": { parameter: { "type": "integer" } } });
            json_response(&result(
                json!({ "tools": [{ "name": "list_things", "inputSchema": schema }] }),
            ))
        }
        "tools/call" => {
            let name = params["name"].as_str().unwrap().to_owned();
            *state.calls.entry(name.clone()).or_default() += 1;
            state.headers = headers;
            let arguments = &params["arguments"];
            let done = result(json!({ "content": [], "structuredContent": arguments }));
            if name == "cuts_numbered_events" {
                state.rest = Some(event(&done));
            }
            call(&name, &done)?
        }
        "ping" => json_response(&result(json!({}))),
        "notifications/cancelled" => {
            state.cancellations += 1;
            StatusCode::ACCEPTED.into_response()
        }
        _ => StatusCode::ACCEPTED.into_response(),
    })
}

fn call(name: &str, done: &Value) -> Option<Response> {
    let progress = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": 1 } });
    let mut wrong = done.clone();
    wrong["id"] = json!(99_999);
    let long = json!({ "jsonrpc": "2.0", "id": done["id"], "result": { "content": [], "structuredContent": "x".repeat(70_000) } });
    Some(match name {
        "json" => json_response(done),
        "events" => events(event(done).into()),
        "events_after_progress" => {
            events(format!(": a comment\n\n{}{}", event(&progress), event(done)).into())
        }
        "cuts_events" => events(cut_after(event(&progress))),
        "cuts_numbered_events" => {
            events(cut_after(format!("id: 1\nretry: 10\n{}", event(&progress))))
        }
        "ends_events" => events(event(&progress).into()),
        "flood" => {
            let mut long = progress.clone();
            long["params"]["data"] = json!("x".repeat(16 << 10));
            let flood = stream::repeat(event(&long)).map(Ok::<_, Infallible>);
            events(Body::from_stream(flood))
        }
        "no_id" => json_response(&without_id()),
        "no_id_in_events" => events(event(&without_id()).into()),
        "wrong_id" => json_response(&wrong),
        "wrong_id_in_events" => events(event(&wrong).into()),
        "large" => json_response(&long),
        "large_event" => events(event(&long).into()),
        "html" => ([("content-type", "text/html")], "<html>").into_response(),
        "429" => (
            StatusCode::TOO_MANY_REQUESTS,
            [("retry-after", "7")],
            "slow down",
        )
            .into_response(),
        "403" => (StatusCode::FORBIDDEN, "{\"error\":\"not yours\"}").into_response(),
        "own_session" => json_response(&json!({ "jsonrpc": "2.0", "id": done["id"],
            "error": { "code": -32001, "message": "Session 7 of the browser not found" } })),
        "500" => (StatusCode::INTERNAL_SERVER_ERROR, "broken inside").into_response(),
        _ => return None,
    })
}

/// The error of a server that could not read the request.
fn without_id() -> Value {
    json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "cannot read it" } })
}

/// The stream of what responds to nothing, or the rest of one that was cut.
async fn listen(State(seen): State<Arc<Seen>>, headers: HeaderMap) -> Response {
    let mut state = seen.state();
    if headers.contains_key("last-event-id") {
        return events(state.rest.take().unwrap_or_default().into());
    }
    state.listening = true;
    if state.floods {
        let params = json!({ "_meta": { "test/padding": "x".repeat(16 << 10) } });
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": params });
        let flood = Flood(Arc::clone(&seen));
        let reports = stream::repeat(event(&changed)).map(move |report| {
            let _reader = &flood;
            Ok::<_, Infallible>(report)
        });
        return events(Body::from_stream(reports));
    }
    let changes = seen.changes.subscribe();
    let reports = stream::unfold(changes, |mut changes| async {
        changes.recv().await.ok()?;
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        Some((Ok::<_, Infallible>(event(&changed)), changes))
    });
    events(Body::from_stream(reports))
}

/// Bodies that are compressed or of another charset, by their path.
fn encoded(path: &str) -> Option<Response> {
    let zipped = |text: &str| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let gzip = ("content-encoding", "gzip");
    Some(match path.rsplit('/').next()? {
        "zipped" => {
            let json = ("content-type", "application/json");
            ([json, gzip], zipped("{\"city\":\"Zürich\"}")).into_response()
        }
        "zipped_refusal" => (StatusCode::NOT_FOUND, [gzip], zipped("no such city")).into_response(),
        "latin" => {
            let kind = [("content-type", "text/plain; charset=latin1")];
            (kind, b"Z\xFCrich".to_vec()).into_response()
        }
        _ => return None,
    })
}

async fn plain(
    State(seen): State<Arc<Seen>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    if uri.path().ends_with("/broken") {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [("retry-after", "3")],
            "maintenance",
        )
            .into_response();
    }
    if let Some(response) = encoded(uri.path()) {
        return response;
    }
    seen.state().plain_requests += 1;
    let team = headers.get("x-team").map(|team| team.to_str().unwrap());
    json_response(
        &json!({ "method": method.as_str(), "path": uri.to_string(), "body": body, "team": team }),
    )
}
