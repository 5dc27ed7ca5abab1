//! A response of the Messages API is complete, or it is an error that names the fault: over real
//! sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod requests;

use relight::internals::domain::{
    completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
    failure::{Surface, TransportFault},
    message::{Message, Role},
    target::Dialect,
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{
        answer_in, assert_no_cut_looks_whole, assert_pieces_do_not_matter, continued, exchange,
        fixture, stream, turn_of,
    },
    upstream::Reply,
    wire::asking,
};

const ANTHROPIC: Dialect = Dialect::Anthropic;

fn events(events: &[Value]) -> Reply {
    let named = |event: &Value| {
        format!(
            "event: {}\ndata: {event}\n\n",
            event["type"].as_str().unwrap()
        )
    };
    stream(events.iter().map(named).collect::<String>().as_bytes())
}

/// A message of one text that stops for that reason.
fn said(text: &str, stop_reason: &str) -> Vec<Value> {
    let message = json!({"id": "msg_1", "model": "claude-test-1", "content": [], "usage": {"input_tokens": 3}});
    vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]
}

#[tokio::test]
async fn thinking_text_and_parallel_tool_calls_come_with_usage_and_finish() {
    let seen = answer_in(ANTHROPIC, stream(&fixture("anthropic/thinking_tools.sse"))).await;
    assert_eq!(seen.error, None);
    assert_eq!(seen.text(), "Let me look.");
    assert_eq!(
        seen.text_of(&BlockKind::Reasoning),
        "Two towns, so two calls – “both”."
    );
    let calls = [
        (
            "toolu_01".to_owned(),
            "weather".to_owned(),
            "{\"town\": \"Oslo\"}".to_owned(),
            true,
        ),
        (
            "toolu_02".to_owned(),
            "list_towns".to_owned(),
            "{}".to_owned(),
            true,
        ),
    ];
    assert_eq!(seen.tool_calls(), calls);
    assert_eq!(seen.finish(), Some(FinishReason::ToolCalls));
    let usage = Usage {
        input_tokens: 142,
        output_tokens: 89,
        cached_input_tokens: Some(100),
        cache_write_tokens: Some(30),
        reasoning_tokens: Some(20),
        exactness: Exactness::Exact,
    };
    assert_eq!(seen.usage(), Some(usage));
}

#[tokio::test]
async fn what_the_model_thought_and_did_goes_back_as_it_came() {
    let call = asking("Weather in my towns?");
    let (seen, _) = exchange(
        ANTHROPIC,
        stream(&fixture("anthropic/thinking_tools.sse")),
        call.clone(),
    )
    .await;
    let (_, request) = exchange(
        ANTHROPIC,
        events(&said("Rain.", "end_turn")),
        continued(call, &seen),
    )
    .await;
    let messages = request.body["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    let turn = json!([
        {"type": "thinking", "thinking": "Two towns, so two calls – “both”.", "signature": "EqQBCgIYAhIM/+aZ09=="},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix/LafPsn4a=="},
        {"type": "text", "text": "Let me look.", "citations": [{"type": "char_location", "cited_text": "x"}]},
        {"type": "tool_use", "id": "toolu_01", "name": "weather", "input": {"town": "Oslo"}},
        {"type": "tool_use", "id": "toolu_02", "name": "list_towns", "input": {}},
    ]);
    assert_eq!(messages[1]["content"], turn);
    let results = json!([
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "toolu_02", "content": "rain"},
    ]);
    assert_eq!(messages[2]["content"], results);
}

#[tokio::test]
async fn no_cut_before_message_stop_looks_whole() {
    let body = fixture("anthropic/thinking_tools.sse");
    let mark = body
        .windows(12)
        .rposition(|window| window == b"message_stop")
        .unwrap();
    assert_no_cut_looks_whole(ANTHROPIC, &body, mark, stream).await;
}

#[tokio::test]
async fn the_pieces_in_which_bytes_come_do_not_matter() {
    assert_pieces_do_not_matter(ANTHROPIC, stream(&fixture("anthropic/thinking_tools.sse"))).await;
}

#[tokio::test]
async fn a_message_that_stops_without_a_reason_or_within_a_block_is_cut() {
    let mut without_reason = said("Hello", "end_turn");
    without_reason.remove(4);
    let mut within_block = said("Hello", "end_turn");
    within_block.remove(3);
    for broken in [without_reason, within_block] {
        let seen = answer_in(ANTHROPIC, events(&broken)).await;
        assert_eq!(
            seen.failed().fault,
            Some(TransportFault::Cut),
            "{:?}",
            seen.error
        );
    }
}

#[tokio::test]
async fn every_stop_reason_has_its_finish() {
    let table = [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::ContextFull),
        ("pause_turn", FinishReason::Paused),
        ("refusal", FinishReason::Refusal),
        ("something_new", FinishReason::Other),
    ];
    for (raw, expected) in table {
        let seen = answer_in(ANTHROPIC, events(&said("Well", raw))).await;
        assert_eq!(
            seen.deltas.last(),
            Some(&Delta::Finish {
                reason: expected,
                raw: raw.to_owned()
            })
        );
        assert_eq!(seen.text(), "Well", "{raw}");
    }
}

#[tokio::test]
async fn a_refusal_comes_with_its_explanation() {
    let mut refused = said("I", "refusal");
    refused[4]["delta"]["stop_details"] =
        json!({"type": "refusal", "category": "bio", "explanation": "Not that."});
    let seen = answer_in(ANTHROPIC, events(&refused)).await;
    assert_eq!(seen.text_of(&BlockKind::Refusal), "Not that.");
    assert_eq!(seen.finish(), Some(FinishReason::Refusal));
}

#[tokio::test]
async fn an_error_inside_a_stream_is_the_error_it_would_have_been_outside() {
    let table = [
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("billing_error", 402),
        ("permission_error", 403),
        ("not_found_error", 404),
        ("request_too_large", 413),
        ("rate_limit_error", 429),
        ("api_error", 500),
        ("timeout_error", 504),
        ("overloaded_error", 529),
        ("something_new", 200),
    ];
    for (error_type, status) in table {
        let error = json!({"type": "error", "error": {"type": error_type, "message": "Sorry"}, "request_id": "req_1"});
        for before in [0, 1, 3] {
            let mut all = said("Hello", "end_turn");
            all.truncate(before);
            all.push(error.clone());
            let seen = answer_in(ANTHROPIC, events(&all)).await;
            let failed = seen.failed();
            assert_eq!(
                (failed.status, failed.surface),
                (Some(status), Surface::Stream),
                "{error_type}"
            );
            assert_eq!(failed.body.as_deref(), Some(error.to_string().as_str()));
            assert_eq!(failed.fault, None);
        }
    }
}

#[tokio::test]
async fn an_error_that_is_no_json_and_one_without_a_name_are_errors_too() {
    for body in [
        "event: error\ndata: overloaded\n\n",
        "data: {\"error\":{\"message\":\"m\",\"type\":\"api_error\"}}\n\n",
    ] {
        let seen = answer_in(ANTHROPIC, stream(body.as_bytes())).await;
        assert!(seen.failed().body.is_some(), "{body}: {:?}", seen.error);
        assert_eq!(seen.failed().fault, None);
    }
}

#[tokio::test]
async fn a_whole_document_is_an_answer_too() {
    let document = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
            {"type": "text", "text": "Hello"},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"town": "Oslo"}},
        ],
        "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 4},
    });
    let seen = answer_in(ANTHROPIC, Reply::document(&document)).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("Hello", Some(FinishReason::ToolCalls))
    );
    assert_eq!(seen.tool_calls()[0].2, "{\"town\":\"Oslo\"}");
    assert_eq!(
        seen.usage()
            .map(|usage| (usage.input_tokens, usage.output_tokens)),
        Some((3, 4))
    );
    let failed = answer_in(
        ANTHROPIC,
        Reply::document(&json!({"type": "error", "error": {"type": "overloaded_error"}})),
    )
    .await;
    assert_eq!(failed.failed().status, Some(529));
}

#[tokio::test]
async fn what_is_no_message_is_an_error_that_shows_what_came() {
    for reply in [
        Reply::html(),
        Reply::document(&json!({"hello": 1})),
        stream(b"data: {\"hello\":1}\n\n"),
    ] {
        let seen = answer_in(ANTHROPIC, reply).await;
        let failed = seen.failed();
        assert_eq!(failed.fault, Some(TransportFault::Protocol), "{failed:?}");
        assert!(
            failed
                .body
                .as_deref()
                .is_some_and(|body| body.contains("hello") || body.contains("html")),
            "{failed:?}"
        );
    }
    assert_eq!(
        answer_in(ANTHROPIC, Reply::empty()).await.failed().fault,
        Some(TransportFault::Protocol)
    );
}

#[tokio::test]
async fn a_tool_call_with_broken_arguments_is_reported_unless_the_answer_was_cut_at_its_limit() {
    let start = |index: u32| {
        let block = json!({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}});
        json!({"type": "content_block_start", "index": index, "content_block": block})
    };
    let piece = json!({"type": "input_json_delta", "partial_json": "{\"town\": \"Os"});
    for (reason, is_error) in [("tool_use", true), ("max_tokens", false)] {
        let mut all = said("Hello", reason);
        all.splice(
            4..4,
            [
                start(1),
                json!({"type": "content_block_delta", "index": 1, "delta": piece}),
                json!({"type": "content_block_stop", "index": 1}),
            ],
        );
        let seen = answer_in(ANTHROPIC, events(&all)).await;
        assert!(!seen.tool_calls()[0].3, "a torn call may be acted upon");
        assert_eq!(seen.error.is_some(), is_error, "{reason}");
        if is_error {
            assert!(
                seen.failed()
                    .message
                    .as_deref()
                    .unwrap()
                    .contains("tool call `weather`: arguments are not JSON")
            );
        } else {
            assert_eq!(seen.finish(), Some(FinishReason::Length));
        }
    }
}

#[tokio::test]
async fn blocks_of_server_tools_are_sent_back_when_a_paused_turn_continues() {
    let mut paused = said("Searching", "pause_turn");
    let search =
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}});
    let piece = json!({"type": "input_json_delta", "partial_json": "{\"query\":\"rain\"}"});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result", "encrypted_content": "x=="}]});
    paused.splice(
        4..4,
        [
            json!({"type": "content_block_start", "index": 1, "content_block": search}),
            json!({"type": "content_block_delta", "index": 1, "delta": piece}),
            json!({"type": "content_block_stop", "index": 1}),
            json!({"type": "content_block_start", "index": 2, "content_block": found}),
            json!({"type": "content_block_stop", "index": 2}),
        ],
    );
    let call = asking("Search");
    let (seen, _) = exchange(ANTHROPIC, events(&paused), call.clone()).await;
    assert_eq!(seen.finish(), Some(FinishReason::Paused));
    let (_, request) = exchange(
        ANTHROPIC,
        events(&said("Done.", "end_turn")),
        continued(call, &seen),
    )
    .await;
    let content = &request.body["messages"][1]["content"];
    let expected = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "rain"}});
    assert_eq!((&content[1], &content[2]), (&expected, &found));
}

#[tokio::test]
async fn a_block_that_came_in_unknown_pieces_does_not_go_back_torn() {
    let mut all = said("Hello", "end_turn");
    let block = json!({"type": "something_new", "content": null});
    let piece = json!({"type": "something_new_delta", "content": "x"});
    all.splice(
        4..4,
        [
            json!({"type": "content_block_start", "index": 1, "content_block": block}),
            json!({"type": "content_block_delta", "index": 1, "delta": piece}),
            json!({"type": "content_block_stop", "index": 1}),
        ],
    );
    let seen = answer_in(ANTHROPIC, events(&all)).await;
    assert_eq!(seen.finish(), Some(FinishReason::Stop));
    assert_eq!(turn_of(&seen), Message::text(Role::Assistant, "Hello"));
}

#[tokio::test]
async fn rate_limits_and_the_servers_own_names_come_with_the_start() {
    let lines: Vec<String> = said("Hello", "end_turn")
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let all = lines.concat();
    let headers = [
        ("content-type", "text/event-stream"),
        ("anthropic-ratelimit-tokens-remaining", "7"),
        ("request-id", "req_1"),
    ];
    let seen = answer_in(ANTHROPIC, Reply::body(200, &headers, all.as_bytes())).await;
    let start = Delta::Start {
        model: Some("claude-test-1".to_owned()),
        response_id: Some("msg_1".to_owned()),
        headers: headers[1..]
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    };
    assert_eq!(seen.deltas.first(), Some(&start));
}
