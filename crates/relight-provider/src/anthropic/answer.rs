//! Parses the events of a message into deltas; a complete message is parsed as the events it would
//! have come in.
//!
//! Errors are checked first. Unknown events and pings are ignored; an unknown block is kept as a
//! whole, so that it can be sent back (a paused turn continues only with the blocks of its server
//! tools), and so are the citations of a text.

use std::{collections::BTreeMap, mem};

use serde_json::{Map, Value, json};

use super::{BLOCK, REDACTED, SIGNATURE, finish};
use crate::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        message::Opaque,
        own_fields, stop_reason,
        target::Dialect,
    },
    {
        blocks::{Blocks, never_began},
        reading::{Failed, ParseError, ParseStep, ResponseParser, SseFrames},
        sse::SseEvent,
        turns::opaque,
    },
};

/// Fields of a message that are read here. Which of its sequences a completion stopped at is of no
/// account but for the caller.
const MESSAGE_FIELDS: [&str; 7] = [
    "content",
    "id",
    "model",
    "role",
    "stop_reason",
    "type",
    "usage",
];

/// Fields of a call that are read here.
const CALL_FIELDS: [&str; 4] = ["id", "input", "name", "type"];

/// Fields of its usage that are read here.
const USAGE_FIELDS: [&str; 4] = [
    "usage.cache_creation_input_tokens",
    "usage.cache_read_input_tokens",
    "usage.input_tokens",
    "usage.output_tokens",
];

/// The parser of one message.
#[derive(Debug)]
pub(super) struct MessageReader {
    headers: Vec<(String, String)>,
    started: bool,
    blocks: Blocks,
    /// State that the open blocks need at their end.
    open: BTreeMap<u64, AnthropicBlock>,
    cost: finish::AnthropicUsage,
    stop_reason: Option<String>,
    /// Reason for which the model refused, as the API explains it.
    explanation: Option<String>,
    /// Fields of the message that only this dialect knows.
    around: Map<String, Value>,
    /// `true` if all of them were given on.
    around_given: bool,
    next_key: u64,
}

#[derive(Debug)]
enum AnthropicBlock {
    Text {
        citations: Vec<Value>,
    },
    Thinking {
        signature: String,
    },
    Redacted {
        data: String,
    },
    ToolUse {
        input: Value,
        /// Fields that only this dialect knows.
        own: Option<Opaque>,
    },
    /// A block of a kind not known here; torn once it got a delta that cannot be merged.
    Other {
        block: Map<String, Value>,
        input: String,
        torn: bool,
    },
}

// === impl MessageReader ===

impl MessageReader {
    pub(super) fn new(headers: Vec<(String, String)>) -> Self {
        Self {
            headers,
            started: false,
            blocks: Blocks::default(),
            open: BTreeMap::new(),
            cost: finish::AnthropicUsage::default(),
            stop_reason: None,
            explanation: None,
            around: Map::new(),
            around_given: true,
            next_key: 0,
        }
    }

    fn start(&mut self, message: &Value, out: &mut Vec<Delta>) {
        if !std::mem::replace(&mut self.started, true) {
            let text = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_owned);
            let headers = std::mem::take(&mut self.headers);
            out.push(Delta::Start {
                model: text("model"),
                response_id: text("id"),
                headers,
            });
        }
        self.add_around(message, message);
        self.give_around(out);
        out.extend(self.cost.add(message.get("usage")).map(Delta::Usage));
    }

    /// Adds fields of the message that only this dialect knows, and of the usage in an event.
    fn add_around(&mut self, message: &Value, event: &Value) {
        let fields = own_fields::unread(&MESSAGE_FIELDS, message);
        own_fields::merge_fields(&mut self.around, &fields);
        let usage = own_fields::unread(&USAGE_FIELDS, &json!({"usage": event.get("usage")}));
        own_fields::merge_fields(&mut self.around, &usage);
        self.around_given &= fields.is_empty() && usage.is_empty();
    }

    /// Gives on all fields around the message so far, if there are others than before.
    fn give_around(&mut self, out: &mut Vec<Delta>) {
        if !mem::replace(&mut self.around_given, true) {
            let around = own_fields::kept(Dialect::Anthropic, self.around.clone());
            out.extend(around.map(Delta::Around));
        }
    }

    fn begin(&mut self, key: u64, block: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if key > self.next_key {
            let words = format!("block {key} came instead of block {}", self.next_key);
            return Err(ParseError::Cut(words));
        }
        self.next_key = self.next_key.max(key + 1);
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let (kind, open, first) = match text("type") {
            "" => return Err(ParseError::Unusable(format!("block {key} has no type"))),
            "text" => {
                let citations = block.get(own_fields::CITATIONS).and_then(Value::as_array);
                let citations = citations.cloned().unwrap_or_default();
                (
                    BlockKind::Text,
                    AnthropicBlock::Text { citations },
                    text("text"),
                )
            }
            "thinking" => (
                BlockKind::Reasoning,
                AnthropicBlock::Thinking {
                    signature: text("signature").to_owned(),
                },
                text("thinking"),
            ),
            "redacted_thinking" => (
                BlockKind::Reasoning,
                AnthropicBlock::Redacted {
                    data: text("data").to_owned(),
                },
                "",
            ),
            "tool_use" => {
                let kind = BlockKind::ToolCall {
                    id: text("id").to_owned(),
                    name: text("name").to_owned(),
                };
                (
                    kind,
                    AnthropicBlock::ToolUse {
                        input: block.get("input").cloned().unwrap_or_default(),
                        own: own_fields::kept(
                            Dialect::Anthropic,
                            own_fields::unread(&CALL_FIELDS, block),
                        ),
                    },
                    "",
                )
            }
            _ => {
                let block = block.as_object().cloned().unwrap_or_default();
                (
                    BlockKind::Reasoning,
                    AnthropicBlock::Other {
                        block,
                        input: String::new(),
                        torn: false,
                    },
                    "",
                )
            }
        };
        self.blocks.open(key, kind, out)?;
        self.open.insert(key, open);
        self.blocks.add(key, first, out)
    }

    fn delta(&mut self, key: u64, delta: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let kind = delta
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let text = |name: &str| match delta.get(name) {
            Some(text) => Ok(text.as_str().unwrap_or_default()),
            None => Err(ParseError::Cut(format!(
                "a {kind} of block {key} holds no {name}"
            ))),
        };
        let open = self.open.get_mut(&key).ok_or_else(|| never_began(key))?;
        match (kind, open) {
            ("text_delta", AnthropicBlock::Text { .. }) => self.blocks.add(key, text("text")?, out),
            ("citations_delta", AnthropicBlock::Text { citations }) => {
                citations.extend(delta.get("citation").cloned());
                Ok(())
            }
            ("thinking_delta", AnthropicBlock::Thinking { .. }) => {
                self.blocks.add(key, text("thinking")?, out)
            }
            ("signature_delta", AnthropicBlock::Thinking { signature }) => {
                text("signature")?.clone_into(signature);
                Ok(())
            }
            ("input_json_delta", AnthropicBlock::ToolUse { .. }) => {
                self.blocks.add(key, text("partial_json")?, out)
            }
            ("input_json_delta", AnthropicBlock::Other { input, .. }) => {
                input.push_str(text("partial_json")?);
                Ok(())
            }
            (_, AnthropicBlock::Other { torn, .. }) => {
                *torn = true;
                Ok(())
            }
            (
                kind @ ("text_delta" | "thinking_delta" | "signature_delta" | "input_json_delta"),
                _,
            ) => Err(ParseError::Cut(format!(
                "block {key} got a {kind}, which does not fit it"
            ))),
            // Unknown deltas.
            _ => Ok(()),
        }
    }

    fn stop(&mut self, key: u64, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if key >= self.next_key {
            return Err(never_began(key));
        }
        let signed = match self.open.remove(&key) {
            Some(AnthropicBlock::Text { citations }) => {
                let fields = own_fields::cited(citations);
                self.blocks
                    .stop_text(key, (Dialect::Anthropic, fields), out);
                return Ok(());
            }
            None | Some(AnthropicBlock::Other { torn: true, .. }) => None,
            Some(AnthropicBlock::Thinking { signature }) => {
                (!signature.is_empty()).then(|| opaque(SIGNATURE, &signature))
            }
            Some(AnthropicBlock::Redacted { data }) => Some(opaque(REDACTED, &data)),
            Some(AnthropicBlock::ToolUse { input, own }) => {
                if input.as_object().is_some_and(|fields| !fields.is_empty()) {
                    self.blocks.arguments_again(key, &input.to_string(), out)?;
                }
                own
            }
            Some(AnthropicBlock::Other {
                mut block, input, ..
            }) => {
                if let Ok(input) = serde_json::from_str::<Value>(&input) {
                    block.insert("input".to_owned(), input);
                }
                Some(opaque(BLOCK, &Value::Object(block).to_string()))
            }
        };
        self.blocks.stop(key, signed, out);
        Ok(())
    }

    fn message_delta(&mut self, event: &Value, out: &mut Vec<Delta>) {
        if let Some(raw) = event.pointer("/delta/stop_reason").and_then(Value::as_str) {
            self.stop_reason = Some(raw.to_owned());
        }
        if let Some(words) = event
            .pointer("/delta/stop_details/explanation")
            .and_then(Value::as_str)
        {
            self.explanation = Some(words.to_owned());
        }
        self.add_around(event.get("delta").unwrap_or(&Value::Null), event);
        out.extend(self.cost.add(event.get("usage")).map(Delta::Usage));
    }

    fn seal(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let raw = self
            .stop_reason
            .take()
            .ok_or_else(|| ParseError::Cut("the answer ended without a stop_reason".to_owned()))?;
        if let Some(words) = self.explanation.take() {
            self.blocks.open(self.next_key, BlockKind::Refusal, out)?;
            self.blocks.add(self.next_key, &words, out)?;
            self.blocks.stop(self.next_key, None, out);
        }
        let reason = stop_reason::read(Dialect::Anthropic, &raw).unwrap_or(FinishReason::Other);
        self.give_around(out);
        self.blocks.seal(reason, &raw, out)
    }
}

impl ResponseParser for MessageReader {
    type Frames = SseFrames;

    fn event(&mut self, event: SseEvent, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        let parsed = serde_json::from_str::<Value>(&event.data);
        let kind = match &parsed {
            Ok(value) => value
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or(&event.name),
            Err(_) => &event.name,
        };
        if kind == "error" || event.name == "error" {
            return Err(failed(parsed.as_ref().ok(), &event.data));
        }
        let is_ours = matches!(
            kind,
            "message_start"
                | "content_block_start"
                | "content_block_delta"
                | "content_block_stop"
                | "message_delta"
                | "message_stop"
        );
        let value = match &parsed {
            Ok(value) if value.get("error").is_some_and(Value::is_object) => {
                return Err(failed(Some(value), &event.data));
            }
            Ok(value) if is_ours => value,
            // Unknown events, and what gateways add at the end.
            Ok(_) => return Ok(ParseStep::More),
            Err(_) if event.data.trim() == "[DONE]" => return Ok(ParseStep::More),
            Err(error) => return Err(ParseError::torn(self.started, error)),
        };
        let key = value.get("index").and_then(Value::as_u64).unwrap_or(0);
        let part = |name: &str| value.get(name).unwrap_or(&Value::Null);
        if !self.started && kind != "message_start" {
            return Err(ParseError::Cut(format!("a {kind} came before the message")));
        }
        match kind {
            "message_start" => self.start(part("message"), out),
            "content_block_start" => self.begin(key, part("content_block"), out)?,
            "content_block_delta" => self.delta(key, part("delta"), out)?,
            "content_block_stop" => self.stop(key, out)?,
            "message_delta" => self.message_delta(value, out),
            _ => {
                self.seal(out)?;
                return Ok(ParseStep::Complete);
            }
        }
        Ok(ParseStep::More)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let is_error = document.get("type").and_then(Value::as_str) == Some("error");
        if is_error || document.get("error").is_some_and(|error| !error.is_null()) {
            return Err(failed(Some(document), &document.to_string()));
        }
        let content = document
            .get("content")
            .and_then(Value::as_array)
            .ok_or(ParseError::NotUnderstood)?;
        self.start(document, out);
        for (key, block) in (0..).zip(content) {
            self.begin(key, block, out)?;
            self.stop(key, out)?;
        }
        let details = document.get("stop_details").cloned().unwrap_or_default();
        let delta = json!({"stop_reason": document.get("stop_reason"), "stop_details": details});
        self.message_delta(&json!({"delta": delta}), out);
        self.seal(out)
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ParseError> {
        if self.started {
            Err(ParseError::Cut(
                "the answer ended without a message_stop".to_owned(),
            ))
        } else {
            Err(ParseError::NotUnderstood)
        }
    }
}

fn failed(value: Option<&Value>, text: &str) -> ParseError {
    let error_type = value
        .and_then(|value| value.pointer("/error/type"))
        .and_then(Value::as_str);
    ParseError::Failed(Failed::new(error_type.and_then(finish::status), text))
}

#[cfg(test)]
mod tests;
