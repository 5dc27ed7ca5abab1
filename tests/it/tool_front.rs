//! Relight as an MCP server: lists the tools of all servers, recovers each call, and refuses whom
//! it does not know.

use std::net::SocketAddr;

use relight::internals::wire_server::mcp::{Executed, ScriptedTool};
use serde_json::{Value, json};

use crate::support::{
    front::{post, post_with},
    tool_stage::{Stage, echo},
};

const FRONT: &str = "  mcp_front: { listen: \"127.0.0.1:0\" }";

fn address(stage: &Stage) -> SocketAddr {
    stage.relight.running.mcp_front_address.unwrap()
}

async fn rpc(stage: &Stage, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let answer = post(address(stage), "/mcp", &request).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test]
async fn an_mcp_client_lists_the_tools_and_calls_them() {
    let stage = Stage::with(vec![echo("get_activity")], FRONT).await;
    let begun = rpc(
        &stage,
        "initialize",
        json!({"protocolVersion": "2025-03-26"}),
    )
    .await;
    assert_eq!(begun["result"]["protocolVersion"], "2025-03-26");
    let note = post(
        address(&stage),
        "/mcp",
        &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    )
    .await;
    assert_eq!(note.status, 202);
    let listed = rpc(&stage, "tools/list", json!({})).await;
    assert_eq!(listed["result"]["tools"][0]["name"], "get_activity");
    let called = rpc(
        &stage,
        "tools/call",
        json!({"name": "get_activity", "arguments": {"id": 7}}),
    )
    .await;
    assert_eq!(called["result"]["structuredContent"], json!({"id": 7}));
    assert_ne!(called["result"]["isError"], true);
    assert_eq!(called["result"]["_meta"]["relight/attempts"], 1);
}

#[tokio::test]
async fn a_failure_is_an_error_result_that_explains_itself_and_a_wrong_request_an_error_of_the_protocol()
 {
    let private = ScriptedTool::new("get_private", &json!({"type": "object"}), |_| {
        Executed::Error("403 Forbidden".into())
    });
    let stage = Stage::with(vec![private], FRONT).await;
    let called = rpc(
        &stage,
        "tools/call",
        json!({"name": "get_private", "arguments": {}}),
    )
    .await;
    assert_eq!(called["result"]["isError"], true);
    assert!(
        called["result"]["content"][1]["text"]
            .as_str()
            .unwrap()
            .contains("not allowed"),
        "{called}"
    );
    assert_eq!(called["result"]["content"][0]["text"], "403 Forbidden");
    for (method, params, code) in [
        (
            "tools/call",
            json!({"name": "nothing", "arguments": {}}),
            -32602,
        ),
        (
            "tools/call",
            json!({"name": "get_private", "arguments": [1]}),
            -32602,
        ),
        ("resources/list", json!({}), -32601),
    ] {
        assert_eq!(
            rpc(&stage, method, params).await["error"]["code"],
            code,
            "{method}"
        );
    }
    assert_eq!(stage.script.calls().len(), 1);
}

#[tokio::test]
async fn a_page_of_the_front_itself_may_call_and_one_whose_name_leads_to_it_may_not() {
    let stage = Stage::with(vec![echo("search")], FRONT).await;
    let port = address(&stage).port();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let status = async |host: &str, origin: &str| {
        let headers = [("host", host), ("origin", origin)];
        let answer = post_with(address(&stage), "/mcp", &headers, &list).await;
        answer.status
    };
    for host in ["127.0.0.1", "localhost", "[::1]"] {
        let own = format!("{host}:{port}");
        assert_eq!(status(&own, &format!("http://{own}")).await, 200, "{own}");
    }
    let own = format!("127.0.0.1:{port}");
    let rebound = format!("evil.example:{port}");
    for (host, origin) in [
        (&rebound, format!("http://{rebound}")),
        (&own, format!("http://{rebound}")),
        (&own, "http://127.0.0.1:3000".to_owned()),
        (&own, "null".to_owned()),
    ] {
        assert_eq!(status(host, &origin).await, 403, "{host} {origin}");
    }
}
