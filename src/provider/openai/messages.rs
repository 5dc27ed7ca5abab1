//! Translates the neutral conversation into chat messages.
//!
//! Each tool result is a message of its own, right behind its call, whatever message it was in; nothing is between a
//! call and its results.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::ChatDialect;
use crate::domain::message::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};

/// The conversation in this dialect.
pub(super) fn translate(messages: &[Message], dialect: &ChatDialect<'_>) -> Vec<Value> {
    let mut translated = Vec::with_capacity(messages.len());
    for message in messages {
        for part in &message.parts {
            if let Part::ToolResult(result) = part {
                translated.push(tool_result(result));
            }
        }
        translated.extend(said(message, dialect));
    }
    translated
}

/// The message beside its tool results; `None` where nothing is left.
fn said(message: &Message, dialect: &ChatDialect<'_>) -> Option<Value> {
    match message.role {
        Role::System => Some(with_content("system", message)),
        Role::Developer => Some(with_content(if dialect.developer_role { "developer" } else { "system" }, message)),
        Role::Assistant => Some(assistant(message, dialect)),
        // Content beside results in one turn can only follow them as the user's.
        Role::User | Role::Tool => {
            let has_more = message.parts.iter().any(|part| !matches!(part, Part::ToolResult(_)));
            let is_bare = message.role == Role::User && message.parts.is_empty();
            (has_more || is_bare).then(|| with_content("user", message))
        }
    }
}

fn with_content(role: &str, message: &Message) -> Value {
    json!({"role": role, "content": content(message)})
}

/// Plain text where there is nothing but text, for not every server accepts parts.
fn content(message: &Message) -> Value {
    let has_media = message.parts.iter().any(|part| matches!(part, Part::Image(_) | Part::File(_)));
    if !has_media {
        return Value::String(message.joined_text());
    }
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Image(media) => Some(json!({"type": "image_url", "image_url": {"url": url_of(media)}})),
        Part::File(media) => Some(file(media)),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Refusal(_) => None,
    });
    Value::Array(parts.collect())
}

fn assistant(message: &Message, dialect: &ChatDialect<'_>) -> Value {
    let mut fields = Map::new();
    fields.insert("role".to_owned(), json!("assistant"));
    let mut calls = Vec::new();
    let mut reasoning = String::new();
    let mut refusal = None;
    for part in &message.parts {
        match part {
            Part::ToolCall(call) => calls.push(tool_call(call)),
            Part::Reasoning(piece) => reasoning.push_str(&piece.text),
            Part::Refusal(text) => refusal = Some(text),
            Part::Text(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
        }
    }
    let text = message.joined_text();
    let says_nothing = text.is_empty() && (!calls.is_empty() || refusal.is_some());
    fields.insert("content".to_owned(), if says_nothing { Value::Null } else { Value::String(text) });
    if let Some(refusal) = refusal {
        fields.insert("refusal".to_owned(), json!(refusal));
    }
    if let Some(field) = &dialect.options.reasoning_field
        && !reasoning.is_empty()
    {
        fields.insert(field.clone(), Value::String(reasoning));
    }
    if !calls.is_empty() {
        fields.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(fields)
}

fn tool_call(call: &ToolCall) -> Value {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

/// The dialect has no mark for a failed tool, so the text states it.
fn tool_result(result: &ToolResult) -> Value {
    let content = if result.is_error && !result.content.starts_with("Error") {
        format!("Error: {}", result.content)
    } else {
        result.content.clone()
    };
    json!({"role": "tool", "tool_call_id": result.call_id, "content": content})
}

fn file(media: &Media) -> Value {
    if let (Some(format), MediaSource::Bytes(bytes)) = (media.mime_type.strip_prefix("audio/"), &media.source) {
        let format = if format == "mpeg" { "mp3" } else { format.trim_start_matches("x-") };
        return json!({"type": "input_audio", "input_audio": {"data": STANDARD.encode(bytes), "format": format}});
    }
    let name = media.name.as_deref().unwrap_or("file");
    json!({"type": "file", "file": {"filename": name, "file_data": url_of(media)}})
}

fn url_of(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Bytes(bytes) => format!("data:{};base64,{}", media.mime_type, STANDARD.encode(bytes)),
    }
}
