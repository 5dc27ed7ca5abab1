//! Tool servers behind a URL, as MCP over streamable HTTP and as plain HTTP: exactly one request
//! for one call, and its facts.

#![expect(
    clippy::needless_pass_by_value,
    clippy::duration_suboptimal_units,
    clippy::disallowed_methods,
    reason = "the call that is dropped is a task of its own"
)]

mod server;

use std::{sync::Arc, time::Duration};

use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::{
        failure::{ProviderError, Surface, TransportFault},
        tool::{ToolContent, ToolReply, ToolRequest},
    },
    tool::{ListFreshness, ToolServers, configured},
};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use self::server::McpOverHttp;
use crate::support::http::closed_address;

const PATIENCE: Duration = Duration::from_secs(60);

fn servers(tools: Value) -> ToolServers {
    let text = json!({ "tools": tools }).to_string();
    let config = load_text(&text, None, &GivenEnvironment::new())
        .unwrap_or_else(|faults| panic!("{faults}"))
        .config;
    ToolServers::build(&configured(&config.tools)).unwrap()
}

async fn call(
    servers: &ToolServers,
    tool: &str,
    arguments: Value,
) -> Result<ToolReply, ProviderError> {
    let request = ToolRequest {
        tool: tool.to_owned(),
        arguments: arguments.to_string(),
    };
    timeout(PATIENCE, servers.call("remote", request))
        .await
        .unwrap_or_else(|_| panic!("{tool} hangs"))
}

fn mcp(url: &str) -> ToolServers {
    servers(
        json!({ "servers": { "remote": { "url": url, "api_key": "k-1", "headers": { "x-team": "blue" } } } }),
    )
}

#[tokio::test]
async fn a_call_is_one_request_with_its_headers_whether_json_or_events_respond() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    assert_eq!(server.requests(), 0, "nothing is sent before the first use");
    for tool in ["json", "events", "events_after_progress"] {
        let reply = call(&servers, tool, json!({ "a": 1 })).await.unwrap();
        assert_eq!(reply.structured.as_deref(), Some("{\"a\":1}"), "{tool}");
        assert_eq!(server.calls(tool), 1);
    }
    assert_eq!(server.initializations(), 1);
    let headers = server.last_headers();
    for (name, value) in [
        ("authorization", "Bearer k-1"),
        ("x-team", "blue"),
        ("mcp-session-id", "session-1"),
    ] {
        assert_eq!(headers.get(name).unwrap(), value);
    }
}

#[tokio::test]
async fn a_status_comes_with_its_wait_and_its_words() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    for (tool, status, words) in [
        ("429", 429, "slow down"),
        ("403", 403, "not yours"),
        ("500", 500, "broken inside"),
    ] {
        let error = call(&servers, tool, json!({})).await.unwrap_err();
        assert_eq!(
            (error.status, error.surface, error.fault),
            (Some(status), Surface::Tool, None),
            "{error}"
        );
        assert!(error.text().unwrap().contains(words), "{error}");
        assert_eq!(error.header("retry-after"), (status == 429).then_some("7"));
        assert_eq!(server.calls(tool), 1);
    }
}

#[tokio::test]
async fn whatever_breaks_after_a_request_was_sent_is_never_called_unsent_and_never_repeated() {
    let server = McpOverHttp::start().await;
    let mut config = json!({ "servers": { "remote": { "url": server.url() } } });
    config["limits"] = json!({ "max_reply_bytes": "64KiB" });
    let servers = servers(config);
    for (tool, fault) in [
        ("closes", TransportFault::ClosedEarly),
        ("cuts_events", TransportFault::Cut),
        ("ends_events", TransportFault::Cut),
        ("wrong_id", TransportFault::Protocol),
        ("wrong_id_in_events", TransportFault::Protocol),
        ("html", TransportFault::Protocol),
        ("large", TransportFault::TooLarge),
        ("large_event", TransportFault::TooLarge),
        ("flood", TransportFault::TooLarge),
    ] {
        let error = call(&servers, tool, json!({})).await.unwrap_err();
        assert_eq!(error.fault, Some(fault), "{tool}: {error}");
        assert!(!fault.never_sent());
        assert_eq!(server.calls(tool), 1, "{tool}");
        call(&servers, "json", json!({})).await.unwrap();
    }
    assert_eq!(
        server.initializations(),
        1,
        "one session serves all of them"
    );
}

#[tokio::test]
async fn a_cut_stream_of_events_is_read_on_where_the_server_numbers_them() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    let reply = call(&servers, "cuts_numbered_events", json!({ "a": 1 }))
        .await
        .unwrap();
    assert_eq!(reply.structured.as_deref(), Some("{\"a\":1}"));
    assert_eq!(server.calls("cuts_numbered_events"), 1);
}

#[tokio::test]
async fn a_session_that_the_server_ended_is_replaced_and_the_refused_call_made_once() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    call(&servers, "json", json!({})).await.unwrap();
    server.end_sessions();
    call(&servers, "json", json!({})).await.unwrap();
    assert_eq!((server.initializations(), server.calls("json")), (2, 2));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_or_initialized_gets_no_request() {
    let (_socket, closed) = closed_address();
    let error = call(&mcp(&format!("http://{closed}/mcp")), "json", json!({}))
        .await
        .unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::Refused));
    let server = McpOverHttp::start().await;
    for (refusal, status, fault) in [
        (401, Some(401), None),
        (500, Some(500), Some(TransportFault::NotReady)),
    ] {
        server.refuse_initialization(refusal);
        let error = call(&mcp(&server.url()), "json", json!({}))
            .await
            .unwrap_err();
        assert_eq!((error.status, error.fault), (status, fault), "{error}");
    }
    assert_eq!(server.calls("json"), 0);
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    call(&servers, "json", json!({})).await.unwrap();
    let request = ToolRequest {
        tool: "hangs".to_owned(),
        arguments: "{}".to_owned(),
    };
    let hanging = tokio::spawn(servers.call("remote", request));
    let until = async |what: &dyn Fn() -> bool| {
        let waiting = async {
            while !what() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    };
    until(&|| server.calls("hangs") == 1).await;
    hanging.abort();
    until(&|| server.cancellations() == 1).await;
}

#[tokio::test]
async fn a_change_that_the_server_reports_is_fetched_by_the_next_who_needs_the_list() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    let list = async || servers.list("remote", ListFreshness::Cached).await.unwrap();
    assert!(
        list().await.find("list_things").unwrap().input_schema["properties"]["limit"].is_object()
    );
    server.rename().await;
    let changing = async {
        while list().await.generation == 1 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, changing).await.unwrap();
    assert!(
        list().await.find("list_things").unwrap().input_schema["properties"]["max_results"]
            .is_object()
    );
}

#[tokio::test]
async fn plain_tools_are_called_as_they_are_declared() {
    let server = McpOverHttp::start().await;
    let schema = json!({ "type": "object", "required": ["id"] });
    let servers = servers(
        json!({ "servers": { "remote": { "headers": { "x-team": "blue" }, "http": {
        "base_url": server.plain_url(),
        "tools": {
            "get_customer": { "description": "One", "method": "GET", "path": "/customers/{id}", "input_schema": schema },
            "add_customer": { "description": "Add", "path": "/customers" },
            "broken": { "method": "PUT", "path": "/broken" },
        },
    } } } }),
    );
    let list = servers.list("remote", ListFreshness::Fresh).await.unwrap();
    assert_eq!(
        list.tools
            .iter()
            .map(|tool| tool.name.as_str())
            .collect::<Vec<_>>(),
        ["add_customer", "broken", "get_customer"]
    );
    assert_eq!(
        list.find("get_customer").unwrap().input_schema,
        Arc::new(schema.clone())
    );
    let got = call(
        &servers,
        "get_customer",
        json!({ "id": "a b", "deep": true }),
    )
    .await
    .unwrap();
    let sent: Value = serde_json::from_str(got.structured.as_deref().unwrap()).unwrap();
    assert_eq!(
        sent,
        json!({ "method": "GET", "path": "/plain/customers/a%20b?deep=true", "body": "", "team": "blue" })
    );
    let added = call(&servers, "add_customer", json!({ "name": "Ada" }))
        .await
        .unwrap();
    let sent: Value = serde_json::from_str(added.structured.as_deref().unwrap()).unwrap();
    assert_eq!(
        (&sent["method"], &sent["body"]),
        (&json!("POST"), &json!("{\"name\":\"Ada\"}"))
    );
    assert!(matches!(&added.content[..], [ToolContent::Text(text)] if text.contains("Ada")));
    let broken = call(&servers, "broken", json!({})).await.unwrap_err();
    assert_eq!(
        (broken.status, broken.header("retry-after")),
        (Some(503), Some("3"))
    );
    assert!(broken.text().unwrap().contains("maintenance"));
    let unknown = call(&servers, "nothing", json!({})).await.unwrap_err();
    assert_eq!(unknown.text(), Some("Unknown tool: nothing"));
}
