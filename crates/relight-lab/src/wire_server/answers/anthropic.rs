//! The Messages API as Anthropic documents it.

use serde_json::{Value, json};

use super::{Answers, documents, pieces};
use crate::wire_server::Reply;

pub(super) const ANSWERS: Answers = Answers {
    text,
    tool_call,
    broken_tool_call,
    rate_limited,
    overloaded_amid,
    unfit,
    refuses,
    document: documents::anthropic,
};

/// Returns a text block, word by word.
#[must_use]
pub fn text(text: &str) -> Reply {
    let mut events = begun(text);
    events.push(stop(0));
    events.extend(end("end_turn", text.split_whitespace().count()));
    named(&events)
}

/// Returns a `tool_use` block whose input comes in pieces.
#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> Reply {
    let block = json!({"type": "tool_use", "id": "toolu_01", "name": name, "input": {}});
    let mut events = vec![
        start(),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
    ];
    let piece = |piece: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": piece});
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    };
    events.extend(pieces(arguments, 5).into_iter().map(piece));
    events.push(stop(0));
    events.extend(end("tool_use", 20));
    named(&events)
}

/// Its input is not valid JSON.
#[must_use]
pub fn broken_tool_call(name: &str) -> Reply {
    tool_call(name, "{\"city\": \"Os")
}

/// With `retry-after`.
#[must_use]
pub fn rate_limited() -> Reply {
    let message =
        "This request would exceed your organization's rate limit of 50 requests per minute.";
    let headers = [
        ("retry-after", "1"),
        ("anthropic-ratelimit-requests-remaining", "0"),
        ("request-id", "req_1"),
    ];
    refused(429, &headers, "rate_limit_error", message)
}

/// Returns an `error` event.
#[must_use]
pub fn overloaded_amid(text: &str) -> Reply {
    let mut events = begun(text);
    events.push(
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    );
    named(&events)
}

/// The requested output limit is too large.
#[must_use]
pub fn unfit() -> Reply {
    let words = "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022";
    refused(400, &[], "invalid_request_error", words)
}

/// Stop reason `refusal`.
#[must_use]
pub fn refuses() -> Reply {
    let mut events = begun("I can't help with that.");
    events.push(stop(0));
    events.extend(end("refusal", 6));
    named(&events)
}

fn start() -> Value {
    let usage = json!({"input_tokens": 10, "output_tokens": 1});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1", "content": [],
        "stop_reason": null, "usage": usage});
    json!({"type": "message_start", "message": message})
}

fn begun(text: &str) -> Vec<Value> {
    let block = json!({"type": "text", "text": ""});
    let mut events = vec![
        start(),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
    ];
    events.push(json!({"type": "ping"}));
    let word = |word: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}});
    events.extend(text.split_inclusive(' ').map(word));
    events
}

fn stop(index: u32) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(stop_reason: &str, output_tokens: usize) -> [Value; 2] {
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    let usage = json!({"output_tokens": output_tokens});
    [
        json!({"type": "message_delta", "delta": delta, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn named(events: &[Value]) -> Reply {
    let named: Vec<(&str, Value)> = events
        .iter()
        .map(|event| (event["type"].as_str().unwrap_or_default(), event.clone()))
        .collect();
    Reply::named_events(&named)
}

fn refused(code: u16, headers: &[(&str, &str)], error_type: &str, message: &str) -> Reply {
    Reply::refusal(
        code,
        headers,
        &json!({"type": "error", "error": {"type": error_type, "message": message}}),
    )
}
