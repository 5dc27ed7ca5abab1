//! Builds deltas from chunks: which block a piece belongs to, and whether the response is complete.
//!
//! A complete document is parsed as one chunk. Only the first choice is delivered; the others count
//! for completeness. What a broken response means for the caller is decided elsewhere.

use std::{borrow::Cow, collections::BTreeMap, mem};

use serde_json::{Map, Value, json};

use super::{
    chunk::{Chunk, ChunkChoice, ContentPart, Piece},
    ends::SeenText,
    finish,
    tool_calls::{BadCall, ToolCalls},
};
use crate::{
    domain::{
        completion::{BlockKind, Delta},
        own_fields, stop_reason,
        target::Dialect,
    },
    {
        blocks::shown_reason,
        reading::{Failed, ParseError},
    },
};

/// Maximum number of choices in one completion.
const MAX_CHOICES: usize = 16;

/// One response as it grows.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    headers: Vec<(String, String)>,
    started: bool,
    next_block: u32,
    /// Open block that is not a tool call.
    prose: Option<(u32, Prose)>,
    refused: bool,
    tools: ToolCalls,
    /// Fields of the message that only this dialect knows, as far as they were not given on.
    own: Map<String, Value>,
    /// Fields of the response that only this dialect knows.
    around: Map<String, Value>,
    /// `true` if all of them were given on.
    around_given: bool,
    /// Text so far, if its end may have to be judged by it.
    pub(super) text: Option<SeenText>,
    /// Choices that started, with their last `finish_reason`.
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
    pub(super) fn new(headers: Vec<(String, String)>, text: Option<SeenText>) -> Self {
        Self {
            headers,
            text,
            ..Self::default()
        }
    }

    /// Returns whether any choice started.
    pub(super) fn has_choices(&self) -> bool {
        !self.choices.is_empty()
    }

    /// Returns whether every choice that started has its `finish_reason`.
    pub(super) fn is_complete(&self) -> bool {
        self.has_choices() && self.choices.values().all(Option::is_some)
    }

    /// Returns whether it is text, and nothing that may be acted upon.
    pub(super) fn is_text_alone(&self) -> bool {
        self.has_choices() && self.next_block > 0 && self.tools.is_empty() && !self.refused
    }

    /// The response is complete, though no choice has its `finish_reason`.
    pub(super) fn stop_without_reason(&mut self) {
        for finish in self.choices.values_mut() {
            finish.get_or_insert_with(|| "stop".to_owned());
        }
    }

    /// Takes a chunk, or a whole document, and writes what it adds.
    pub(super) fn chunk(
        &mut self,
        chunk: Chunk<'_>,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        if !self.started && chunk.has_choices {
            self.started = true;
            let text =
                |text: Option<Cow<'_, str>>| text.filter(|it| !it.is_empty()).map(Cow::into_owned);
            out.push(Delta::Start {
                model: text(chunk.model),
                response_id: text(chunk.id),
                headers: std::mem::take(&mut self.headers),
            });
            self.give_around(out);
        }
        for (position, choice) in (0..).zip(chunk.choices) {
            self.choice(position, choice, out)?;
        }
        out.extend(chunk.usage.map(Delta::Usage));
        Ok(())
    }

    /// Adds fields of the response around the completion: later ones take the place of earlier ones.
    pub(super) fn around(&mut self, fields: &Map<String, Value>) {
        own_fields::merge_fields(&mut self.around, fields);
        self.around_given &= fields.is_empty();
    }

    /// Gives on all fields around the completion so far, if there are others than before.
    fn give_around(&mut self, out: &mut Vec<Delta>) {
        if !mem::replace(&mut self.around_given, true) {
            let around = own_fields::kept(Dialect::OpenaiChat, self.around.clone());
            out.extend(around.map(Delta::Around));
        }
    }

    /// Ends the response: every block's stop and the finish.
    pub(super) fn seal(&mut self) -> Result<Vec<Delta>, ParseError> {
        let raw = self
            .choices
            .values()
            .next()
            .cloned()
            .flatten()
            .unwrap_or_default();
        let reason = stop_reason::read(Dialect::OpenaiChat, &raw)
            .ok_or_else(|| failed_finish(&raw, finish::failed_status(&raw)))?;
        let reason =
            shown_reason(reason, !self.tools.is_empty(), self.refused).ok_or_else(|| {
                ParseError::Unusable(format!(
                    "finish_reason is {raw}, but the answer holds no tool call"
                ))
            })?;
        let mut out = Vec::new();
        self.stop_prose(&mut out);
        self.give_own(&mut out);
        self.tools
            .seal(reason.is_short(), &mut self.next_block, &mut out)?;
        self.give_around(&mut out);
        out.push(Delta::Finish { reason, raw });
        Ok(out)
    }

    fn choice(
        &mut self,
        position: u64,
        choice: ChunkChoice<'_>,
        out: &mut Vec<Delta>,
    ) -> Result<(), ParseError> {
        let index = choice.index.unwrap_or(position);
        if self.choices.len() >= MAX_CHOICES && !self.choices.contains_key(&index) {
            return Err(ParseError::Unusable(format!(
                "the answer holds more than {MAX_CHOICES} choices"
            )));
        }
        let finish = self.choices.entry(index).or_default();
        if let Some(raw) = choice.finish_reason.filter(|raw| !raw.is_empty()) {
            *finish = Some(raw.into_owned());
        }
        if let Some(piece) = choice.piece.filter(|_| index == 0) {
            self.piece(piece, out)?;
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece<'_>, out: &mut Vec<Delta>) -> Result<(), ParseError> {
        self.prose(Prose::Reasoning, piece.reasoning, out);
        if let Some(own) = &piece.own {
            own_fields::add(&mut self.own, own);
        }
        self.prose(Prose::Text, piece.content, out);
        for part in piece.parts {
            match part {
                ContentPart::Text(text) => self.prose(Prose::Text, text.into(), out),
                ContentPart::Reasoning(text) => self.prose(Prose::Reasoning, text.into(), out),
            }
        }
        self.prose(Prose::Refusal, piece.refusal, out);
        for fragment in piece.calls {
            self.stop_prose(out);
            self.give_own(out);
            self.tools.fragment(fragment, &mut self.next_block, out)?;
        }
        Ok(())
    }

    fn prose(&mut self, kind: Prose, text: Cow<'_, str>, out: &mut Vec<Delta>) {
        if text.is_empty() {
            return;
        }
        if let Some(seen) = &mut self.text {
            seen.push(&text);
        }
        self.refused |= kind == Prose::Refusal;
        let block = match self.prose {
            Some((block, open)) if open == kind => block,
            open => {
                self.stop_prose(out);
                if matches!(open, Some((_, Prose::Reasoning))) {
                    self.give_own(out);
                }
                let block = self.next_block;
                self.next_block += 1;
                self.prose = Some((block, kind));
                out.push(Delta::BlockStart {
                    block,
                    kind: kind.block_kind(),
                });
                block
            }
        };
        out.push(Delta::BlockDelta {
            block,
            text: text.into_owned(),
        });
    }

    /// Gives on what came of the message's own fields: behind its reasoning, before its calls and
    /// at its end. They have no place among its texts.
    fn give_own(&mut self, out: &mut Vec<Delta>) {
        let opaque = own_fields::kept(Dialect::OpenaiChat, mem::take(&mut self.own));
        if opaque.is_some() {
            let block = self.next_block;
            self.next_block += 1;
            let kind = BlockKind::Reasoning;
            out.push(Delta::BlockStart { block, kind });
            out.push(Delta::BlockStop { block, opaque });
        }
    }

    fn stop_prose(&mut self, out: &mut Vec<Delta>) {
        if let Some((block, _)) = self.prose.take() {
            out.push(Delta::BlockStop {
                block,
                opaque: None,
            });
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

/// Returns the server's own failure, described here: it gave only the reason `raw` for the end of
/// the response.
fn failed_finish(raw: &str, status: u16) -> ParseError {
    let words = format!("the provider ended the answer with finish_reason {raw}");
    ParseError::Failed(Failed::new(
        Some(status),
        &json!({"error": {"message": words}}).to_string(),
    ))
}
