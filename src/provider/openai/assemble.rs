//! Deltas out of chunks: which block a piece belongs to, and whether the answer is whole.
//!
//! A whole document is read as one chunk. Only the first choice is delivered; the others count for completeness.
//! It never decides what a broken answer means for the caller.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    finish,
    tool_calls::{BadCall, ToolCalls},
};
use crate::{
    domain::completion::{BlockKind, Delta, FinishReason},
    provider::reading::{Failed, ParseError},
};

/// Most choices in one answer.
const MAX_CHOICES: usize = 16;

/// One answer as it grows.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    headers: Vec<(String, String)>,
    started: bool,
    next_block: u32,
    /// The open block that is no tool call.
    prose: Option<(u32, Prose)>,
    refused: bool,
    tools: ToolCalls,
    /// The choices that began, with their last `finish_reason`.
    choices: BTreeMap<u64, Option<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prose {
    Text,
    Reasoning,
    Refusal,
}

// === impl Assembler ===

impl Assembler {
    pub(super) fn new(headers: Vec<(String, String)>) -> Self {
        Self { headers, ..Self::default() }
    }

    /// Whether any choice began.
    pub(super) fn has_choices(&self) -> bool {
        !self.choices.is_empty()
    }

    /// Whether every choice that began has its `finish_reason`.
    pub(super) fn is_complete(&self) -> bool {
        self.has_choices() && self.choices.values().all(Option::is_some)
    }

    /// Takes a chunk, or a whole document.
    pub(super) fn chunk(&mut self, chunk: &Value) -> Result<Vec<Delta>, ParseError> {
        let fields = chunk.as_object().ok_or(ParseError::NotUnderstood)?;
        let choices: &[Value] = match fields.get("choices") {
            Some(Value::Array(choices)) => choices,
            None | Some(Value::Null) => &[],
            Some(_) => return Err(ParseError::NotUnderstood),
        };
        let mut out = Vec::new();
        if !self.started && fields.contains_key("choices") {
            self.started = true;
            let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|it| !it.is_empty());
            out.push(Delta::Start {
                model: text("model").map(str::to_owned),
                response_id: text("id").map(str::to_owned),
                headers: std::mem::take(&mut self.headers),
            });
        }
        for (position, choice) in (0..).zip(choices) {
            self.choice(position, choice, &mut out)?;
        }
        if let Some(usage) = finish::usage(chunk) {
            out.push(Delta::Usage(usage));
        }
        Ok(out)
    }

    /// Ends the answer: every block's stop and the finish.
    pub(super) fn seal(&mut self) -> Result<Vec<Delta>, ParseError> {
        let raw = self.choices.values().next().cloned().flatten().unwrap_or_default();
        let reason = finish::reason(&raw).ok_or_else(|| failed_finish(&raw, finish::failed_status(&raw)))?;
        let has_tools = !self.tools.is_empty();
        let reason = match reason {
            // Many servers say `stop` whatever the model wants.
            FinishReason::Stop if has_tools => FinishReason::ToolCalls,
            FinishReason::Stop if self.refused => FinishReason::Refusal,
            FinishReason::ToolCalls if !has_tools => {
                return Err(ParseError::Unusable(format!("finish_reason is {raw}, but the answer holds no tool call")));
            }
            reason => reason,
        };
        let cut = match reason {
            FinishReason::Length
            | FinishReason::ContextFull
            | FinishReason::ContentFilter
            | FinishReason::Refusal
            | FinishReason::Paused
            | FinishReason::MalformedToolCall => true,
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Other => false,
        };
        let mut out = Vec::new();
        self.stop_prose(&mut out);
        self.tools.seal(cut, &mut out)?;
        out.push(Delta::Finish { reason, raw });
        Ok(out)
    }

    fn choice(&mut self, position: u64, choice: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let index = choice.get("index").and_then(Value::as_u64).unwrap_or(position);
        if self.choices.len() >= MAX_CHOICES && !self.choices.contains_key(&index) {
            return Err(ParseError::Unusable(format!("the answer holds more than {MAX_CHOICES} choices")));
        }
        let finish = self.choices.entry(index).or_default();
        if let Some(raw) = choice.get("finish_reason").and_then(Value::as_str).filter(|raw| !raw.is_empty()) {
            *finish = Some(raw.to_owned());
        }
        if index == 0
            && let Some(piece) = choice.get("delta").or_else(|| choice.get("message")).filter(|it| it.is_object())
        {
            self.piece(piece, out)?;
        }
        Ok(())
    }

    fn piece(&mut self, piece: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        // Some servers send the same reasoning under both names.
        let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|name| piece.get(name)?.as_str());
        self.prose(Prose::Reasoning, reasoning.unwrap_or_default(), out);
        match piece.get("content") {
            Some(Value::String(text)) => self.prose(Prose::Text, text, out),
            Some(Value::Array(parts)) => self.content_parts(parts, out),
            _ => {}
        }
        let refusal = piece.get("refusal").and_then(Value::as_str).unwrap_or_default();
        self.prose(Prose::Refusal, refusal, out);
        let calls = piece.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        let old_call = piece.get("function_call").filter(|call| call.is_object());
        for fragment in calls.chain(old_call) {
            self.stop_prose(out);
            self.tools.fragment(fragment, &mut self.next_block, out)?;
        }
        Ok(())
    }

    /// Mistral gives content as parts where the model reasons.
    fn content_parts(&mut self, parts: &[Value], out: &mut Vec<Delta>) {
        for part in parts {
            if let Some(text) = part.get("text").and_then(Value::as_str) {
                self.prose(Prose::Text, text, out);
            }
            for thought in part.get("thinking").and_then(Value::as_array).into_iter().flatten() {
                self.prose(Prose::Reasoning, thought.get("text").and_then(Value::as_str).unwrap_or_default(), out);
            }
        }
    }

    fn prose(&mut self, kind: Prose, text: &str, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        self.refused |= kind == Prose::Refusal;
        let block = match self.prose {
            Some((block, open)) if open == kind => block,
            _ => {
                self.stop_prose(out);
                let block = self.next_block;
                self.next_block += 1;
                self.prose = Some((block, kind));
                out.push(Delta::BlockStart { block, kind: kind.block_kind() });
                block
            }
        };
        out.push(Delta::BlockDelta { block, text: text.to_owned() });
    }

    fn stop_prose(&mut self, out: &mut Vec<Delta>) {
        if let Some((block, _)) = self.prose.take() {
            out.push(Delta::BlockStop { block, opaque: None });
        }
    }
}

// === impl Prose ===

impl Prose {
    const fn block_kind(self) -> BlockKind {
        match self {
            Self::Text => BlockKind::Text,
            Self::Reasoning => BlockKind::Reasoning,
            Self::Refusal => BlockKind::Refusal,
        }
    }
}

impl From<BadCall> for ParseError {
    fn from(BadCall(words): BadCall) -> Self {
        Self::Unusable(words)
    }
}

/// The server's own failure, in words of ours: it gave none but the reason `raw` for the end of the answer.
fn failed_finish(raw: &str, status: u16) -> ParseError {
    let words = format!("the provider ended the answer with finish_reason {raw}");
    ParseError::Failed(Failed::new(Some(status), &json!({"error": {"message": words}}).to_string()))
}
