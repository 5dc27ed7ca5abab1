//! A response of Bedrock's Converse API is complete, or it is an error that names the fault: over
//! real sockets.

mod requests;
mod signature;

use relight::internals::{
    domain::{
        completion::{BlockKind, Delta, Exactness, FinishReason, Usage},
        failure::{Surface, TransportFault},
        target::Dialect,
    },
    wire_server::answers::bedrock::{event, frame},
};
use serde_json::{Value, json};

use crate::support::{
    dialect::{
        answer_in, assert_no_cut_looks_whole, assert_pieces_do_not_matter, continued, exchange,
    },
    upstream::Reply,
    wire::asking,
};

const BEDROCK: Dialect = Dialect::Bedrock;

fn exception(name: &str, payload: &Value) -> Vec<u8> {
    frame(
        &[(":exception-type", name), (":message-type", "exception")],
        &payload.to_string(),
    )
}

fn stream(bytes: &[u8]) -> Reply {
    Reply::stream(vec![(std::time::Duration::ZERO, bytes.to_vec())])
}

fn delta(index: u32, delta: &Value) -> Vec<u8> {
    event(
        "contentBlockDelta",
        &json!({"contentBlockIndex": index, "delta": delta, "p": "abcd"}),
    )
}

fn begun(index: u32, id: &str, name: &str) -> Vec<u8> {
    let start = json!({"toolUse": {"toolUseId": id, "name": name}});
    event(
        "contentBlockStart",
        &json!({"contentBlockIndex": index, "start": start}),
    )
}

fn stopped(index: u32) -> Vec<u8> {
    event("contentBlockStop", &json!({"contentBlockIndex": index}))
}

fn said(text: &str, stop_reason: &str) -> Vec<Vec<u8>> {
    vec![
        event("messageStart", &json!({"role": "assistant"})),
        delta(0, &json!({"text": text})),
        stopped(0),
        event("messageStop", &json!({"stopReason": stop_reason})),
        event(
            "metadata",
            &json!({"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}}),
        ),
    ]
}

fn ok() -> Reply {
    stream(&said("Ok", "end_turn").concat())
}

/// Reasoning, redacted reasoning, a text and two calls at once.
fn thinking_tools() -> Vec<Vec<u8>> {
    vec![
        event("messageStart", &json!({"role": "assistant"})),
        delta(0, &json!({"reasoningContent": {"text": "Two towns, "}})),
        delta(
            0,
            &json!({"reasoningContent": {"text": "so two calls – “both”."}}),
        ),
        delta(
            0,
            &json!({"reasoningContent": {"signature": "EqQBCgIYAhIM/+aZ09=="}}),
        ),
        stopped(0),
        delta(
            1,
            &json!({"reasoningContent": {"redactedContent": "EmwKAhgBEgy3va3pzix="}}),
        ),
        stopped(1),
        delta(2, &json!({"text": "Let me "})),
        delta(2, &json!({"text": "look."})),
        stopped(2),
        event(
            "somethingNew",
            &json!({"contentBlockIndex": 2, "delta": {"text": "never shown"}}),
        ),
        begun(3, "tooluse_A-1", "weather"),
        delta(3, &json!({"toolUse": {"input": "{\"town\": \"Os"}})),
        delta(3, &json!({"toolUse": {"input": "lo\"}"}})),
        stopped(3),
        begun(4, "tooluse_B-2", "list_towns"),
        stopped(4),
        event("messageStop", &json!({"stopReason": "tool_use"})),
        event(
            "metadata",
            &json!({
                "usage": {"inputTokens": 12, "outputTokens": 89, "totalTokens": 231, "cacheReadInputTokens": 100, "cacheWriteInputTokens": 30},
                "metrics": {"latencyMs": 900},
            }),
        ),
    ]
}

#[tokio::test]
async fn reasoning_text_and_parallel_calls_come_with_usage_and_finish() {
    let seen = answer_in(BEDROCK, stream(&thinking_tools().concat())).await;
    assert_eq!(seen.error, None);
    assert_eq!(seen.text(), "Let me look.");
    assert_eq!(
        seen.text_of(&BlockKind::Reasoning),
        "Two towns, so two calls – “both”."
    );
    let calls = [
        (
            "tooluse_A-1".to_owned(),
            "weather".to_owned(),
            "{\"town\": \"Oslo\"}".to_owned(),
            true,
        ),
        (
            "tooluse_B-2".to_owned(),
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
        reasoning_tokens: None,
        exactness: Exactness::Exact,
    };
    assert_eq!(seen.usage(), Some(usage));
}

#[tokio::test]
async fn what_the_model_thought_and_did_goes_back_as_it_came() {
    let call = asking("Weather in my towns?");
    let (seen, _) = exchange(BEDROCK, stream(&thinking_tools().concat()), call.clone()).await;
    let (_, request) = exchange(BEDROCK, ok(), continued(call, &seen)).await;
    let thought =
        json!({"text": "Two towns, so two calls – “both”.", "signature": "EqQBCgIYAhIM/+aZ09=="});
    let answered =
        |id: &str| json!({"toolResult": {"toolUseId": id, "content": [{"text": "rain"}]}});
    let messages = json!([
        {"role": "user", "content": [{"text": "Weather in my towns?"}]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": thought}},
            {"reasoningContent": {"redactedContent": "EmwKAhgBEgy3va3pzix="}},
            {"text": "Let me look."},
            {"toolUse": {"toolUseId": "tooluse_A-1", "name": "weather", "input": {"town": "Oslo"}}},
            {"toolUse": {"toolUseId": "tooluse_B-2", "name": "list_towns", "input": {}}},
        ]},
        {"role": "user", "content": [answered("tooluse_A-1"), answered("tooluse_B-2")]},
    ]);
    assert_eq!(request.body["messages"], messages);
    // Without tools the server would refuse a conversation that holds calls.
    let tools = request.body["toolConfig"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["toolSpec"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["list_towns", "weather"]);
}

#[tokio::test]
async fn no_cut_before_message_stop_looks_whole() {
    let frames = thinking_tools();
    let mark = frames[..17].concat().len();
    assert_no_cut_looks_whole(BEDROCK, &frames.concat(), mark, stream).await;
}

#[tokio::test]
async fn an_answer_without_its_metadata_is_whole_and_its_usage_unknown() {
    let all = said("Hello", "end_turn");
    let stopped = all[..4].concat();
    let half = all.concat().len() - 9;
    let replies = [
        stream(&stopped),
        stream(&stopped).cut_after(stopped.len()),
        stream(&all.concat()).cut_after(half),
    ];
    for reply in replies {
        let seen = answer_in(BEDROCK, reply).await;
        assert_eq!(
            (seen.finish(), seen.usage(), seen.error),
            (Some(FinishReason::Stop), None, None)
        );
    }
}

#[tokio::test]
async fn the_pieces_in_which_bytes_come_do_not_matter() {
    assert_pieces_do_not_matter(BEDROCK, stream(&thinking_tools().concat())).await;
}

#[tokio::test]
async fn every_stop_reason_has_its_finish() {
    let table = [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::ContextFull),
        ("guardrail_intervened", FinishReason::ContentFilter),
        ("content_filtered", FinishReason::ContentFilter),
        ("malformed_tool_use", FinishReason::MalformedToolCall),
        ("malformed_model_output", FinishReason::MalformedToolCall),
        ("something_new", FinishReason::Other),
    ];
    for (raw, expected) in table {
        let seen = answer_in(BEDROCK, stream(&said("Well", raw).concat())).await;
        assert_eq!(
            seen.deltas.last(),
            Some(&Delta::Finish {
                reason: expected,
                raw: raw.to_owned()
            })
        );
    }
}

#[tokio::test]
async fn an_exception_inside_a_stream_is_the_error_it_would_have_been_outside() {
    let table = [
        ("validationException", 400),
        ("accessDeniedException", 403),
        ("modelStreamErrorException", 424),
        ("throttlingException", 429),
        ("internalServerException", 500),
        ("serviceUnavailableException", 503),
        ("somethingNewException", 200),
    ];
    for (name, status) in table {
        let payload = json!({"message": "Sorry."});
        for before in [0, 1, 2] {
            let mut all = said("Hello", "end_turn");
            all.truncate(before);
            all.push(exception(name, &payload));
            let seen = answer_in(BEDROCK, stream(&all.concat())).await;
            let failed = seen.failed();
            assert_eq!(
                (failed.status, failed.surface, failed.fault),
                (Some(status), Surface::Stream, None),
                "{name}"
            );
            assert_eq!(failed.body.as_deref(), Some(payload.to_string().as_str()));
            assert_eq!(failed.header("x-amzn-errortype"), Some(name));
        }
    }
    let error = frame(
        &[
            (":message-type", "error"),
            (":error-code", "Gone"),
            (":error-message", "Lost it"),
        ],
        "",
    );
    let seen = answer_in(BEDROCK, stream(&error)).await;
    assert_eq!(
        seen.failed().body.as_deref(),
        Some("{\"code\":\"Gone\",\"message\":\"Lost it\"}")
    );
}

#[tokio::test]
async fn a_frame_with_a_wrong_checksum_ends_the_answer() {
    let mut bytes = said("Hello", "end_turn").concat();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let seen = answer_in(BEDROCK, stream(&bytes)).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::Cut));
}

#[tokio::test]
async fn a_document_is_an_answer_too() {
    let content = json!([
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
        {"text": "Hello"},
        {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"town": "Oslo"}}},
    ]);
    let document = json!({
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": "tool_use", "usage": {"inputTokens": 3, "outputTokens": 4},
    });
    let seen = answer_in(BEDROCK, Reply::document(&document)).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("Hello", Some(FinishReason::ToolCalls))
    );
    assert_eq!(seen.tool_calls()[0].2, "{\"town\":\"Oslo\"}");
    let error = json!({"__type": "com.amazon.coral#ThrottlingException", "message": "Slow"});
    assert_eq!(
        answer_in(BEDROCK, Reply::document(&error))
            .await
            .failed()
            .status,
        Some(429)
    );
    for reply in [Reply::html(), Reply::document(&json!({"hello": 1}))] {
        let seen = answer_in(BEDROCK, reply).await;
        assert_eq!(seen.failed().fault, Some(TransportFault::Protocol));
    }
}
