//! Tools that Anthropic's own API defines: those that run there, and those that the client runs.

use serde_json::{Value, json};

use super::{claude, question, search, send};
use crate::support::{
    front::{Front, folded, over},
    upstream::{Reply, Upstream},
};

/// An answer of these blocks as a stream: each begins whole, but for the arguments of a call.
fn blocks(blocks: &Value, stop_reason: &str) -> Reply {
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-1", "content": [],
        "usage": {"input_tokens": 7, "output_tokens": 1}});
    let mut events = vec![(
        "message_start",
        json!({"type": "message_start", "message": message}),
    )];
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
        events.push((
            "content_block_stop",
            json!({"type": "content_block_stop", "index": index}),
        ));
    }
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    let usage = json!({"output_tokens": 20});
    events.push((
        "message_delta",
        json!({"type": "message_delta", "delta": delta, "usage": usage}),
    ));
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
        for choice in [
            json!({"type": "tool", "name": "web_search"}),
            json!({"type": "any"}),
            Value::Null,
        ] {
            upstream
                .push(blocks(&found, "end_turn"))
                .push(claude("Yes."));
            let mut body = question();
            body["stream"] = json!(stream);
            body["tools"] = json!([search()]);
            body["tool_choice"] = choice.clone();
            let answer = send(&front, &[], &body).await;
            assert_eq!(
                (answer.status, answer.header("x-relight-attempts")),
                (200, Some("1")),
                "{answer:?}"
            );
            let message = if stream {
                folded(&answer)
            } else {
                answer.json()
            };
            assert_eq!(
                (&message["content"], &message["stop_reason"]),
                (&found, &json!("end_turn")),
                "{answer:?}"
            );
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(sent["tools"], body["tools"]);
            assert_eq!(
                sent.get("tool_choice"),
                Some(&choice).filter(|choice| !choice.is_null())
            );

            body["messages"] = json!([
                {"role": "user", "content": "Why?"},
                {"role": "assistant", "content": message["content"]},
                {"role": "user", "content": "And?"},
            ]);
            assert_eq!(send(&front, &[], &body).await.status, 200);
            let sent = upstream.requests().pop().unwrap().body;
            assert_eq!(
                sent["messages"][1]["content"], found,
                "nothing that the provider needs back is lost"
            );
        }
    }
}

#[tokio::test]
async fn a_tool_that_the_api_defines_and_the_client_runs_is_called_like_any_other() {
    let upstream = Upstream::start().await;
    let front = Front::start(&over("chat", &[(&upstream, "anthropic")])).await;
    let call =
        json!([{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}]);
    for stream in [false, true] {
        upstream
            .push(blocks(&call, "tool_use"))
            .push(claude("Yes."));
        let mut body = question();
        body["stream"] = json!(stream);
        body["tools"] = json!([{"type": "bash_20250124", "name": "bash"}]);
        let answer = send(&front, &[], &body).await;
        assert_eq!(
            (answer.status, answer.header("x-relight-attempts")),
            (200, Some("1")),
            "{answer:?}"
        );
        let message = if stream {
            folded(&answer)
        } else {
            answer.json()
        };
        assert_eq!(
            (&message["content"], &message["stop_reason"]),
            (&call, &json!("tool_use")),
            "{answer:?}"
        );
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
    let front = Front::start(&over(
        "chat",
        &[(&anthropic, "anthropic"), (&openai, "openai_chat")],
    ))
    .await;
    let own = json!({"name": "add", "input_schema": {"type": "object"}});
    for (name, elsewhere) in [
        ("web_search", Value::Null),
        (
            "add",
            json!({"type": "function", "function": {"name": "add"}}),
        ),
    ] {
        anthropic.push(Reply::status(529)).push(Reply::status(529));
        openai.push(Reply::text("Yes."));
        let mut body = question();
        body["tools"] = json!([search(), own]);
        body["tool_choice"] =
            json!({"type": "tool", "name": name, "disable_parallel_tool_use": true});
        let answer = send(&front, &[("x-relight-max-retries", "3")], &body).await;
        assert_eq!(
            (answer.status, answer.header("x-relight-target")),
            (200, Some("t1")),
            "{answer:?}"
        );
        let sent = anthropic.requests().pop().unwrap().body;
        assert_eq!(
            (&sent["tools"], &sent["tool_choice"]),
            (&json!([own, search()]), &body["tool_choice"])
        );
        let sent = openai.requests().pop().unwrap().body;
        assert_eq!(
            (
                sent["tools"].as_array().unwrap().len(),
                &sent["tools"][0]["function"]["name"]
            ),
            (1, &json!("add"))
        );
        assert_eq!(sent.get("tool_choice").unwrap_or(&Value::Null), &elsewhere);
    }
}
