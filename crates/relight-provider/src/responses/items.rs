//! Translates the neutral conversation into items.
//!
//! Outputs of tools come right behind their calls, whatever message they were in; a reasoning item
//! is sent back only with the item that it led to, for the server rejects one without the other.
//! Items that came from this dialect go back as they came.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{ACTIONS, ANNOTATIONS, BLOCK, ITEM, NAMESPACE, REASONING, custom_input};
use crate::{
    domain::{
        message::{Media, MediaSource, Message, Opaque, Part, Role, ToolCall, ToolResult},
        own_fields::{self, PartFields},
        target::Dialect,
    },
    tool_media::{is_of_result, stated_type},
    turns::{fields_of_texts, opaque_json, opaque_text},
};

/// Returns the conversation in this dialect; `custom` are the names of the tools that take a text
/// and no JSON.
pub fn translate(messages: &[Message], custom: &[&str]) -> Vec<Value> {
    let mut items = Vec::with_capacity(messages.len());
    for message in messages {
        match message.role {
            Role::Assistant => models(message, custom, &mut items),
            Role::System | Role::Developer | Role::User | Role::Tool => {
                let of_parts = own_fields::of_parts(Dialect::OpenaiResponses, &message.parts);
                for (place, part) in message.parts.iter().enumerate() {
                    if let Part::ToolResult(result) = part {
                        let mut item = output(result, custom);
                        if let Some(own) = of_parts.get(&place) {
                            own_fields::merge_into_result(&mut item, "output", "input_text", own);
                        }
                        items.push(item);
                    } else if is_of_result(message, place)
                        && let Some(content) = content(part)
                    {
                        add_beside(items.last_mut(), with(&of_parts, place, content));
                    }
                }
                items.extend(message_item(message, &of_parts));
            }
        }
    }
    items
}

/// Adds an image or file to the output of a tool.
fn add_beside(output: Option<&mut Value>, content: Value) {
    let Some(output) = output.and_then(|item| item.get_mut("output")) else {
        return;
    };
    let mut all = match output.take() {
        Value::Array(all) => all,
        Value::String(words) if !words.is_empty() => {
            vec![json!({"type": "input_text", "text": words})]
        }
        _ => Vec::new(),
    };
    all.push(content);
    *output = Value::Array(all);
}

/// Returns the message beside its tool results; `None` if nothing is left.
fn message_item(message: &Message, of_parts: &PartFields) -> Option<Value> {
    let role = match message.role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User | Role::Tool | Role::Assistant => "user",
    };
    let parts = message.parts.iter().enumerate();
    let parts = parts.filter(|(place, _)| !is_of_result(message, *place));
    let content = parts.filter_map(|(place, part)| Some(with(of_parts, place, content(part)?)));
    let content: Vec<Value> = content.collect();
    if content.is_empty() {
        return None;
    }
    let mut item = json!({"type": "message", "role": role, "content": content});
    let own = own_fields::of_message(Dialect::OpenaiResponses, &message.parts);
    own_fields::merge(&mut item, &own);
    Some(item)
}

/// Returns the form of a part as it is written, with the fields of it that only this dialect knows.
fn with(of_parts: &PartFields, place: usize, mut written: Value) -> Value {
    if let Some(own) = of_parts.get(&place) {
        own_fields::merge(&mut written, own);
    }
    written
}

fn content(part: &Part) -> Option<Value> {
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            (!text.is_empty()).then(|| json!({"type": "input_text", "text": text}))
        }
        Part::Image(media) => {
            let detail = media.detail.as_deref().unwrap_or("auto");
            Some(json!({"type": "input_image", "image_url": url_of(media), "detail": detail}))
        }
        Part::File(media) => Some(file(media)),
        Part::Reasoning(piece) => own_item(piece.opaque.as_ref(), BLOCK),
        Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

/// The model's turn: neighbouring texts are one message; reasoning waits for what it led to.
fn models(message: &Message, custom: &[&str], items: &mut Vec<Value>) {
    let mut waiting: Vec<Value> = Vec::new();
    let mut texts: Vec<Value> = Vec::new();
    let mut around = Map::new();
    let mut fields = fields_of_texts(&message.parts, Dialect::OpenaiResponses);
    let of_parts = own_fields::of_parts(Dialect::OpenaiResponses, &message.parts);
    for (place, part) in message.parts.iter().enumerate() {
        match part {
            Part::Text(text) if !text.is_empty() => {
                items.append(&mut waiting);
                let mut own = fields.remove(&place).unwrap_or_default();
                let mut content = json!({"type": "output_text", "text": text});
                if let Some(annotations) = own.remove(ANNOTATIONS) {
                    content[ANNOTATIONS] = annotations;
                }
                // Texts of messages that have other fields are messages of their own.
                if own != around {
                    flush(&mut texts, &around, items);
                    around = own;
                }
                texts.push(with(&of_parts, place, content));
            }
            Part::Refusal(text) if !text.is_empty() => {
                items.append(&mut waiting);
                let content = json!({"type": "refusal", "refusal": text});
                texts.push(with(&of_parts, place, content));
            }
            // They are with their text or call.
            Part::Reasoning(_) if part.is_fields() => {}
            Part::Reasoning(piece) => {
                if let Some(block) = own_item(piece.opaque.as_ref(), BLOCK) {
                    texts.push(block);
                    continue;
                }
                flush(&mut texts, &around, items);
                waiting.extend(own_item(piece.opaque.as_ref(), REASONING));
                if let Some(item) = own_item(piece.opaque.as_ref(), ITEM) {
                    items.append(&mut waiting);
                    items.push(item);
                }
            }
            Part::ToolCall(call) => {
                flush(&mut texts, &around, items);
                items.append(&mut waiting);
                items.push(with(&of_parts, place, tool_call(call, custom)));
            }
            // The API takes no pictures and no results from the model.
            Part::Text(_)
            | Part::Refusal(_)
            | Part::Image(_)
            | Part::File(_)
            | Part::ToolResult(_) => {}
        }
    }
    flush(&mut texts, &around, items);
}

fn flush(texts: &mut Vec<Value>, around: &Map<String, Value>, items: &mut Vec<Value>) {
    if !texts.is_empty() {
        let content = std::mem::take(texts);
        let mut item = json!({"type": "message", "role": "assistant", "content": content});
        for (name, value) in around {
            item[name] = value.clone();
        }
        items.push(item);
    }
}

/// Returns an item of this dialect that is kept as it came.
fn own_item(opaque: Option<&Opaque>, kind: &str) -> Option<Value> {
    opaque_json(opaque, kind).map(Value::Object)
}

fn tool_call(call: &ToolCall, custom: &[&str]) -> Value {
    if let Some(item) = own_item(call.opaque.as_ref(), ITEM) {
        return item;
    }
    if custom.contains(&call.name.as_str()) {
        let input = custom_input(&call.arguments);
        return json!({"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": input});
    }
    let arguments = if call.arguments.trim().is_empty() {
        "{}"
    } else {
        &call.arguments
    };
    let mut item = json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments});
    if let Some(namespace) = opaque_text(call.opaque.as_ref(), NAMESPACE) {
        item["namespace"] = json!(namespace);
    }
    item
}

/// The dialect has no mark for a failed tool, so the text states it. The result of an action is the
/// item that it came in.
fn output(result: &ToolResult, custom: &[&str]) -> Value {
    if ACTIONS.contains(&result.name.as_str())
        && let Ok(item) = serde_json::from_str::<Value>(&result.content)
        && item["call_id"] == result.call_id
    {
        return item;
    }
    let output = if result.is_error && !result.content.starts_with("Error") {
        format!("Error: {}", result.content)
    } else {
        result.content.clone()
    };
    let is_custom = custom.contains(&result.name.as_str());
    let kind = if is_custom {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    json!({"type": kind, "call_id": result.call_id, "output": output})
}

fn file(media: &Media) -> Value {
    match &media.source {
        MediaSource::Url(url) => json!({"type": "input_file", "file_url": url}),
        MediaSource::Bytes(_) => {
            let name = media.name.as_deref().unwrap_or("file");
            json!({"type": "input_file", "filename": name, "file_data": url_of(media)})
        }
    }
}

fn url_of(media: &Media) -> String {
    match &media.source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Bytes(bytes) => {
            format!(
                "data:{};base64,{}",
                stated_type(media),
                STANDARD.encode(bytes)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool_media::tests::{conversation, media};

    #[test]
    fn what_a_tool_returned_is_in_its_output() {
        let items = translate(&conversation(false, None), &[]);
        let image = |data: &str| json!({"type": "input_image", "image_url": format!("data:image/png;base64,{data}"), "detail": "auto"});
        let document = json!({"type": "input_file", "filename": "two.pdf", "file_data": "data:application/pdf;base64,dHdv"});
        let text = |words: &str| json!({"type": "input_text", "text": words});
        assert_eq!(
            items[3..],
            [
                json!({"type": "function_call_output", "call_id": "a", "output": [text("first"), image("b25l"), document]}),
                json!({"type": "function_call_output", "call_id": "b", "output": "second"}),
                json!({"type": "message", "role": "user", "content": [image("b3du"), text("and this?")]}),
            ]
        );
        let bare = media("application/octet-stream", b"x", Some("a.csv"));
        let sent = translate(&[Message::new(Role::User, vec![Part::File(bare)])], &[]);
        assert_eq!(
            sent[0]["content"][0]["file_data"],
            "data:text/csv;base64,eA=="
        );
    }
}
