//! Messages of a conversation, both ways: what the domain holds is read back from the wire
//! unchanged.
//!
//! Opaque values and raw arguments pass through unchanged: nothing is merged, split or re-encoded.

use std::collections::HashMap;

use super::{
    enums::{IntoDomain as _, IntoProto as _},
    violation::{Path, Violations},
};
use crate::{
    domain::{
        message::{
            Media, MediaSource, Message, Opaque, Part, Reasoning, Role, ToolCall, ToolResult,
        },
        tool::ToolContent,
    },
    grpc::v1,
};
use v1::part::Content;

/// Longest name of a speaker, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A message as the contract has it. `by_relight` marks its parts as written by Relight.
#[must_use]
pub fn wire_message(message: &Message, by_relight: bool) -> v1::Message {
    v1::Message {
        role: message.role.into_proto().into(),
        parts: message
            .parts
            .iter()
            .map(|part| wire_part(part, by_relight))
            .collect(),
        name: message.name.clone().unwrap_or_default(),
        opaque: Vec::new(),
        text: String::new(),
    }
}

/// An opaque value as the contract has it.
#[must_use]
pub fn wire_opaque(opaque: &Opaque) -> v1::Opaque {
    v1::Opaque {
        kind: opaque.kind.clone(),
        origin: String::new(),
        data: opaque.bytes.clone(),
    }
}

pub(super) fn read_messages(
    at: &Path<'_>,
    wire: Vec<v1::Message>,
    faults: &mut Violations,
) -> Vec<Message> {
    let mut reader = Reader {
        faults,
        tools: HashMap::new(),
    };
    wire.into_iter()
        .enumerate()
        .map(|(index, message)| reader.message(&at.item(index), message))
        .collect()
}

/// Reads one conversation; tracks the tool calls so far.
struct Reader<'v> {
    faults: &'v mut Violations,
    /// Name of the tool, by the call's id.
    tools: HashMap<String, String>,
}

// === impl Reader ===

impl Reader<'_> {
    fn message(&mut self, at: &Path<'_>, wire: v1::Message) -> Message {
        let role = match v1::Role::try_from(wire.role).map(v1::Role::into_domain) {
            Ok(Ok(role)) => Some(role),
            Ok(Err(_)) => self.fault(at.field("role"), "is not set"),
            Err(_) => self.fault(at.field("role"), format!("{} is no role", wire.role)),
        };
        if wire.parts.is_empty() && wire.text.is_empty() && role != Some(Role::Assistant) {
            self.faults.add(
                at.field("parts"),
                "is empty, as is `text`; only an assistant's message may be",
            );
        } else if !wire.parts.is_empty() && !wire.text.is_empty() {
            self.faults
                .add(at.field("text"), "is set beside `parts`; give one of them");
        }
        if wire.name.len() > MAX_NAME_BYTES {
            self.faults.add(
                at.field("name"),
                format!("is longer than {MAX_NAME_BYTES} bytes"),
            );
        }
        if !wire.opaque.is_empty() {
            self.faults.add(
                at.field("opaque"),
                "cannot be kept on a message; only on its reasoning and tool calls",
            );
        }
        let parts = wire.parts.into_iter().enumerate();
        let parts =
            parts.filter_map(|(index, part)| self.part(&at.field("parts").item(index), role, part));
        let short = (!wire.text.is_empty()).then_some(Part::Text(wire.text));
        let parts = parts.chain(short).collect();
        let name = (!wire.name.is_empty()).then_some(wire.name);
        Message {
            name,
            ..Message::new(role.unwrap_or(Role::User), parts)
        }
    }

    fn part(&mut self, at: &Path<'_>, role: Option<Role>, wire: v1::Part) -> Option<Part> {
        let opaque_at = at.field("opaque");
        let Some(content) = wire.content else {
            return self.fault(at, "holds nothing; exactly one kind of content is required");
        };
        if wire.left_out_bytes > 0 {
            self.faults.add(
                at.field("left_out_bytes"),
                "is set; put the text of the answer that was left out here in its place",
            );
        }
        if !wire.opaque.is_empty()
            && !matches!(content, Content::Reasoning(_) | Content::ToolCall(_))
        {
            self.faults.add(
                opaque_at,
                "cannot be kept on this kind of part; only on reasoning and tool calls",
            );
        }
        match content {
            Content::Text(text) => {
                if text.text.is_empty() && role != Some(Role::Assistant) {
                    self.faults.add(
                        at.field("text").field("text"),
                        "is empty; only a model's own text may be",
                    );
                }
                Some(Part::Text(text.text))
            }
            Content::Image(image) => self.image(&at.field("image"), image).map(Part::Image),
            Content::File(file) => self.file(&at.field("file"), file).map(Part::File),
            Content::Reasoning(reasoning) => {
                let opaque = self.opaque(&opaque_at, wire.opaque);
                Some(Part::Reasoning(Reasoning {
                    text: reasoning.text,
                    opaque,
                }))
            }
            Content::ToolCall(call) => {
                let opaque = self.opaque(&opaque_at, wire.opaque);
                Some(Part::ToolCall(self.tool_call(
                    &at.field("tool_call"),
                    call,
                    opaque,
                )))
            }
            Content::ToolResult(result) => Some(Part::ToolResult(
                self.tool_result(&at.field("tool_result"), result),
            )),
            Content::Refusal(refusal) => Some(Part::Refusal(refusal.text)),
            Content::ProviderItem(_) => {
                self.fault(at.field("provider_item"), "cannot be kept by this version")
            }
        }
    }

    fn opaque(&mut self, at: &Path<'_>, mut wire: Vec<v1::Opaque>) -> Option<Opaque> {
        for (index, opaque) in wire.iter().enumerate() {
            if opaque.kind.is_empty() {
                self.faults.add(at.item(index).field("kind"), "is empty");
            }
        }
        if wire.len() > 1 {
            return self.fault(
                at,
                format!(
                    "holds {} values; at most one can be kept on a part",
                    wire.len()
                ),
            );
        }
        wire.pop().map(|opaque| Opaque {
            kind: opaque.kind,
            bytes: opaque.data,
        })
    }

    fn tool_call(
        &mut self,
        at: &Path<'_>,
        wire: v1::ToolCallPart,
        opaque: Option<Opaque>,
    ) -> ToolCall {
        if wire.id.is_empty() {
            self.faults.add(at.field("id"), "is empty");
        } else if self
            .tools
            .insert(wire.id.clone(), wire.name.clone())
            .is_some()
        {
            self.faults.add(
                at.field("id"),
                "is the id of an earlier call in this conversation",
            );
        }
        if wire.name.is_empty() {
            self.faults.add(at.field("name"), "is empty");
        }
        ToolCall {
            id: wire.id,
            name: wire.name,
            arguments: wire.arguments_json,
            opaque,
        }
    }

    fn tool_result(&mut self, at: &Path<'_>, wire: v1::ToolResultPart) -> ToolResult {
        if wire.call_id.is_empty() {
            self.faults.add(at.field("call_id"), "is empty");
        }
        let mut texts = Vec::with_capacity(wire.content.len());
        for (index, piece) in wire.content.into_iter().enumerate() {
            let content_at = at.field("content");
            match piece.content {
                Some(v1::tool_content::Content::Text(text)) => texts.push(text.text),
                Some(v1::tool_content::Content::Image(_) | v1::tool_content::Content::File(_)) => {
                    self.faults.add(
                        content_at.item(index),
                        "is no text; only text can be kept in a tool's result",
                    );
                }
                None => self.faults.add(content_at.item(index), "holds nothing"),
            }
        }
        // Where a tool returned structured data alone, that is its content.
        let content = match wire.structured_json {
            Some(structured) if texts.is_empty() => structured,
            _ => texts.join("\n"),
        };
        let name = if wire.name.is_empty() {
            self.tools.get(&wire.call_id).cloned()
        } else {
            Some(wire.name)
        };
        let name = name.unwrap_or_default();
        ToolResult {
            call_id: wire.call_id,
            name,
            content,
            is_error: wire.is_error,
        }
    }

    fn image(&mut self, at: &Path<'_>, wire: v1::ImagePart) -> Option<Media> {
        let source = match wire.source {
            Some(v1::image_part::Source::Data(bytes)) => self.bytes(at, bytes, &wire.mime_type),
            Some(v1::image_part::Source::Url(url)) => self.url(at, url),
            None => self.fault(at, "has no source; one of data, url is required"),
        };
        let detail = (!wire.detail.is_empty()).then_some(wire.detail);
        source.map(|source| Media {
            mime_type: wire.mime_type,
            source,
            name: None,
            detail,
        })
    }

    fn file(&mut self, at: &Path<'_>, wire: v1::FilePart) -> Option<Media> {
        let source = match wire.source {
            Some(v1::file_part::Source::Data(bytes)) => self.bytes(at, bytes, &wire.mime_type),
            Some(v1::file_part::Source::Url(url)) => self.url(at, url),
            Some(v1::file_part::Source::FileId(_)) => self.fault(
                at.field("file_id"),
                "cannot be used by this version; give data or url",
            ),
            None => self.fault(at, "has no source; one of data, url is required"),
        };
        let name = (!wire.filename.is_empty()).then_some(wire.filename);
        source.map(|source| Media {
            mime_type: wire.mime_type,
            source,
            name,
            detail: None,
        })
    }

    fn bytes(&mut self, at: &Path<'_>, bytes: Vec<u8>, mime_type: &str) -> Option<MediaSource> {
        if bytes.is_empty() {
            return self.fault(at.field("data"), "is empty");
        }
        if mime_type.is_empty() {
            return self.fault(at.field("mime_type"), "is empty; it is required with data");
        }
        Some(MediaSource::Bytes(bytes))
    }

    fn url(&mut self, at: &Path<'_>, url: String) -> Option<MediaSource> {
        let has = |scheme: &str| {
            url.get(..scheme.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        if has("https://") || has("data:") {
            Some(MediaSource::Url(url))
        } else {
            self.fault(at.field("url"), "is no https or data URL")
        }
    }

    fn fault<T>(&mut self, at: impl std::fmt::Display, reason: impl Into<String>) -> Option<T> {
        self.faults.add(at, reason);
        None
    }
}

fn wire_part(part: &Part, injected: bool) -> v1::Part {
    let mut opaque = Vec::new();
    let content = match part {
        Part::Text(text) => Content::Text(v1::TextPart { text: text.clone() }),
        Part::Image(media) => Content::Image(wire_image(media)),
        Part::File(media) => Content::File(wire_file(media)),
        Part::Reasoning(reasoning) => {
            opaque.extend(reasoning.opaque.as_ref().map(wire_opaque));
            Content::Reasoning(v1::ReasoningPart {
                text: reasoning.text.clone(),
            })
        }
        Part::ToolCall(call) => {
            opaque.extend(call.opaque.as_ref().map(wire_opaque));
            Content::ToolCall(v1::ToolCallPart {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments_json: call.arguments.clone(),
            })
        }
        Part::ToolResult(result) => Content::ToolResult(v1::ToolResultPart {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            content: text_content(&result.content),
            is_error: result.is_error,
            structured_json: None,
            mcp_json: None,
        }),
        Part::Refusal(text) => Content::Refusal(v1::RefusalPart { text: text.clone() }),
    };
    v1::Part {
        content: Some(content),
        opaque,
        injected,
        left_out_bytes: 0,
    }
}

fn wire_image(media: &Media) -> v1::ImagePart {
    v1::ImagePart {
        mime_type: media.mime_type.clone(),
        detail: media.detail.clone().unwrap_or_default(),
        source: Some(match &media.source {
            MediaSource::Bytes(bytes) => v1::image_part::Source::Data(bytes.clone()),
            MediaSource::Url(url) => v1::image_part::Source::Url(url.clone()),
        }),
    }
}

fn wire_file(media: &Media) -> v1::FilePart {
    v1::FilePart {
        mime_type: media.mime_type.clone(),
        filename: media.name.clone().unwrap_or_default(),
        source: Some(match &media.source {
            MediaSource::Bytes(bytes) => v1::file_part::Source::Data(bytes.clone()),
            MediaSource::Url(url) => v1::file_part::Source::Url(url.clone()),
        }),
    }
}

/// Returns a piece of what a tool returned, with what an MCP server sent beside its form.
pub(super) fn tool_content(content: &ToolContent, beside: Option<String>) -> v1::ToolContent {
    use v1::tool_content::Content as Form;
    let content = match content {
        ToolContent::Text(text) => Some(Form::Text(v1::TextPart { text: text.clone() })),
        ToolContent::Image(media) => Some(Form::Image(wire_image(media))),
        ToolContent::File(media) => Some(Form::File(wire_file(media))),
        ToolContent::Other(_) => None,
    };
    v1::ToolContent {
        content,
        mcp_json: beside,
    }
}

/// Returns a tool's result as content of the contract; an empty result is no content at all.
pub(super) fn text_content(text: &str) -> Vec<v1::ToolContent> {
    if text.is_empty() {
        return Vec::new();
    }
    let text = v1::TextPart {
        text: text.to_owned(),
    };
    vec![v1::ToolContent {
        content: Some(v1::tool_content::Content::Text(text)),
        mcp_json: None,
    }]
}

#[cfg(test)]
mod tests;
