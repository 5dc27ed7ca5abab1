//! The whole answer as a message of this protocol, and the words that document and stream share.

use serde_json::{Map, Value, json};

use crate::{
    domain::{
        completion::{Completion, FinishReason, Usage},
        ids::InvocationId,
        message::{Opaque, Part, Reasoning},
    },
    front::carried,
    provider::anthropic::{BLOCK, REDACTED, SIGNATURE},
};

/// The document of a whole answer.
pub(super) fn message(invocation: &InvocationId, completion: &Completion) -> Value {
    let content: Vec<Value> = completion.message.parts.iter().flat_map(blocks).collect();
    let mut message = begun(invocation, &completion.model, completion.usage);
    message["content"] = Value::Array(content);
    message["stop_reason"] = json!(stop_reason(completion));
    message
}

/// A message of which nothing was said yet.
pub(super) fn begun(invocation: &InvocationId, model: &str, usage: Usage) -> Value {
    json!({
        "id": format!("msg_{invocation}"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": self::usage(usage),
    })
}

/// Why the model stopped, in this protocol's words.
pub(super) fn stop_reason(completion: &Completion) -> &'static str {
    match completion.finish {
        FinishReason::Stop | FinishReason::Other if completion.finish_raw == "stop_sequence" => {
            "stop_sequence"
        }
        FinishReason::Stop | FinishReason::Other => "end_turn",
        FinishReason::ToolCalls | FinishReason::MalformedToolCall => "tool_use",
        FinishReason::Length => "max_tokens",
        FinishReason::ContextFull => "model_context_window_exceeded",
        FinishReason::ContentFilter | FinishReason::Refusal => "refusal",
        FinishReason::Paused => "pause_turn",
    }
}

/// What the answer cost, without the attempts that failed. This protocol counts cached tokens
/// apart.
pub(super) fn usage(usage: Usage) -> Value {
    let cached = usage
        .cached_input_tokens
        .saturating_add(usage.cache_write_tokens);
    json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
    })
}

/// The blocks of a part of the answer.
fn blocks(part: &Part) -> Vec<Value> {
    match part {
        Part::Text(text) | Part::Refusal(text) => vec![json!({"type": "text", "text": text})],
        Part::Reasoning(reasoning) => vec![thinking(reasoning)],
        Part::ToolCall(call) => {
            let mut blocks = Vec::from_iter(
                call.opaque
                    .as_ref()
                    .map(|opaque| before_call(opaque, &call.id)),
            );
            blocks.push(tool_use(&call.id, &call.name, &input(&call.arguments)));
            blocks
        }
        Part::Image(_) | Part::File(_) | Part::ToolResult(_) => Vec::new(),
    }
}

/// A block of thinking, with what its provider needs back.
fn thinking(reasoning: &Reasoning) -> Value {
    if let Some(block) = reasoning.opaque.as_ref().and_then(block_of) {
        return block;
    }
    let signature = reasoning.opaque.as_ref().map(signature).unwrap_or_default();
    json!({"type": "thinking", "thinking": reasoning.text, "signature": signature})
}

/// The block that is nothing but what the provider needs back; `None` where that is a signature of
/// a text.
pub(super) fn block_of(opaque: &Opaque) -> Option<Value> {
    let text = || String::from_utf8_lossy(&opaque.bytes);
    match opaque.kind.as_str() {
        REDACTED => Some(json!({"type": "redacted_thinking", "data": text()})),
        BLOCK => serde_json::from_slice(&opaque.bytes).ok(),
        _ => None,
    }
}

/// The signature of a thought: Anthropic's own as it is, any other one in an envelope.
pub(super) fn signature(opaque: &Opaque) -> String {
    if opaque.kind == SIGNATURE {
        String::from_utf8_lossy(&opaque.bytes).into_owned()
    } else {
        carried::seal(opaque, None)
    }
}

/// What a provider needs back with a tool call, for which this protocol's tool calls have no field.
pub(super) fn before_call(opaque: &Opaque, call: &str) -> Value {
    json!({"type": "redacted_thinking", "data": carried::seal(opaque, Some(call))})
}

/// A tool call.
pub(super) fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// The arguments as an object; what is none is kept as text under one key, so that it can be seen.
fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) | Err(_) => json!({"INVALID_JSON": arguments}),
    }
}
