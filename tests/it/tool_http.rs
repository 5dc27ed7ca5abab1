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
        meta: None,
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
        ("wrong_id_in_events", TransportFault::Cut),
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
async fn an_error_that_names_no_request_ends_the_one_that_it_responds_to() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    for tool in ["no_id", "no_id_in_events"] {
        let error = call(&servers, tool, json!({})).await.unwrap_err();
        assert_eq!(
            error.reply.as_ref().map(|reply| reply.text()).as_deref(),
            Some("cannot read it"),
            "{tool}: {error}"
        );
    }
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
async fn a_lost_session_is_begun_anew_once_whatever_words_tell_it() {
    let error = |id: &str, words: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32001,"message":"{words}"}}}}"#)
    };
    for (status, body) in [
        (400, "Bad Request: No valid session ID provided".to_owned()),
        (
            400,
            error("\"server-error\"", "Bad Request: Missing session ID"),
        ),
        (404, "no such thing".to_owned()),
        (503, r#"{"error":"unknown session"}"#.to_owned()),
        (200, error("ID", "Session expired")),
        (200, error("null", "Session terminated")),
        (200, error("\"server-error\"", "Server not initialized")),
    ] {
        let server = McpOverHttp::start().await;
        let servers = mcp(&server.url());
        call(&servers, "json", json!({})).await.unwrap();
        server.end_sessions_saying(status, &body);
        let again = call(&servers, "json", json!({})).await;
        again.unwrap_or_else(|error| panic!("{status} {body}: {error}"));
        assert_eq!(server.initializations(), 2, "{status} {body}");
        assert_eq!(
            (server.tries(), server.calls("json")),
            (3, 2),
            "{status} {body}"
        );
        servers.list("remote", ListFreshness::Fresh).await.unwrap();
        server.end_sessions_saying(status, &body);
        let listed = servers.list("remote", ListFreshness::Fresh).await;
        listed.unwrap_or_else(|error| panic!("{status} {body}: {error}"));
    }
}

#[tokio::test]
async fn a_call_that_may_have_run_is_not_repeated_though_its_session_is_begun_anew() {
    for (status, body) in [
        (400, "Bad Request"),
        (410, ""),
        (503, "down"),
        (500, "the database session broke"),
        (502, ""),
    ] {
        let server = McpOverHttp::start().await;
        let servers = mcp(&server.url());
        call(&servers, "json", json!({})).await.unwrap();
        server.end_sessions_saying(status, body);
        let error = call(&servers, "json", json!({})).await.unwrap_err();
        assert_eq!((error.status, server.tries()), (Some(status), 2), "{error}");
        call(&servers, "json", json!({})).await.unwrap();
        assert_eq!(
            (server.initializations(), server.tries()),
            (2, 3),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_tool_that_speaks_of_a_session_of_its_own_is_called_once_and_the_protocols_stays() {
    let server = McpOverHttp::start().await;
    let servers = mcp(&server.url());
    let error = call(&servers, "own_session", json!({})).await.unwrap_err();
    assert_eq!(error.surface, Surface::Tool);
    assert!(error.text().unwrap().contains("of the browser"), "{error}");
    call(&servers, "json", json!({})).await.unwrap();
    assert_eq!((server.initializations(), server.tries()), (1, 2));
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
        meta: None,
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
async fn the_query_that_an_operator_wrote_is_the_one_that_is_sent() {
    let server = McpOverHttp::start().await;
    let open = json!({ "type": "object" });
    let closed = json!({ "type": "object", "properties": { "amount": { "type": "integer", "minimum": 1 } }, "required": ["amount"] });
    let servers = servers(json!({ "servers": { "remote": { "http": {
        "base_url": server.plain_url(),
        "tools": {
            "read": { "method": "GET", "path": "/pay?account=main&mode=a%20b", "input_schema": open },
            "pay": { "method": "POST", "path": "/pay?account=main", "input_schema": closed },
            "find": { "method": "GET", "path": "/find?q={q}&account=main", "input_schema": open },
        },
    } } } }));
    let sent = async |tool: &str, arguments: Value| -> Result<(String, String), String> {
        let reply = call(&servers, tool, arguments).await;
        let reply = reply.map_err(|error| error.text().unwrap().to_owned())?;
        let sent: Value = serde_json::from_str(&reply.structured.unwrap()).unwrap();
        let text = |name: &str| sent[name].as_str().unwrap().to_owned();
        Ok((text("path"), text("body")))
    };
    let evil = json!({ "account": "evil", "Account": "evil", "account[]": "evil", " account": "evil", "mode": "x", "limit": 5 });
    assert_eq!(
        sent("read", evil).await.unwrap().0,
        "/plain/pay?account=main&mode=a%20b&limit=5"
    );
    assert_eq!(
        sent(
            "find",
            json!({ "q": "a&account=evil", "account": ["evil"] })
        )
        .await
        .unwrap()
        .0,
        "/plain/find?q=a%26account%3Devil&account=main"
    );
    let (path, body) = sent("pay", json!({ "amount": 5 })).await.unwrap();
    assert_eq!(
        (path.as_str(), body.as_str()),
        ("/plain/pay?account=main", "{\"amount\":5}")
    );
    for (arguments, named) in [
        (json!({ "amount": 5, "account": "evil" }), "`account`"),
        (json!({ "amount": "5" }), "type integer at /amount"),
        (json!({ "amount": 0 }), "minimum 1 at /amount"),
        (json!({}), "required at /amount"),
    ] {
        let before = server.plain_requests();
        let refused = sent("pay", arguments).await.unwrap_err();
        assert!(
            refused.starts_with("Invalid arguments for tool `pay`") && refused.contains(named),
            "{refused}"
        );
        assert_eq!(server.plain_requests(), before, "nothing is sent");
    }
}

#[tokio::test]
async fn compressed_bodies_and_those_of_other_charsets_are_text() {
    let server = McpOverHttp::start().await;
    let tool = |path: &str| json!({ "method": "GET", "path": path });
    let servers = servers(json!({ "servers": { "remote": { "http": {
        "base_url": server.plain_url(),
        "tools": {
            "zipped": tool("/zipped"),
            "latin": tool("/latin"),
            "refused": tool("/zipped_refusal"),
        },
    } } } }));
    let zipped = call(&servers, "zipped", json!({})).await.unwrap();
    assert_eq!(zipped.structured.as_deref(), Some("{\"city\":\"Zürich\"}"));
    let latin = call(&servers, "latin", json!({})).await.unwrap();
    assert_eq!(latin.text(), "Zürich");
    let refused = call(&servers, "refused", json!({})).await.unwrap_err();
    assert_eq!(refused.reply.unwrap().text(), "no such city");
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

#[tokio::test]
async fn a_server_that_reports_changes_without_end_is_not_listened_to_and_is_used_again_later() {
    let server = McpOverHttp::start().await;
    server.flood(true);
    let servers = mcp(&server.url());
    // Whether the call is quicker than the flood does not matter.
    let _ = call(&servers, "json", json!({})).await;
    let left = async {
        while server.floods_left() == 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, left).await.expect("it is listened to");
    let initializations = server.initializations();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (server.floods_left(), server.initializations()),
        (1, initializations),
        "nobody comes back for more"
    );
    server.flood(false);
    assert!(call(&servers, "json", json!({})).await.is_ok());
}
