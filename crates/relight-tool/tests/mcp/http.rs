//! MCP servers behind a URL.

use relight_policy::domain::failure::{Surface, TransportFault};
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

/// A server whose first session is lost after its first call; it says so like this to a later
/// call, and to every other request of that session by 404.
async fn loses_its_session(refuse: impl Fn(&Came) -> Response + Send + 'static) -> ScriptedServer {
    let mut served = 0;
    ScriptedServer::start(move |came| {
        let is_lost = served > 0 && came.session.as_deref() == Some("s-0");
        match came.method() {
            "tools/call" if is_lost => refuse(came),
            "tools/call" => {
                served += 1;
                Response::json(came.done("done"))
            }
            "initialize" => came.usual(&format!("s-{served}")),
            _ if is_lost => Response::Whole(404, "text/plain", String::new()),
            _ => came.usual(""),
        }
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

#[tokio::test]
async fn a_lost_session_is_begun_anew_and_the_call_made_once_more_if_it_was_surely_not_executed() {
    let plain = |status: u16, body: &'static str| {
        move |_: &Came| Response::Whole(status, "text/plain", body.to_owned())
    };
    let named = |status: u16, words: &'static str| {
        move |came: &Came| {
            let error = json!({ "error": { "code": -32001, "message": words } });
            Response::Whole(status, "application/json", came.responded(&error))
        }
    };
    for (server, what, is_repeated) in [
        (loses_its_session(plain(404, "")).await, "404", true),
        (
            loses_its_session(plain(400, "Bad Request: No valid session ID provided")).await,
            "400 of the session",
            true,
        ),
        (
            loses_its_session(named(400, "Session not found")).await,
            "400 of the session, to the request",
            true,
        ),
        (
            loses_its_session(plain(400, "Bad Request")).await,
            "400",
            false,
        ),
        (loses_its_session(plain(410, "")).await, "410", false),
        (
            loses_its_session(named(404, "no such activity")).await,
            "404 to the request",
            false,
        ),
        (loses_its_session(plain(500, "")).await, "500", false),
    ] {
        let servers = server.client();
        assert_eq!(text(&servers, "first").await, "done", "{what}");
        let second = call(&servers, "second").await;
        assert_eq!(second.is_ok(), is_repeated, "{what}: {second:?}");
        assert_eq!(text(&servers, "third").await, "done", "{what}");
        assert_eq!(server.count("initialize"), 2, "{what}");
        let calls = if is_repeated { 4 } else { 3 };
        assert_eq!(server.count("tools/call"), calls, "{what}");
    }
}

#[tokio::test]
async fn what_a_tool_says_of_its_own_session_is_no_reason_to_call_it_again() {
    let server = calls(|came| {
        let error =
            json!({ "error": { "code": -32001, "message": "Session 7 of the browser not found" } });
        Response::Whole(400, "application/json", came.responded(&error))
    })
    .await;
    let error = call(&server.client(), "browses").await.unwrap_err();
    assert!(error.text().unwrap().contains("of the browser"), "{error}");
    assert_eq!(
        (server.count("initialize"), server.count("tools/call")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_server_without_sessions_that_restarted_is_initialized_anew() {
    let error = json!({ "error": { "code": -32002, "message": "Server not initialized" } });
    for (status, is_named) in [(400, false), (200, true)] {
        let (mut is_started, error) = (false, error.clone());
        let server = ScriptedServer::start(move |came| match (came.method(), came.usual("")) {
            ("tools/call", _) if is_started => {
                is_started = false;
                Response::json(came.done("done"))
            }
            ("tools/call" | "ping", _) if !is_started => {
                let named = came.responded(&error);
                let body = if is_named { named } else { error.to_string() };
                Response::Whole(status, "application/json", body)
            }
            (_, Response::Begun(_, body)) => {
                is_started = true;
                Response::json(body)
            }
            (_, usual) => usual,
        })
        .await;
        let servers = server.client();
        for _ in 0..3 {
            assert_eq!(text(&servers, "any").await, "done", "{status}");
        }
        assert_eq!(server.count("initialize"), 3, "{status}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_respond_to_what_it_does_not_know_is_spoken_to_in_the_older_way() {
    for is_silent in [true, false] {
        let server = ScriptedServer::start(move |came| match came.method() {
            "server/discover" if is_silent => Response::None,
            "server/discover" => Response::events(&[]),
            "tools/call" => Response::json(came.done("done")),
            _ => came.usual("s-1"),
        })
        .await;
        let servers = server.client();
        for _ in 0..2 {
            assert_eq!(text(&servers, "any").await, "done");
        }
        assert_eq!(server.count("server/discover"), 1);
    }
}

#[tokio::test]
async fn a_server_that_refuses_notifications_or_names_no_kind_of_its_responses_is_understood() {
    for status in [400, 404, 500] {
        let server = ScriptedServer::start(move |came| match came.method() {
            "notifications/initialized" => {
                Response::Whole(status, "text/plain", "no such method".to_owned())
            }
            "tools/call" => Response::Whole(200, "text/plain", came.done("done")),
            _ => came.usual("s-1"),
        })
        .await;
        assert_eq!(text(&server.client(), "any").await, "done", "{status}");
        assert_eq!(server.count("initialize"), 1);
    }
}

#[tokio::test]
async fn a_404_without_a_session_is_an_ordinary_failure() {
    let server = ScriptedServer::start(|came| match (came.method(), came.usual("")) {
        ("tools/call", _) => Response::Whole(404, "text/plain", "no such place".to_owned()),
        (_, Response::Begun(_, body)) => Response::json(body),
        (_, usual) => usual,
    })
    .await;
    let error = call(&server.client(), "lost").await.unwrap_err();
    assert_eq!((error.status, error.fault), (Some(404), None), "{error}");
    assert_eq!(
        (server.count("initialize"), server.count("tools/call")),
        (1, 1)
    );
}

#[tokio::test]
async fn a_500_without_words_or_as_a_page_is_a_fault_of_the_server_and_none_of_the_protocol() {
    for (kind, body) in [
        ("text/plain", ""),
        ("application/json", ""),
        (
            "text/html",
            "<html><body><h1>Internal Server Error</h1></body></html>",
        ),
        ("text/event-stream", ""),
    ] {
        let server = calls(move |_| Response::Whole(500, kind, body.to_owned())).await;
        let error = call(&server.client(), "breaks").await.unwrap_err();
        assert_eq!(
            (error.status, error.fault, error.surface),
            (Some(500), None, Surface::Tool),
            "{kind} {body}: {error}"
        );
        assert_eq!(server.count("tools/call"), 1);
    }
}
