//! What Anthropic's own API needs of a request reaches it as the client sent it: betas, marks for
//! caching, and tools of its own.

mod tools;

use std::time::Duration;

use hyper::Method;
use relight::internals::{domain::target::Dialect, wire_server::answers};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, over, post_with},
    process::{Process, Serve},
    upstream::{Reply, Request, Upstream},
};

fn claude(text: &str) -> Reply {
    (answers::of(Dialect::Anthropic).text)(text)
}

fn question() -> Value {
    json!({"model": "chat", "max_tokens": 99, "messages": [{"role": "user", "content": "Why?"}]})
}

async fn send(front: &Front, headers: &[(&str, &str)], body: &Value) -> Answer {
    front
        .send(Method::POST, "/v1/messages", headers, body.to_string())
        .await
}

fn betas(request: &Request) -> Vec<&str> {
    request
        .header("anthropic-beta")
        .map(|betas| betas.split(',').collect())
        .unwrap_or_default()
}

/// A mark that differs from all others.
fn mark(ttl: &str) -> Value {
    json!({"type": "ephemeral", "ttl": ttl})
}

/// All marks of a body, each with its place.
fn marks(body: &Value) -> Vec<(String, Value)> {
    fn collect(at: &str, value: &Value, found: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if name == "cache_control" {
                        found.push((at.to_owned(), value.clone()));
                    }
                    collect(&format!("{at}/{name}"), value, found);
                }
            }
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(index, item)| collect(&format!("{at}/{index}"), item, found));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect("", body, &mut found);
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn assert_marks<const N: usize>(body: &Value, expected: [(&str, Value); N]) {
    assert_eq!(
        marks(body),
        expected.map(|(place, mark)| (place.to_owned(), mark)),
        "{body}"
    );
}

/// A tool that runs at the provider.
fn search() -> Value {
    json!({"type": "web_search_20250305", "name": "web_search", "max_uses": 8, "cache_control": mark("1h")})
}

/// A request whose blocks of all kinds are marked, as many as the API takes.
fn marked() -> Value {
    let mut body = question();
    body["system"] = json!([
        {"type": "text", "text": "You help."},
        {"type": "text", "text": "Be brief.", "cache_control": mark("1h")},
    ]);
    body["tools"] = json!([
        {"name": "add", "input_schema": {"type": "object"}, "eager_input_streaming": true},
        {"type": "custom", "name": "look", "input_schema": {"type": "object"}, "cache_control": mark("1h")},
    ]);
    body["messages"] = json!([
        {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "text", "text": "Why?"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"},
            {"type": "text", "text": "I will look."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {}, "cache_control": mark("5m")}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "A cat."},
            {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}]},
    ]);
    body
}

#[tokio::test]
async fn betas_of_the_request_and_of_the_configuration_reach_anthropics_dialect_alone() {
    let (openai, anthropic) = (Upstream::start().await, Upstream::start().await);
    let upstreams = [(&anthropic, "anthropic"), (&openai, "openai_chat")];
    let config = over("chat", &upstreams);
    for own in [false, true] {
        let headers =
            "headers: { anthropic-beta: \"own-1, shared-2\", anthropic-version: \"2024-01-01\" }";
        let config = if own {
            config.replacen("api_key: k", &format!("api_key: k, {headers}"), 1)
        } else {
            config.clone()
        };
        let front = Front::start(&config).await;
        anthropic.push(claude("Yes."));
        let sent = [
            ("anthropic-beta", "context-management-2025-06-27, shared-2"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "effort-2025-11-24,shared-2,"),
            ("x-api-key", "sk-client"),
        ];
        let mut body = question();
        body["context_management"] = json!({"edits": []});
        assert_eq!(send(&front, &sent, &body).await.status, 200);
        let request = anthropic.requests().pop().unwrap();
        let expected: &[&str] = if own {
            &[
                "own-1",
                "shared-2",
                "context-management-2025-06-27",
                "effort-2025-11-24",
            ]
        } else {
            &[
                "context-management-2025-06-27",
                "shared-2",
                "effort-2025-11-24",
            ]
        };
        assert_eq!(betas(&request), expected);
        assert_eq!(request.header("x-api-key"), Some("k"));
        assert_eq!(
            request.header("anthropic-version"),
            Some(if own { "2024-01-01" } else { "2023-06-01" })
        );
        assert_eq!(
            request.body["context_management"],
            body["context_management"]
        );

        anthropic.push(Reply::document(&json!({"input_tokens": 14})));
        let answer = front
            .send(
                Method::POST,
                "/v1/messages/count_tokens",
                &sent,
                body.to_string(),
            )
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(betas(&anthropic.requests().pop().unwrap()), expected);

        anthropic.push(claude("Yes."));
        assert_eq!(send(&front, &[], &body).await.status, 200);
        let configured: &[&str] = if own { &["own-1", " shared-2"] } else { &[] };
        assert_eq!(betas(&anthropic.requests().pop().unwrap()), configured);

        anthropic.push(Reply::status(529)).push(Reply::status(529));
        openai.push(Reply::text("Yes."));
        let answer = send(&front, &sent, &marked()).await;
        assert_eq!(
            (answer.status, answer.header("x-relight-target")),
            (200, Some("t1")),
            "{answer:?}"
        );
        let request = openai.requests().pop().unwrap();
        assert_eq!(
            (betas(&request), marks(&request.body)),
            (vec![], vec![]),
            "{request:?}"
        );
        assert!(
            !request.body.to_string().contains("eager_input_streaming"),
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn betas_that_cannot_be_passed_on_are_refused_by_the_name_of_their_header() {
    let upstream = Upstream::start().await;
    upstream.otherwise(claude("Yes."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let names = |count: usize| {
        (0..count)
            .map(|n| format!("b-{n}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    for (betas, status) in [
        (names(64), 200),
        (format!("{},b-0", names(64)), 200),
        (names(65), 400),
        ("b".repeat(128), 200),
        ("b".repeat(129), 400),
        ("b\té".to_owned(), 400),
        ("b\tc".to_owned(), 400),
        (" , ".to_owned(), 200),
    ] {
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let answer = front
                .send(
                    Method::POST,
                    path,
                    &[("anthropic-beta", &betas)],
                    question().to_string(),
                )
                .await;
            if status == 400 {
                let error = &answer.json()["error"];
                assert_eq!(
                    (answer.status, &error["param"]),
                    (400, &json!("anthropic-beta")),
                    "{betas}: {answer:?}"
                );
            } else if path == "/v1/messages" {
                assert_eq!(answer.status, 200, "{betas}: {answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn marks_for_caching_stay_where_the_client_put_them_also_with_a_note() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    for stream in [false, true] {
        upstream.push(claude("")).push(claude("A cat sleeps."));
        let mut body = marked();
        body["stream"] = json!(stream);
        let answer = send(&front, &[], &body).await;
        assert_eq!(
            (answer.status, answer.header("x-relight-attempts")),
            (200, Some("2")),
            "{answer:?}"
        );
        let requests = upstream.requests();
        let [first, second] = &requests[requests.len() - 2..] else {
            panic!("{requests:?}")
        };
        assert_eq!(marks(&first.body), marks(&body));
        assert_eq!(marks(&second.body), marks(&body));
        assert_ne!(
            first.body["messages"], second.body["messages"],
            "the second one has a note"
        );
        assert_eq!(first.body["messages"], body["messages"]);
        assert_eq!(first.body["tools"][0], body["tools"][0]);
        assert_eq!(first.body.get("cache_control"), None);
    }
}

#[tokio::test]
async fn a_mark_of_what_is_not_sent_goes_to_the_block_before_it() {
    let upstream = Upstream::start().await;
    upstream.otherwise(claude("Yes."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let (blank, text) = (
        json!({"type": "text", "text": " ", "cache_control": mark("1h")}),
        json!({"type": "text", "text": "Hi"}),
    );
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}, "cache_control": mark("5m")});
    let thought = json!({"type": "thinking", "thinking": "Hm.", "signature": "EqQB"});
    let result = json!({"type": "tool_result", "tool_use_id": "c1", "content": [
        {"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": mark("1h")}]});
    let call = json!({"type": "tool_use", "id": "c1", "name": "look", "input": {}});
    let system = json!([{"type": "text", "text": "Be brief."}, blank]);
    let mut body = question();
    body["cache_control"] = mark("5m");
    body["system"] = system;
    body["messages"] = json!([
        {"role": "user", "content": [blank, image, text]},
        {"role": "assistant", "content": [thought, blank, call]},
        {"role": "user", "content": [result]},
    ]);
    assert_eq!(send(&front, &[], &body).await.status, 200);
    let expected = [
        ("", mark("5m")),
        ("/messages/0/content/0", mark("5m")),
        ("/messages/2/content/0", mark("1h")),
        ("/system/0", mark("1h")),
    ];
    assert_marks(&upstream.requests().pop().unwrap().body, expected);
}

#[tokio::test]
async fn marks_stay_at_their_blocks_where_the_conversation_is_repaired() {
    let upstream = Upstream::start().await;
    upstream.otherwise(claude("Yes."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "look", "input": {}});
    let result = |id: &str, ttl: &str| json!({"type": "tool_result", "tool_use_id": id, "content": id, "cache_control": mark(ttl)});
    let marked_text = json!({"type": "text", "text": "And?", "cache_control": mark("5m")});
    let mut body = question();
    body["messages"] = json!([
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": [call("c1"), call("c2")]},
        {"role": "user", "content": [{"type": "text", "text": "So."}, result("c9", "1h"), marked_text, result("c2", "1h")]},
    ]);
    assert_eq!(send(&front, &[], &body).await.status, 200);
    let sent = upstream.requests().pop().unwrap().body["messages"][2]["content"].clone();
    let kinds: Vec<&str> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["tool_result", "tool_result", "text", "text"],
        "{sent}"
    );
    let expected = [("/1", mark("1h")), ("/3", mark("5m"))];
    assert_marks(&sent, expected);
}

#[tokio::test]
async fn of_a_kept_conversation_the_newest_marks_are_sent() {
    let upstream = Upstream::start().await;
    upstream.otherwise(claude("Yes."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let mut sent = Value::Null;
    for turn in 0..5 {
        let mut body = question();
        body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}, "cache_control": mark("1h")}]);
        body["messages"][0]["content"] =
            json!([{"type": "text", "text": format!("Turn {turn}?"), "cache_control": mark("5m")}]);
        let answer = send(&front, &[("x-relight-thread", "t-1")], &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        sent = upstream.requests().pop().unwrap().body;
    }
    let places: Vec<String> = marks(&sent).into_iter().map(|(place, _)| place).collect();
    let expected = [
        "/messages/4/content/0",
        "/messages/6/content/0",
        "/messages/8/content/0",
        "/tools/0",
    ];
    assert_eq!(places, expected, "{sent}");
}

#[tokio::test]
async fn a_call_that_another_process_continues_is_the_same_to_its_provider() {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    upstream
        .push(claude("Never seen.").slow_head(Duration::from_mins(1)))
        .otherwise(claude("Yes."));
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let settings = format!(
        "{}journal: {{ store: \"{store}\" }}\n",
        over("chat", &[(&upstream, "anthropic")])
    );
    let headers = [
        ("anthropic-beta", "context-management-2025-06-27"),
        ("idempotency-key", "k-1"),
    ];
    let mut body = marked();
    body["tools"].as_array_mut().unwrap().push(search());
    let first = Serve::with_front(&settings).start().await;
    let call = post_with(&first.front_address, "/v1/messages", &headers, &body);
    let killed = async {
        upstream.await_request(1).await;
        first.signal(Signal::KILL);
    };
    // The first connection breaks with its process.
    tokio::select! {
        () = killed => {}
        answer = call => panic!("{answer:?}"),
    }
    let second: Process = Serve::with_front(&settings).start().await;
    let answer = post_with(&second.front_address, "/v1/messages", &headers, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(betas(&requests[1]), ["context-management-2025-06-27"]);
    assert_eq!(
        (&requests[1].body, marks(&requests[1].body).len()),
        (&requests[0].body, 4)
    );
}
