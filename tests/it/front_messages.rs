//! A client of Anthropic's Messages API needs nothing but another base URL, whatever family the
//! model is of.

use std::time::Duration;

use hyper::Method;
use relight::internals::{domain::target::Dialect, wire_server::answers};
use serde_json::{Value, json};

use crate::support::{
    front::{Answer, Front, folded, over},
    upstream::{Reply, Upstream, chunk},
};

const TEXT: &str = "One two three four five six.";

fn question(stream: bool) -> Value {
    json!({"model": "chat", "max_tokens": 99, "stream": stream, "messages": [{"role": "user", "content": "Why?"}]})
}

async fn ask(front: &Front, body: &Value) -> Answer {
    let headers = [("anthropic-version", "2023-06-01"), ("x-api-key", "sk-any")];
    front
        .send(Method::POST, "/v1/messages", &headers, body.to_string())
        .await
}

/// Claude's answer with a thought, a text and a call.
fn thoughtful() -> Reply {
    let start = |index: u32, block: Value| {
        (
            "content_block_start",
            json!({"type": "content_block_start", "index": index, "content_block": block}),
        )
    };
    let delta = |index: u32, delta: Value| {
        (
            "content_block_delta",
            json!({"type": "content_block_delta", "index": index, "delta": delta}),
        )
    };
    let stop = |index: u32| {
        (
            "content_block_stop",
            json!({"type": "content_block_stop", "index": index}),
        )
    };
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "content": [],
        "usage": {"input_tokens": 7, "cache_read_input_tokens": 3, "output_tokens": 1}});
    Reply::named_events(&[
        (
            "message_start",
            json!({"type": "message_start", "message": message}),
        ),
        start(
            0,
            json!({"type": "thinking", "thinking": "", "signature": ""}),
        ),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm."})),
        delta(
            0,
            json!({"type": "signature_delta", "signature": "EqQB+c/="}),
        ),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "AbCd"})),
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Let me add."})),
        stop(2),
        start(
            3,
            json!({"type": "tool_use", "id": "toolu_1", "name": "add", "input": {}}),
        ),
        delta(
            3,
            json!({"type": "input_json_delta", "partial_json": "{\"a\":1}"}),
        ),
        stop(3),
        (
            "message_delta",
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}),
        ),
        ("message_stop", json!({"type": "message_stop"})),
    ])
}

#[tokio::test]
async fn a_turn_of_thoughts_and_calls_comes_whole_and_goes_back_as_it_came() {
    let claude = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&claude, "anthropic")])).await;
    for stream in [true, false] {
        claude.push(thoughtful());
        let mut body = question(stream);
        body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}}]);
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        let answer = ask(&front, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let message = if stream {
            folded(&answer)
        } else {
            answer.json()
        };
        let content = json!([
            {"type": "thinking", "thinking": "Hm.", "signature": "EqQB+c/="},
            {"type": "redacted_thinking", "data": "AbCd"},
            {"type": "text", "text": "Let me add."},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}},
        ]);
        assert_eq!(
            (&message["content"], &message["stop_reason"]),
            (&content, &json!("tool_use")),
            "{answer:?}"
        );
        assert_eq!(message["usage"]["input_tokens"], 7);
        assert_eq!(message["usage"]["cache_read_input_tokens"], 3);
        let invocation = answer.header("x-relight-invocation").unwrap();
        assert_eq!(message["id"], format!("msg_{invocation}"));
        assert_eq!(answer.header("request-id"), Some(invocation));

        claude.push((answers::of(
            relight::internals::domain::target::Dialect::Anthropic,
        )
        .text)(TEXT));
        body["messages"] = json!([
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "2"}]},
        ]);
        assert_eq!(ask(&front, &body).await.status, 200);
        let sent = claude.requests().last().unwrap().body.clone();
        assert_eq!(
            sent["messages"][1]["content"], content,
            "nothing that the provider needs back is lost"
        );
        assert_eq!(
            (&sent["thinking"], &sent["model"]),
            (&body["thinking"], &json!("model-0"))
        );
    }
}

#[tokio::test]
async fn what_another_family_needs_back_goes_there_and_back_in_an_envelope() {
    let gemini = Upstream::start().await;
    let config = over("chat", &[(&gemini, "gemini")]);
    let front = Front::start(&config).await;
    let call =
        json!({"functionCall": {"name": "add", "args": {"a": 1}}, "thoughtSignature": "c2lnbmVk"});
    let candidate = json!({"content": {"role": "model", "parts": [call]}, "finishReason": "STOP"});
    let usage = json!({"promptTokenCount": 3, "candidatesTokenCount": 4});
    for stream in [true, false] {
        gemini.push(Reply::events(&[
            json!({"candidates": [candidate], "usageMetadata": usage}).to_string(),
        ]));
        let mut body = question(stream);
        body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}}]);
        let answer = ask(&front, &body).await;
        let message = if stream {
            folded(&answer)
        } else {
            answer.json()
        };
        assert_eq!(
            message["content"][0]["type"], "redacted_thinking",
            "{answer:?}"
        );
        let id = message["content"][1]["id"].clone();
        gemini.push(Reply::events(&[json!({"candidates": [
            {"content": {"role": "model", "parts": [{"text": "Two."}]}, "finishReason": "STOP"}]})
        .to_string()]));
        body["messages"] = json!([
            {"role": "user", "content": "Why?"},
            {"role": "assistant", "content": message["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "2"}]},
        ]);
        let answer = ask(&front, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = gemini.requests().last().unwrap().body.to_string();
        assert!(sent.contains("\"thoughtSignature\":\"c2lnbmVk\""), "{sent}");
    }
}

#[tokio::test]
async fn a_cut_stream_goes_on_without_a_seam_or_ends_in_this_protocols_error() {
    for (second, is_whole) in [(TEXT, true), ("Something else.", false)] {
        let (a, b) = (Upstream::start().await, Upstream::start().await);
        let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
        events.extend(
            TEXT.split_inclusive(' ')
                .take(3)
                .map(|word| chunk(&json!({"content": word}), None)),
        );
        let cut = Reply::events(&events);
        let bytes = cut.body_bytes().len();
        a.otherwise(cut.paced(Duration::from_millis(5)).cut_after(bytes));
        b.otherwise(Reply::text(second));
        let front = Front::start(&over("chat", &[(&a, "openai_chat"), (&b, "openai_chat")])).await;
        let answer = ask(&front, &question(true)).await;
        let message = folded(&answer);
        assert_eq!((answer.status, answer.clean), (200, true));
        let text = message["content"][0]["text"].as_str().unwrap();
        if is_whole {
            assert_eq!(
                (text, &message["whole"], &message["stop_reason"]),
                (TEXT, &json!(true), &json!("end_turn"))
            );
            assert_eq!(message["error"], Value::Null);
        } else {
            assert!(
                TEXT.starts_with(text) && message["whole"].is_null(),
                "{answer:?}"
            );
            assert_eq!(message["error"]["type"], "api_error", "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_call_of_a_tool_that_the_clients_own_limit_cut_is_left_out() {
    let upstream = Upstream::start().await;
    let whole = (answers::of(Dialect::Anthropic).tool_call)("add", "{\"a\": ").body_bytes();
    let cut = String::from_utf8(whole).unwrap().replace(
        "\"stop_reason\":\"tool_use\"",
        "\"stop_reason\":\"max_tokens\"",
    );
    upstream.otherwise(Reply::stream(vec![(Duration::ZERO, cut.into())]));
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    for stream in [false, true] {
        let mut body = question(stream);
        body["tools"] = json!([{"name": "add", "input_schema": {"type": "object"}}]);
        let answer = ask(&front, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let message = if stream {
            folded(&answer)
        } else {
            answer.json()
        };
        assert_eq!(
            (&message["stop_reason"], &message["content"]),
            (&json!("max_tokens"), &json!([])),
            "{answer:?}"
        );
    }
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn failures_have_this_protocols_shape_and_the_right_status() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "openai_chat")])).await;
    upstream.otherwise(Reply::body(
        429,
        &[("retry-after", "7")],
        b"{\"error\":{\"message\":\"slow down\"}}",
    ));
    let headers = [
        ("anthropic-version", "2023-06-01"),
        ("x-relight-max-retries", "0"),
    ];
    let answer = front
        .send(
            Method::POST,
            "/v1/messages",
            &headers,
            question(true).to_string(),
        )
        .await;
    assert_eq!(
        (answer.status, &answer.json()["type"]),
        (429, &json!("error")),
        "{answer:?}"
    );
    assert_eq!(answer.json()["error"]["type"], "rate_limit_error");
    assert_eq!(
        answer.json()["request_id"].as_str(),
        answer.header("x-relight-invocation")
    );
    assert!(answer.header("retry-after").is_some());

    let mut body = question(false);
    body["messages"][0]["content"] = json!([{"text": "no type"}]);
    let answer = ask(&front, &body).await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (400, &json!("invalid_request_error"))
    );
    assert_eq!(
        answer.json()["error"]["param"],
        "messages[0].content[0].type"
    );
    let mut body = question(false);
    body.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(
        ask(&front, &body).await.json()["error"]["param"],
        "max_tokens"
    );
    body = question(false);
    body["model"] = json!("caht");
    let answer = ask(&front, &body).await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (404, &json!("not_found_error"))
    );
    let answer = front
        .send(
            Method::POST,
            "/v1/messages",
            &[("content-type", "text/plain")],
            "x",
        )
        .await;
    assert_eq!(
        (answer.status, &answer.json()["type"]),
        (415, &json!("error")),
        "{answer:?}"
    );
    let answer = front
        .send(Method::POST, "/v1/messages/batches", &[], "{}")
        .await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (404, &json!("not_found_error")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn tokens_are_counted_by_a_target_that_can_and_by_nobody_else() {
    let (openai, claude) = (Upstream::start().await, Upstream::start().await);
    let front = Front::start(&over(
        "chat",
        &[(&openai, "openai_chat"), (&claude, "anthropic")],
    ))
    .await;
    claude
        .push(Reply::status(529))
        .push(Reply::document(&json!({"input_tokens": 14})));
    let mut body = question(false);
    body.as_object_mut().unwrap().remove("max_tokens");
    let answer = front
        .send(
            Method::POST,
            "/v1/messages/count_tokens",
            &[],
            body.to_string(),
        )
        .await;
    assert_eq!(
        (answer.status, answer.json()),
        (200, json!({"input_tokens": 14})),
        "{answer:?}"
    );
    let seen = claude.requests();
    assert_eq!(
        (seen.len(), seen[1].path.as_str()),
        (2, "/v1/messages/count_tokens")
    );
    assert_eq!(seen[1].body["messages"][0]["role"], "user");
    assert!(
        seen[1].body.get("max_tokens").is_none() && seen[1].body.get("stream").is_none(),
        "{:?}",
        seen[1]
    );
    assert_eq!(openai.requests().len(), 0);

    let front = Front::start(&over("chat", &[(&openai, "openai_chat")])).await;
    let answer = front
        .send(
            Method::POST,
            "/v1/messages/count_tokens",
            &[],
            body.to_string(),
        )
        .await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["param"]),
        (400, &json!("model")),
        "{answer:?}"
    );
}

#[tokio::test]
async fn its_clients_list_models_in_their_own_shape_and_show_their_own_header() {
    let claude = Upstream::start().await;
    let sha256 = {
        use sha2::{Digest as _, Sha256};
        Sha256::digest(b"sk-acme")
            .iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    };
    let keys = format!("  keys:\n    - {{ tenant: acme, sha256: {sha256}, routes: [chat] }}");
    let config = over("chat", &[(&claude, "anthropic")]) + "  other: { targets: [t0] }\n";
    let front = Front::start_with(&keys, &config).await;
    let headers = [
        ("anthropic-version", "2023-06-01"),
        ("x-api-key", "sk-acme"),
    ];
    let list = front
        .send(Method::GET, "/v1/models", &headers, "")
        .await
        .json();
    let names: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["chat", "t0"],
        "what the key may not use is not listed: {list}"
    );
    assert_eq!(
        (&list["data"][0]["type"], &list["has_more"]),
        (&json!("model"), &json!(false))
    );
    let stranger = [
        ("anthropic-version", "2023-06-01"),
        ("x-api-key", "sk-other"),
    ];
    let answer = front.send(Method::GET, "/v1/models", &stranger, "").await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["type"]),
        (401, &json!("authentication_error"))
    );
}
