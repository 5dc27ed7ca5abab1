//! MCP servers behind a URL.

use relight_policy::domain::failure::TransportFault;
use serde_json::json;

use super::{
    call, call_with_progress,
    http_server::{Came, Response, ScriptedServer},
    text,
};

/// A server that responds to calls like this, in one session.
async fn calls(respond: impl Fn(&Came) -> Response + Send + 'static) -> ScriptedServer {
    ScriptedServer::start(move |came| match came.method() {
        "tools/call" => respond(came),
        _ => came.usual("s-1"),
    })
    .await
}

#[tokio::test]
async fn a_flood_of_events_ends_no_call_and_the_last_progress_comes() {
    let server = calls(|came| {
        let token = &came.message["params"]["_meta"]["progressToken"];
        let mut events = Vec::new();
        for n in 1..=5000 {
            let told = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": n } });
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": { "progressToken": token, "progress": n } });
            events.extend([told.to_string(), progress.to_string()]);
        }
        events.push(came.done("through"));
        Response::events(&events)
    })
    .await;
    let servers = server.client();
    for _ in 0..2 {
        let (called, reported) = call_with_progress(&servers, "floods").await;
        assert_eq!(called.unwrap().text(), "through");
        assert_eq!(reported.last(), Some(&5000.0));
    }
    assert_eq!(server.count("initialize"), 1);
}

#[tokio::test]
async fn an_event_that_responds_to_no_request_of_its_stream_ends_no_call() {
    let server = calls(|came| {
        let stray = |id: &str, members: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},{members}}}"#);
        Response::events(&[
            stray("99999", r#""result":{"content":[]}"#),
            stray("\"x-7\"", r#""result":{"content":[]}"#),
            stray("0", r#""error":{"code":-32603,"message":"stray"}"#),
            "{}".to_owned(),
            "still here".to_owned(),
            came.done("own"),
            came.done("again"),
        ])
    })
    .await;
    let servers = server.client();
    for _ in 0..3 {
        assert_eq!(text(&servers, "strays").await, "own");
    }
}

#[tokio::test]
async fn events_without_the_response_are_a_cut_and_the_session_stays() {
    let server = calls(|came| match came.message["params"]["name"].as_str() {
        Some("strays") => {
            Response::events(&[r#"{"jsonrpc":"2.0","id":99999,"result":{}}"#.to_owned()])
        }
        _ => Response::json(came.done("own")),
    })
    .await;
    let servers = server.client();
    let error = call(&servers, "strays").await.unwrap_err();
    assert_eq!(error.fault, Some(TransportFault::Cut), "{error}");
    assert_eq!(text(&servers, "next").await, "own");
    assert_eq!(server.count("initialize"), 1);
}
