//! Chat messages of this wire, read into the neutral conversation.
//!
//! A message that cannot be carried whole is refused with its place: a conversation that lost a part is another one.

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    domain::message::{Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult},
    front::{
        error::Refused,
        fields::{Object, parsed},
        media::{data_url, decoded, image},
        place::{FieldPath, called},
    },
};

/// The fields of a message that are read here; `null` where there is none.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MessageFields {
    role: Value,
    content: Value,
    reasoning_content: Value,
    reasoning: Value,
    refusal: Value,
    tool_calls: Value,
    function_call: Value,
    tool_call_id: Value,
}

/// Reads the conversation.
///
/// # Errors
/// When it is empty, or a message is not what it must be.
pub(super) fn read(messages: Vec<Object<MessageFields>>) -> Result<Vec<Message>, Refused> {
    if messages.is_empty() {
        return Err(Refused::invalid("messages", "`messages` must be a non-empty array"));
    }
    let mut read: Vec<Message> = Vec::with_capacity(messages.len());
    for (index, Object(message)) in messages.into_iter().enumerate() {
        let list = FieldPath::new("messages");
        let message = one(&list.at(index), message, &read)?;
        read.push(message);
    }
    Ok(read)
}

/// The fields of each message, of which one is not what it must be. What is no object has none.
///
/// # Errors
/// When they are nested too deeply.
pub(super) fn fields(messages: &RawValue) -> Result<Vec<Object<MessageFields>>, Refused> {
    let Value::Array(messages) = parsed("messages", messages)? else { return Ok(Vec::new()) };
    Ok(messages.into_iter().map(|message| serde_json::from_value(message).unwrap_or_default()).collect())
}

fn one(place: &FieldPath<'_>, message: MessageFields, before: &[Message]) -> Result<Message, Refused> {
    let role = match place.below("role").text_here(&message.role)? {
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
    let parts = match role {
        Role::Tool => vec![tool_result(place, message, before)?],
        Role::Assistant => assistant(place, message)?,
        Role::System | Role::Developer | Role::User => {
            let place = place.below("content");
            if message.content.is_null() {
                return Err(place.refused("is missing"));
            }
            content(&place, message.content)?
        }
    };
    Ok(Message { role, parts })
}

fn assistant(place: &FieldPath<'_>, message: MessageFields) -> Result<Vec<Part>, Refused> {
    let mut parts = Vec::new();
    // Providers of reasoning models disagree on the field's name.
    let reasoning = message.reasoning_content.as_str().or(message.reasoning.as_str());
    if let Some(text) = reasoning.filter(|text| !text.is_empty()) {
        parts.push(Part::Reasoning(Reasoning { text: text.to_owned(), opaque: None }));
    }
    if !message.content.is_null() {
        parts.extend(content(&place.below("content"), message.content)?);
    }
    if let Some(refusal) = message.refusal.as_str().filter(|refusal| !refusal.is_empty()) {
        parts.push(Part::Refusal(refusal.to_owned()));
    }
    let calls = place.below("tool_calls");
    match message.tool_calls {
        Value::Null => {}
        Value::Array(made) => {
            for (index, call) in made.iter().enumerate() {
                parts.push(Part::ToolCall(tool_call(&calls.at(index), call)?));
            }
        }
        _ => return Err(calls.refused("must be an array")),
    }
    if !message.function_call.is_null() {
        return Err(place.below("function_call").refused("is not taken here; use `tool_calls`"));
    }
    Ok(parts)
}

fn tool_call(place: &FieldPath<'_>, call: &Value) -> Result<ToolCall, Refused> {
    let function = call.get("function").ok_or_else(|| place.below("function").refused("is missing"))?;
    Ok(ToolCall {
        id: place.text(call, "id")?.to_owned(),
        name: place.below("function").text(function, "name")?.to_owned(),
        arguments: place.below("function").text(function, "arguments")?.to_owned(),
        opaque: None,
    })
}

fn tool_result(place: &FieldPath<'_>, message: MessageFields, before: &[Message]) -> Result<Part, Refused> {
    let call_id = place.below("tool_call_id").text_here(&message.tool_call_id)?;
    if message.content.is_null() {
        return Err(place.below("content").refused("is missing"));
    }
    let texts = content(&place.below("content"), message.content)?;
    let texts: Option<Vec<&str>> = texts.iter().map(Part::as_text).collect();
    let texts = texts.ok_or_else(|| place.below("content").refused("of a tool must be text"))?;
    Ok(Part::ToolResult(ToolResult {
        call_id: call_id.to_owned(),
        name: called(before, call_id),
        content: texts.join("\n"),
        is_error: false,
    }))
}

fn content(place: &FieldPath<'_>, said: Value) -> Result<Vec<Part>, Refused> {
    match said {
        Value::String(text) => Ok(vec![Part::Text(text)]),
        Value::Array(parts) => {
            parts.iter().enumerate().map(|(index, part)| content_part(&place.at(index), part)).collect()
        }
        _ => Err(place.refused("must be a string or an array of parts")),
    }
}

fn content_part(place: &FieldPath<'_>, part: &Value) -> Result<Part, Refused> {
    match place.text(part, "type")? {
        "text" => Ok(Part::Text(place.text(part, "text")?.to_owned())),
        "refusal" => Ok(Part::Refusal(place.text(part, "refusal")?.to_owned())),
        "image_url" => {
            let url = part.pointer("/image_url/url").or_else(|| part.get("image_url")).and_then(Value::as_str);
            let place = place.below("image_url.url");
            let url = url.ok_or_else(|| place.refused("must be a string"))?;
            Ok(Part::Image(image(&place, url)?))
        }
        "input_audio" => {
            let place = place.below("input_audio");
            let audio = part.get("input_audio").unwrap_or(&Value::Null);
            let mime_type = format!("audio/{}", place.text(audio, "format")?);
            let bytes = decoded(&place.below("data"), place.text(audio, "data")?)?;
            Ok(Part::File(Media { mime_type, source: MediaSource::Bytes(bytes), name: None }))
        }
        "file" => {
            let place = place.below("file");
            let file = part.get("file").unwrap_or(&Value::Null);
            if file.get("file_id").is_some_and(|id| !id.is_null()) {
                return Err(place.below("file_id").refused("is known to one provider only; send `file_data`"));
            }
            let name = file.get("filename").and_then(Value::as_str).map(str::to_owned);
            let data = place.text(file, "file_data")?;
            let (mime_type, bytes) = match data_url(&place.below("file_data"), data)? {
                Some((mime_type, bytes)) => (mime_type, bytes),
                None => ("application/octet-stream".to_owned(), decoded(&place.below("file_data"), data)?),
            };
            Ok(Part::File(Media { mime_type, source: MediaSource::Bytes(bytes), name }))
        }
        _ => Err(place.below("type").refused("must be one of text, image_url, input_audio, file and refusal")),
    }
}
