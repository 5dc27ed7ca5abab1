//! What Anthropic's own API needs of a request reaches it as the client sent it: betas, marks for caching, and tools of its own.

use std::time::Duration;

use hyper::Method;
use relight::internals::{domain::target::Dialect, wire_server::answers};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, folded, over, post_with},
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
    front.send(Method::POST, "/v1/messages", headers, body.to_string()).await
}

fn betas(request: &Request) -> Vec<&str> {
    request.header("anthropic-beta").map(|betas| betas.split(',').collect()).unwrap_or_default()
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
                items.iter().enumerate().for_each(|(index, item)| collect(&format!("{at}/{index}"), item, found));
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
    assert_eq!(marks(body), expected.map(|(place, mark)| (place.to_owned(), mark)), "{body}");
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
        let headers = "headers: { anthropic-beta: \"own-1, shared-2\", anthropic-version: \"2024-01-01\" }";
        let config =
            if own { config.replacen("api_key: k", &format!("api_key: k, {headers}"), 1) } else { config.clone() };
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
            &["own-1", "shared-2", "context-management-2025-06-27", "effort-2025-11-24"]
        } else {
            &["context-management-2025-06-27", "shared-2", "effort-2025-11-24"]
        };
        assert_eq!(betas(&request), expected);
        assert_eq!(request.header("x-api-key"), Some("k"));
        assert_eq!(request.header("anthropic-version"), Some(if own { "2024-01-01" } else { "2023-06-01" }));
        assert_eq!(request.body["context_management"], body["context_management"]);

        anthropic.push(Reply::document(&json!({"input_tokens": 14})));
        let answer = front.send(Method::POST, "/v1/messages/count_tokens", &sent, body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(betas(&anthropic.requests().pop().unwrap()), expected);

        anthropic.push(claude("Yes."));
        assert_eq!(send(&front, &[], &body).await.status, 200);
        let configured: &[&str] = if own { &["own-1", " shared-2"] } else { &[] };
        assert_eq!(betas(&anthropic.requests().pop().unwrap()), configured);

        anthropic.push(Reply::status(529)).push(Reply::status(529));
        openai.push(Reply::text("Yes."));
        let answer = send(&front, &sent, &marked()).await;
        assert_eq!((answer.status, answer.header("x-relight-target")), (200, Some("t1")), "{answer:?}");
        let request = openai.requests().pop().unwrap();
        assert_eq!((betas(&request), marks(&request.body)), (vec![], vec![]), "{request:?}");
        assert!(!request.body.to_string().contains("eager_input_streaming"), "{request:?}");
    }
}

#[tokio::test]
async fn betas_that_cannot_be_passed_on_are_refused_by_the_name_of_their_header() {
    let upstream = Upstream::start().await;
    upstream.otherwise(claude("Yes."));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let names = |count: usize| (0..count).map(|n| format!("b-{n}")).collect::<Vec<_>>().join(",");
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
            let answer = front.send(Method::POST, path, &[("anthropic-beta", &betas)], question().to_string()).await;
            if status == 400 {
                let error = &answer.json()["error"];
                assert_eq!((answer.status, &error["param"]), (400, &json!("anthropic-beta")), "{betas}: {answer:?}");
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
        assert_eq!((answer.status, answer.header("x-relight-attempts")), (200, Some("2")), "{answer:?}");
        let requests = upstream.requests();
        let [first, second] = &requests[requests.len() - 2..] else { panic!("{requests:?}") };
        assert_eq!(marks(&first.body), marks(&body));
        assert_eq!(marks(&second.body), marks(&body));
        assert_ne!(first.body["messages"], second.body["messages"], "the second one has a note");
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
    let (blank, text) =
        (json!({"type": "text", "text": " ", "cache_control": mark("1h")}), json!({"type": "text", "text": "Hi"}));
    let image =
        json!({"type": "image", "source": {"type": "url", "url": "https://e.com/a.png"}, "cache_control": mark("5m")});
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
    let kinds: Vec<&str> = sent.as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tool_result", "tool_result", "text", "text"], "{sent}");
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
    let expected = ["/messages/4/content/0", "/messages/6/content/0", "/messages/8/content/0", "/tools/0"];
    assert_eq!(places, expected, "{sent}");
}

#[tokio::test]
async fn a_call_that_another_process_continues_is_the_same_to_its_provider() {
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    upstream.push(claude("Never seen.").slow_head(Duration::from_mins(1))).otherwise(claude("Yes."));
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let settings = format!("{}journal: {{ store: \"{store}\" }}\n", over("chat", &[(&upstream, "anthropic")]));
    let headers = [("anthropic-beta", "context-management-2025-06-27"), ("idempotency-key", "k-1")];
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
    assert_eq!((&requests[1].body, marks(&requests[1].body).len()), (&requests[0].body, 4));
}

/// An answer of these blocks as a stream: each begins whole, but for the arguments of a call.
fn blocks(blocks: &Value, stop_reason: &str) -> Reply {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "content": [],
        "usage": {"input_tokens": 7, "output_tokens": 1}});
    let mut events = vec![("message_start", json!({"type": "message_start", "message": message}))];
    for (index, block) in blocks.as_array().unwrap().iter().enumerate() {
        let (mut begun, mut delta) = (block.clone(), None);
        if let Some(input) = begun.get_mut("input") {
            let json = std::mem::replace(input, json!({})).to_string();
            delta = Some(json!({"type": "input_json_delta", "partial_json": json}));
        }
        let start = json!({"type": "content_block_start", "index": index, "content_block": begun});
        events.push(("content_block_start", start));
        let event = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        events.extend(delta.map(|delta| ("content_block_delta", event(delta))));
        events.push(("content_block_stop", json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    let usage = json!({"output_tokens": 20});
    events.push(("message_delta", json!({"type": "message_delta", "delta": delta, "usage": usage})));
    events.push(("message_stop", json!({"type": "message_stop"})));
    Reply::named_events(&events)
}

#[tokio::test]
async fn tools_of_the_api_run_there_and_their_blocks_go_to_the_client_and_back() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let found = json!([
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "cats"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://e.com", "title": "Cats", "encrypted_content": "EqQB"}]},
        {"type": "text", "text": "Cats sleep."},
    ]);
    for stream in [false, true] {
        for choice in [json!({"type": "tool", "name": "web_search"}), json!({"type": "any"}), Value::Null] {
            upstream.push(blocks(&found, "end_turn")).push(claude("Yes."));
            let mut body = question();
            body["stream"] = json!(stream);
            body["tools"] = json!([search()]);
            body["tool_choice"] = choice.clone();
            let answer = send(&front, &[], &body).await;
            assert_eq!((answer.status, answer.header("x-relight-attempts")), (200, Some("1")), "{answer:?}");
            let message = if stream { folded(&answer) } else { answer.json() };
            assert_eq!((&message["content"], &message["stop_reason"]), (&found, &json!("end_turn")), "{answer:?}");
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent["tools"], body["tools"]);
            assert_eq!(sent.get("tool_choice"), Some(&choice).filter(|choice| !choice.is_null()));

            body["messages"] = json!([
                {"role": "user", "content": "Why?"},
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": "And?"},
            ]);
            assert_eq!(send(&front, &[], &body).await.status, 200);
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent["messages"][1]["content"], found, "nothing that the provider needs back is lost");
        }
    }
}

#[tokio::test]
async fn a_tool_that_the_api_defines_and_the_client_runs_is_called_like_any_other() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let call = json!([{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}]);
    for stream in [false, true] {
        upstream.push(blocks(&call, "tool_use")).push(claude("Yes."));
        let mut body = question();
        body["stream"] = json!(stream);
        body["tools"] = json!([{"type": "bash_20250124", "name": "bash"}]);
        let answer = send(&front, &[], &body).await;
        assert_eq!((answer.status, answer.header("x-relight-attempts")), (200, Some("1")), "{answer:?}");
        let message = if stream { folded(&answer) } else { answer.json() };
        assert_eq!((&message["content"], &message["stop_reason"]), (&call, &json!("tool_use")), "{answer:?}");
        body["messages"] = json!([
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}]},
        ]);
        assert_eq!(send(&front, &[], &body).await.status, 200);
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(
            (&sent["messages"], &sent["tools"]),
            (
                &json!([
            {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
            body["messages"][1], body["messages"][2]]),
                &body["tools"]
            )
        );
    }
}

#[tokio::test]
async fn tools_of_the_api_are_sent_beside_the_clients_own_and_to_no_other_dialect() {
    let (anthropic, openai) = (Upstream::start().await, Upstream::start().await);
    let front = Front::start(&over("chat", &[(&anthropic, "anthropic"), (&openai, "openai_chat")])).await;
    let own = json!({"name": "add", "input_schema": {"type": "object"}});
    for (name, elsewhere) in
        [("web_search", Value::Null), ("add", json!({"type": "function", "function": {"name": "add"}}))]
    {
        anthropic.push(Reply::status(529)).push(Reply::status(529));
        openai.push(Reply::text("Yes."));
        let mut body = question();
        body["tools"] = json!([search(), own]);
        body["tool_choice"] = json!({"type": "tool", "name": name, "disable_parallel_tool_use": true});
        let answer = send(&front, &[("x-relight-max-retries", "3")], &body).await;
        assert_eq!((answer.status, answer.header("x-relight-target")), (200, Some("t1")), "{answer:?}");
        let sent = anthropic.requests().pop().unwrap().body;
        assert_eq!((&sent["tools"], &sent["tool_choice"]), (&json!([own, search()]), &body["tool_choice"]));
        let sent = openai.requests().pop().unwrap().body;
        assert_eq!(
            (sent["tools"].as_array().unwrap().len(), &sent["tools"][0]["function"]["name"]),
            (1, &json!("add"))
        );
        assert_eq!(sent.get("tool_choice").unwrap_or(&Value::Null), &elsewhere);
    }
}
