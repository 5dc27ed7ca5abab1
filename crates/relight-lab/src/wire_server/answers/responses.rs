//! The Responses API as `OpenAI` documents it.

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
    document: documents::responses,
};

/// Returns a message of one text, word by word.
#[must_use]
pub fn text(text: &str) -> Reply {
    named(&text_events(text))
}

/// Returns the part of [`text`] after the event of that number, as for a response in the
/// background.
#[must_use]
pub fn text_after(text: &str, number: u64) -> Reply {
    named_after(&text_events(text), Some(number))
}

fn text_events(text: &str) -> Vec<Value> {
    let item = message(&json!({"type": "output_text", "text": text, "annotations": []}));
    let mut events = begun(text);
    events.extend([done(&item), completed(&item)]);
    events
}

/// Returns a `function_call` item whose arguments come in pieces.
#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> Reply {
    let item = |arguments: &str| json!({"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": name, "arguments": arguments});
    let mut events = vec![
        created(),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item("")}),
    ];
    let piece = |piece: &str| json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 0, "delta": piece});
    events.extend(pieces(arguments, 5).into_iter().map(piece));
    events.extend([done(&item(arguments)), completed(&item(arguments))]);
    named(&events)
}

/// Its arguments are not valid JSON.
#[must_use]
pub fn broken_tool_call(name: &str) -> Reply {
    tool_call(name, "{\"city\": \"Os")
}

/// With `retry-after`.
#[must_use]
pub fn rate_limited() -> Reply {
    super::openai::rate_limited()
}

/// `response.failed`.
#[must_use]
pub fn overloaded_amid(text: &str) -> Reply {
    let mut events = begun(text);
    let error = json!({"code": "server_is_overloaded", "message": "Our servers are currently overloaded. Please try again later."});
    let response = json!({"id": "resp_1", "status": "failed", "error": error, "output": []});
    events.push(json!({"type": "response.failed", "response": response}));
    named(&events)
}

/// The requested output limit is too small.
#[must_use]
pub fn unfit() -> Reply {
    let message = "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 8 instead.";
    let error = json!({"message": message, "type": "invalid_request_error", "param": "max_output_tokens",
        "code": "integer_below_min_value"});
    Reply::refusal(400, &[], &json!({"error": error}))
}

/// Returns a refusal by the model.
#[must_use]
pub fn refuses() -> Reply {
    let words = "I can't help with that.";
    let item = message(&json!({"type": "refusal", "refusal": words}));
    let delta = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": words});
    let part = json!({"type": "refusal", "refusal": ""});
    let [added, part] = opened(&part);
    named(&[created(), added, part, delta, done(&item), completed(&item)])
}

fn created() -> Value {
    let response = json!({"id": "resp_1", "object": "response", "model": "gpt-test-1", "status": "in_progress", "output": []});
    json!({"type": "response.created", "response": response})
}

/// Returns the item of a message, and its first part.
fn opened(part: &Value) -> [Value; 2] {
    let item = json!({"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []});
    [
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 0, "content_index": 0,
            "part": part}),
    ]
}

fn begun(text: &str) -> Vec<Value> {
    let word = |word: &str| json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": word});
    let opened = opened(&json!({"type": "output_text", "text": "", "annotations": []}));
    [created()]
        .into_iter()
        .chain(opened)
        .chain(text.split_inclusive(' ').map(word))
        .collect()
}

fn message(content: &Value) -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [content]})
}

fn done(item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": 0, "item": item})
}

fn completed(item: &Value) -> Value {
    let usage = json!({"input_tokens": 10, "output_tokens": 8, "total_tokens": 18});
    let response = json!({"id": "resp_1", "object": "response", "model": "gpt-test-1", "status": "completed",
        "error": null, "output": [item], "usage": usage});
    json!({"type": "response.completed", "response": response})
}

fn named(events: &[Value]) -> Reply {
    named_after(events, None)
}

/// Returns the events, numbered from 0, behind that number.
fn named_after(events: &[Value], number: Option<u64>) -> Reply {
    let numbered = (0_u64..)
        .zip(events)
        .filter(|(own, _)| number.is_none_or(|number| *own > number));
    let named: Vec<(&str, Value)> = numbered
        .map(|(own, event)| {
            let mut event_with_number = event.clone();
            event_with_number["sequence_number"] = json!(own);
            (
                event["type"].as_str().unwrap_or_default(),
                event_with_number,
            )
        })
        .collect();
    Reply::named_events(&named)
}
