//! Parses the frames of a response into deltas; a complete document is parsed block by block.
//!
//! Exceptions are checked first; an exception's type goes where an HTTP response has it, into a
//! header. Unknown events are ignored. Text and reasoning start without a start event.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    REDACTED, SIGNATURE, finish,
    frames::{EventStream, Frame},
};
use crate::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        own_fields, stop_reason,
        target::Dialect,
    },
    {
        blocks::Blocks,
        reading::{Failed, ParseError, ParseStep, ResponseParser},
        turns::opaque,
    },
};

/// The parser of one response.
#[derive(Debug)]
pub(super) struct ConverseReader {
    headers: Vec<(String, String)>,
    id: Option<String>,
    started: bool,
    blocks: Blocks,
    /// The open blocks.
    open: BTreeMap<u64, BedrockBlock>,
    /// The number of the next block.
    next_key: u64,
    stop_reason: Option<String>,
}

#[derive(Debug)]
enum BedrockBlock {
    Text { citations: Vec<Value> },
    Tool,
    Reasoning { signature: String, redacted: String },
}

// === impl ConverseReader ===

impl ConverseReader {
    pub(super) fn new(headers: Vec<(String, String)>, id: Option<String>) -> Self {
        Self {
            headers,
            id,
            started: false,
            blocks: Blocks::default(),
            open: BTreeMap::new(),
            next_key: 0,
            stop_reason: None,
        }
    }

    fn start(&mut self, out: &mut Vec<Delta>) {
        if !std::mem::replace(&mut self.started, true) {
            let headers = std::mem::take(&mut self.headers);
            out.push(Delta::Start {
                model: None,
                response_id: self.id.take(),
                headers,
            });
        }
    }

    /// Notes that the block of this number is here. An empty one has no more than its stop.
    ///
    /// # Errors
    /// When the one before it never came.
    fn follow(&mut self, key: u64) -> Result<(), ParseError> {
        if key > self.next_key {
            let words = format!("block {key} came instead of block {}", self.next_key);
            return Err(ParseError::Cut(words));
        }
        self.next_key = self.next_key.max(key + 1);
        Ok(())
    }

    fn begin_tool(
        &mut self,
        key: u64,
        tool: &Value,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let text = |name: &str| {
            tool.get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let kind = BlockKind::ToolCall {
            id: text("toolUseId"),
            name: text("name"),
        };
        self.blocks.open(key, kind, out)?;
        self.open.insert(key, BedrockBlock::Tool);
        Ok(())
    }

    fn delta(&mut self, key: u64, delta: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let citation = delta.get("citation");
        let text = delta.get("text").and_then(Value::as_str);
        if text.is_some() || citation.is_some() {
            if !self.open.contains_key(&key) {
                self.blocks.open(key, BlockKind::Text, out)?;
                let citations = Vec::new();
                self.open.insert(key, BedrockBlock::Text { citations });
            }
            if let (Some(BedrockBlock::Text { citations }), Some(citation)) =
                (self.open.get_mut(&key), citation)
            {
                citations.push(citation.clone());
            }
            let is_text = |open: &BedrockBlock| matches!(open, BedrockBlock::Text { .. });
            return self.piece(key, is_text, text.unwrap_or_default(), out);
        }
        if let Some(input) = delta.pointer("/toolUse/input").and_then(Value::as_str) {
            return self.piece(key, |open| matches!(open, BedrockBlock::Tool), input, out);
        }
        let Some(reasoning) = delta.get("reasoningContent") else {
            return Ok(());
        };
        if !self.open.contains_key(&key) {
            self.blocks.open(key, BlockKind::Reasoning, out)?;
            self.open.insert(
                key,
                BedrockBlock::Reasoning {
                    signature: String::new(),
                    redacted: String::new(),
                },
            );
        }
        let text = |name: &str| {
            reasoning
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        if let Some(BedrockBlock::Reasoning {
            signature,
            redacted,
        }) = self.open.get_mut(&key)
        {
            signature.push_str(text("signature"));
            redacted.push_str(text("redactedContent"));
        }
        self.piece(
            key,
            |open| matches!(open, BedrockBlock::Reasoning { .. }),
            text("text"),
            out,
        )
    }

    fn piece(
        &mut self,
        key: u64,
        fits: fn(&BedrockBlock) -> bool,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if !self.open.get(&key).is_some_and(fits) {
            return Err(ParseError::Cut(format!(
                "block {key} got a piece that does not fit it"
            )));
        }
        self.blocks.add(key, text, out)
    }

    fn stop(&mut self, key: u64, out: &mut Vec<Delta>) {
        let signed = match self.open.remove(&key) {
            Some(BedrockBlock::Text { citations }) => {
                let fields = own_fields::cited(citations);
                self.blocks.stop_text(key, (Dialect::Bedrock, fields), out);
                return;
            }
            None | Some(BedrockBlock::Tool) => None,
            Some(BedrockBlock::Reasoning { signature, .. }) if !signature.is_empty() => {
                Some(opaque(SIGNATURE, &signature))
            }
            Some(BedrockBlock::Reasoning { redacted, .. }) => {
                (!redacted.is_empty()).then(|| opaque(REDACTED, &redacted))
            }
        };
        self.blocks.stop(key, signed, out);
    }

    fn seal(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let Some(raw) = self.stop_reason.clone() else {
            return Err(if self.started {
                ParseError::Cut("the answer ended without a messageStop".to_owned())
            } else {
                ParseError::NotUnderstood
            });
        };
        let reason = stop_reason::read(Dialect::Bedrock, &raw).unwrap_or(FinishReason::Other);
        self.blocks.seal(reason, &raw, out)
    }

    /// Takes a block of a document, in the pieces that it would have come in.
    fn block(&mut self, key: u64, block: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if let Some(tool) = block.get("toolUse") {
            self.begin_tool(key, tool, out)?;
            let input = tool
                .get("input")
                .filter(|input| !input.is_null())
                .map(Value::to_string);
            self.blocks.add(key, &input.unwrap_or_default(), out)?;
        } else if let Some(reasoning) = block.get("reasoningContent") {
            let pieces = reasoning.get("reasoningText").unwrap_or(reasoning);
            self.delta(key, &json!({"reasoningContent": pieces}), out)?;
        } else if let Some(cited) = block.get("citationsContent") {
            let list = |name: &str| cited.get(name).and_then(Value::as_array);
            for text in list("content").into_iter().flatten() {
                self.delta(key, text, out)?;
            }
            for citation in list(own_fields::CITATIONS).into_iter().flatten() {
                self.delta(key, &json!({"citation": citation}), out)?;
            }
        } else {
            self.delta(key, block, out)?;
        }
        self.stop(key, out);
        Ok(())
    }
}

impl ResponseParser for ConverseReader {
    type Frames = EventStream;

    fn event(&mut self, frame: Frame, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        if frame.message_type == "exception" || frame.message_type == "error" {
            return Err(failed(&frame));
        }
        let known = [
            "messageStart",
            "contentBlockStart",
            "contentBlockDelta",
            "contentBlockStop",
            "messageStop",
            "metadata",
        ];
        if !known.contains(&frame.name.as_str()) {
            return Ok(ParseStep::More);
        }
        let value: Value = serde_json::from_str(&frame.payload)
            .map_err(|error| ParseError::torn(self.started, &error))?;
        self.start(out);
        let key = value
            .get("contentBlockIndex")
            .and_then(Value::as_u64)
            .unwrap_or(0);
        if frame.name.starts_with("contentBlock") {
            self.follow(key)?;
        }
        match frame.name.as_str() {
            "contentBlockStart" => {
                if let Some(tool) = value.pointer("/start/toolUse") {
                    self.begin_tool(key, tool, out)?;
                }
            }
            "contentBlockDelta" => {
                self.delta(key, value.get("delta").unwrap_or(&Value::Null), out)?;
            }
            "contentBlockStop" => self.stop(key, out),
            "messageStop" => {
                let raw = value
                    .get("stopReason")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                self.stop_reason = Some(raw.to_owned());
            }
            "metadata" => {
                out.extend(finish::usage(&value).map(Delta::Usage));
                if self.is_whole() {
                    self.seal(out)?;
                    return Ok(ParseStep::Complete);
                }
            }
            _ => {}
        }
        Ok(ParseStep::More)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let Some(content) = document
            .pointer("/output/message/content")
            .and_then(Value::as_array)
        else {
            let exception = document.get("__type").and_then(Value::as_str);
            if exception.is_none() && document.get("message").is_none() {
                return Err(ParseError::NotUnderstood);
            }
            let name = exception
                .unwrap_or_default()
                .rsplit('#')
                .next()
                .unwrap_or_default()
                .to_owned();
            return Err(failed(&Frame {
                name,
                payload: document.to_string(),
                ..Frame::default()
            }));
        };
        self.start(out);
        for (key, block) in (0..).zip(content) {
            self.block(key, block, out)?;
        }
        self.stop_reason = document
            .get("stopReason")
            .and_then(Value::as_str)
            .map(str::to_owned);
        out.extend(finish::usage(document).map(Delta::Usage));
        self.seal(out)
    }

    /// The metadata may be missing.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        self.seal(out)
    }

    fn is_whole(&self) -> bool {
        self.stop_reason.is_some()
    }
}

fn failed(frame: &Frame) -> ParseError {
    let body = if frame.payload.is_empty() {
        json!({"code": frame.name, "message": frame.message}).to_string()
    } else {
        frame.payload.clone()
    };
    let header =
        (!frame.name.is_empty()).then(|| ("x-amzn-errortype".to_owned(), frame.name.clone()));
    ParseError::Failed(Failed {
        header,
        ..Failed::new(finish::status(&frame.name), &body)
    })
}
