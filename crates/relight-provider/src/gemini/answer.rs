//! Parses the chunks of a response into deltas; a complete document is one chunk, an array of them
//! is a stream.
//!
//! Chunks mark neither where a block begins nor where it ends: a part of another kind does. Tool
//! calls come complete. Parts that only this API knows (pictures, executed code) are kept as they
//! came, each as a block that is nothing but what the provider needs back; the sources of the
//! answer are such a block at its end, of fields that the API has in completions alone.

use std::{collections::BTreeSet, mem};

use serde_json::{Map, Value};

use super::{BLOCK, SIGNATURE, finish, frames::MixedFrames};
use crate::{
    domain::{
        completion::{BlockKind, Delta, FinishReason},
        own_fields, stop_reason,
        target::Dialect,
    },
    {
        blocks::Blocks,
        reading::{Failed, ParseError, ParseStep, ResponseParser},
        sse::SseEvent,
        turns::opaque,
    },
};

/// Fields of a part that are no content.
const AROUND_CONTENT: [&str; 4] = ["partMetadata", "text", "thought", "thoughtSignature"];

/// Fields of a candidate that name the sources of its text.
const SOURCES: [&str; 3] = [
    "citationMetadata",
    "groundingMetadata",
    "urlContextMetadata",
];

/// The parser of one response.
#[derive(Debug)]
pub(super) struct ContentReader {
    headers: Vec<(String, String)>,
    started: bool,
    blocks: Blocks,
    next_key: u64,
    /// The ids and signatures of the calls so far: no two calls have one in common.
    calls: BTreeSet<String>,
    /// The open text or thought.
    prose: Option<(u64, BlockKind)>,
    finish: Option<(FinishReason, String)>,
    /// Sources of the completion, as the API has them.
    sources: Map<String, Value>,
}

// === impl ContentReader ===

impl ContentReader {
    pub(super) fn new(headers: Vec<(String, String)>) -> Self {
        Self {
            headers,
            started: false,
            blocks: Blocks::default(),
            next_key: 0,
            calls: BTreeSet::new(),
            prose: None,
            finish: None,
            sources: Map::new(),
        }
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if let Value::Array(chunks) = chunk {
            return chunks.iter().try_for_each(|chunk| self.chunk(chunk, out));
        }
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let status = error
                .get("code")
                .and_then(Value::as_u64)
                .and_then(|code| u16::try_from(code).ok());
            let status = status.filter(|status| (400..600).contains(status));
            return Err(ParseError::Failed(Failed::new(status, &chunk.to_string())));
        }
        let known = [
            "candidates",
            "promptFeedback",
            "usageMetadata",
            "responseId",
            "modelVersion",
        ];
        if !known.iter().any(|field| chunk.get(field).is_some()) {
            return Ok(());
        }
        if !std::mem::replace(&mut self.started, true) {
            let text = |name: &str| chunk.get(name).and_then(Value::as_str).map(str::to_owned);
            let headers = std::mem::take(&mut self.headers);
            out.push(Delta::Start {
                model: text("modelVersion"),
                response_id: text("responseId"),
                headers,
            });
        }
        let candidates = chunk
            .get("candidates")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for candidate in
            candidates.filter(|it| it.get("index").and_then(Value::as_u64).unwrap_or(0) == 0)
        {
            for part in candidate
                .pointer("/content/parts")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.part(part, out)?;
            }
            for name in SOURCES {
                let sources = candidate.get(name).filter(|sources| !sources.is_null());
                if let Some(sources) = sources {
                    add_sources(self.sources.entry(name).or_insert(Value::Null), sources);
                }
            }
            let raw = candidate.get("finishReason").and_then(Value::as_str);
            if let Some(raw) =
                raw.filter(|raw| !raw.is_empty() && *raw != "FINISH_REASON_UNSPECIFIED")
            {
                let reason = stop_reason::read(Dialect::Gemini, raw).unwrap_or(FinishReason::Other);
                self.finish = Some((reason, raw.to_owned()));
            }
        }
        if let Some(raw) = chunk
            .pointer("/promptFeedback/blockReason")
            .and_then(Value::as_str)
        {
            self.finish
                .get_or_insert((FinishReason::ContentFilter, raw.to_owned()));
        }
        out.extend(finish::usage(chunk).map(Delta::Usage));
        Ok(())
    }

    fn part(&mut self, part: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let signature = part
            .get("thoughtSignature")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty());
        if let Some(call) = part.get("functionCall") {
            return self.call(call, signature, out);
        }
        let Some(text) = part.get("text").and_then(Value::as_str) else {
            return self.own(part, out);
        };
        let is_thought = part
            .get("thought")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        self.prose(
            if is_thought {
                BlockKind::Reasoning
            } else {
                BlockKind::Text
            },
            text,
            out,
        )?;
        let Some(signature) = signature else {
            return Ok(());
        };
        let signature = opaque(SIGNATURE, signature);
        match self.prose.take() {
            // A thought ends with its signature.
            Some((key, BlockKind::Reasoning)) if is_thought => {
                self.blocks.stop(key, Some(signature), out);
            }
            // Text has no place for a signature: it becomes an empty thought beside the text, which
            // continues.
            prose => {
                self.prose = prose;
                let key = self.new_key();
                self.blocks.open(key, BlockKind::Reasoning, out)?;
                self.blocks.stop(key, Some(signature), out);
            }
        }
        Ok(())
    }

    /// Takes a part that only this API knows.
    fn own(&mut self, part: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let mut names = part
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.keys());
        if names.all(|name| AROUND_CONTENT.contains(&name.as_str())) {
            return Ok(());
        }
        self.stop_prose(out);
        let key = self.new_key();
        self.blocks.open(key, BlockKind::Reasoning, out)?;
        self.blocks
            .stop(key, Some(opaque(BLOCK, &part.to_string())), out);
        Ok(())
    }

    fn call(
        &mut self,
        call: &Value,
        signature: Option<&str>,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if call.get("partialArgs").is_some()
            || call.get("willContinue").and_then(Value::as_bool) == Some(true)
        {
            return Err(ParseError::Unusable(
                "a function call comes in pieces, which was not requested".to_owned(),
            ));
        }
        self.stop_prose(out);
        let text = |name: &str| {
            call.get(name)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        let name = text("name")
            .ok_or_else(|| ParseError::Unusable("a tool call has no name".to_owned()))?;
        for mark in text("id").into_iter().chain(signature) {
            if !self.calls.insert(mark.to_owned()) {
                let words = format!("the call of `{name}` came twice");
                return Err(ParseError::Cut(words));
            }
        }
        let key = self.new_key();
        let id = text("id").unwrap_or_default().to_owned();
        self.blocks.open(
            key,
            BlockKind::ToolCall {
                id,
                name: name.to_owned(),
            },
            out,
        )?;
        if let Some(args) = call.get("args").filter(|args| !args.is_null()) {
            self.blocks.add(key, &args.to_string(), out)?;
        }
        self.blocks
            .stop(key, signature.map(|text| opaque(SIGNATURE, text)), out);
        Ok(())
    }

    fn prose(
        &mut self,
        kind: BlockKind,
        text: &str,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if text.is_empty() {
            return Ok(());
        }
        let key = match &self.prose {
            Some((key, open)) if *open == kind => *key,
            _ => {
                self.stop_prose(out);
                let key = self.new_key();
                self.blocks.open(key, kind.clone(), out)?;
                self.prose = Some((key, kind));
                key
            }
        };
        self.blocks.add(key, text, out)
    }

    fn stop_prose(&mut self, out: &mut Vec<Delta>) {
        if let Some((key, _)) = self.prose.take() {
            self.blocks.stop(key, None, out);
        }
    }

    fn new_key(&mut self) -> u64 {
        let key = self.next_key;
        self.next_key += 1;
        key
    }
}

impl ResponseParser for ContentReader {
    type Frames = MixedFrames;

    fn event(&mut self, event: SseEvent, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        match serde_json::from_str::<Value>(&event.data) {
            Ok(chunk) if event.name == "error" && chunk.get("error").is_none() => {
                return Err(ParseError::Failed(Failed::new(None, &event.data)));
            }
            Ok(chunk) => self
                .chunk(&chunk, out)
                .map_err(|flaw| as_it_came(flaw, &event.data))?,
            Err(_) if event.name == "error" => {
                return Err(ParseError::Failed(Failed::new(None, &event.data)));
            }
            Err(_) if event.data.trim() == "[DONE]" => {}
            Err(error) => return Err(ParseError::torn(self.started, &error)),
        }
        Ok(ParseStep::More)
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        self.chunk(document, out)?;
        self.end(out)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let Some((reason, raw)) = self.finish.take() else {
            return Err(if self.started {
                ParseError::Cut("the answer ended without a finishReason".to_owned())
            } else {
                ParseError::NotUnderstood
            });
        };
        self.stop_prose(out);
        let sources = own_fields::beside(&[], &mem::take(&mut self.sources));
        if let Some(sources) = sources.and_then(|own| own_fields::kept(Dialect::Gemini, own)) {
            let key = self.new_key();
            self.blocks.open(key, BlockKind::Reasoning, out)?;
            self.blocks.stop(key, Some(sources), out);
        }
        self.blocks.seal(reason, &raw, out)
    }

    fn is_whole(&self) -> bool {
        self.finish.is_some()
    }
}

/// Adds what another chunk states of the sources: lists grow by what they do not hold, for some
/// chunks repeat those before them.
fn add_sources(held: &mut Value, more: &Value) {
    match (held, more) {
        (Value::Array(held), Value::Array(more)) => {
            for entry in more {
                if !held.contains(entry) {
                    held.push(entry.clone());
                }
            }
        }
        (Value::Object(held), Value::Object(more)) => {
            for (name, more) in more {
                add_sources(held.entry(name).or_insert(Value::Null), more);
            }
        }
        (held, more) => *held = more.clone(),
    }
}

/// Returns the provider's error in its own bytes.
fn as_it_came(flaw: ParseError, data: &str) -> ParseError {
    match flaw {
        ParseError::Failed(failed) => ParseError::Failed(Failed {
            body: Failed::new(None, data).body,
            ..failed
        }),
        flaw @ (ParseError::NotUnderstood
        | ParseError::Unusable(_)
        | ParseError::Cut(_)
        | ParseError::TooLong(_)) => flaw,
    }
}
