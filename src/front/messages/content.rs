//! Messages of blocks, read into the neutral conversation.
//!
//! A block that cannot be carried whole is refused with its place. Blocks of the model that have no
//! neutral word (server tools and their results) go back to this dialect as they came, and so do
//! fields of messages and blocks that are not read here. Marks for caching stay at their blocks; one within the result of a tool is that of the result, which is
//! one text.

use std::iter;

use serde_json::Value;

use crate::{
    domain::{
        message::{
            CacheMark, Media, MediaSource, Message, Opaque, Part, Reasoning, Role, ToolCall,
            ToolResult,
        },
        own_fields::{self, CITATIONS},
        target::Dialect,
    },
    front::{
        carried,
        error::CallError,
        media::decoded,
        place::{FieldPath, called},
    },
    provider::anthropic::{BLOCK, REDACTED, SIGNATURE},
};

/// The name of a mark for caching.
const MARK: &str = "cache_control";

/// The fields that are read of blocks by their type.
const READ_OF_BLOCKS: [(&str, &[&str]); 4] = [
    ("text", &["type", "text", MARK]),
    ("image", &IMAGE_FIELDS),
    ("document", &DOCUMENT_FIELDS),
    (
        "tool_result",
        &["type", "tool_use_id", "content", "is_error", MARK],
    ),
];

/// The fields that are read of a call; it has the others itself.
const CALL_FIELDS: [&str; 5] = ["type", "id", "name", "input", MARK];

const IMAGE_FIELDS: [&str; 6] = [
    "type",
    MARK,
    "source.type",
    "source.media_type",
    "source.data",
    "source.url",
];

const DOCUMENT_FIELDS: [&str; 7] = [
    "type",
    MARK,
    "title",
    "source.type",
    "source.media_type",
    "source.data",
    "source.url",
];

/// Reads the conversation behind the system's instructions.
///
/// # Errors
/// When it is empty, or a message is not what it must be.
pub(super) fn read(system: Option<&Value>, messages: &Value) -> Result<Vec<Message>, CallError> {
    let messages = messages.as_array().filter(|messages| !messages.is_empty());
    let messages = messages
        .ok_or_else(|| CallError::invalid("messages", "`messages` must be a non-empty array"))?;
    let mut read: Vec<Message> = Vec::with_capacity(messages.len() + 1);
    if let Some(system) = system {
        let place = FieldPath::new("system");
        read.push(content(
            Role::System,
            &place,
            system,
            |place, block| match place.text(block, "type")? {
                "text" => Ok(vec![Part::Text(place.text(block, "text")?.to_owned())]),
                _ => Err(place.below("type").refused("must be text")),
            },
        )?);
    }
    for (index, message) in messages.iter().enumerate() {
        let list = FieldPath::new("messages");
        let place = list.at(index);
        let written = message
            .get("content")
            .ok_or_else(|| place.below("content").refused("is missing"))?;
        let at = place.below("content");
        let own = own_fields::unread(&["role", "content"], message);
        let mut message = match place.text(message, "role")? {
            "user" if returns_media(written) => {
                let only = |are_results: bool| {
                    let read = &read;
                    move |place: &FieldPath<'_>, block: &Value| {
                        if is_result(block) == are_results {
                            users(place, block, read)
                        } else {
                            Ok(Vec::new())
                        }
                    }
                };
                let results = content(Role::Tool, &at, written, only(true))?;
                let rest = content(Role::User, &at, written, only(false))?;
                if rest.parts.is_empty() {
                    results
                } else {
                    read.push(results);
                    rest
                }
            }
            "user" => content(Role::User, &at, written, |place, block| {
                users(place, block, &read)
            })?,
            "system" => content(Role::System, &at, written, |place, block| {
                users(place, block, &read)
            })?,
            "assistant" => content(Role::Assistant, &at, written, models)?,
            _ => {
                return Err(place
                    .below("role")
                    .refused("must be one of user, assistant and system"));
            }
        };
        message
            .parts
            .extend(own_fields::part_of_message(Dialect::Anthropic, own));
        read.push(message);
        give_back(&mut read);
    }
    Ok(read)
}

fn is_result(block: &Value) -> bool {
    block["type"] == "tool_result"
}

/// Returns whether a tool's result among these blocks holds more than text: then the results are the
/// message of a tool, and what is beside them is the user's.
fn returns_media(written: &Value) -> bool {
    let blocks = written.as_array().into_iter().flatten();
    let mut within = blocks
        .filter(|block| is_result(block))
        .filter_map(|block| block["content"].as_array())
        .flatten();
    within.any(|block| matches!(block["type"].as_str(), Some("image" | "document")))
}

fn content(
    role: Role,
    place: &FieldPath<'_>,
    written: &Value,
    read: impl Fn(&FieldPath<'_>, &Value) -> Result<Vec<Part>, CallError>,
) -> Result<Message, CallError> {
    match written {
        Value::String(text) => Ok(Message::text(role, text)),
        Value::Array(blocks) => {
            let mut message = Message::new(role, Vec::with_capacity(blocks.len()));
            for (index, block) in blocks.iter().enumerate() {
                let part = message.parts.len();
                message.parts.extend(read(&place.at(index), block)?);
                if message.parts.len() == part {
                    continue;
                }
                message
                    .cache_marks
                    .extend(mark(block).map(|mark| CacheMark {
                        part,
                        mark: mark.clone(),
                    }));
                let first = message.parts.get(part);
                if let Some(own) = first.and_then(|first| own_part(role, first, block)) {
                    message.parts.insert(part + 1, own);
                }
            }
            Ok(message)
        }
        _ => Err(place.refused("must be a string or an array of blocks")),
    }
}

/// Fields of the block that are not in its part; `None` if there are none.
fn own_part(role: Role, part: &Part, block: &Value) -> Option<Part> {
    if matches!(part, Part::Reasoning(_)) {
        // It has all of its own.
        return None;
    }
    let kind = block.get("type")?;
    let (_, known) = READ_OF_BLOCKS.iter().find(|(name, _)| kind == name)?;
    let mut own = own_fields::unread(known, block);
    if role == Role::Assistant {
        // They are kept with the text already.
        own.shift_remove(CITATIONS);
    }
    if let (Part::ToolResult(_), Some(content)) = (part, block.get("content")) {
        own.extend(own_fields::unread_of_texts(
            "content",
            &plain_texts(content),
        ));
    }
    own_fields::part_behind(Dialect::Anthropic, own)
}

/// Returns the texts of the result of a tool, without marks for caching.
fn plain_texts(content: &Value) -> Value {
    let texts = content.as_array().into_iter().flatten();
    let texts = texts.filter(|block| block["type"] == "text").cloned();
    let plain = texts.map(|mut text| {
        if let Some(fields) = text.as_object_mut() {
            fields.shift_remove(MARK);
        }
        text
    });
    plain.collect()
}

/// Returns the mark for caching on a block, or else the last one within it.
fn mark(block: &Value) -> Option<&Value> {
    let within = || {
        block
            .get("content")?
            .as_array()?
            .iter()
            .rev()
            .find_map(mark)
    };
    block
        .get(MARK)
        .filter(|mark| mark.is_object())
        .or_else(within)
}

fn users(place: &FieldPath<'_>, block: &Value, before: &[Message]) -> Result<Vec<Part>, CallError> {
    Ok(match place.text(block, "type")? {
        "text" => vec![Part::Text(place.text(block, "text")?.to_owned())],
        "image" | "document" if is_known_to_one_provider(block) => {
            vec![own_fields::block(BLOCK, block)]
        }
        "image" => vec![Part::Image(media(
            &place.below("source"),
            block,
            "image/*",
        )?)],
        "document" => {
            let name = block
                .get("title")
                .and_then(Value::as_str)
                .map(str::to_owned);
            vec![Part::File(Media {
                name,
                ..media(&place.below("source"), block, "application/pdf")?
            })]
        }
        "tool_result" => result(place, block, before)?,
        _ => vec![own_fields::block(BLOCK, block)],
    })
}

/// Returns whether the content of an image or document is where only its provider finds it, or is
/// made of blocks.
fn is_known_to_one_provider(block: &Value) -> bool {
    matches!(
        block.pointer("/source/type").and_then(Value::as_str),
        Some("file" | "content")
    )
}

/// Returns a tool's result; pictures in it follow it, because results are texts in most dialects.
fn result(
    place: &FieldPath<'_>,
    block: &Value,
    before: &[Message],
) -> Result<Vec<Part>, CallError> {
    let call_id = place.text(block, "tool_use_id")?.to_owned();
    let parts = match block.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(written) => {
            let read = |place: &FieldPath<'_>, block: &Value| match place.text(block, "type")? {
                "tool_result" => Err(place.below("type").refused("must not be tool_result")),
                _ => users(place, block, &[]),
            };
            content(Role::Tool, &place.below("content"), written, read)?.parts
        }
    };
    // Content that holds blocks of this dialect alone goes back to it whole, beside its texts for
    // others.
    let is_own = |place: usize, part: &Part| {
        let is_of_text = place > 0 && parts[place - 1].as_text().is_some();
        matches!(part, Part::Reasoning(_)) && !(part.is_fields() && is_of_text)
    };
    let mut placed = parts.iter().enumerate();
    if placed.any(|(place, part)| is_own(place, part)) {
        let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
        let result = ToolResult {
            name: called(before, &call_id),
            call_id,
            content: texts.join("\n"),
            is_error: block.get("is_error").and_then(Value::as_bool) == Some(true),
        };
        return Ok(vec![
            Part::ToolResult(result),
            own_fields::block(BLOCK, block),
        ]);
    }
    let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    let name = called(before, &call_id);
    let is_error = block
        .get("is_error")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    let mut result = vec![Part::ToolResult(ToolResult {
        call_id,
        name,
        content: texts.join("\n"),
        is_error,
    })];
    let is_media = |part: &Part| matches!(part, Part::Image(_) | Part::File(_));
    result.extend(parts.into_iter().filter(is_media));
    Ok(result)
}

fn models(place: &FieldPath<'_>, block: &Value) -> Result<Vec<Part>, CallError> {
    let reasoning = |text: &str, opaque| {
        vec![Part::Reasoning(Reasoning {
            text: text.to_owned(),
            opaque,
        })]
    };
    let opaque = |kind: &str, bytes: &str| {
        Some(Opaque {
            kind: kind.to_owned(),
            bytes: bytes.as_bytes().to_vec(),
        })
    };
    Ok(match place.text(block, "type")? {
        "text" => {
            let text = Part::Text(place.text(block, "text")?.to_owned());
            iter::once(text).chain(citations(block)).collect()
        }
        "tool_use" => {
            let arguments = block.get("input").filter(|input| input.is_object());
            let arguments =
                arguments.ok_or_else(|| place.below("input").refused("must be an object"))?;
            vec![Part::ToolCall(ToolCall {
                id: place.text(block, "id")?.to_owned(),
                name: place.text(block, "name")?.to_owned(),
                arguments: arguments.to_string(),
                opaque: own_fields::kept(
                    Dialect::Anthropic,
                    own_fields::unread(&CALL_FIELDS, block),
                ),
            })]
        }
        "thinking" => {
            let signature = block
                .get("signature")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let own = || opaque(SIGNATURE, signature).filter(|_| !signature.is_empty());
            let opaque = carried::open(signature).map_or_else(own, |(opaque, _)| Some(opaque));
            reasoning(place.text(block, "thinking")?, opaque)
        }
        "redacted_thinking" => {
            let data = place.text(block, "data")?;
            reasoning("", opaque(REDACTED, data))
        }
        _ => vec![own_fields::block(BLOCK, block)],
    })
}

/// Returns the citations of a text of the model.
fn citations(block: &Value) -> Option<Part> {
    let citations = block.get(CITATIONS)?.as_array()?.clone();
    own_fields::part_of_text(Dialect::Anthropic, own_fields::cited(citations))
}

/// Takes the envelopes of tool calls out of the last message, and gives each its call.
fn give_back(messages: &mut [Message]) {
    let Some(last) = messages
        .last_mut()
        .filter(|message| message.role == Role::Assistant)
    else {
        return;
    };
    let mut sealed = Vec::new();
    let envelopes = last.take_parts(|part| {
        let Part::Reasoning(Reasoning {
            opaque: Some(opaque),
            ..
        }) = part
        else {
            return false;
        };
        let text = std::str::from_utf8(&opaque.bytes)
            .ok()
            .filter(|_| opaque.kind == REDACTED);
        match text.and_then(carried::open) {
            Some((opaque, Some(call))) => {
                sealed.push((opaque, call));
                true
            }
            Some((_, None)) | None => false,
        }
    });
    drop(envelopes);
    for (opaque, call) in sealed {
        carried::give_back(messages, &call, &opaque);
    }
}

/// Returns the source of an image or document; `usual` is the type of one whose URL does not say.
fn media(place: &FieldPath<'_>, block: &Value, usual: &str) -> Result<Media, CallError> {
    let source = block.get("source").unwrap_or(&Value::Null);
    let (mime_type, source) = match place.text(source, "type")? {
        "base64" => {
            let bytes = decoded(&place.below("data"), place.text(source, "data")?)?;
            (place.text(source, "media_type")?, MediaSource::Bytes(bytes))
        }
        "text" => (
            "text/plain",
            MediaSource::Bytes(place.text(source, "data")?.as_bytes().to_vec()),
        ),
        "url" => (
            usual,
            MediaSource::Url(place.text(source, "url")?.to_owned()),
        ),
        _ => {
            return Err(place
                .below("type")
                .refused("must be one of base64, text and url"));
        }
    };
    Ok(Media {
        mime_type: mime_type.to_owned(),
        source,
        name: None,
        detail: None,
    })
}
