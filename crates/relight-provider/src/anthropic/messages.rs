//! Translates the neutral conversation into messages of blocks.
//!
//! Leading instructions go to `system`. Later ones stay where they are if the model accepts a
//! system message there (after the user's turn, before the model's or at the end); otherwise they
//! become text at their place in the user's turn, marked as the operator's. A mark for caching stays at its block; if that
//! one is not written or takes none, it is at the one before it in the same message.

use std::mem;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{BLOCK, REDACTED, SIGNATURE};
use crate::{
    domain::{
        left_out::is_placed_for_operator,
        message::{
            CacheMark, Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult,
        },
        own_fields,
        target::Dialect,
    },
    tool_media::{is_of_result, is_text, note, refuse, stated_type},
    turns::{
        ProviderTurn, Speaker, Turns, arguments, fields_of_texts, opaque_json, opaque_text,
        operators_words, plain_text, split_instructions,
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
///
/// # Errors
/// When media is of a type that the API does not take.
pub(super) fn translate(
    messages: &[Message],
    takes_system: bool,
) -> Result<AnthropicConversation, String> {
    refuse(messages, "Anthropic", takes)?;
    let (front, rest) = split_instructions(messages);
    let mut turns = Turns::default();
    for (place, message) in rest.iter().enumerate() {
        match message.role {
            Role::System | Role::Developer => {
                let is_behind_user =
                    matches!(turns.last(), Some(Speaker::User | Speaker::Operator));
                if takes_system && is_behind_user && is_placed_for_operator(rest, place) {
                    blocks(message, words)
                        .for_each(|(_, block)| turns.add(Speaker::Operator, block));
                } else {
                    blocks(message, operators)
                        .for_each(|(_, block)| turns.add(Speaker::User, block));
                }
            }
            Role::User | Role::Tool => {
                for (place, block) in blocks(message, users) {
                    match &message.parts[place] {
                        Part::ToolResult(result) => {
                            let whole = whole_result(message, result);
                            turns.add_result(&result.call_id, whole.unwrap_or(block));
                        }
                        Part::Image(media) | Part::File(media) if is_of_result(message, place) => {
                            add_beside(&mut turns, media, block);
                        }
                        _ => turns.add(Speaker::User, block),
                    }
                }
            }
            Role::Assistant => {
                blocks(message, models).for_each(|(_, block)| turns.add(Speaker::Model, block));
            }
        }
        turns.add_fields(own_fields::of_message(Dialect::Anthropic, &message.parts));
    }
    Ok(AnthropicConversation {
        system: front
            .iter()
            .flat_map(|message| blocks(message, words))
            .map(|(_, block)| block)
            .collect(),
        messages: turns.into_turns().into_iter().map(written).collect(),
    })
}

/// Returns whether the API takes bytes of this type.
fn takes(kind: &str) -> bool {
    is_text(kind)
        || matches!(
            kind,
            "application/pdf" | "image/png" | "image/jpeg" | "image/gif" | "image/webp"
        )
}

/// Adds a block to the content of the last result. That of a failed tool is text alone, so that it
/// goes behind the results.
fn add_beside(turns: &mut Turns, media: &Media, block: Value) {
    match turns.last_result() {
        Some(result) if result["is_error"] != true => push(result, block),
        Some(result) => {
            push(result, json!({"type": "text", "text": note(media)}));
            turns.add(Speaker::User, block);
        }
        None => turns.add(Speaker::User, block),
    }
}

fn push(result: &mut Value, block: Value) {
    let mut content = match result["content"].take() {
        Value::Array(blocks) => blocks,
        Value::String(words) => vec![json!({"type": "text", "text": words})],
        _ => Vec::new(),
    };
    content.push(block);
    result["content"] = Value::Array(content);
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

/// Returns the blocks of a message's parts, as far as `write` has one for them, with the place of
/// the part, the message's marks for caching, the citations of its texts and the fields that only this dialect knows.
fn blocks(
    message: &Message,
    write: fn(&Part) -> Option<Value>,
) -> impl Iterator<Item = (usize, Value)> {
    let mut blocks: Vec<(usize, Value)> = Vec::with_capacity(message.parts.len());
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
            blocks.push((place, block));
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

/// Returns the operator's text as a block of the user's.
fn operators(part: &Part) -> Option<Value> {
    plain_text(part).map(|words| json!({"type": "text", "text": operators_words(words)}))
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
            opaque,
        }) => {
            let input = arguments(given);
            let mut block = json!({"type": "tool_use", "id": id, "name": name, "input": input});
            let own = own_fields::fields_in(Dialect::Anthropic, opaque.as_ref());
            own_fields::merge(&mut block, &own);
            Some(block)
        }
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
        MediaSource::Bytes(bytes) if is_text(&stated_type(media)) => {
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
            json!({"type": "base64", "media_type": stated_type(media), "data": STANDARD.encode(bytes)})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        tool_media::tests::{conversation, media},
        turns::tests::later_instructions,
    };

    #[test]
    fn what_a_tool_returned_is_in_its_result_unless_that_is_an_error() {
        let image = |data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}});
        let document = json!({"type": "document", "title": "two.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": "dHdv"}});
        let second = json!({"type": "tool_result", "tool_use_id": "b", "content": "second"});
        let text = |words: &str| json!({"type": "text", "text": words});
        let taken = translate(&conversation(false, None), true).unwrap();
        let first = json!([text("first"), image("b25l"), document]);
        assert_eq!(
            taken.messages[2]["content"],
            json!([
                {"type": "tool_result", "tool_use_id": "a", "content": first},
                second,
                image("b3du"),
                text("and this?"),
            ])
        );
        let failed = translate(&conversation(true, None), true).unwrap();
        let blocks = failed.messages[2]["content"].as_array().unwrap();
        assert_eq!(
            blocks[2..],
            [image("b25l"), document, image("b3du"), text("and this?")]
        );
        let words = blocks[0]["content"].as_array().unwrap();
        assert!(words.len() == 3 && words.iter().all(|it| it["type"] == "text"));
    }

    #[test]
    fn what_can_be_read_is_sent_as_text() {
        for (kind, name) in [("application/json", None), ("", Some("a.rs"))] {
            let file = Part::File(media(kind, b"{}", name));
            let taken = translate(&[Message::new(Role::User, vec![file])], true).unwrap();
            let source = json!({"type": "text", "media_type": "text/plain", "data": "{}"});
            assert_eq!(taken.messages[0]["content"][0]["source"], source);
        }
    }

    #[test]
    fn what_the_api_does_not_take_is_refused_with_its_type() {
        let sound = Part::File(media("audio/mp4", b"x", None));
        let words = translate(&conversation(false, Some(sound)), true)
            .map(|_| ())
            .unwrap_err();
        assert!(
            words.starts_with("Invalid request") && words.contains("audio/mp4"),
            "{words}"
        );
    }

    #[test]
    fn later_instructions_are_marked_in_the_users_turn() {
        let messages = later_instructions();
        let turns =
            |takes_system| Value::Array(translate(&messages, takes_system).unwrap().messages);
        let words = json!({"type": "text", "text": "<system>\nBe brief.\n</system>"});
        assert_eq!(turns(false)[0]["content"][1], words);
        let turn = json!({"role": "system", "content": [{"type": "text", "text": "Be brief."}]});
        assert_eq!(turns(true)[1], turn);
    }
}
