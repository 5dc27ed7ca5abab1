//! Parses the events of a response into deltas; a complete document is parsed like the response in
//! its last event.
//!
//! Pieces are distinguished by the item's index in the output and the content's index in the item.
//! Each item comes again, complete, when it is done: that fills in what was not streamed, and it
//! alone holds the encrypted reasoning. Items that the neutral answer has no word for (those of
//! built-in tools) are kept as they came; unknown events are ignored.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{ITEM, NAMESPACE, REASONING, attach::Hold, custom_arguments, finish, is_action};
use crate::{
    domain::{
        completion::{BlockKind, Break, Delta, FinishReason},
        failure::ProviderError,
        message::Opaque,
    },
    provider::{
        blocks::Blocks,
        http::ProviderResponse,
        reading::{Failed, ParseError, ParseStep, ResponseParser, SseFrames},
        sse::SseEvent,
        turns::opaque,
    },
};

/// Contents per item that can be distinguished.
const CONTENTS: u64 = 1 << 20;

/// The parser of one response.
#[derive(Debug)]
pub(super) struct ResponseReader {
    headers: Vec<(String, String)>,
    started: bool,
    blocks: Blocks,
    /// The contents and items that began, by key.
    seen: BTreeSet<u64>,
    /// The part of a reasoning item that is being streamed.
    thought: Option<(u64, bool, u64)>,
    has_items: bool,
    /// Of a response that is made in the background.
    register: Option<Hold>,
}

// === impl ResponseReader ===

impl ResponseReader {
    /// Parses a response with these headers; with `register`, one that is generated in the
    /// background.
    pub(super) fn new(headers: Vec<(String, String)>, register: Option<Hold>) -> Self {
        Self {
            headers,
            started: false,
            blocks: Blocks::default(),
            seen: BTreeSet::new(),
            thought: None,
            has_items: false,
            register,
        }
    }

    fn start(&mut self, response: Option<&Value>, out: &mut Vec<Delta>) {
        if !std::mem::replace(&mut self.started, true) {
            let text = |name: &str| {
                response
                    .and_then(|it| it.get(name))
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            let headers = std::mem::take(&mut self.headers);
            out.push(Delta::Start {
                model: text("model"),
                response_id: text("id"),
                headers,
            });
        }
    }

    /// Opens a block the first time; `false` where it is over already.
    fn open(
        &mut self,
        key: u64,
        kind: BlockKind,
        out: &mut Vec<Delta>,
    ) -> Result<bool, ParseError> {
        if self.seen.insert(key) {
            self.blocks.open(key, kind, out)?;
        }
        Ok(self.blocks.is_open(key))
    }

    fn piece(
        &mut self,
        key: u64,
        kind: BlockKind,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.start(None, out);
        if self.open(key, kind, out)? {
            self.blocks.add(key, text, out)?;
        }
        Ok(())
    }

    /// A piece of reasoning; the parts of one item are paragraphs of one block.
    fn thought(
        &mut self,
        key: u64,
        is_summary: bool,
        event: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let part = event
            .get(if is_summary {
                "summary_index"
            } else {
                "content_index"
            })
            .and_then(Value::as_u64);
        let here = (key, is_summary, part.unwrap_or(0));
        let before = self.thought.replace(here);
        let gap = if before.is_some_and(|before| before.0 == key && before != here) {
            "\n\n"
        } else {
            ""
        };
        self.piece(
            key,
            BlockKind::Reasoning,
            &format!("{gap}{}", text_of(event, "delta")),
            out,
        )
    }

    fn item_added(
        &mut self,
        index: u64,
        item: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.start(None, out);
        if text_of(item, "type") == "function_call" {
            let key = item_key(index);
            self.open(key, call_kind(item)?, out)?;
            self.blocks.add(key, text_of(item, "arguments"), out)?;
        }
        Ok(())
    }

    fn item_done(
        &mut self,
        index: u64,
        item: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.start(None, out);
        self.has_items = true;
        let key = item_key(index);
        match text_of(item, "type") {
            "message" => {
                for (place, content) in (0..).zip(list(item, "content")) {
                    let (kind, text) = match text_of(content, "type") {
                        "output_text" => (BlockKind::Text, text_of(content, "text")),
                        "refusal" => (BlockKind::Refusal, text_of(content, "refusal")),
                        _ => continue,
                    };
                    let key = content_key(index, place);
                    if !self.seen.contains(&key) {
                        self.piece(key, kind, text, out)?;
                    }
                    self.blocks.stop(key, None, out);
                }
            }
            "function_call" => {
                if self.open(key, call_kind(item)?, out)? && self.blocks.arguments(key).is_empty() {
                    self.blocks.add(key, text_of(item, "arguments"), out)?;
                }
                let namespace = text_of(item, "namespace");
                let namespace = (!namespace.is_empty()).then(|| opaque(NAMESPACE, namespace));
                self.call_done(key, item, namespace, out);
            }
            "custom_tool_call" => {
                if self.open(key, call_kind(item)?, out)? {
                    self.blocks
                        .add(key, &custom_arguments(text_of(item, "input")), out)?;
                }
                self.call_done(key, item, None, out);
            }
            _ if is_action(item) => {
                let kind = BlockKind::ToolCall {
                    id: call_id(item),
                    name: text_of(item, "type").to_owned(),
                };
                if self.open(key, kind, out)? {
                    let arguments = ["arguments", "action", "operation"]
                        .iter()
                        .find_map(|name| item.get(*name));
                    let arguments = arguments
                        .filter(|arguments| arguments.is_object())
                        .map(Value::to_string);
                    self.blocks.add(key, &arguments.unwrap_or_default(), out)?;
                }
                self.call_done(key, item, Some(opaque(ITEM, &item.to_string())), out);
            }
            "reasoning" => {
                if !self.seen.contains(&key) {
                    let parts = list(item, "summary").iter().chain(list(item, "content"));
                    let texts: Vec<&str> = parts.map(|part| text_of(part, "text")).collect();
                    self.piece(key, BlockKind::Reasoning, &texts.join("\n\n"), out)?;
                }
                let is_encrypted = !text_of(item, "encrypted_content").is_empty();
                let signed = is_encrypted.then(|| opaque(REASONING, &item.to_string()));
                self.blocks.stop(key, signed, out);
            }
            "" => {}
            _ => {
                self.open(key, BlockKind::Reasoning, out)?;
                self.blocks
                    .stop(key, Some(opaque(ITEM, &item.to_string())), out);
            }
        }
        Ok(())
    }

    /// The end of a tool call; one that the server marked incomplete is left without it.
    fn call_done(&mut self, key: u64, item: &Value, own: Option<Opaque>, out: &mut Vec<Delta>) {
        if text_of(item, "status") != "incomplete" {
            self.blocks.stop(key, own, out);
        }
    }

    /// The end of a response that is whole, whatever it holds.
    fn seal(
        &mut self,
        response: &Value,
        reason: FinishReason,
        raw: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        self.start(Some(response), out);
        if !self.has_items {
            for (index, item) in (0..).zip(list(response, "output")) {
                self.item_done(index, item, out)?;
            }
        }
        out.extend(finish::usage(response).map(Delta::Usage));
        self.blocks.seal(reason, raw, out)
    }

    /// The error of a response that failed, without the response around it: that repeats the whole
    /// request.
    fn failed_response(&self, response: &Value) -> ParseError {
        let error = response.get("error").cloned().unwrap_or_default();
        let status = text_of(response, "status");
        if status == "cancelled" && self.register.as_ref().is_some_and(Hold::is_taken_over) {
            // The cancellation concerned that one response, and not this call.
            return ParseError::Cut("the answer that was being made was cancelled".to_owned());
        }
        let whole = if error.is_null() {
            json!({"error": {"code": status}})
        } else {
            json!({"error": error})
        };
        failed(&whole, &whole.to_string())
    }

    fn completed(&mut self, response: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        self.seal(response, FinishReason::Stop, "completed", out)
    }

    fn incomplete(&mut self, response: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let raw = response
            .pointer("/incomplete_details/reason")
            .and_then(Value::as_str)
            .unwrap_or("incomplete");
        self.seal(response, finish::reason(raw), raw, out)
    }
}

impl ResponseParser for ResponseReader {
    type Frames = SseFrames;

    fn event(&mut self, event: SseEvent, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        let value = match serde_json::from_str::<Value>(&event.data) {
            Ok(value) => value,
            Err(_) if event.name == "error" => {
                return Err(ParseError::Failed(Failed::new(None, &event.data)));
            }
            Err(_) if event.data.trim() == "[DONE]" => return Ok(ParseStep::More),
            Err(error) => return Err(ParseError::torn(self.started, &error)),
        };
        let kind = value
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or(&event.name);
        if let Some(register) = &mut self.register
            && !register.follow(kind, &value)?
        {
            return Ok(ParseStep::More);
        }
        let index = value
            .get("output_index")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let place = value
            .get("content_index")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        let response = value.get("response").unwrap_or(&Value::Null);
        match kind {
            "error" => return Err(failed(&value, &event.data)),
            "response.failed" | "response.cancelled" => return Err(self.failed_response(response)),
            "response.created" | "response.in_progress" => self.start(Some(response), out),
            "response.output_item.added" => {
                self.item_added(index, value.get("item").unwrap_or(&Value::Null), out)?;
            }
            "response.output_item.done" => {
                self.item_done(index, value.get("item").unwrap_or(&Value::Null), out)?;
            }
            "response.output_text.delta" => {
                self.piece(
                    content_key(index, place),
                    BlockKind::Text,
                    text_of(&value, "delta"),
                    out,
                )?;
            }
            "response.refusal.delta" => {
                self.piece(
                    content_key(index, place),
                    BlockKind::Refusal,
                    text_of(&value, "delta"),
                    out,
                )?;
            }
            "response.reasoning_summary_text.delta" => {
                self.thought(item_key(index), true, &value, out)?;
            }
            "response.reasoning_text.delta" => self.thought(item_key(index), false, &value, out)?,
            "response.function_call_arguments.delta" => {
                self.blocks
                    .add(item_key(index), text_of(&value, "delta"), out)?;
            }
            "response.completed" => {
                self.completed(response, out)?;
                return Ok(ParseStep::Complete);
            }
            "response.incomplete" => {
                self.incomplete(response, out)?;
                return Ok(ParseStep::Complete);
            }
            _ if event.name == "error" || value.get("error").is_some_and(Value::is_object) => {
                return Err(failed(&value, &event.data));
            }
            _ => {}
        }
        Ok(ParseStep::More)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let status = text_of(document, "status");
        if let Some(register) = self
            .register
            .as_mut()
            .filter(|_| !matches!(status, "queued" | "in_progress"))
        {
            register.ended();
        }
        match status {
            "completed" => self.completed(document, out),
            "incomplete" => self.incomplete(document, out),
            "failed" | "cancelled" => Err(self.failed_response(document)),
            _ if document.get("error").is_some_and(|error| !error.is_null()) => {
                Err(failed(document, &document.to_string()))
            }
            "queued" | "in_progress" => {
                // It is known only to be cancelled.
                if let Some(register) = &mut self.register {
                    register.note(document);
                }
                Err(ParseError::Unusable(
                    "the response continues in the background".to_owned(),
                ))
            }
            _ => Err(ParseError::NotUnderstood),
        }
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ParseError> {
        if self.started {
            Err(ParseError::Cut(
                "the answer ended without a response.completed".to_owned(),
            ))
        } else {
            Err(ParseError::NotUnderstood)
        }
    }

    fn silence_limit(&self) -> Option<Duration> {
        // A response that waits in a queue, or reasons before its first token, is silent for good
        // reasons.
        self.register
            .as_ref()
            .filter(|_| !self.seen.is_empty())
            .and_then(Hold::silence_limit)
    }

    async fn read_on(
        &mut self,
        cut: ProviderError,
    ) -> Result<(ProviderResponse, Break), ProviderError> {
        match &mut self.register {
            Some(register) => register.read_on(cut).await,
            None => Err(cut),
        }
    }
}

const fn content_key(index: u64, place: u64) -> u64 {
    index.wrapping_mul(CONTENTS).wrapping_add(place)
}

/// Items are keyed behind all contents that they can have.
const fn item_key(index: u64) -> u64 {
    content_key(index, CONTENTS - 1)
}

fn call_kind(item: &Value) -> Result<BlockKind, ParseError> {
    let name = text_of(item, "name");
    if name.is_empty() {
        return Err(ParseError::Unusable("a tool call has no name".to_owned()));
    }
    Ok(BlockKind::ToolCall {
        id: call_id(item),
        name: name.to_owned(),
    })
}

/// The id that the output of a call names.
fn call_id(item: &Value) -> String {
    ["call_id", "id"]
        .into_iter()
        .map(|name| text_of(item, name))
        .find(|id| !id.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// An `error` event, flat or with the error inside.
fn failed(value: &Value, text: &str) -> ParseError {
    let error = value
        .get("error")
        .filter(|error| error.is_object())
        .unwrap_or(value);
    let stated = value
        .get("status")
        .and_then(Value::as_u64)
        .and_then(|status| u16::try_from(status).ok());
    let stated = stated.filter(|status| (400..600).contains(status));
    let named = || {
        [text_of(error, "code"), text_of(error, "type")]
            .into_iter()
            .find_map(finish::status)
    };
    ParseError::Failed(Failed::new(stated.or_else(named), text))
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}
