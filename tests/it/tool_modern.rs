//! Tool servers that speak MCP 2026-07-28 alone: each request stands by itself, and changes come on
//! a subscription.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::tool::ToolRequest,
    tool::{ListFreshness, ToolServers, configured},
    wire_server::{Reply, Request, WireServer},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_mins(1);
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

fn servers(wire: &WireServer) -> ToolServers {
    let url = format!("http://{}/mcp", wire.address());
    let text = json!({ "tools": { "servers": { "modern": { "url": url } } } }).to_string();
    let config = load_text(&text, None, &GivenEnvironment::new())
        .unwrap()
        .config;
    ToolServers::build(&configured(&config.tools)).unwrap()
}

/// A server of one tool, whose name is what the test sets.
fn reply(request: &Request, tool: &str) -> Reply {
    let Some(id) = request.body.get("id") else {
        return Reply::body(405, &[], b"");
    };
    let params = &request.body["params"];
    let refused = |status, code, message: &str| {
        let error = json!({ "code": code, "message": message });
        Reply::refusal(
            status,
            &[],
            &json!({ "jsonrpc": "2.0", "id": id, "error": error }),
        )
    };
    let method = request.body["method"].as_str().unwrap();
    if params["_meta"][VERSION] != "2026-07-28"
        || request.header("mcp-protocol-version") != Some("2026-07-28")
        || request.header("mcp-method") != Some(method)
        || request.header("mcp-name") != params["name"].as_str()
    {
        return refused(400, -32022, "Unsupported protocol version");
    }
    let done = |mut result: Value| {
        result["resultType"] = json!("complete");
        Reply::document(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
    };
    match method {
        "server/discover" => done(json!({
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": { "listChanged": true } },
            "ttlMs": 0, "cacheScope": "public",
        })),
        "tools/list" => done(json!({
            "tools": [{ "name": tool, "inputSchema": { "type": "object" } }],
            "ttlMs": 3_600_000, "cacheScope": "public",
        })),
        "tools/call" => done(json!({ "content": [], "structuredContent": params["arguments"] })),
        "subscriptions/listen" => {
            let about = json!({ "io.modelcontextprotocol/subscriptionId": id });
            let event = |method: &str, mut params: Value| {
                params["_meta"] = about.clone();
                let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
                format!("event: message\ndata: {message}\n\n").into_bytes()
            };
            let accepted = json!({ "notifications": { "toolsListChanged": true } });
            let acknowledged = event("notifications/subscriptions/acknowledged", accepted);
            let changed = event("notifications/tools/list_changed", json!({}));
            let mut pieces = vec![(Duration::ZERO, acknowledged)];
            pieces.extend((0..60).map(|_| (Duration::from_secs(1), changed.clone())));
            Reply::stream(pieces)
        }
        method => refused(404, -32601, &format!("no {method}")),
    }
}

#[tokio::test]
async fn a_server_of_requests_that_stand_alone_is_called_without_a_handshake_and_its_changes_are_seen()
 {
    let wire = WireServer::start().await.unwrap();
    let tool = Arc::new(Mutex::new("first"));
    let listed = Arc::clone(&tool);
    wire.otherwise(move |request| reply(request, *listed.lock().unwrap()));
    let servers = servers(&wire);
    let list = async |freshness| servers.list("modern", freshness).await.unwrap();
    assert!(list(ListFreshness::Cached).await.find("first").is_some());
    let request = ToolRequest {
        tool: "first".to_owned(),
        arguments: json!({ "a": 1 }).to_string(),
        meta: None,
    };
    let reply = timeout(PATIENCE, servers.call("modern", request))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reply.structured.as_deref(), Some("{\"a\":1}"));
    let methods: Vec<String> = wire
        .requests()
        .iter()
        .map(|request| {
            request.body["method"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(
        methods
            .iter()
            .filter(|method| *method == "server/discover")
            .count(),
        1
    );
    assert!(
        !methods.iter().any(|method| method == "initialize"),
        "{methods:?}"
    );
    *tool.lock().unwrap() = "second";
    let changing = async {
        while list(ListFreshness::Current).await.find("second").is_none() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, changing)
        .await
        .expect("the change is seen");
}

/// A server that answers a discovery, as the official Go SDK does where it keeps sessions, and knows
/// the earlier revisions alone.
fn older(request: &Request, by_events: bool) -> Reply {
    let Some(id) = request.body.get("id") else {
        return Reply::body(202, &[], b"");
    };
    let versions = ["2025-11-25", "2025-06-18"];
    let tools = json!({ "listChanged": true });
    let result = match request.body["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": versions,
            "capabilities": { "tools": tools }, "ttlMs": 0, "cacheScope": "public",
        }),
        "initialize" => json!({
            "protocolVersion": versions[0], "capabilities": { "tools": tools },
            "serverInfo": { "name": "older", "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "old", "inputSchema": { "type": "object" } }] })
        }
        method => panic!("{method}"),
    };
    let message = json!({ "jsonrpc": "2.0", "id": id, "result": result });
    if by_events {
        let event = format!("event: message\ndata: {message}\n\n").into_bytes();
        Reply::stream(vec![(Duration::ZERO, event)])
    } else {
        Reply::document(&message)
    }
}

#[tokio::test]
async fn a_server_that_discovers_earlier_revisions_alone_is_spoken_to_in_those() {
    for by_events in [false, true] {
        let wire = WireServer::start().await.unwrap();
        wire.otherwise(move |request| older(request, by_events));
        let servers = servers(&wire);
        let listing = servers.list("modern", ListFreshness::Cached);
        let list = timeout(PATIENCE, listing).await.unwrap().unwrap();
        assert!(list.find("old").is_some(), "by events: {by_events}");
    }
}
