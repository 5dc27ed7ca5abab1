//! Translates the neutral conversation into messages of blocks.
//!
//! Leading instructions go to `system`. Later ones stay where they are if the model accepts a
//! system message there (after the user's turn, before the model's or at the end); otherwise they
//! become text at their place in the user's turn. A mark for caching stays at its block; if that
//! one is not written or takes none, it is at the one before it in the same message.

use std::mem;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{BLOCK, REDACTED, SIGNATURE};
use crate::{
    domain::{
        message::{
            CacheMark, Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult,
        },
        own_fields,
        target::Dialect,
    },
    turns::{
        ProviderTurn, Speaker, Turns, arguments, fields_of_texts, is_instruction, opaque_json,
        opaque_text, plain_text, split_instructions,
    },
};

/// A conversation in this dialect.
pub(super) struct AnthropicConversation {
    /// Standing instructions.
    pub(super) system: Vec<Value>,
    /// The turns.
    pub(super) messages: Vec<Value>,
}

/// Translates; `takes_system` is whether the model accepts a system message within the
/// conversation.
pub(super) fn translate(messages: &[Message], takes_system: bool) -> AnthropicConversation {
    let (front, rest) = split_instructions(messages);
    let mut turns = Turns::default();
    for (place, message) in rest.iter().enumerate() {
        match message.role {
            Role::System | Role::Developer => {
                let next = rest[place..]
                    .iter()
                    .find(|message| !is_instruction(message));
                let is_followed_well = next.is_none_or(|next| next.role == Role::Assistant);
                let is_preceded_well =
                    matches!(turns.last(), Some(Speaker::User | Speaker::Operator));
                let is_allowed_here = takes_system && is_followed_well && is_preceded_well;
                let speaker = if is_allowed_here {
                    Speaker::Operator
                } else {
                    Speaker::User
                };
                blocks(message, words).for_each(|(_, block)| turns.add(speaker, block));
            }
            Role::User | Role::Tool => {
                blocks(message, users).for_each(|(part, block)| match part {
                    Part::ToolResult(result) => {
                        let whole = whole_result(message, result);
                        turns.add_result(&result.call_id, whole.unwrap_or(block));
                    }
                    _ => turns.add(Speaker::User, block),
                });
            }
            Role::Assistant => {
                blocks(message, models).for_each(|(_, block)| turns.add(Speaker::Model, block));
            }
        }
        turns.add_fields(own_fields::of_message(Dialect::Anthropic, &message.parts));
    }
    AnthropicConversation {
        system: front
            .iter()
            .flat_map(|message| blocks(message, words))
            .map(|(_, block)| block)
            .collect(),
        messages: turns.into_turns().into_iter().map(written).collect(),
    }
}

fn written(mut turn: ProviderTurn) -> Value {
    let role = match turn.speaker {
        Speaker::User => "user",
        Speaker::Model => "assistant",
        Speaker::Operator => "system",
    };
    let fields = mem::take(&mut turn.fields);
    let mut message = json!({"role": role, "content": turn.into_blocks()});
    own_fields::merge(&mut message, &fields);
    message
}

/// Returns the blocks of a message's parts, as far as `write` has one for them, with the message's
/// marks for caching, the citations of its texts and the fields that only this dialect knows.
fn blocks(
    message: &Message,
    write: fn(&Part) -> Option<Value>,
) -> impl Iterator<Item = (&Part, Value)> {
    let mut blocks: Vec<(&Part, Value)> = Vec::with_capacity(message.parts.len());
    let last = message.parts.len().saturating_sub(1);
    let mut marks = message.cache_marks.iter().peekable();
    let mut marked = None;
    let mut fields = fields_of_texts(&message.parts, Dialect::Anthropic);
    let of_parts = own_fields::of_parts(Dialect::Anthropic, &message.parts);
    for (place, part) in message.parts.iter().enumerate() {
        if let Some(mut block) = write(part) {
            if let (Some(own), Some(block)) = (fields.remove(&place), block.as_object_mut()) {
                block.extend(own);
            }
            match (part, of_parts.get(&place)) {
                (Part::ToolResult(_), Some(own)) => {
                    own_fields::merge_into_result(&mut block, "content", "text", own);
                }
                (_, Some(own)) => own_fields::merge(&mut block, own),
                (_, None) => {}
            }
            marked = if takes_mark(&block) {
                Some(blocks.len())
            } else {
                marked
            };
            blocks.push((part, block));
        }
        while let Some(CacheMark { mark, .. }) = marks.next_if(|mark| mark.part.min(last) <= place)
        {
            if let Some(fields) = marked.and_then(|marked| blocks[marked].1.as_object_mut()) {
                fields
                    .entry("cache_control")
                    .or_insert_with(|| mark.clone());
            }
        }
    }
    blocks.into_iter()
}

/// Returns whether the API takes a mark for caching on a block.
fn takes_mark(block: &Value) -> bool {
    !matches!(
        block["type"].as_str(),
        Some("thinking" | "redacted_thinking")
    )
}

/// Returns a text as a block.
fn words(part: &Part) -> Option<Value> {
    plain_text(part).map(|words| json!({"type": "text", "text": words}))
}

fn users(part: &Part) -> Option<Value> {
    match part {
        Part::ToolResult(result) => Some(tool_result(result)),
        Part::Text(_) | Part::Refusal(_) => words(part),
        Part::Image(media) => Some(json!({"type": "image", "source": source(media)})),
        Part::File(media) => Some(document(media)),
        // Of a tool's result, the whole block takes the place of what others get of it.
        Part::Reasoning(piece) => own_block(piece).filter(|block| block["type"] != "tool_result"),
        // Only the model calls.
        Part::ToolCall(_) => None,
    }
}

/// Returns a block that only this API knows, as it came.
fn own_block(piece: &Reasoning) -> Option<Value> {
    opaque_json(piece.opaque.as_ref(), BLOCK)
}

/// Returns the result of a tool as it came, if it holds blocks that only this API knows.
fn whole_result(message: &Message, result: &ToolResult) -> Option<Value> {
    let mut own = message.parts.iter().filter_map(|part| match part {
        Part::Reasoning(piece) => own_block(piece),
        _ => None,
    });
    own.find(|block| {
        block["type"] == "tool_result" && block["tool_use_id"] == result.call_id.as_str()
    })
}

fn models(part: &Part) -> Option<Value> {
    match part {
        Part::Text(_) | Part::Refusal(_) => words(part),
        Part::Reasoning(piece) => reasoning(piece),
        Part::ToolCall(ToolCall {
            id,
            name,
            arguments: given,
            ..
        }) => Some(json!({"type": "tool_use", "id": id, "name": name, "input": arguments(given)})),
        // The API takes none of these from the model.
        Part::Image(_) | Part::File(_) | Part::ToolResult(_) => None,
    }
}

/// Thinking as it came; without a signature of this provider it would be refused.
fn reasoning(piece: &Reasoning) -> Option<Value> {
    let opaque = piece.opaque.as_ref();
    if let Some(signature) = opaque_text(opaque, SIGNATURE) {
        return Some(json!({"type": "thinking", "thinking": piece.text, "signature": signature}));
    }
    if let Some(data) = opaque_text(opaque, REDACTED) {
        return Some(json!({"type": "redacted_thinking", "data": data}));
    }
    own_block(piece)
}

fn tool_result(result: &ToolResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": result.call_id});
    if !result.content.is_empty() {
        block["content"] = json!(result.content);
    }
    if result.is_error {
        block["is_error"] = json!(true);
    }
    block
}

fn document(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Bytes(bytes) if media.mime_type.starts_with("text/") => {
            json!({"type": "text", "media_type": "text/plain", "data": String::from_utf8_lossy(bytes)})
        }
        MediaSource::Bytes(_) | MediaSource::Url(_) => source(media),
    };
    let mut block = json!({"type": "document", "source": source});
    if let Some(name) = &media.name {
        block["title"] = json!(name);
    }
    block
}

fn source(media: &Media) -> Value {
    match &media.source {
        MediaSource::Url(url) => json!({"type": "url", "url": url}),
        MediaSource::Bytes(bytes) => {
            json!({"type": "base64", "media_type": media.mime_type, "data": STANDARD.encode(bytes)})
        }
    }
}
