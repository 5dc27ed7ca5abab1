//! Chat messages of this wire, read into the neutral conversation.
//!
//! A message that cannot be carried whole is refused with its place: a conversation that lost a
//! part is another one. Parts of other types, and fields that are not read here, go to targets of
//! this dialect as they came.

use std::iter;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::own;
use crate::{
    domain::{
        message::{Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult},
        own_fields,
        target::Dialect,
    },
    front::{
        error::CallError,
        fields::{Object, TextOrValue},
        media::{data_url, decoded, detail, image},
        place::{FieldPath, called},
    },
    provider::openai::BLOCK,
};

/// The fields of parts that are read here.
const PART_FIELDS: [&str; 10] = [
    "type",
    "text",
    "refusal",
    "image_url.url",
    "image_url.detail",
    "input_audio.data",
    "input_audio.format",
    "file.file_data",
    "file.filename",
    "file.file_id",
];

/// The fields of a message that are read here, and all others; `null` is as good as nothing.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageFields<'a> {
    #[serde(borrow)]
    role: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    name: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    content: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    reasoning: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    refusal: Option<TextOrValue<'a>>,
    tool_calls: Option<Box<Value>>,
    function_call: Option<Box<Value>>,
    #[serde(borrow)]
    tool_call_id: Option<TextOrValue<'a>>,
    #[serde(flatten)]
    own: Map<String, Value>,
}

/// Reads the conversation.
///
/// # Errors
/// When it is empty, or a message is not what it must be.
pub(super) fn read(messages: Vec<Object<MessageFields<'_>>>) -> Result<Vec<Message>, CallError> {
    if messages.is_empty() {
        return Err(CallError::invalid(
            "messages",
            "`messages` must be a non-empty array",
        ));
    }
    let mut read: Vec<Message> = Vec::with_capacity(messages.len());
    for (index, Object(message)) in messages.into_iter().enumerate() {
        let list = FieldPath::new("messages");
        let message = one(&list.at(index), message, &read)?;
        read.push(message);
    }
    Ok(read)
}

/// Returns the fields of each message, of which one is not what it must be. What is not an object
/// has none.
pub(super) fn fields(messages: &Value) -> Vec<Object<MessageFields<'_>>> {
    let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
    messages
        .iter()
        .map(|message| Object::deserialize(message).unwrap_or_default())
        .collect()
}

fn one(
    place: &FieldPath<'_>,
    message: MessageFields<'_>,
    before: &[Message],
) -> Result<Message, CallError> {
    let role = match text(&place.below("role"), message.role.as_ref())? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => {
            let roles = "must be one of system, developer, user, assistant and tool";
            return Err(place.below("role").refused(roles));
        }
    };
    let name = message
        .name
        .as_ref()
        .map(|name| text(&place.below("name"), Some(name)))
        .transpose()?;
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    let parts = match role {
        Role::Tool => tool_result(place, message, before)?,
        Role::Assistant => assistant(place, message)?,
        Role::System | Role::Developer | Role::User => {
            let place = place.below("content");
            let written = message.content.ok_or_else(|| place.refused("is missing"))?;
            let mut parts = content(&place, written)?;
            let own = own_fields::unread(&[], &Value::Object(message.own));
            parts.extend(own_fields::part_of_message(Dialect::OpenaiChat, own));
            parts
        }
    };
    Ok(Message {
        name,
        ..Message::new(role, parts)
    })
}

fn assistant(place: &FieldPath<'_>, message: MessageFields<'_>) -> Result<Vec<Part>, CallError> {
    let mut parts: Vec<Part> = own::read_message(message.own)
        .into_iter()
        .map(Part::Reasoning)
        .collect();
    let is_signed = |part: &Part| matches!(part, Part::Reasoning(piece) if !piece.text.is_empty());
    let is_there_signed = parts.iter().any(is_signed);
    // Providers of reasoning models disagree on the field's name.
    let reasoning =
        as_text(message.reasoning_content.as_ref()).or(as_text(message.reasoning.as_ref()));
    if let Some(text) = reasoning.filter(|text| !text.is_empty() && !is_there_signed) {
        parts.push(Part::Reasoning(Reasoning {
            text: text.to_owned(),
            opaque: None,
        }));
    }
    if let Some(written) = message.content {
        parts.extend(content(&place.below("content"), written)?);
    }
    if let Some(refusal) = as_text(message.refusal.as_ref()).filter(|refusal| !refusal.is_empty()) {
        parts.push(Part::Refusal(refusal.to_owned()));
    }
    let calls = place.below("tool_calls");
    if let Some(made) = message.tool_calls {
        let made = made
            .as_array()
            .ok_or_else(|| calls.refused("must be an array"))?;
        for (index, call) in made.iter().enumerate() {
            parts.push(Part::ToolCall(tool_call(&calls.at(index), call)?));
        }
    }
    if message.function_call.is_some() {
        return Err(place
            .below("function_call")
            .refused("is not taken here; use `tool_calls`"));
    }
    Ok(parts)
}

fn tool_call(place: &FieldPath<'_>, call: &Value) -> Result<ToolCall, CallError> {
    let function = call
        .get("function")
        .ok_or_else(|| place.below("function").refused("is missing"))?;
    Ok(ToolCall {
        id: place.text(call, "id")?.to_owned(),
        name: place.below("function").text(function, "name")?.to_owned(),
        arguments: place
            .below("function")
            .text(function, "arguments")?
            .to_owned(),
        opaque: own::read_call(call),
    })
}

fn tool_result(
    place: &FieldPath<'_>,
    message: MessageFields<'_>,
    before: &[Message],
) -> Result<Vec<Part>, CallError> {
    let call_id = text(&place.below("tool_call_id"), message.tool_call_id.as_ref())?;
    let written = message
        .content
        .ok_or_else(|| place.below("content").refused("is missing"))?;
    let mut own = own_fields::unread(&[], &Value::Object(message.own));
    if let TextOrValue::Value(parts) = &written {
        let texts = parts.as_array().into_iter().flatten();
        let texts = texts.filter(|part| part["type"] == "text").cloned();
        own.extend(own_fields::unread_of_texts("content", &texts.collect()));
    }
    let parts = content(&place.below("content"), written)?;
    let is_known = |part: &Part| {
        part.is_fields() || matches!(part, Part::Text(_) | Part::Image(_) | Part::File(_))
    };
    if !parts.iter().all(is_known) {
        return Err(place
            .below("content")
            .refused("of a tool must be text, images and files"));
    }
    let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    let result = Part::ToolResult(ToolResult {
        call_id: call_id.to_owned(),
        name: called(before, call_id),
        content: texts.join("\n"),
        is_error: false,
    });
    let own = own_fields::part_behind(Dialect::OpenaiChat, own);
    let mut is_behind_text = false;
    let media = parts.into_iter().filter(|part| {
        is_behind_text = part.as_text().is_some() || (is_behind_text && part.is_fields());
        !is_behind_text
    });
    Ok(iter::once(result).chain(own).chain(media).collect())
}

fn content(place: &FieldPath<'_>, written: TextOrValue<'_>) -> Result<Vec<Part>, CallError> {
    let parts = match written {
        TextOrValue::Text(text) => return Ok(vec![Part::Text(text.into_owned())]),
        TextOrValue::Value(parts) => parts,
    };
    let parts = parts
        .as_array()
        .ok_or_else(|| place.refused("must be a string or an array of parts"))?;
    let mut read = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let place = place.at(index);
        if let Some(known) = content_part(&place, part)? {
            read.push(known);
            let own = own_fields::unread(&PART_FIELDS, part);
            read.extend(own_fields::part_behind(Dialect::OpenaiChat, own));
        } else {
            read.push(own_fields::block(BLOCK, part));
        }
    }
    Ok(read)
}

/// Returns a field that must be a text.
fn text<'f>(
    place: &FieldPath<'_>,
    field: Option<&'f TextOrValue<'_>>,
) -> Result<&'f str, CallError> {
    as_text(field).ok_or_else(|| place.refused("must be a string"))
}

fn as_text<'f>(field: Option<&'f TextOrValue<'_>>) -> Option<&'f str> {
    field.and_then(TextOrValue::as_str)
}

/// Reads a part; `None` if only this dialect, or only one provider, knows what it is.
fn content_part(place: &FieldPath<'_>, part: &Value) -> Result<Option<Part>, CallError> {
    Ok(Some(match place.text(part, "type")? {
        "text" => Part::Text(place.text(part, "text")?.to_owned()),
        "refusal" => Part::Refusal(place.text(part, "refusal")?.to_owned()),
        "image_url" => {
            let url = part
                .pointer("/image_url/url")
                .or_else(|| part.get("image_url"))
                .and_then(Value::as_str);
            let detail = detail(
                &place.below("image_url"),
                part.get("image_url").unwrap_or(&Value::Null),
            )?;
            let place = place.below("image_url.url");
            let url = url.ok_or_else(|| place.refused("must be a string"))?;
            Part::Image(Media {
                detail,
                ..image(&place, url)?
            })
        }
        "input_audio" => {
            let place = place.below("input_audio");
            let audio = part.get("input_audio").unwrap_or(&Value::Null);
            let mime_type = format!("audio/{}", place.text(audio, "format")?);
            let bytes = decoded(&place.below("data"), place.text(audio, "data")?)?;
            Part::File(Media {
                mime_type,
                source: MediaSource::Bytes(bytes),
                name: None,
                detail: None,
            })
        }
        "file" => {
            let place = place.below("file");
            let file = part.get("file").unwrap_or(&Value::Null);
            if file.get("file_id").is_some_and(|id| !id.is_null()) {
                return Ok(None);
            }
            let name = file
                .get("filename")
                .and_then(Value::as_str)
                .map(str::to_owned);
            let data = place.text(file, "file_data")?;
            let (mime_type, bytes) = match data_url(&place.below("file_data"), data)? {
                Some((mime_type, bytes)) => (mime_type, bytes),
                None => (
                    "application/octet-stream".to_owned(),
                    decoded(&place.below("file_data"), data)?,
                ),
            };
            Part::File(Media {
                mime_type,
                source: MediaSource::Bytes(bytes),
                name,
                detail: None,
            })
        }
        _ => return Ok(None),
    }))
}
