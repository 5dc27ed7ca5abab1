//! Translates the neutral conversation into messages of content blocks.
//!
//! The server rejects adjacent messages of one role, so everything from the user after tool results
//! joins their turn: behind them, or, for models that accept nothing beside results, inside the
//! last one.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{REDACTED, SIGNATURE};
use crate::{
    domain::{
        message::{Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult},
        own_fields::CITATIONS,
        target::Dialect,
    },
    turns::{
        ProviderTurn, Speaker, Turns, arguments, fields_of_texts, opaque_text, plain_text,
        plain_texts, split_instructions,
    },
};

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
/// When media is given by an address that the API cannot fetch.
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
                Role::System | Role::Developer | Role::User | Role::Tool => {
                    add_users(&mut turns, part)?;
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

fn add_users(turns: &mut Turns, part: &Part) -> Result<(), String> {
    match part {
        Part::ToolResult(result) => turns.add_result(&result.call_id, tool_result(result)),
        Part::Text(_) | Part::Refusal(_) => {
            if let Some(words) = plain_text(part) {
                turns.add(Speaker::User, text(words));
            }
        }
        Part::Image(media) => {
            let format = media.mime_type.rsplit('/').next().unwrap_or_default();
            let format = if format == "jpg" { "jpeg" } else { format };
            turns.add(
                Speaker::User,
                json!({"image": {"format": format, "source": source(media)?}}),
            );
        }
        Part::File(media) => {
            let format = document_format(&media.mime_type);
            let name = document_name(media.name.as_deref());
            turns.add(
                Speaker::User,
                json!({"document": {"format": format, "name": name, "source": source(media)?}}),
            );
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
        json!({"json": {}})
    } else {
        text(&result.content)
    };
    let mut fields = json!({"toolUseId": result.call_id, "content": [content]});
    if result.is_error {
        fields["status"] = json!("error");
    }
    json!({"toolResult": fields})
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

fn document_format(mime_type: &str) -> &'static str {
    match mime_type {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "text/html" => "html",
        "text/markdown" => "md",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        _ => "txt",
    }
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
}
