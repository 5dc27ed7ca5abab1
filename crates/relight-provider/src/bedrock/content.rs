//! Translates the neutral conversation into messages of content blocks.
//!
//! The server rejects adjacent messages of one role, so everything from the user after tool results
//! joins their turn: behind them, or, for models that accept nothing beside results, inside the
//! last one. Instructions within the conversation are marked there as the operator's.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{REDACTED, SIGNATURE};
use crate::{
    domain::{
        message::{Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult},
        own_fields::CITATIONS,
        target::Dialect,
    },
    tool_media::{is_of_result, is_text, note, refusal, type_of},
    turns::{
        ProviderTurn, Speaker, Turns, arguments, fields_of_texts, opaque_text, operators_words,
        plain_text, plain_texts, split_instructions,
    },
};

/// The block and format of media that are no documents, by their type.
const FORMATS: [(&str, &str, &str); 26] = [
    ("image/png", "image", "png"),
    ("image/jpeg", "image", "jpeg"),
    ("image/gif", "image", "gif"),
    ("image/webp", "image", "webp"),
    ("audio/mpeg", "audio", "mp3"),
    ("audio/mp3", "audio", "mp3"),
    ("audio/wav", "audio", "wav"),
    ("audio/x-wav", "audio", "wav"),
    ("audio/wave", "audio", "wav"),
    ("audio/mp4", "audio", "mp4"),
    ("audio/m4a", "audio", "m4a"),
    ("audio/x-m4a", "audio", "m4a"),
    ("audio/aac", "audio", "aac"),
    ("audio/x-aac", "audio", "x-aac"),
    ("audio/flac", "audio", "flac"),
    ("audio/x-flac", "audio", "flac"),
    ("audio/ogg", "audio", "ogg"),
    ("audio/opus", "audio", "opus"),
    ("audio/webm", "audio", "webm"),
    ("video/mp4", "video", "mp4"),
    ("video/quicktime", "video", "mov"),
    ("video/webm", "video", "webm"),
    ("video/x-matroska", "video", "mkv"),
    ("video/mpeg", "video", "mpeg"),
    ("video/x-flv", "video", "flv"),
    ("video/3gpp", "video", "three_gp"),
];

/// A conversation in this dialect.
pub(super) struct BedrockConversation {
    /// Standing instructions.
    pub(super) system: Vec<Value>,
    /// The turns.
    pub(super) messages: Vec<Value>,
}

/// Translates; `mixes` is whether the model accepts other content beside tool results.
///
/// # Errors
/// When media is of a type that the API does not take, or given by an address that it cannot fetch.
pub(super) fn translate(messages: &[Message], mixes: bool) -> Result<BedrockConversation, String> {
    let (front, rest) = split_instructions(messages);
    let mut turns = Turns::default();
    for message in rest {
        let mut fields = fields_of_texts(&message.parts, Dialect::Bedrock);
        for (place, part) in message.parts.iter().enumerate() {
            match message.role {
                Role::Assistant => {
                    if let Some(block) = models(part) {
                        let cited = fields
                            .remove(&place)
                            .and_then(|mut own| own.remove(CITATIONS));
                        turns.add(Speaker::Model, with_citations(block, cited));
                    }
                }
                Role::System | Role::Developer => {
                    if let Some(words) = plain_text(part) {
                        turns.add(Speaker::User, text(&operators_words(words)));
                    }
                }
                Role::User | Role::Tool => {
                    add_users(&mut turns, part, is_of_result(message, place))?;
                }
            }
        }
    }
    Ok(BedrockConversation {
        system: plain_texts(front).map(text).collect(),
        messages: turns
            .into_turns()
            .into_iter()
            .map(|turn| written(turn, mixes))
            .collect(),
    })
}

fn written(mut turn: ProviderTurn, mixes: bool) -> Value {
    let role = match turn.speaker {
        Speaker::Model => "assistant",
        Speaker::User | Speaker::Operator => "user",
    };
    if !mixes
        && let Some((_, last)) = turn.results.last_mut()
        && let Some(content) = last
            .pointer_mut("/toolResult/content")
            .and_then(Value::as_array_mut)
    {
        content.append(&mut turn.rest);
    }
    json!({"role": role, "content": turn.into_blocks()})
}

fn text(words: &str) -> Value {
    json!({"text": words})
}

fn add_users(turns: &mut Turns, part: &Part, is_of_result: bool) -> Result<(), String> {
    match part {
        Part::ToolResult(result) => turns.add_result(&result.call_id, tool_result(result)),
        Part::Text(_) | Part::Refusal(_) => {
            if let Some(words) = plain_text(part) {
                turns.add(Speaker::User, text(words));
            }
        }
        Part::Image(media) | Part::File(media) => {
            let block = media_block(media)?;
            let result = turns.last_result().filter(|_| is_of_result);
            let content = result
                .and_then(|it| it.pointer_mut("/toolResult/content"))
                .and_then(Value::as_array_mut);
            match content {
                // A result takes all media but sounds.
                Some(content) if block.get("audio").is_none() => {
                    content.retain(|it| it != &nothing());
                    content.push(block);
                }
                Some(content) => {
                    content.push(text(&note(media)));
                    turns.add(Speaker::User, block);
                }
                None => turns.add(Speaker::User, block),
            }
        }
        // Only the model thinks and calls.
        Part::Reasoning(_) | Part::ToolCall(_) => {}
    }
    Ok(())
}

fn models(part: &Part) -> Option<Value> {
    match part {
        Part::Text(_) | Part::Refusal(_) => plain_text(part).map(text),
        Part::Reasoning(piece) => reasoning(piece),
        Part::ToolCall(ToolCall {
            id,
            name,
            arguments: given,
            ..
        }) => Some(json!({"toolUse": {"toolUseId": id, "name": name, "input": arguments(given)}})),
        // The API takes none of these from the model.
        Part::Image(_) | Part::File(_) | Part::ToolResult(_) => None,
    }
}

/// Returns a text with its citations, in the block that the API has for both.
fn with_citations(text: Value, citations: Option<Value>) -> Value {
    match citations {
        Some(citations) => {
            json!({"citationsContent": {"content": [text], CITATIONS: citations}})
        }
        None => text,
    }
}

/// Reasoning as it came; without a signature of this provider it would be refused.
fn reasoning(piece: &Reasoning) -> Option<Value> {
    let opaque = piece.opaque.as_ref();
    if let Some(signature) = opaque_text(opaque, SIGNATURE) {
        let text = json!({"text": piece.text, "signature": signature});
        return Some(json!({"reasoningContent": {"reasoningText": text}}));
    }
    opaque_text(opaque, REDACTED).map(|data| json!({"reasoningContent": {"redactedContent": data}}))
}

/// Success is not stated: some models reject the field.
fn tool_result(result: &ToolResult) -> Value {
    // The server refuses blank texts.
    let content = if result.content.trim().is_empty() {
        nothing()
    } else {
        text(&result.content)
    };
    let mut fields = json!({"toolUseId": result.call_id, "content": [content]});
    if result.is_error {
        fields["status"] = json!("error");
    }
    json!({"toolResult": fields})
}

fn nothing() -> Value {
    json!({"json": {}})
}

/// Returns an image, document, sound or film in the block that the API has for its type.
fn media_block(media: &Media) -> Result<Value, String> {
    let refused = || refusal("Bedrock", media);
    let kind = type_of(media).ok_or_else(refused)?;
    let source = source(media)?;
    if let Some(format) = document_format(&kind) {
        let name = document_name(media.name.as_deref());
        return Ok(json!({"document": {"format": format, "name": name, "source": source}}));
    }
    let known = FORMATS.iter().find(|(known, ..)| *known == kind);
    let (_, block, format) = known.ok_or_else(refused)?;
    Ok(json!({*block: {"format": format, "source": source}}))
}

fn source(media: &Media) -> Result<Value, String> {
    match &media.source {
        MediaSource::Bytes(bytes) => Ok(json!({"bytes": STANDARD.encode(bytes)})),
        MediaSource::Url(url) if url.starts_with("s3://") => Ok(json!({"s3Location": {"uri": url}})),
        MediaSource::Url(_) => {
            Err("Invalid request: Bedrock takes images and files by value or from S3, not from other URLs".to_owned())
        }
    }
}

/// Returns the format of a document; `None` if it is none.
fn document_format(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "text/html" => "html",
        "text/markdown" => "md",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        text if is_text(text) => "txt",
        _ => return None,
    })
}

/// The API takes letters, digits, single spaces, hyphens and brackets.
fn document_name(name: Option<&str>) -> String {
    let name = name.unwrap_or_default();
    let letters = name.chars().map(|it| {
        if it.is_ascii_alphanumeric() || "-()[]".contains(it) {
            it
        } else {
            ' '
        }
    });
    let plain: String = letters.take(200).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    if words.is_empty() {
        "document".to_owned()
    } else {
        words.join(" ")
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
    fn a_document_has_a_name_of_plain_letters() {
        assert_eq!(
            document_name(Some("Bericht – v1.2.pdf")),
            "Bericht v1 2 pdf"
        );
        assert_eq!(document_name(Some("…")), "document");
        assert_eq!(document_name(None), "document");
    }

    #[test]
    fn later_instructions_are_marked_in_the_users_turn() {
        let messages = later_instructions();
        let translated = translate(&messages, true).unwrap();
        assert_eq!(translated.system, [text("Be kind.")]);
        let content = [text("Hi"), text("<system>\nBe brief.\n</system>")];
        let turn = json!({"role": "user", "content": content});
        assert_eq!(translated.messages, [turn]);
    }

    #[test]
    fn a_picture_behind_a_url_is_refused_and_one_in_s3_is_not() {
        let media = |url: &str| Media {
            mime_type: "image/jpg".into(),
            source: MediaSource::Url(url.into()),
            name: None,
            detail: None,
        };
        let user = |url: &str| vec![Message::new(Role::User, vec![Part::Image(media(url))])];
        assert!(translate(&user("https://x.test/a.jpg"), true).is_err());
        let taken = translate(&user("s3://bucket/a.jpg"), true).unwrap();
        let image = json!({"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://bucket/a.jpg"}}}});
        assert_eq!(
            taken.messages,
            [json!({"role": "user", "content": [image]})]
        );
    }

    #[test]
    fn what_a_tool_returned_is_in_its_result() {
        let sound = Part::File(media("audio/mp4", b"six", None));
        let taken = translate(&conversation(false, Some(sound)), true).unwrap();
        let image = |bytes: &str| json!({"image": {"format": "png", "source": {"bytes": bytes}}});
        let document =
            json!({"document": {"format": "pdf", "name": "two pdf", "source": {"bytes": "dHdv"}}});
        let note = json!({"text": "[audio/mp4: shown after the results of the tools]"});
        let first = json!([{"text": "first"}, image("b25l"), document, note]);
        assert_eq!(
            taken.messages[2]["content"],
            json!([
                {"toolResult": {"toolUseId": "a", "content": first}},
                {"toolResult": {"toolUseId": "b", "content": [{"text": "second"}]}},
                {"audio": {"format": "mp4", "source": {"bytes": "c2l4"}}},
                image("b3du"),
                {"text": "and this?"},
            ])
        );
        assert_eq!(taken.messages.len(), 3);
    }

    #[test]
    fn what_the_api_does_not_take_is_refused_with_its_type() {
        let user = |media| vec![Message::new(Role::User, vec![Part::File(media)])];
        for (kind, bytes, said) in [
            ("application/zip", &b"x"[..], "application/zip"),
            ("image/svg+xml", b"x", "image/svg+xml"),
            ("application/octet-stream", b"\xffx", "not stated"),
        ] {
            let refused = translate(&user(media(kind, bytes, None)), true);
            let words = refused.map(|_| ()).unwrap_err();
            assert!(
                words.starts_with("Invalid request") && words.contains(said),
                "{words}"
            );
        }
        let bare = media("application/octet-stream", b"%PDF-1.7", None);
        let taken = translate(&user(bare), true).unwrap();
        assert_eq!(taken.messages[0]["content"][0]["document"]["format"], "pdf");
    }
}
