//! What a target cannot have is told to the caller, whatever protocol it speaks (`parameters` has the
//! table of all of them).

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::support::{
    dialect::stream,
    front::{Front, over},
    upstream::{Reply, Upstream},
};

#[tokio::test]
async fn one_tool_at_once_is_reported_where_a_server_of_chat_completions_has_no_word_for_it() {
    for (capabilities, is_sent) in [
        ("", true),
        (", capabilities: { parallel_tools: false }", false),
    ] {
        let upstream = Upstream::start().await;
        let config = over("chat", &[(&upstream, "openai_chat")]);
        let config = config.replace("model: model-0", &format!("model: model-0{capabilities}"));
        let front = Front::start(&config).await;
        let look = json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
        let body = json!({"model": "chat", "messages": [{"role": "user", "content": "Hi"}],
            "tools": [look], "parallel_tool_calls": false});
        let answer = front.chat(&body).await;
        let sent = &upstream.requests()[0].body;
        assert_eq!(sent.get("parallel_tool_calls").is_some(), is_sent, "{sent}");
        let words = (!is_sent).then_some("parallel_tool_calls false left out");
        assert_eq!(answer.header("x-relight-adapted"), words, "{answer:?}");
    }
}

#[tokio::test]
async fn that_no_tool_may_be_called_is_reported_where_bedrock_wants_the_tools_all_the_same() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(400));
    let config = over("chat", &[(&upstream, "bedrock")]);
    let front = Front::start(&config.replace("api_key: k", "api_key: k, region: eu-test-1")).await;
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let look =
        json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    let body = json!({"model": "chat", "tools": [look], "tool_choice": "none", "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"}]});
    let answer = front.chat(&body).await;
    let words = answer.header("x-relight-adapted");
    assert_eq!(words, Some("tool_choice none left out"), "{answer:?}");
    assert!(!upstream.requests()[0].body["toolConfig"].is_null());
}

#[tokio::test]
async fn what_else_a_response_is_to_hold_is_requested_beside_what_relight_needs() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(400));
    let front = Front::start(&over("chat", &[(&upstream, "openai_responses")])).await;
    let (sources, reasoning) = (
        "web_search_call.action.sources",
        "reasoning.encrypted_content",
    );
    for (include, expected) in [
        (json!([sources]), json!([sources, reasoning])),
        (json!([reasoning, sources]), json!([sources, reasoning])),
        (json!([reasoning]), json!([reasoning])),
    ] {
        let body = json!({"model": "chat", "input": "Hi", "include": include});
        let before = upstream.requests().len();
        front
            .send(hyper::Method::POST, "/v1/responses", &[], body.to_string())
            .await;
        assert_eq!(upstream.requests()[before].body["include"], expected);
    }
}

#[tokio::test]
async fn a_caller_of_any_front_reads_what_its_model_did_not_get() {
    let upstream = Upstream::start().await;
    let events = [
        (
            "message_start",
            json!({"message": {"id": "m", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        ),
        (
            "content_block_start",
            json!({"index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        (
            "content_block_delta",
            json!({"index": 0, "delta": {"type": "text_delta", "text": "Fine."}}),
        ),
        ("content_block_stop", json!({"index": 0})),
        (
            "message_delta",
            json!({"delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 2}}),
        ),
        ("message_stop", json!({})),
    ];
    let mut answer = String::new();
    for (name, mut event) in events {
        event["type"] = Value::from(name);
        let _ = write!(answer, "event: {name}\ndata: {event}\n\n");
    }
    let url = upstream.base_url();
    let front = Front::start(&format!(
        "providers:\n  a: {{ dialect: anthropic, base_url: \"{url}\", api_key: k, allow_plaintext: true }}\n\
         targets:\n  claude: {{ provider: a, model: claude }}\n\
         routes: {{ default: {{ targets: [claude] }} }}\n"
    ))
    .await;
    for (path, body, names) in [
        (
            "/v1/chat/completions",
            json!({"presence_penalty": 0.5, "seed": 7, "logit_bias": {"5": -100}, "messages": [{"role": "user", "content": "Hi"}]}),
            &["presence_penalty", "seed", "logit_bias"][..],
        ),
        (
            "/v1/responses",
            json!({"truncation": "auto", "input": "Hi"}),
            &["truncation"][..],
        ),
    ] {
        upstream.push(stream(answer.as_bytes()));
        let mut body = body;
        body["model"] = Value::from("default");
        let answer = front
            .send(hyper::Method::POST, path, &[], body.to_string())
            .await;
        let adapted = answer
            .header("x-relight-adapted")
            .unwrap_or_default()
            .to_owned();
        assert_eq!(answer.status, 200, "{answer:?}");
        for name in names {
            assert!(adapted.contains(name), "{path}: {adapted}: {answer:?}");
        }
    }
}

/// Parts of a message that one protocol alone knows, in a request of it, with the field that has
/// the conversation.
fn own_parts() -> [(&'static str, &'static str, &'static str, Value, usize); 3] {
    let of_tomorrow = json!({"type": "of_tomorrow", "field": [1, {"deep": null}]});
    let blocks = json!([
        {"type": "search_result", "source": "https://e.example", "title": "T", "content": [{"type": "text", "text": "w"}]},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "w"}]},
            "citations": {"enabled": true}, "context": "c"},
        of_tomorrow,
    ]);
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "get_time"}]});
    let anthropic = json!({"model": "default", "max_tokens": 50, "messages": [
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {"role": "user", "content": [result]},
    ], "tools": [{"name": "look", "input_schema": {"type": "object"}}]});
    let chat = json!({"model": "default", "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "See:"},
            {"type": "video_url", "video_url": {"url": "https://e.example/v.mp4"}},
            {"type": "file", "file": {"file_id": "file_1"}},
            of_tomorrow,
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "Seen."}, of_tomorrow]},
        {"role": "user", "content": [of_tomorrow]},
    ]});
    let responses = json!({"model": "default", "store": false, "input": [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "See:"},
            {"type": "input_file", "file_id": "file_1"},
            {"type": "input_image", "file_id": "file_2", "detail": "low"},
            of_tomorrow,
        ]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Seen."}, of_tomorrow]},
        {"type": "message", "role": "user", "content": [of_tomorrow]},
    ]});
    [
        ("anthropic", "/v1/messages", "messages", anthropic, 7),
        ("openai_chat", "/v1/chat/completions", "messages", chat, 5),
        ("openai_responses", "/v1/responses", "input", responses, 5),
    ]
}

#[tokio::test]
async fn parts_that_one_dialect_knows_reach_it_unaltered_and_are_told_for_others() {
    for (own, path, field, body, parts) in own_parts() {
        for dialect in ["anthropic", "openai_chat", "openai_responses", "gemini"] {
            let upstream = Upstream::start().await;
            let front = Front::start(&over("default", &[(&upstream, dialect)])).await;
            upstream.otherwise(Reply::status(400));
            let response = front
                .send(hyper::Method::POST, path, &[], body.to_string())
                .await;
            let sent = upstream.await_request(1).await.body;
            if dialect == own {
                assert_eq!(sent[field], body[field]);
            } else {
                assert!(!sent.to_string().contains("of_tomorrow"), "{sent}");
                let adapted = response.header("x-relight-adapted").unwrap_or_default();
                assert!(
                    adapted.contains(&format!("{parts} blocks of content left out")),
                    "{own} to {dialect}: {adapted}: {response:?}"
                );
            }
        }
    }
}
