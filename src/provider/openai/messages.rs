//! Translates the neutral conversation into chat messages.
//!
//! Each tool result is a message of its own, right behind its call, whatever message it was in; nothing is between a
//! call and its results.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    ChatDialect,
    json::{Json, JsonObject},
};
use crate::domain::message::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};

/// The conversation in this dialect.
pub(super) fn translate<'a>(messages: &'a [Message], dialect: &'a ChatDialect<'_>) -> Vec<JsonObject<'a>> {
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
fn said<'a>(message: &'a Message, dialect: &'a ChatDialect<'_>) -> Option<JsonObject<'a>> {
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

fn with_content<'a>(role: &'a str, message: &'a Message) -> JsonObject<'a> {
    JsonObject::of([("role", role.into()), ("content", content(message))])
}

/// Plain text where there is nothing but text, for not every server accepts parts.
fn content(message: &Message) -> Json<'_> {
    let has_media = message.parts.iter().any(|part| matches!(part, Part::Image(_) | Part::File(_)));
    if !has_media {
        return message.joined_text().into();
    }
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(JsonObject::of([("type", "text".into()), ("text", text.into())]).into()),
        Part::Image(media) => {
            let url = JsonObject::of([("url", url_of(media).into())]);
            Some(JsonObject::of([("type", "image_url".into()), ("image_url", url.into())]).into())
        }
        Part::File(media) => Some(file(media)),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Refusal(_) => None,
    });
    Json::Array(parts.collect())
}

fn assistant<'a>(message: &'a Message, dialect: &'a ChatDialect<'_>) -> JsonObject<'a> {
    let mut fields = JsonObject::of([("role", "assistant".into())]);
    let mut calls = Vec::new();
    let mut reasoning = String::new();
    let mut refusal = None;
    for part in &message.parts {
        match part {
            Part::ToolCall(call) => calls.push(tool_call(call).into()),
            Part::Reasoning(piece) => reasoning.push_str(&piece.text),
            Part::Refusal(text) => refusal = Some(text),
            Part::Text(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
        }
    }
    let text = message.joined_text();
    let says_nothing = text.is_empty() && (!calls.is_empty() || refusal.is_some());
    fields.set("content", if says_nothing { Json::Value(Value::Null) } else { text.into() });
    if let Some(refusal) = refusal {
        fields.set("refusal", refusal);
    }
    if let Some(field) = &dialect.options.reasoning_field
        && !reasoning.is_empty()
    {
        fields.set(field, reasoning);
    }
    if !calls.is_empty() {
        fields.set("tool_calls", Json::Array(calls));
    }
    fields
}

fn tool_call(call: &ToolCall) -> JsonObject<'_> {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let function = JsonObject::of([("name", (&call.name).into()), ("arguments", arguments.into())]);
    JsonObject::of([("id", (&call.id).into()), ("type", "function".into()), ("function", function.into())])
}

/// The dialect has no mark for a failed tool, so the text states it.
fn tool_result(result: &ToolResult) -> JsonObject<'_> {
    let content = if result.is_error && !result.content.starts_with("Error") {
        Cow::Owned(format!("Error: {}", result.content))
    } else {
        Cow::Borrowed(result.content.as_str())
    };
    JsonObject::of([("role", "tool".into()), ("tool_call_id", (&result.call_id).into()), ("content", content.into())])
}

fn file(media: &Media) -> Json<'_> {
    if let (Some(format), MediaSource::Bytes(bytes)) = (media.mime_type.strip_prefix("audio/"), &media.source) {
        let format = if format == "mpeg" { "mp3" } else { format.trim_start_matches("x-") };
        return json!({"type": "input_audio", "input_audio": {"data": STANDARD.encode(bytes), "format": format}})
            .into();
    }
    let name = media.name.as_deref().unwrap_or("file");
    let file = JsonObject::of([("filename", name.into()), ("file_data", url_of(media).into())]);
    JsonObject::of([("type", "file".into()), ("file", file.into())]).into()
}

fn url_of(media: &Media) -> Cow<'_, str> {
    match &media.source {
        MediaSource::Url(url) => Cow::Borrowed(url),
        MediaSource::Bytes(bytes) => format!("data:{};base64,{}", media.mime_type, STANDARD.encode(bytes)).into(),
    }
}
