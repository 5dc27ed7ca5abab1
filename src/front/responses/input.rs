//! Items of a request's input, read into the neutral conversation.
//!
//! What the model said comes as several items (reasoning, messages, calls), which are one turn. An
//! item that the neutral conversation has no word for (those of tools that run at one provider)
//! goes back to this dialect as it came. One that cannot be carried whole is refused with its
//! place.

use serde_json::Value;

use crate::{
    domain::message::{
        Media, MediaSource, Message, Opaque, Part, Reasoning, Role, ToolCall, ToolResult,
    },
    front::{
        carried,
        error::Refused,
        media::{data_url, decoded, detail, image},
        place::{FieldPath, called},
    },
    provider::responses::{ITEM, NAMESPACE, REASONING, custom_arguments, is_action},
};

/// Reads the conversation.
///
/// # Errors
/// When an item is not what it must be.
pub(super) fn read(instructions: Option<&str>, input: &[Value]) -> Result<Vec<Message>, Refused> {
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
            "function_call" => (
                Role::Assistant,
                vec![Part::ToolCall(tool_call(&place, item)?)],
            ),
            "custom_tool_call" => {
                let arguments = custom_arguments(place.text(item, "input")?);
                (
                    Role::Assistant,
                    vec![Part::ToolCall(called_tool(&place, item, arguments, None)?)],
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

fn message(place: &FieldPath<'_>, item: &Value) -> Result<(Role, Vec<Part>), Refused> {
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
    Ok((role, content(&place.below("content"), written)?))
}

fn content(place: &FieldPath<'_>, written: &Value) -> Result<Vec<Part>, Refused> {
    match written {
        Value::String(text) => Ok(vec![Part::Text(text.clone())]),
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| content_part(&place.at(index), part))
            .collect(),
        _ => Err(place.refused("must be a string or an array of parts")),
    }
}

fn content_part(place: &FieldPath<'_>, part: &Value) -> Result<Part, Refused> {
    if part.get("file_id").is_some_and(|id| !id.is_null()) {
        return Err(place
            .below("file_id")
            .refused("is known to one provider only; send the data"));
    }
    match place.text(part, "type")? {
        "input_text" | "output_text" | "text" => {
            Ok(Part::Text(place.text(part, "text")?.to_owned()))
        }
        "refusal" => Ok(Part::Refusal(place.text(part, "refusal")?.to_owned())),
        "input_image" => {
            let detail = detail(place, part)?;
            Ok(Part::Image(Media {
                detail,
                ..image(&place.below("image_url"), place.text(part, "image_url")?)?
            }))
        }
        "input_audio" => {
            let place = place.below("input_audio");
            let audio = part.get("input_audio").unwrap_or(&Value::Null);
            let mime_type = format!("audio/{}", place.text(audio, "format")?);
            let bytes = decoded(&place.below("data"), place.text(audio, "data")?)?;
            Ok(Part::File(Media {
                mime_type,
                source: MediaSource::Bytes(bytes),
                name: None,
                detail: None,
            }))
        }
        "input_file" => file(place, part),
        _ => {
            let kinds = "must be one of input_text, input_image, input_file, input_audio, output_text and refusal";
            Err(place.below("type").refused(kinds))
        }
    }
}

fn file(place: &FieldPath<'_>, part: &Value) -> Result<Part, Refused> {
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

fn tool_call(place: &FieldPath<'_>, item: &Value) -> Result<ToolCall, Refused> {
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
) -> Result<ToolCall, Refused> {
    let (id, name) = (
        place.text(item, "call_id")?.to_owned(),
        place.text(item, "name")?.to_owned(),
    );
    Ok(ToolCall {
        id,
        name,
        arguments,
        opaque,
    })
}

/// An item that only targets of this dialect know: a call that the client executed, its output, or
/// anything else.
fn of_this_dialect(
    place: &FieldPath<'_>,
    kind: &str,
    item: &Value,
    before: &[Message],
) -> Result<(Role, Vec<Part>), Refused> {
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
        let (call_id, content) = (call_id.to_owned(), item.to_string());
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

/// A tool's output; pictures in it follow it, because results are texts in most dialects.
fn output(place: &FieldPath<'_>, item: &Value, before: &[Message]) -> Result<Vec<Part>, Refused> {
    let call_id = place.text(item, "call_id")?.to_owned();
    let written = item
        .get("output")
        .ok_or_else(|| place.below("output").refused("is missing"))?;
    let parts = content(&place.below("output"), written)?;
    let texts: Vec<&str> = parts.iter().filter_map(Part::as_text).collect();
    let name = called(before, &call_id);
    let mut output = vec![Part::ToolResult(ToolResult {
        call_id,
        name,
        content: texts.join("\n"),
        is_error: false,
    })];
    output.extend(parts.into_iter().filter(|part| part.as_text().is_none()));
    Ok(output)
}

/// What the model thought, with what its provider needs back: what is in no envelope is `OpenAI`'s
/// own, and goes back to it as the item that it came in.
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
