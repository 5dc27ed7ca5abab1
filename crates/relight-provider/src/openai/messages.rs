//! Writes the neutral conversation as chat messages.
//!
//! Each tool result is a message of its own, right behind its call, whatever message it was in;
//! nothing is between a call and its results, which are texts: what a tool returned beside is in the
//! user's next message. Fields that only this dialect knows are written in
//! their message, or in their part of it.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::{
    BLOCK, ChatDialect,
    chunk::{CALL_FIELDS, MESSAGE_FIELDS},
    json::{ArrayWriter, ObjectWriter},
};
use crate::{
    domain::{
        message::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult},
        own_fields::{self, PartFields},
        target::Dialect,
    },
    tool_media::{behind_results, stated_type},
    turns::opaque_json,
};

/// Writes the conversation in this dialect. With `is_prefix` its last message, the assistant's, is
/// marked as the start of the completion.
pub(super) fn write(
    messages: &[Message],
    is_prefix: bool,
    dialect: &ChatDialect<'_>,
    into: &mut Vec<u8>,
) {
    let messages = &*behind_results(messages);
    let mut written = ArrayWriter::new(into);
    for (index, message) in messages.iter().enumerate() {
        let of_parts = own_fields::of_parts(Dialect::OpenaiChat, &message.parts);
        for (place, part) in message.parts.iter().enumerate() {
            if let Part::ToolResult(result) = part {
                let name = message
                    .name
                    .as_deref()
                    .filter(|_| message.role == Role::Tool);
                written.changed_by(
                    of_parts.get(&place),
                    |object| write_tool_result(result, name, object),
                    |own, result| own_fields::merge_into_result(result, "content", "text", own),
                );
            }
        }
        if let Some(role) = role(message, dialect) {
            written.object(|object| {
                object.word("role", role);
                if let Some(name) = &message.name {
                    object.text("name", name);
                }
                if message.role == Role::Assistant {
                    let is_begun = is_prefix && index + 1 == messages.len();
                    write_assistant(message, &of_parts, is_begun, dialect, object);
                } else {
                    write_content(message, &of_parts, object);
                    for (name, value) in own_fields::of_message(Dialect::OpenaiChat, &message.parts)
                    {
                        if !MESSAGE_FIELDS.contains(&name.as_str()) {
                            object.foreign_value(&name, &value);
                        }
                    }
                }
            });
        }
    }
    written.end();
}

/// Returns the role of what a message has beside its tool results; `None` if nothing is left.
fn role(message: &Message, dialect: &ChatDialect<'_>) -> Option<&'static str> {
    match message.role {
        Role::System => Some("system"),
        Role::Developer => Some(if dialect.developer_role {
            "developer"
        } else {
            "system"
        }),
        Role::Assistant => Some("assistant"),
        // Content beside results in one turn can only follow them as the user's.
        Role::User | Role::Tool => {
            // Blocks that only another dialect knows are not content here.
            let is_content = |part: &Part| match part {
                Part::ToolResult(_) => false,
                Part::Reasoning(_) => own_block(part).is_some(),
                _ => true,
            };
            let has_more = message.parts.iter().any(is_content);
            let is_bare = message.role == Role::User && message.parts.is_empty();
            (has_more || is_bare).then_some("user")
        }
    }
}

/// Writes plain text if there is nothing but text, for not every server accepts parts.
fn write_content(message: &Message, of_parts: &PartFields, object: &mut ObjectWriter<'_>) {
    let is_media = |part: &Part| matches!(part, Part::Image(_) | Part::File(_));
    if message.parts.iter().any(is_media) || has_parts_of_its_own(message, of_parts) {
        object.field("content", |into| write_parts(message, of_parts, into));
    } else {
        object.text("content", &message.joined_text());
    }
}

/// Returns whether a text has fields, or a part is a block, that only this dialect knows.
fn has_parts_of_its_own(message: &Message, of_parts: &PartFields) -> bool {
    if message.parts.iter().any(|part| own_block(part).is_some()) {
        return true;
    }
    let mut texts = of_parts
        .keys()
        .filter_map(|place| message.parts.get(*place));
    texts.any(|part| matches!(part, Part::Text(_) | Part::Refusal(_)))
}

fn write_parts(message: &Message, of_parts: &PartFields, into: &mut Vec<u8>) {
    let mut parts = ArrayWriter::new(into);
    for (place, part) in message.parts.iter().enumerate() {
        if let Some(block) = own_block(part) {
            parts.object(|object| {
                for (name, value) in &block {
                    object.foreign_value(name, value);
                }
            });
            continue;
        }
        let is_written = match part {
            Part::Text(_) | Part::Image(_) | Part::File(_) => true,
            Part::Refusal(_) => message.role == Role::Assistant,
            Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => false,
        };
        if is_written {
            parts.changed_by(
                of_parts.get(&place),
                |object| write_part(part, object),
                |own, part| own_fields::merge(part, own),
            );
        }
    }
    parts.end();
}

fn write_part(part: &Part, object: &mut ObjectWriter<'_>) {
    match part {
        Part::Text(text) => {
            object.word("type", "text");
            object.text("text", text);
        }
        Part::Refusal(text) => {
            object.word("type", "refusal");
            object.text("refusal", text);
        }
        Part::Image(media) => {
            object.word("type", "image_url");
            object.object("image_url", |image| {
                image.text("url", &url_of(media));
                if let Some(detail) = &media.detail {
                    image.text("detail", detail);
                }
            });
        }
        Part::File(media) => write_file(media, object),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => {}
    }
}

/// Returns the block that only this dialect knows, if a part is one.
fn own_block(part: &Part) -> Option<Map<String, Value>> {
    opaque_json(part.as_opaque(), BLOCK)
}

/// Writes the model's message; with `is_begun` it is marked as the beginning of the completion.
fn write_assistant(
    message: &Message,
    of_parts: &PartFields,
    is_begun: bool,
    dialect: &ChatDialect<'_>,
    object: &mut ObjectWriter<'_>,
) {
    let mut calls = false;
    let mut reasoning = String::new();
    let mut refusal = None;
    for part in &message.parts {
        match part {
            Part::ToolCall(_) => calls = true,
            Part::Reasoning(piece) => reasoning.push_str(&piece.text),
            Part::Refusal(text) => refusal = Some(text),
            Part::Text(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {}
        }
    }
    let text = message.joined_text();
    if has_parts_of_its_own(message, of_parts) {
        object.field("content", |into| write_parts(message, of_parts, into));
    } else {
        if text.is_empty() && (calls || refusal.is_some()) {
            object.value("content", Value::Null);
        } else {
            object.text("content", &text);
        }
        if let Some(refusal) = refusal {
            object.text("refusal", refusal);
        }
    }
    if let Some(field) = &dialect.options.reasoning_field
        && !reasoning.is_empty()
    {
        object.foreign_text(field, &reasoning);
    }
    if calls {
        object.field("tool_calls", |into| {
            let mut written = ArrayWriter::new(into);
            for part in &message.parts {
                if let Part::ToolCall(call) = part {
                    written.object(|object| write_tool_call(call, object));
                }
            }
            written.end();
        });
    }
    if is_begun {
        object.value("prefix", true);
    }
    for (name, value) in own_fields::of_message(Dialect::OpenaiChat, &message.parts) {
        let is_written = MESSAGE_FIELDS.contains(&name.as_str())
            || (is_begun && name == "prefix")
            || dialect.options.reasoning_field.as_ref() == Some(&name);
        if !is_written {
            object.foreign_value(&name, &value);
        }
    }
}

fn write_tool_call(call: &ToolCall, object: &mut ObjectWriter<'_>) {
    object.text("id", &call.id);
    object.word("type", "function");
    object.object("function", |function| {
        function.text("name", &call.name);
        function.text(
            "arguments",
            if call.arguments.trim().is_empty() {
                "{}"
            } else {
                &call.arguments
            },
        );
    });
    let own = call.opaque.as_ref();
    let own = own.and_then(|opaque| own_fields::read(Dialect::OpenaiChat, opaque));
    for (name, value) in own.iter().flatten() {
        if !CALL_FIELDS.contains(&name.as_str()) {
            object.foreign_value(name, value);
        }
    }
}

/// Writes a tool's result. The dialect has no mark for a failed tool, so the text states it.
fn write_tool_result(result: &ToolResult, name: Option<&str>, object: &mut ObjectWriter<'_>) {
    object.word("role", "tool");
    if let Some(name) = name {
        object.text("name", name);
    }
    object.text("tool_call_id", &result.call_id);
    if result.is_error && !result.content.starts_with("Error") {
        object.text("content", &format!("Error: {}", result.content));
    } else {
        object.text("content", &result.content);
    }
}

fn write_file(media: &Media, part: &mut ObjectWriter<'_>) {
    let kind = stated_type(media);
    if let (Some(format), MediaSource::Bytes(bytes)) = (kind.strip_prefix("audio/"), &media.source)
    {
        let format = match format.trim_start_matches("x-") {
            "mpeg" => "mp3",
            "wave" => "wav",
            format => format,
        };
        part.word("type", "input_audio");
        part.object("input_audio", |audio| {
            audio.text("data", &STANDARD.encode(bytes));
            audio.text("format", format);
        });
        return;
    }
    part.word("type", "file");
    part.object("file", |file| {
        file.text("filename", media.name.as_deref().unwrap_or("file"));
        file.text("file_data", &url_of(media));
    });
}

fn url_of(media: &Media) -> Cow<'_, str> {
    match &media.source {
        MediaSource::Url(url) => Cow::Borrowed(url),
        MediaSource::Bytes(bytes) => format!(
            "data:{};base64,{}",
            stated_type(media),
            STANDARD.encode(bytes)
        )
        .into(),
    }
}
