//! Translates the neutral conversation into contents of parts.
//!
//! Function responses are alone in the content after their calls, in the calls' order; the user's
//! text beside them comes in a content of its own. Instructions within the conversation become user
//! text that is marked as the operator's, for there is no other role.

use std::collections::HashMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{BLOCK, SIGNATURE};
use crate::{
    domain::message::{Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult},
    {
        call_ids::is_made,
        tool_media::{is_of_result, note, refuse, stated_type, type_of},
        turns::{
            Speaker, Turns, arguments, opaque_json, opaque_text, operators_words, plain_text,
            plain_texts, split_instructions,
        },
    },
};

/// Documented to pass the server's check for calls that it did not make itself.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// Types that models from version 3 on take within the result of a function.
const IN_RESULTS: [&str; 5] = [
    "image/png",
    "image/jpeg",
    "image/webp",
    "application/pdf",
    "text/plain",
];

/// A conversation in this dialect.
pub(super) struct GeminiConversation {
    /// Standing instructions, as parts.
    pub(super) system: Vec<Value>,
    /// The turns.
    pub(super) contents: Vec<Value>,
}

/// The tool calls of a conversation by id.
struct Calls<'a>(HashMap<&'a str, (usize, &'a str)>);

/// Translates; `signs` is whether the model requires signatures with calls, as from version 3 on.
///
/// # Errors
/// When the type of media that is given by value is not known.
pub(super) fn translate(messages: &[Message], signs: bool) -> Result<GeminiConversation, String> {
    refuse(messages, "Gemini", |_| true)?;
    let (front, rest) = split_instructions(messages);
    let calls = Calls::of(rest);
    // Signatures are required since the user's last turn.
    let turn_start = rest.iter().rposition(is_user_turn).unwrap_or(0);
    let mut turns = Turns::default();
    for (place, message) in rest.iter().enumerate() {
        match message.role {
            Role::System | Role::Developer => {
                message
                    .parts
                    .iter()
                    .filter_map(plain_text)
                    .for_each(|words| turns.add(Speaker::User, text(&operators_words(words))));
            }
            Role::User | Role::Tool => {
                for (place, part) in message.parts.iter().enumerate() {
                    match part {
                        Part::Image(media) | Part::File(media) if is_of_result(message, place) => {
                            add_beside(&mut turns, media, signs);
                        }
                        _ => add_users(&mut turns, part, &calls),
                    }
                }
            }
            Role::Assistant => {
                let needs_signature = signs && place > turn_start;
                for mut part in message.parts.iter().filter_map(models) {
                    if needs_signature && is_bare_call(&part) && !has_call(&turns) {
                        part["thoughtSignature"] = json!(FOREIGN_SIGNATURE);
                    }
                    turns.add(Speaker::Model, part);
                }
            }
        }
    }
    Ok(GeminiConversation {
        system: plain_texts(front).map(text).collect(),
        contents: contents(turns, &calls),
    })
}

fn contents(turns: Turns, calls: &Calls<'_>) -> Vec<Value> {
    let mut contents = Vec::new();
    for mut turn in turns.into_turns() {
        let role = if turn.speaker == Speaker::Model {
            "model"
        } else {
            "user"
        };
        turn.results.sort_by_key(|(id, _)| calls.place(id));
        let responses: Vec<Value> = turn
            .results
            .into_iter()
            .map(|(_, response)| response)
            .collect();
        let all = [responses, turn.rest]
            .into_iter()
            .filter(|parts| !parts.is_empty());
        contents.extend(all.map(|parts| json!({"role": role, "parts": parts})));
    }
    contents
}

// === impl Calls ===

impl<'a> Calls<'a> {
    fn of(messages: &'a [Message]) -> Self {
        let parts = messages.iter().flat_map(|message| &message.parts);
        let calls = parts.filter_map(|part| {
            if let Part::ToolCall(call) = part {
                Some(call)
            } else {
                None
            }
        });
        Self(
            calls
                .enumerate()
                .map(|(place, call)| (call.id.as_str(), (place, call.name.as_str())))
                .collect(),
        )
    }

    fn place(&self, id: &str) -> usize {
        self.0.get(id).map_or(usize::MAX, |(place, _)| *place)
    }

    fn name(&self, id: &str) -> Option<&'a str> {
        self.0.get(id).map(|(_, name)| *name)
    }
}

fn is_user_turn(message: &Message) -> bool {
    let has_user_content = |part: &Part| !matches!(part, Part::ToolResult(_)) && !part.is_fields();
    message.role.is_operator()
        || (message.role == Role::User && message.parts.iter().any(has_user_content))
}

/// Returns whether the model's turn, as far as it is put together, holds a call: only its first one
/// is signed.
fn has_call(turns: &Turns) -> bool {
    let models = turns
        .last_turn()
        .filter(|turn| turn.speaker == Speaker::Model);
    models.is_some_and(|turn| {
        turn.rest
            .iter()
            .any(|part| part.get("functionCall").is_some())
    })
}

fn is_bare_call(part: &Value) -> bool {
    part.get("functionCall").is_some() && part.get("thoughtSignature").is_none()
}

fn text(words: &str) -> Value {
    json!({"text": words})
}

fn add_users(turns: &mut Turns, part: &Part, calls: &Calls<'_>) {
    match part {
        Part::ToolResult(result) => turns.add_result(&result.call_id, response(result, calls)),
        Part::Text(_) | Part::Refusal(_) => {
            if let Some(words) = plain_text(part) {
                turns.add(Speaker::User, text(words));
            }
        }
        Part::Image(media) | Part::File(media) => turns.add(Speaker::User, data(media)),
        // Only the model thinks and calls.
        Part::Reasoning(_) | Part::ToolCall(_) => {}
    }
}

/// Adds an image or file to the last result, if the model takes it there, else behind the results.
fn add_beside(turns: &mut Turns, media: &Media, is_from_version_3: bool) {
    let written = data(media);
    let is_taken = is_from_version_3
        && written.get("inlineData").is_some()
        && type_of(media).is_some_and(|kind| IN_RESULTS.contains(&&*kind));
    let result = turns.last_result();
    let Some(result) = result.map(|result| &mut result["functionResponse"]) else {
        return turns.add(Speaker::User, written);
    };
    if is_taken {
        match &mut result["parts"] {
            Value::Array(parts) => parts.push(written),
            parts => *parts = json!([written]),
        }
        return;
    }
    let words = result["response"].as_object_mut();
    if let Some(Value::String(words)) = words.and_then(|words| words.values_mut().next()) {
        if !words.is_empty() {
            words.push('\n');
        }
        words.push_str(&note(media));
    }
    turns.add(Speaker::User, written);
}

fn models(part: &Part) -> Option<Value> {
    match part {
        Part::Text(_) | Part::Refusal(_) => plain_text(part).map(text),
        Part::Reasoning(piece) => thought(piece),
        Part::ToolCall(call) => Some(function_call(call)),
        Part::Image(media) | Part::File(media) => Some(data(media)),
        Part::ToolResult(_) => None,
    }
}

/// Returns a thought as it came; one without text is the signature of the part before it, or a part
/// that only this API knows.
fn thought(piece: &Reasoning) -> Option<Value> {
    if let Some(part) = opaque_json(piece.opaque.as_ref(), BLOCK) {
        return Some(part);
    }
    let signature = opaque_text(piece.opaque.as_ref(), SIGNATURE)?;
    let mut part = json!({"text": piece.text});
    if !piece.text.is_empty() {
        part["thought"] = json!(true);
    }
    part["thoughtSignature"] = json!(signature);
    Some(part)
}

fn function_call(call: &ToolCall) -> Value {
    let mut fields = Map::new();
    add_id(&mut fields, &call.id);
    fields.insert("name".to_owned(), json!(call.name));
    fields.insert("args".to_owned(), arguments(&call.arguments));
    let mut part = json!({"functionCall": fields});
    if let Some(signature) = opaque_text(call.opaque.as_ref(), SIGNATURE) {
        part["thoughtSignature"] = json!(signature);
    }
    part
}

fn response(result: &ToolResult, calls: &Calls<'_>) -> Value {
    let mut fields = Map::new();
    add_id(&mut fields, &result.call_id);
    let name = calls.name(&result.call_id).unwrap_or(&result.name);
    fields.insert("name".to_owned(), json!(name));
    let key = if result.is_error { "error" } else { "output" };
    fields.insert("response".to_owned(), json!({key: result.content}));
    json!({"functionResponse": fields})
}

fn add_id(fields: &mut Map<String, Value>, id: &str) {
    // The server does not know an id that it did not give.
    if !id.is_empty() && !is_made(id) {
        fields.insert("id".to_owned(), json!(id));
    }
}

fn data(media: &Media) -> Value {
    match &media.source {
        MediaSource::Url(url) => {
            let mut fields = json!({"fileUri": url});
            if let Some(kind) = type_of(media) {
                fields["mimeType"] = json!(kind);
            }
            json!({"fileData": fields})
        }
        MediaSource::Bytes(bytes) => {
            json!({"inlineData": {"mimeType": stated_type(media), "data": STANDARD.encode(bytes)}})
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
    fn what_a_tool_returned_is_in_its_response_or_behind_it() {
        let own = json!({"inlineData": {"mimeType": "image/png", "data": "b3du"}});
        let picture = json!({"inlineData": {"mimeType": "image/png", "data": "b25l"}});
        let document = json!({"inlineData": {"mimeType": "application/pdf", "data": "dHdv"}});
        let response = |id: &str, words: &str| json!({"functionResponse": {"id": id, "name": "draw", "response": {"output": words}}});
        let new = translate(&conversation(false, None), true)
            .unwrap()
            .contents;
        let mut first = response("a", "first");
        first["functionResponse"]["parts"] = json!([picture, document]);
        assert_eq!(new[2]["parts"], json!([first, response("b", "second")]));
        assert_eq!(new[3]["parts"], json!([own, {"text": "and this?"}]));
        let old = translate(&conversation(false, None), false)
            .unwrap()
            .contents;
        let noted = "first\n[image/png: shown after the results of the tools]\n[application/pdf `two.pdf`: shown after the results of the tools]";
        assert_eq!(
            old[2]["parts"],
            json!([response("a", noted), response("b", "second")])
        );
        assert_eq!(
            old[3]["parts"],
            json!([picture, document, own, {"text": "and this?"}])
        );
        let unknown = Part::File(media("application/octet-stream", b"\xffx", None));
        assert!(translate(&conversation(false, Some(unknown)), true).is_err());
    }

    #[test]
    fn later_instructions_are_marked_in_the_users_turn() {
        let messages = later_instructions();
        let translated = translate(&messages, false).unwrap();
        assert_eq!(translated.system, [text("Be kind.")]);
        let parts = [text("Hi"), text("<system>\nBe brief.\n</system>")];
        assert_eq!(
            translated.contents,
            [json!({"role": "user", "parts": parts})]
        );
    }
}
