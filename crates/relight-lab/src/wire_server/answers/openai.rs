//! Chat completions as `OpenAI` documents them.

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
    document: documents::chat,
};

/// Returns a streamed completion of one text, word by word, with usage.
#[must_use]
pub fn text(text: &str) -> Reply {
    let mut events = begun(text);
    events.push(chunk(&json!({}), Some("stop")));
    events.push(usage_chunk(10, text.split_whitespace().count()));
    events.push("[DONE]".to_owned());
    Reply::events(&events)
}

/// Returns a streamed completion with one tool call; its arguments come in pieces of five bytes.
#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> Reply {
    let call = |fields: Value| chunk(&json!({"tool_calls": [fields]}), None);
    let begin = json!({"index": 0, "id": "call_a", "type": "function", "function": {"name": name, "arguments": ""}});
    let mut events = vec![call(begin)];
    let piece = |piece: &str| call(json!({"index": 0, "function": {"arguments": piece}}));
    events.extend(pieces(arguments, 5).into_iter().map(piece));
    events.push(chunk(&json!({}), Some("tool_calls")));
    events.push(usage_chunk(10, 5));
    events.push("[DONE]".to_owned());
    Reply::events(&events)
}

/// Its arguments are not valid JSON.
#[must_use]
pub fn broken_tool_call(name: &str) -> Reply {
    tool_call(name, "{\"city\": \"Os")
}

/// With `retry-after`.
#[must_use]
pub fn rate_limited() -> Reply {
    let message = "Rate limit reached for gpt-5 in organization org-x on requests per min (RPM): Limit 3, Used 3.";
    refused(
        429,
        &[("retry-after", "1")],
        &json!({"message": message, "type": "requests", "param": null, "code": "rate_limit_exceeded"}),
    )
}

/// Returns an `error` object in place of a chunk.
#[must_use]
pub fn overloaded_amid(text: &str) -> Reply {
    let mut events = begun(text);
    let message = "The server is currently overloaded with other requests. Sorry about that!";
    events.push(
        json!({"error": {"message": message, "type": "server_error", "param": null, "code": "overloaded"}}).to_string(),
    );
    Reply::events(&events)
}

/// The requested output limit is too large.
#[must_use]
pub fn unfit() -> Reply {
    let message = "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you \
                   provided 100000.";
    let error = json!({"message": message, "type": "invalid_request_error", "param": "max_tokens", "code": "invalid_value"});
    refused(400, &[], &error)
}

/// Returns a refusal by the model, in a field of its own.
#[must_use]
pub fn refuses() -> Reply {
    let events = [
        chunk(
            &json!({"role": "assistant", "content": null, "refusal": "I can't help with that."}),
            None,
        ),
        chunk(&json!({}), Some("stop")),
        usage_chunk(10, 6),
        "[DONE]".to_owned(),
    ];
    Reply::events(&events)
}

/// Returns a chunk of a streamed completion.
#[must_use]
pub fn chunk(delta: &Value, finish_reason: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish_reason});
    let object = "chat.completion.chunk";
    json!({"id": "chatcmpl-1", "object": object, "model": "test-model", "choices": [choice]})
        .to_string()
}

/// Returns the chunk with the usage, as it comes last.
#[must_use]
pub fn usage_chunk(prompt_tokens: usize, completion_tokens: usize) -> String {
    let usage = json!({"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens});
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [], "usage": usage})
        .to_string()
}

fn begun(text: &str) -> Vec<String> {
    let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    events.extend(
        text.split_inclusive(' ')
            .map(|word| chunk(&json!({"content": word}), None)),
    );
    events
}

fn refused(code: u16, headers: &[(&str, &str)], error: &Value) -> Reply {
    Reply::refusal(code, headers, &json!({"error": error}))
}
