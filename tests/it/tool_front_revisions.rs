//! The revisions of MCP that the front speaks: requests that stand alone (2026-07-28), and clients
//! that begin with `initialize`; progress, silence and cancellation in both.

use std::{net::SocketAddr, time::Duration};

use relight::internals::{
    grpc::v1::ExecutionState,
    wire_server::{
        Reply, Request, WireServer,
        mcp::{Executed, ScriptedTool},
    },
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::support::{
    event_reader::EventReader,
    front::{Answer, get, post_with},
    tool_stage::{Stage, echo, object},
};

const FRONT: &str = "  mcp_front: { listen: \"127.0.0.1:0\" }";
const MODERN: &str = "2026-07-28";
const PATIENCE: Duration = Duration::from_mins(1);
const EVENTS: (&str, &str) = ("accept", "application/json, text/event-stream");

fn address(stage: &Stage) -> SocketAddr {
    stage.relight.running.mcp_front_address.unwrap()
}

/// A request that stands alone, and its headers.
fn modern(method: &str, mut params: Value) -> (Value, Vec<(String, String)>) {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let mut headers = vec![
        ("mcp-protocol-version".to_owned(), MODERN.to_owned()),
        ("mcp-method".to_owned(), method.to_owned()),
    ];
    if let Some(name) = params["name"].as_str() {
        headers.push(("mcp-name".to_owned(), name.to_owned()));
    }
    (
        json!({"jsonrpc": "2.0", "id": "m-1", "method": method, "params": params}),
        headers,
    )
}

async fn send(stage: &Stage, body: &Value, headers: &[(String, String)]) -> Answer {
    let mut all = vec![EVENTS];
    all.extend(
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    post_with(address(stage), "/mcp", &all, body).await
}

async fn ask(stage: &Stage, method: &str, params: Value) -> Answer {
    let (body, headers) = modern(method, params);
    send(stage, &body, &headers).await
}

/// A server whose one tool reports its progress four times and takes longer than a second.
async fn slow_server() -> WireServer {
    let wire = WireServer::start().await.unwrap();
    wire.otherwise(|request: &Request| {
        let Some(id) = request.body.get("id") else {
            return Reply::body(if request.method == "POST" { 202 } else { 405 }, &[], b"");
        };
        let params = &request.body["params"];
        let event = |message: Value| format!("event: message\ndata: {message}\n\n").into_bytes();
        let result = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        match request.body["method"].as_str().unwrap() {
            "initialize" => Reply::document(&result(json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "slow", "version": "1"},
            }))),
            "tools/list" => {
                let tool = json!({"name": "slow", "inputSchema": {"type": "object"}});
                Reply::document(&result(json!({"tools": [tool]})))
            }
            "tools/call" => {
                let progress = |n: u32| {
                    event(
                        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {
                            "progressToken": params["_meta"]["progressToken"],
                            "progress": n, "total": 4, "message": format!("step {n}"),
                        }}),
                    )
                };
                let mut pieces: Vec<(Duration, Vec<u8>)> = (0..4)
                    .map(|n| (Duration::from_millis(600), progress(n)))
                    .collect();
                let content = json!([{"type": "text", "text": "done"}]);
                pieces.push((
                    Duration::from_millis(600),
                    event(result(json!({"content": content}))),
                ));
                Reply::stream(pieces)
            }
            method => Reply::document(&json!({"jsonrpc": "2.0", "id": id,
                "error": {"code": -32601, "message": format!("no {method}")}})),
        }
    });
    wire
}

async fn slow_stage() -> (Stage, WireServer) {
    let wire = slow_server().await;
    let settings = format!(
        "    slow: {{ url: \"http://{}/mcp\" }}\n{FRONT}",
        wire.address()
    );
    (Stage::with(vec![echo("search")], &settings).await, wire)
}

#[tokio::test]
async fn a_client_of_requests_that_stand_alone_discovers_lists_and_calls() {
    let stage = Stage::with(vec![echo("search")], FRONT).await;
    let discovered = ask(&stage, "server/discover", json!({})).await;
    assert_eq!(discovered.status, 200, "{discovered:?}");
    let result = &discovered.json()["result"];
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"][0], MODERN);
    assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
        "relight"
    );
    assert!(
        result["ttlMs"].is_u64() && result["cacheScope"] == "public",
        "{result}"
    );
    let listed = ask(&stage, "tools/list", json!({})).await.json();
    assert_eq!(listed["result"]["tools"][0]["name"], "search");
    assert_eq!(listed["result"]["resultType"], "complete");
    assert!(listed["result"]["ttlMs"].as_u64().unwrap() > 0, "{listed}");
    let called = ask(
        &stage,
        "tools/call",
        json!({"name": "search", "arguments": {"q": 1}}),
    )
    .await;
    let called = called.json();
    assert_eq!(
        (&called["id"], &called["result"]["resultType"]),
        (&json!("m-1"), &json!("complete"))
    );
    assert_eq!(called["result"]["structuredContent"], json!({"q": 1}));
}

#[tokio::test]
async fn a_request_that_contradicts_its_headers_or_names_another_revision_is_refused() {
    let stage = Stage::with(vec![echo("search")], FRONT).await;
    let (body, headers) = modern("tools/call", json!({"name": "search", "arguments": {}}));
    for missing in 0..headers.len() {
        let mut some = headers.clone();
        some.remove(missing);
        let refused = send(&stage, &body, &some).await;
        let code = refused.json()["error"]["code"].clone();
        assert_eq!((refused.status, code), (400, json!(-32020)), "{missing}");
    }
    let mut future = body.clone();
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2031-01-01");
    let mut of_future = headers.clone();
    of_future[0].1 = "2031-01-01".to_owned();
    let refused = send(&stage, &future, &of_future).await;
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["code"]), (400, &json!(-32022)));
    assert_eq!(
        (&error["data"]["supported"][0], &error["data"]["requested"]),
        (&json!(MODERN), &json!("2031-01-01"))
    );
    let unknown = ask(&stage, "ping", json!({})).await;
    assert_eq!(
        (unknown.status, &unknown.json()["error"]["code"]),
        (404, &json!(-32601))
    );
    let bare = post_with(
        address(&stage),
        "/mcp",
        &[("mcp-protocol-version", MODERN)],
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    )
    .await;
    assert_eq!(
        (bare.status, &bare.json()["error"]["code"]),
        (400, &json!(-32602))
    );
    assert!(stage.script.calls().is_empty());
}

#[tokio::test]
async fn the_progress_of_a_tool_reaches_the_client_with_its_own_token_in_every_revision() {
    let (stage, _wire) = slow_stage().await;
    let params = json!({"name": "slow", "arguments": {}, "_meta": {"progressToken": "tok-1"}});
    let (standing_alone, headers) = modern("tools/call", params.clone());
    let older = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params});
    for (body, headers) in [(&standing_alone, headers), (&older, Vec::new())] {
        let answer = send(&stage, body, &headers).await;
        assert_eq!(
            answer.header("content-type"),
            Some("text/event-stream"),
            "{answer:?}"
        );
        let events = answer.events();
        let (end, reports) = events.split_last().unwrap();
        assert!(reports.len() >= 3, "{answer:?}");
        let mut before = -1.0;
        for report in reports {
            assert_eq!(report["params"]["progressToken"], "tok-1");
            let progress = report["params"]["progress"].as_f64().unwrap();
            assert!(progress > before, "{answer:?}");
            before = progress;
        }
        assert_eq!(
            (&end["id"], &end["result"]["content"][0]["text"]),
            (&body["id"], &json!("done"))
        );
        assert_eq!(
            end["result"].get("resultType").is_some(),
            body["id"] == "m-1"
        );
    }
}

#[tokio::test]
async fn a_long_call_sends_its_head_and_comments_before_the_result_and_a_document_where_it_must() {
    let (stage, _wire) = slow_stage().await;
    let params = json!({"name": "slow", "arguments": {}});
    let body = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params});
    let answer = send(&stage, &body, &[]).await;
    assert!(answer.body.starts_with(':'), "{answer:?}");
    assert_eq!(
        answer.events().len(),
        1,
        "a client without a token gets no progress: {answer:?}"
    );
    let document = post_with(
        address(&stage),
        "/mcp",
        &[("accept", "application/json")],
        &body,
    )
    .await;
    assert_eq!(document.json()["result"]["content"][0]["text"], "done");
}

#[tokio::test]
async fn a_client_cancels_by_leaving_or_by_a_message_of_its_own_where_its_revision_has_that() {
    let silent = ScriptedTool::new("silent", &json!({"type": "object"}), |_| {
        Executed::Wire(Box::new(Reply::silence()))
    });
    let stage = Stage::with(vec![silent], FRONT).await;
    let (body, headers) = modern("tools/call", json!({"name": "silent", "arguments": {}}));
    let left = timeout(Duration::from_secs(2), send(&stage, &body, &headers)).await;
    assert!(left.is_err(), "the tool never returns");
    let begun = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
    let begun = send(&stage, &begun, &[]).await;
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let in_session = [("mcp-session-id".to_owned(), session)];
    let params = json!({"name": "silent", "arguments": {}});
    let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
    let cancel = async {
        while stage.script.calls().len() < 2 {
            sleep(Duration::from_millis(20)).await;
        }
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": 5}});
        // Neither a client without the session nor one of another id.
        assert_eq!(send(&stage, &cancelled, &[]).await.status, 202);
        assert_eq!(send(&stage, &cancelled, &in_session).await.status, 202);
    };
    let (called, ()) = tokio::join!(timeout(PATIENCE, send(&stage, &call, &in_session)), cancel);
    assert!(called.unwrap().body.contains("cancelled"));
    let both = async {
        while stage.execution_states().await != [ExecutionState::Cancelled; 2] {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, both)
        .await
        .expect("both are recorded as cancelled");
}

#[tokio::test]
async fn a_subscription_is_acknowledged_first_and_tells_when_the_tools_change() {
    let stage = Stage::with(vec![echo("search")], FRONT).await;
    ask(&stage, "tools/list", json!({})).await;
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let (body, headers) = modern("subscriptions/listen", filter);
    let mut events = EventReader::post(address(&stage), &headers, &body).await;
    let acknowledged = events.next().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"toolsListChanged": true})
    );
    let about = json!({"io.modelcontextprotocol/subscriptionId": "m-1"});
    assert_eq!(acknowledged["params"]["_meta"], about);
    stage.script.replace(vec![echo("search"), echo("deployed")]);
    // A call of the new tool has its list fetched.
    ask(
        &stage,
        "tools/call",
        json!({"name": "deployed", "arguments": {}}),
    )
    .await;
    let changed = events.next().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(changed["params"]["_meta"], about);
}

#[tokio::test]
async fn an_argument_that_the_schema_repeats_in_a_header_is_the_same_there_or_nothing_is_executed()
{
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let deploy = ScriptedTool::new("deploy", &object(json!({"region": region}), &[]), |_| {
        Executed::Result(json!({}))
    });
    let stage = Stage::with(vec![deploy], FRONT).await;
    let header = |value: &str| ("mcp-param-region".to_owned(), value.to_owned());
    let there = json!({"region": "eu-1"});
    for (arguments, more, is_fine) in [
        (&there, vec![header("eu-1")], true),
        (&there, vec![header("=?base64?ZXUtMQ==?=")], true),
        (&json!({}), vec![], true),
        (&there, vec![], false),
        (&there, vec![header("eu-2")], false),
        (&there, vec![header("eu-1"), header("eu-2")], false),
        (&there, vec![header("=?base64?ZXUtMQ?=")], false),
        (&json!({}), vec![header("eu-1")], false),
    ] {
        let before = stage.script.calls().len();
        let params = json!({"name": "deploy", "arguments": arguments});
        let (body, mut headers) = modern("tools/call", params);
        headers.extend(more.clone());
        let answer = send(&stage, &body, &headers).await;
        let expected = if is_fine {
            (200, Value::Null)
        } else {
            (400, json!(-32020))
        };
        let got = (answer.status, answer.json()["error"]["code"].clone());
        assert_eq!(got, expected, "{arguments} {more:?}");
        let executed = stage.script.calls().len() - before;
        assert_eq!(executed, usize::from(is_fine), "{arguments} {more:?}");
    }
    // Earlier revisions have no such headers.
    let params = json!({"name": "deploy", "arguments": there});
    let older = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params});
    assert!(send(&stage, &older, &[]).await.json()["result"].is_object());
}

#[tokio::test]
async fn where_callers_have_tokens_a_client_is_told_where_it_gets_one() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    std::fs::write(&keys, r#"{"keys":[]}"#).unwrap();
    let stage = Stage::with(vec![echo("search")], FRONT).await;
    let address = address(&stage);
    let bare = get(address, "/.well-known/oauth-protected-resource/mcp").await;
    assert_eq!(bare.status, 404, "nobody has a token here");
    let yaml = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\", auth: jwt, jwt: {{ issuer: \
         \"https://idp.example\", audience: relight, jwks_file: {} }} }}\ntools:\n{FRONT}\n",
        keys.display()
    );
    let running = crate::support::relight::running(&yaml, None).await;
    let address = running.mcp_front_address.unwrap();
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let metadata = get(address, &path).await.json();
        assert_eq!(metadata["resource"], format!("http://{address}/mcp"));
        assert_eq!(
            metadata["authorization_servers"],
            json!(["https://idp.example"])
        );
    }
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let refused = post_with(address, "/mcp", &[], &request).await;
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("/.well-known/oauth-protected-resource/mcp"),
        "{challenge}"
    );
}
