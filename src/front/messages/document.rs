//! The whole completion as a message of this protocol, and the words that document and stream share.

use std::mem;

use serde_json::{Map, Value, json};

use crate::{
    domain::{
        completion::{Completion, Usage},
        ids::InvocationId,
        message::{Opaque, Part, Reasoning},
        own_fields::{self, CITATIONS},
        stop_reason,
        target::Dialect,
    },
    front::carried,
    provider::anthropic::{BLOCK, REDACTED, SIGNATURE},
};

/// Returns the document of a whole completion; `only_stop` as in [`end`].
pub(super) fn message(
    invocation: &InvocationId,
    completion: &Completion,
    only_stop: Option<&str>,
) -> Value {
    let content = content(&completion.message.parts);
    let mut message = begun(invocation, &completion.model, completion.usage);
    message["content"] = Value::Array(content);
    own_fields::merge(&mut message, &end(completion, only_stop));
    message
}

/// Returns the end of a message: the reason for it, the sequence at which the completion stopped (known
/// if the provider states it, or the request names one alone), the words in which the model refused,
/// the cost, and what else the provider says around a completion in this protocol.
pub(super) fn end(completion: &Completion, only_stop: Option<&str>) -> Map<String, Value> {
    let reason = stop_reason::in_messages(completion.finish, &completion.finish_raw);
    let sequence = only_stop.filter(|_| reason == "stop_sequence");
    let mut end = json!({"stop_reason": reason, "stop_sequence": sequence});
    let words = completion
        .message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Refusal(words) => Some(words.as_str()),
            _ => None,
        });
    let words: String = words.collect();
    if !words.is_empty() {
        end["stop_details"] = json!({"type": "refusal", "category": null, "explanation": words});
    }
    end["usage"] = usage(completion.usage);
    let around = own_fields::fields_in(Dialect::Anthropic, completion.around.as_ref());
    own_fields::merge(&mut end, &around);
    end.as_object_mut().map(mem::take).unwrap_or_default()
}

/// Returns a message of which nothing was said yet.
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

/// Returns a message that began with what its provider says around it, if that speaks this
/// protocol. At which sequence it stopped is known at its end alone.
pub(super) fn begun_with(mut begun: Value, around: Option<&Opaque>) -> Value {
    let mut around = own_fields::fields_in(Dialect::Anthropic, around);
    around.shift_remove("stop_sequence");
    own_fields::merge(&mut begun, &around);
    begun
}

/// Returns the cost of the completion, without the attempts that failed. This protocol counts cached
/// tokens apart.
pub(super) fn usage(usage: Usage) -> Value {
    let read = usage.cached_input_tokens;
    let written = usage.cache_write_tokens;
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    let mut counts = json!({
        "input_tokens": usage.input_tokens.saturating_sub(cached),
        "output_tokens": usage.output_tokens,
    });
    for (name, tokens) in [
        ("cache_creation_input_tokens", written),
        ("cache_read_input_tokens", read),
    ] {
        if let Some(tokens) = tokens {
            counts[name] = json!(tokens);
        }
    }
    counts
}

/// Returns the blocks of a completion, its texts with their citations.
fn content(parts: &[Part]) -> Vec<Value> {
    let mut content: Vec<Value> = Vec::with_capacity(parts.len());
    for part in parts {
        if let Some(citations) = part.as_opaque().and_then(citations)
            && let Some(text) = content.last_mut().filter(|last| last["type"] == "text")
        {
            text[CITATIONS] = Value::Array(citations);
        } else {
            content.extend(blocks(part));
        }
    }
    content
}

/// Returns the citations of the text before; `None` if it is something else that a provider needs
/// back.
pub(super) fn citations(opaque: &Opaque) -> Option<Vec<Value>> {
    match own_fields::read(Dialect::Anthropic, opaque)?.remove(CITATIONS) {
        Some(Value::Array(citations)) => Some(citations),
        _ => None,
    }
}

/// Returns the blocks of a part of the completion.
fn blocks(part: &Part) -> Vec<Value> {
    match part {
        Part::Text(text) => vec![json!({"type": "text", "text": text})],
        Part::Reasoning(reasoning) => vec![thinking(reasoning)],
        Part::ToolCall(call) => {
            let (before, own) = of_call(call.opaque.as_ref(), &call.id);
            let mut whole = tool_use(&call.id, &call.name, &input(&call.arguments));
            own_fields::merge(&mut whole, &own);
            before.into_iter().chain([whole]).collect()
        }
        // The end of the message has it.
        Part::Refusal(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => Vec::new(),
    }
}

/// Returns a block of thinking, with what its provider needs back.
fn thinking(reasoning: &Reasoning) -> Value {
    if let Some(block) = reasoning.opaque.as_ref().and_then(block_of) {
        return block;
    }
    let signature = reasoning.opaque.as_ref().map(signature).unwrap_or_default();
    json!({"type": "thinking", "thinking": reasoning.text, "signature": signature})
}

/// Returns the block that is nothing but the part that the provider needs back; `None` if that is a
/// signature of a text.
pub(super) fn block_of(opaque: &Opaque) -> Option<Value> {
    let text = || String::from_utf8_lossy(&opaque.bytes);
    match opaque.kind.as_str() {
        REDACTED => Some(json!({"type": "redacted_thinking", "data": text()})),
        BLOCK => serde_json::from_slice(&opaque.bytes).ok(),
        _ => None,
    }
}

/// Returns the signature of a thought: Anthropic's own as it is, any other one in an envelope.
pub(super) fn signature(opaque: &Opaque) -> String {
    if opaque.kind == SIGNATURE {
        String::from_utf8_lossy(&opaque.bytes).into_owned()
    } else {
        carried::seal(opaque, None)
    }
}

/// Returns what a provider needs back with a tool call: the block before it, for what this
/// protocol's tool calls have no field for, or else their own fields.
pub(super) fn of_call(opaque: Option<&Opaque>, call: &str) -> (Option<Value>, Map<String, Value>) {
    let own = opaque.and_then(|opaque| own_fields::read(Dialect::Anthropic, opaque));
    let before = opaque.filter(|_| own.is_none()).map(
        |opaque| json!({"type": "redacted_thinking", "data": carried::seal(opaque, Some(call))}),
    );
    (before, own.unwrap_or_default())
}

/// Returns a tool call.
pub(super) fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

/// Returns the arguments as an object; anything else is kept as text under one key, so that it can
/// be seen.
fn input(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) | Err(_) => json!({"INVALID_JSON": arguments}),
    }
}
