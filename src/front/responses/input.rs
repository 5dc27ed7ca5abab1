//! Items of a request's input, read into the neutral conversation.
//!
//! Fields of items and of their contents that are not read here go to targets of this dialect as
//! they came. The model's output comes as several items (reasoning, messages, calls), which are one turn. An
//! item that the neutral conversation has no word for (those of tools that run at one provider)
//! goes back to this dialect as it came. One that cannot be carried whole is refused with its
//! place.

use std::iter;

use serde_json::{Value, json};

use crate::{
    domain::{
        message::{
            Media, MediaSource, Message, Opaque, Part, Reasoning, Role, ToolCall, ToolResult,
        },
        own_fields,
        target::Dialect,
    },
    front::{
        carried,
        error::CallError,
        media::{data_url, decoded, detail, image},
        place::{FieldPath, called},
    },
    provider::responses::{
        ANNOTATIONS, BLOCK, ITEM, MESSAGE_FIELDS, NAMESPACE, REASONING, custom_arguments, is_action,
    },
};

/// The fields that are read of a content, of a call and of its output.
const CONTENT_FIELDS: [&str; 12] = [
    "type",
    "text",
    ANNOTATIONS,
    "logprobs",
    "refusal",
    "image_url",
    "detail",
    "input_audio.data",
    "input_audio.format",
    "filename",
    "file_url",
    "file_data",
];
const CALL_FIELDS: [&str; 7] = [
    "type",
    "id",
    "status",
    "call_id",
    "name",
    "arguments",
    "namespace",
];
const CUSTOM_CALL_FIELDS: [&str; 6] = ["type", "id", "status", "call_id", "name", "input"];
const OUTPUT_FIELDS: [&str; 5] = ["type", "id", "status", "call_id", "output"];

/// Reads the conversation.
///
/// # Errors
/// When an item is not what it must be.
pub(super) fn read(instructions: Option<&str>, input: &[Value]) -> Result<Vec<Message>, CallError> {
    let mut messages: Vec<Message> = Vec::with_capacity(input.len() + 1);
    messages.extend(instructions.map(|text| Message::text(Role::System, text)));
    let mut sealed = Vec::new();
    for (index, item) in input.iter().enumerate() {
        let list = FieldPath::new("input");
        let place = list.at(index);
        let kind = match item.get("type") {
            None | Some(Value::Null) => "message",
            Some(_) => place.text(item, "type")?,
        };
        let (role, parts) = match kind {
            "message" => message(&place, item)?,
            "function_call" => {
                let call = Part::ToolCall(tool_call(&place, item)?);
                (Role::Assistant, with_fields(call, &CALL_FIELDS, item))
            }
            "custom_tool_call" => {
                let arguments = custom_arguments(place.text(item, "input")?);
                let call = Part::ToolCall(called_tool(&place, item, arguments, None)?);
                (
                    Role::Assistant,
                    with_fields(call, &CUSTOM_CALL_FIELDS, item),
                )
            }
            "function_call_output" | "custom_tool_call_output" => {
                (Role::Tool, output(&place, item, &messages)?)
            }
            "reasoning" => {
                let text = item
                    .get("encrypted_content")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                if let Some((opaque, Some(call))) = carried::open(text) {
                    sealed.push((opaque, call));
                    continue;
                }
                (
                    Role::Assistant,
                    vec![Part::Reasoning(reasoning(item, text))],
                )
            }
            "item_reference" => {
                return Err(place
                    .below("id")
                    .refused("names no item that is stored here"));
            }
            kind => of_this_dialect(&place, kind, item, &messages)?,
        };
        // What the model said, and what its tools returned, is one turn however many items it is.
        match messages
            .last_mut()
            .filter(|last| last.role == role && matches!(role, Role::Assistant | Role::Tool))
        {
            Some(last) => last.parts.extend(parts),
            None => messages.push(Message::new(role, parts)),
        }
    }
    for (opaque, call) in sealed {
        carried::give_back(&mut messages, &call, &opaque);
    }
    Ok(messages)
}

fn message(place: &FieldPath<'_>, item: &Value) -> Result<(Role, Vec<Part>), CallError> {
    let role = match place.text(item, "role")? {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => {
            return Err(place
                .below("role")
                .refused("must be one of system, developer, user and assistant"));
        }
    };
    let written = item
        .get("content")
        .ok_or_else(|| place.below("content").refused("is missing"))?;
    let mut parts = content(&place.below("content"), written)?;
    if role == Role::Assistant {
        add_fields(&mut parts, item, written);
    } else {
        let own = own_fields::unread(&MESSAGE_FIELDS, item);
        parts.extend(own_fields::part_of_message(Dialect::OpenaiResponses, own));
    }
    Ok((role, parts))
}

/// Puts behind each text what only targets of this dialect know of it, and of its message.
fn add_fields(parts: &mut Vec<Part>, item: &Value, written: &Value) {
    let around = item.as_object();
    let around = around.and_then(|item| own_fields::beside(&MESSAGE_FIELDS, item));
    let around = around.unwrap_or_default();
    for place in (0..parts.len()).rev() {
        if !matches!(parts[place], Part::Text(_)) {
            continue;
        }
        let mut fields = around.clone();
        let contents = parts[..place].iter().filter(|part| !part.is_fields());
        let written = written.get(contents.count());
        let annotations = written.and_then(|part| part.get(ANNOTATIONS));
        let annotations = annotations.and_then(Value::as_array);
        if let Some(annotations) = annotations.filter(|list| !list.is_empty()) {
            fields.insert(ANNOTATIONS.to_owned(), json!(annotations));
        }
        if let Some(own) = own_fields::part_of_text(Dialect::OpenaiResponses, fields) {
            parts.insert(place + 1, own);
        }
    }
}

fn content(place: &FieldPath<'_>, written: &Value) -> Result<Vec<Part>, CallError> {
    match written {
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(parts) => {
            let mut read = Vec::with_capacity(parts.len());
            for (index, part) in parts.iter().enumerate() {
                match content_part(&place.at(index), part)? {
                    Some(known) => read.extend(with_fields(known, &CONTENT_FIELDS, part)),
                    None => read.push(own_fields::block(BLOCK, part)),
                }
            }
            Ok(read)
        }
        _ => Err(place.refused("must be a string or an array of parts")),
    }
}

/// Returns a part, with those fields of what it was read from that are none of these.
fn with_fields(part: Part, known: &[&str], written: &Value) -> Vec<Part> {
    let own = own_fields::unread(known, written);
    let own = own_fields::part_behind(Dialect::OpenaiResponses, own);
    iter::once(part).chain(own).collect()
}

/// Reads a part; `None` if only this dialect, or only one provider, knows what it is.
fn content_part(place: &FieldPath<'_>, part: &Value) -> Result<Option<Part>, CallError> {
    if part.get("file_id").is_some_and(|id| !id.is_null()) {
        return Ok(None);
    }
    Ok(Some(match place.text(part, "type")? {
        "input_text" | "output_text" | "text" => Part::Text(place.text(part, "text")?.to_owned()),
        "refusal" => Part::Refusal(place.text(part, "refusal")?.to_owned()),
        "input_image" => {
            let detail = detail(place, part)?;
            Part::Image(Media {
                detail,
                ..image(&place.below("image_url"), place.text(part, "image_url")?)?
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
        "input_file" => file(place, part)?,
        _ => return Ok(None),
    }))
}

fn file(place: &FieldPath<'_>, part: &Value) -> Result<Part, CallError> {
    const SOME_FILE: &str = "application/octet-stream";
    let name = part
        .get("filename")
        .and_then(Value::as_str)
        .map(str::to_owned);
    if let Some(url) = part.get("file_url").and_then(Value::as_str) {
        let source = MediaSource::Url(url.to_owned());
        return Ok(Part::File(Media {
            mime_type: SOME_FILE.to_owned(),
            source,
            name,
            detail: None,
        }));
    }
    let data = place.text(part, "file_data")?;
    let place = place.below("file_data");
    let (mime_type, bytes) = match data_url(&place, data)? {
        Some(typed) => typed,
        None => (SOME_FILE.to_owned(), decoded(&place, data)?),
    };
    Ok(Part::File(Media {
        mime_type,
        source: MediaSource::Bytes(bytes),
        name,
        detail: None,
    }))
}

fn tool_call(place: &FieldPath<'_>, item: &Value) -> Result<ToolCall, CallError> {
    let namespace = item.get("namespace").and_then(Value::as_str);
    let namespace = namespace.map(|name| Opaque {
        kind: NAMESPACE.to_owned(),
        bytes: name.as_bytes().to_vec(),
    });
    called_tool(
        place,
        item,
        place.text(item, "arguments")?.to_owned(),
        namespace,
    )
}

fn called_tool(
    place: &FieldPath<'_>,
    item: &Value,
    arguments: String,
    opaque: Option<Opaque>,
) -> Result<ToolCall, CallError> {
    let id = place.text(item, "call_id")?.to_owned();
    let name = place.text(item, "name")?.to_owned();
    Ok(ToolCall {
        id,
        name,
        arguments,
        opaque,
    })
}

/// Returns an item that only targets of this dialect know: a call that the client executed, its
/// output, or anything else.
fn of_this_dialect(
    place: &FieldPath<'_>,
    kind: &str,
    item: &Value,
    before: &[Message],
) -> Result<(Role, Vec<Part>), CallError> {
    let opaque = Some(Opaque {
        kind: ITEM.to_owned(),
        bytes: item.to_string().into_bytes(),
    });
    if is_action(item) {
        let id = place.text(item, "call_id")?.to_owned();
        let call = ToolCall {
            id,
            name: kind.to_owned(),
            arguments: "{}".to_owned(),
            opaque,
        };
        return Ok((Role::Assistant, vec![Part::ToolCall(call)]));
    }
    let answered = item
        .get("call_id")
        .and_then(Value::as_str)
        .filter(|_| kind.ends_with("_output"));
    let name = answered.map(|call_id| (call_id, called(before, call_id)));
    if let Some((call_id, name)) = name.filter(|(_, name)| !name.is_empty()) {
        let call_id = call_id.to_owned();
        let content = item.to_string();
        return Ok((
            Role::Tool,
            vec![Part::ToolResult(ToolResult {
                call_id,
                name,
                content,
                is_error: false,
            })],
        ));
    }
    Ok((
        Role::Assistant,
        vec![Part::Reasoning(Reasoning {
            text: String::new(),
            opaque,
        })],
    ))
}

/// Returns a tool's output; pictures in it follow it, because results are texts in most dialects.
fn output(place: &FieldPath<'_>, item: &Value, before: &[Message]) -> Result<Vec<Part>, CallError> {
    let call_id = place.text(item, "call_id")?.to_owned();
    let written = item
        .get("output")
        .ok_or_else(|| place.below("output").refused("is missing"))?;
    let parts = content(&place.below("output"), written)?;
    let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    let name = called(before, &call_id);
    let result = Part::ToolResult(ToolResult {
        call_id,
        name,
        content: texts.join("\n"),
        is_error: false,
    });
    let mut own = own_fields::unread(&OUTPUT_FIELDS, item);
    let plain = written.as_array().into_iter().flatten();
    let plain = plain.filter(|part| part["type"] == "input_text").cloned();
    own.extend(own_fields::unread_of_texts("output", &plain.collect()));
    let own = own_fields::part_behind(Dialect::OpenaiResponses, own);
    let mut output: Vec<Part> = iter::once(result).chain(own).collect();
    let mut is_behind_text = false;
    output.extend(parts.into_iter().filter(|part| {
        is_behind_text = part.as_text().is_some() || (is_behind_text && part.is_fields());
        !is_behind_text
    }));
    Ok(output)
}

/// Returns the model's reasoning, with the part that its provider needs back: a part without an
/// envelope is `OpenAI`'s own, and goes back to it as the item that it came in.
fn reasoning(item: &Value, encrypted: &str) -> Reasoning {
    let parts = ["summary", "content"]
        .iter()
        .filter_map(|name| item.get(*name)?.as_array())
        .flatten();
    let texts: Vec<&str> = parts
        .filter_map(|part| part.get("text")?.as_str())
        .collect();
    let own = || Opaque {
        kind: REASONING.to_owned(),
        bytes: item.to_string().into_bytes(),
    };
    let opaque = match carried::open(encrypted) {
        Some((opaque, _)) => Some(opaque),
        None => Some(own()).filter(|_| !encrypted.is_empty()),
    };
    Reasoning {
        text: texts.join("\n\n"),
        opaque,
    }
}
