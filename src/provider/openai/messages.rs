//! Writes the neutral conversation as chat messages.
//!
//! Each tool result is a message of its own, right behind its call, whatever message it was in;
//! nothing is between a call and its results.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    ChatDialect,
    json::{ArrayWriter, ObjectWriter},
};
use crate::domain::message::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};

/// Writes the conversation in this dialect. With `is_prefix` its last message, the assistant's, is
/// marked as the beginning of the answer.
pub(super) fn write(
    messages: &[Message],
    is_prefix: bool,
    dialect: &ChatDialect<'_>,
    into: &mut Vec<u8>,
) {
    let mut written = ArrayWriter::new(into);
    for (index, message) in messages.iter().enumerate() {
        for part in &message.parts {
            if let Part::ToolResult(result) = part {
                written.object(|object| write_tool_result(result, object));
            }
        }
        if let Some(role) = role(message, dialect) {
            written.object(|object| {
                object.word("role", role);
                if let Some(name) = &message.name {
                    object.text("name", name);
                }
                if message.role == Role::Assistant {
                    write_assistant(message, dialect, object);
                } else {
                    write_content(message, object);
                }
                if is_prefix && index + 1 == messages.len() {
                    object.value("prefix", true);
                }
            });
        }
    }
    written.end();
}

/// The role of what a message has beside its tool results; `None` where nothing is left.
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
            let has_more = message
                .parts
                .iter()
                .any(|part| !matches!(part, Part::ToolResult(_)));
            let is_bare = message.role == Role::User && message.parts.is_empty();
            (has_more || is_bare).then_some("user")
        }
    }
}

/// Writes plain text where there is nothing but text, for not every server accepts parts.
fn write_content(message: &Message, object: &mut ObjectWriter<'_>) {
    if !message
        .parts
        .iter()
        .any(|part| matches!(part, Part::Image(_) | Part::File(_)))
    {
        object.text("content", &message.joined_text());
        return;
    }
    object.field("content", |into| {
        let mut parts = ArrayWriter::new(into);
        for part in &message.parts {
            match part {
                Part::Text(text) => parts.object(|part| {
                    part.word("type", "text");
                    part.text("text", text);
                }),
                Part::Image(media) => parts.object(|part| {
                    part.word("type", "image_url");
                    part.object("image_url", |image| {
                        image.text("url", &url_of(media));
                        if let Some(detail) = &media.detail {
                            image.text("detail", detail);
                        }
                    });
                }),
                Part::File(media) => parts.object(|part| write_file(media, part)),
                Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) | Part::Refusal(_) => {
                }
            }
        }
        parts.end();
    });
}

fn write_assistant(message: &Message, dialect: &ChatDialect<'_>, object: &mut ObjectWriter<'_>) {
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
    if text.is_empty() && (calls || refusal.is_some()) {
        object.value("content", Value::Null);
    } else {
        object.text("content", &text);
    }
    if let Some(refusal) = refusal {
        object.text("refusal", refusal);
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
}

/// Writes a tool's result. The dialect has no mark for a failed tool, so the text states it.
fn write_tool_result(result: &ToolResult, object: &mut ObjectWriter<'_>) {
    object.word("role", "tool");
    object.text("tool_call_id", &result.call_id);
    if result.is_error && !result.content.starts_with("Error") {
        object.text("content", &format!("Error: {}", result.content));
    } else {
        object.text("content", &result.content);
    }
}

fn write_file(media: &Media, part: &mut ObjectWriter<'_>) {
    if let (Some(format), MediaSource::Bytes(bytes)) =
        (media.mime_type.strip_prefix("audio/"), &media.source)
    {
        let format = if format == "mpeg" {
            "mp3"
        } else {
            format.trim_start_matches("x-")
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
        MediaSource::Bytes(bytes) => {
            format!("data:{};base64,{}", media.mime_type, STANDARD.encode(bytes)).into()
        }
    }
}
