//! Prompts and completions as the `GenAI` conventions put them on a span: JSON, for those who switched
//! it on.
//!
//! Texts are cut at a bound; bytes of images and files never enter a span.

use serde_json::{Value, json};

use crate::domain::{
    completion::{BlockKind, Delta},
    message::{Media, MediaSource, Message, Part, Role},
};

/// Most bytes of text in one attribute; what is beyond it is left out, with an ellipsis in its
/// place.
const MAX_TEXT_BYTES: usize = 64 << 10;

/// Space that may still be written.
struct Room(usize);

/// Answer as far as it came.
#[derive(Debug, Default)]
pub(super) struct CapturedAnswer {
    blocks: Vec<(u32, BlockKind, String)>,
    bytes: usize,
    finish: Option<&'static str>,
}

/// Returns the conversation, for `gen_ai.input.messages`.
pub(super) fn input_messages(messages: &[Message]) -> String {
    let mut room = Room(MAX_TEXT_BYTES);
    let message = |message: &Message| {
        let role = match message.role {
            Role::System | Role::Developer => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let parts: Vec<Value> = message
            .parts
            .iter()
            .map(|part| part_of(part, &mut room))
            .collect();
        json!({ "role": role, "parts": parts })
    };
    Value::Array(messages.iter().map(message).collect()).to_string()
}

fn part_of(part: &Part, room: &mut Room) -> Value {
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            json!({ "type": "text", "content": room.take(text) })
        }
        Part::Reasoning(reasoning) => {
            json!({ "type": "reasoning", "content": room.take(&reasoning.text) })
        }
        Part::ToolCall(call) => {
            json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": room.take(&call.arguments) })
        }
        Part::ToolResult(result) => {
            json!({ "type": "tool_call_response", "id": result.call_id, "response": room.take(&result.content) })
        }
        Part::Image(media) => media_of("image", media, room),
        Part::File(media) => media_of("document", media, room),
    }
}

fn media_of(modality: &str, media: &Media, room: &mut Room) -> Value {
    match &media.source {
        MediaSource::Bytes(bytes) => {
            json!({ "type": "blob", "modality": modality, "mime_type": media.mime_type, "bytes": bytes.len() })
        }
        MediaSource::Url(url) => {
            json!({ "type": "uri", "modality": modality, "mime_type": media.mime_type, "uri": room.take(url) })
        }
    }
}

// === impl Room ===

impl Room {
    fn take(&mut self, text: &str) -> String {
        let mut end = text.len().min(self.0);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0 -= end;
        if end < text.len() {
            format!("{}…", &text[..end])
        } else {
            text.to_owned()
        }
    }
}

// === impl CapturedAnswer ===

impl CapturedAnswer {
    pub(super) fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::BlockStart { block, kind } => {
                self.blocks.push((*block, kind.clone(), String::new()));
            }
            // Beyond the bound a piece is left out whole: the text is cut where it is written.
            Delta::BlockDelta { block, text } if self.bytes <= MAX_TEXT_BYTES => {
                self.bytes += text.len();
                if let Some((_, _, written)) = self
                    .blocks
                    .iter_mut()
                    .rfind(|(number, _, _)| number == block)
                {
                    written.push_str(text);
                }
            }
            Delta::Finish { reason, .. } => self.finish = Some(reason.as_str()),
            Delta::Start { .. }
            | Delta::BlockDelta { .. }
            | Delta::BlockStop { .. }
            | Delta::Usage(_)
            | Delta::Around(_)
            | Delta::ReadOn(_)
            | Delta::ToolReply(_) => {}
        }
    }

    /// Returns the value for `gen_ai.output.messages`; without a reason to finish, the completion broke
    /// off.
    pub(super) fn output_messages(&self) -> String {
        let mut room = Room(MAX_TEXT_BYTES);
        let parts = self.blocks.iter().map(|(_, kind, text)| match kind {
            BlockKind::Text | BlockKind::Refusal => {
                json!({ "type": "text", "content": room.take(text) })
            }
            BlockKind::Reasoning => json!({ "type": "reasoning", "content": room.take(text) }),
            BlockKind::ToolCall { id, name } => {
                json!({ "type": "tool_call", "id": id, "name": name, "arguments": room.take(text) })
            }
        });
        let parts: Vec<Value> = parts.collect();
        let finish = self.finish.unwrap_or("error");
        json!([{ "role": "assistant", "parts": parts, "finish_reason": finish }]).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::completion::FinishReason;

    #[test]
    fn a_conversation_and_its_answer_are_told_in_the_words_of_the_conventions_and_within_the_bound()
    {
        let image = Media {
            mime_type: "image/png".to_owned(),
            source: MediaSource::Bytes(vec![7; 9]),
            name: None,
            detail: None,
        };
        let parts = vec![Part::Text("é".repeat(MAX_TEXT_BYTES)), Part::Image(image)];
        let messages = [
            Message::text(Role::Developer, "Be brief."),
            Message::new(Role::User, parts),
        ];
        let shown: Value = serde_json::from_str(&input_messages(&messages)).unwrap();
        assert_eq!(
            shown[0],
            json!({ "role": "system", "parts": [{ "type": "text", "content": "Be brief." }] })
        );
        assert!(
            shown[1]["parts"][0]["content"].as_str().unwrap().len() <= MAX_TEXT_BYTES + "…".len()
        );
        let blob =
            json!({ "type": "blob", "modality": "image", "mime_type": "image/png", "bytes": 9 });
        assert_eq!(shown[1]["parts"][1], blob);

        let mut answer = CapturedAnswer::default();
        answer.add(&Delta::BlockStart {
            block: 0,
            kind: BlockKind::Text,
        });
        answer.add(&Delta::BlockDelta {
            block: 0,
            text: "Hel".to_owned(),
        });
        answer.add(&Delta::BlockDelta {
            block: 0,
            text: "lo".to_owned(),
        });
        assert!(
            answer
                .output_messages()
                .contains("\"finish_reason\":\"error\"")
        );
        answer.add(&Delta::Finish {
            reason: FinishReason::Stop,
            raw: String::new(),
        });
        let shown: Value = serde_json::from_str(&answer.output_messages()).unwrap();
        let parts = json!([{ "type": "text", "content": "Hello" }]);
        assert_eq!(
            shown,
            json!([{ "role": "assistant", "parts": parts, "finish_reason": "stop" }])
        );
    }
}
