//! Translates the neutral conversation into items.
//!
//! Outputs of tools come right behind their calls, whatever message they were in; a reasoning item
//! is sent back only with the item that it led to, for the server rejects one without the other.
//! Items that came from this dialect go back as they came.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{ACTIONS, ITEM, NAMESPACE, REASONING, custom_input};
use crate::{
    domain::message::{Media, MediaSource, Message, Opaque, Part, Role, ToolCall, ToolResult},
    provider::turns::opaque_text,
};

/// The conversation in this dialect; `custom` are the names of the tools that take a text and no
/// JSON.
pub(super) fn translate(messages: &[Message], custom: &[&str]) -> Vec<Value> {
    let mut items = Vec::with_capacity(messages.len());
    for message in messages {
        match message.role {
            Role::Assistant => models(message, custom, &mut items),
            Role::System | Role::Developer | Role::User | Role::Tool => {
                items.extend(message.parts.iter().filter_map(|part| match part {
                    Part::ToolResult(result) => Some(output(result, custom)),
                    _ => None,
                }));
                items.extend(message_item(message));
            }
        }
    }
    items
}

/// The message beside its tool results; `None` where nothing is left.
fn message_item(message: &Message) -> Option<Value> {
    let role = match message.role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User | Role::Tool | Role::Assistant => "user",
    };
    let content: Vec<Value> = message.parts.iter().filter_map(content).collect();
    (!content.is_empty()).then(|| json!({"type": "message", "role": role, "content": content}))
}

fn content(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            (!text.is_empty()).then(|| json!({"type": "input_text", "text": text}))
        }
        Part::Image(media) => {
            let detail = media.detail.as_deref().unwrap_or("auto");
            Some(json!({"type": "input_image", "image_url": url_of(media), "detail": detail}))
        }
        Part::File(media) => Some(file(media)),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

/// The model's turn: neighbouring texts are one message; reasoning waits for what it led to.
fn models(message: &Message, custom: &[&str], items: &mut Vec<Value>) {
    let mut waiting: Vec<Value> = Vec::new();
    let mut texts: Vec<Value> = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) if !text.is_empty() => {
                items.append(&mut waiting);
                texts.push(json!({"type": "output_text", "text": text}));
            }
            Part::Refusal(text) if !text.is_empty() => {
                items.append(&mut waiting);
                texts.push(json!({"type": "refusal", "refusal": text}));
            }
            Part::Reasoning(piece) => {
                flush(&mut texts, items);
                waiting.extend(own_item(piece.opaque.as_ref(), REASONING));
                if let Some(item) = own_item(piece.opaque.as_ref(), ITEM) {
                    items.append(&mut waiting);
                    items.push(item);
                }
            }
            Part::ToolCall(call) => {
                flush(&mut texts, items);
                items.append(&mut waiting);
                items.push(tool_call(call, custom));
            }
            // The API takes no pictures and no results from the model.
            Part::Text(_)
            | Part::Refusal(_)
            | Part::Image(_)
            | Part::File(_)
            | Part::ToolResult(_) => {}
        }
    }
    flush(&mut texts, items);
}

fn flush(texts: &mut Vec<Value>, items: &mut Vec<Value>) {
    if !texts.is_empty() {
        items.push(
            json!({"type": "message", "role": "assistant", "content": std::mem::take(texts)}),
        );
    }
}

/// An item of this dialect that is kept as it came.
fn own_item(opaque: Option<&Opaque>, kind: &str) -> Option<Value> {
    serde_json::from_str::<Value>(opaque_text(opaque, kind)?)
        .ok()
        .filter(Value::is_object)
}

fn tool_call(call: &ToolCall, custom: &[&str]) -> Value {
    if let Some(item) = own_item(call.opaque.as_ref(), ITEM) {
        return item;
    }
    if custom.contains(&call.name.as_str()) {
        let input = custom_input(&call.arguments);
        return json!({"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": input});
    }
    let arguments = if call.arguments.trim().is_empty() {
        "{}"
    } else {
        &call.arguments
    };
    let mut item = json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments});
    if let Some(namespace) = opaque_text(call.opaque.as_ref(), NAMESPACE) {
        item["namespace"] = json!(namespace);
    }
    item
}

/// The dialect has no mark for a failed tool, so the text states it. The result of an action is the
/// item that it came in.
fn output(result: &ToolResult, custom: &[&str]) -> Value {
    if ACTIONS.contains(&result.name.as_str())
        && let Ok(item) = serde_json::from_str::<Value>(&result.content)
        && item["call_id"] == result.call_id
    {
        return item;
    }
    let output = if result.is_error && !result.content.starts_with("Error") {
        format!("Error: {}", result.content)
    } else {
        result.content.clone()
    };
    let is_custom = custom.contains(&result.name.as_str());
    let kind = if is_custom {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    json!({"type": kind, "call_id": result.call_id, "output": output})
}

fn file(media: &Media) -> Value {
    match &media.source {
        MediaSource::Url(url) => json!({"type": "input_file", "file_url": url}),
        MediaSource::Bytes(_) => {
            let name = media.name.as_deref().unwrap_or("file");
            json!({"type": "input_file", "filename": name, "file_data": url_of(media)})
        }
    }
}

fn url_of(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Bytes(bytes) => {
            format!("data:{};base64,{}", media.mime_type, STANDARD.encode(bytes))
        }
    }
}
