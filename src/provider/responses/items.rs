//! Translates the neutral conversation into items.
//!
//! Outputs of tools come right behind their calls, whatever message they were in; a reasoning item is sent back only
//! with the item that it led to, for the server rejects one without the other.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::REASONING;
use crate::{
    domain::message::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult},
    provider::turns::opaque_text,
};

/// The conversation in this dialect.
pub(super) fn translate(messages: &[Message]) -> Vec<Value> {
    let mut items = Vec::with_capacity(messages.len());
    for message in messages {
        match message.role {
            Role::Assistant => models(message, &mut items),
            Role::System | Role::Developer | Role::User | Role::Tool => {
                items.extend(message.parts.iter().filter_map(|part| match part {
                    Part::ToolResult(result) => Some(output(result)),
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
fn models(message: &Message, items: &mut Vec<Value>) {
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
                let item = opaque_text(piece.opaque.as_ref(), REASONING);
                waiting.extend(item.and_then(|item| serde_json::from_str::<Value>(item).ok()).filter(Value::is_object));
            }
            Part::ToolCall(call) => {
                flush(&mut texts, items);
                items.append(&mut waiting);
                items.push(function_call(call));
            }
            // The API takes no pictures and no results from the model.
            Part::Text(_) | Part::Refusal(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
        }
    }
    flush(&mut texts, items);
}

fn flush(texts: &mut Vec<Value>, items: &mut Vec<Value>) {
    if !texts.is_empty() {
        items.push(json!({"type": "message", "role": "assistant", "content": std::mem::take(texts)}));
    }
}

fn function_call(call: &ToolCall) -> Value {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments})
}

/// The dialect has no mark for a failed tool, so the text states it.
fn output(result: &ToolResult) -> Value {
    let output = if result.is_error && !result.content.starts_with("Error") {
        format!("Error: {}", result.content)
    } else {
        result.content.clone()
    };
    json!({"type": "function_call_output", "call_id": result.call_id, "output": output})
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
        MediaSource::Bytes(bytes) => format!("data:{};base64,{}", media.mime_type, STANDARD.encode(bytes)),
    }
}
