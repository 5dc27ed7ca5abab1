//! Parses the chunks of a response into deltas; a complete document is parsed like one chunk.
//!
//! A response is complete once every choice that started has its `finish_reason`: the usage and
//! `[DONE]` may be missing. A text with `[DONE]` alone is complete if its model always ends so.

use serde_json::Value;

use super::{
    assemble::Assembler,
    chunk::{self, Chunk},
    ends::ModelEnds,
    inband,
    repeated::RepeatedChunk,
};
use crate::{
    domain::completion::Delta,
    {
        reading::{Failed, ParseError, ParseStep, ResponseParser, SseFrames},
        sse::SseEvent,
    },
};

/// The parser of one chat completion.
#[derive(Debug)]
pub(super) struct ChatReader {
    assembler: Assembler,
    repeated: RepeatedChunk,
    /// Ends of the streams of the same model.
    ends: ModelEnds,
}

// === impl ChatReader ===

impl ChatReader {
    /// Parses a response with these headers.
    pub(super) fn new(headers: Vec<(String, String)>, ends: ModelEnds) -> Self {
        Self {
            assembler: Assembler::new(headers, ends.text()),
            repeated: RepeatedChunk::default(),
            ends,
        }
    }

    /// Takes what was parsed as a whole.
    fn tree(&mut self, value: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        match Chunk::of(value) {
            Some(chunk) => {
                self.assembler.around(&chunk::around_of(value));
                self.assembler.chunk(chunk, out)
            }
            None if self.assembler.has_choices() => Err(ParseError::Cut(
                "an event of the answer is no chunk".to_owned(),
            )),
            None => Err(ParseError::NotUnderstood),
        }
    }
}

impl ResponseParser for ChatReader {
    type Frames = SseFrames;

    fn event(&mut self, event: SseEvent, out: &mut Vec<Delta>) -> Result<ParseStep, ParseError> {
        if event.data.trim() == "[DONE]" {
            let is_text = !self.assembler.is_complete() && self.assembler.is_text_alone();
            if is_text && self.ends.without_reason(self.assembler.text.as_ref()) {
                self.assembler.stop_without_reason();
                self.seal(out)?;
            } else {
                self.end(out)?;
            }
            return Ok(ParseStep::Complete);
        }
        if event.name != "error"
            && let Some(chunk) = self.repeated.read(&event.data)
        {
            if chunk.is_last() || !self.assembler.has_choices() {
                self.assembler.around(&chunk::around(&event.data));
            }
            return self.assembler.chunk(chunk, out).map(|()| ParseStep::More);
        }
        match serde_json::from_str::<Value>(&event.data) {
            Ok(value) if inband::is_error(&event.name, &value) => Err(ParseError::Failed(
                Failed::new(None, &inband::bare(&value, &event.data)),
            )),
            Ok(value) => self.tree(&value, out).map(|()| ParseStep::More),
            Err(_) if event.name == "error" => {
                Err(ParseError::Failed(Failed::new(None, &event.data)))
            }
            Err(error) => Err(ParseError::torn(self.assembler.has_choices(), &error)),
        }
    }

    fn document(&mut self, document: &Value, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        let document = match document {
            Value::Array(items) if items.len() == 1 => &items[0],
            document => document,
        };
        if inband::is_error("", document) || inband::is_bare_error(document) {
            return Err(ParseError::Failed(Failed::new(None, &document.to_string())));
        }
        self.tree(document, out)?;
        self.seal(out)
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if self.assembler.is_complete() {
            self.ends.with_reason();
        }
        self.seal(out)
    }

    fn is_whole(&self) -> bool {
        self.assembler.is_complete()
    }
}

impl ChatReader {
    /// Ends the response, if it is complete.
    fn seal(&mut self, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        if !self.assembler.has_choices() {
            return Err(ParseError::NotUnderstood);
        }
        if !self.assembler.is_complete() {
            return Err(ParseError::Cut(
                "the answer ended without a finish_reason".to_owned(),
            ));
        }
        out.extend(self.assembler.seal()?);
        Ok(())
    }
}
