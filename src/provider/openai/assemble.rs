//! Builds deltas from chunks: which block a piece belongs to, and whether the response is complete.
//!
//! A complete document is parsed as one chunk. Only the first choice is delivered; the others count
//! for completeness. What a broken response means for the caller is decided elsewhere.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::json;

use super::{
    chunk::{Chunk, ChunkChoice, ContentPart, Piece},
    finish,
    tool_calls::{BadCall, ToolCalls},
};
use crate::{
    domain::completion::{BlockKind, Delta},
    provider::{
        blocks::shown_reason,
        reading::{Failed, ParseError},
    },
};

/// Most choices in one answer.
const MAX_CHOICES: usize = 16;

/// One response as it grows.
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
        Self {
            headers,
            ..Self::default()
        }
    }

    /// Whether any choice began.
    pub(super) fn has_choices(&self) -> bool {
        !self.choices.is_empty()
    }

    /// Whether every choice that began has its `finish_reason`.
    pub(super) fn is_complete(&self) -> bool {
        self.has_choices() && self.choices.values().all(Option::is_some)
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
        }
        for (position, choice) in (0..).zip(chunk.choices) {
            self.choice(position, choice, out)?;
        }
        out.extend(chunk.usage.map(Delta::Usage));
        Ok(())
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
        let reason =
            finish::reason(&raw).ok_or_else(|| failed_finish(&raw, finish::failed_status(&raw)))?;
        let reason =
            shown_reason(reason, !self.tools.is_empty(), self.refused).ok_or_else(|| {
                ParseError::Unusable(format!(
                    "finish_reason is {raw}, but the answer holds no tool call"
                ))
            })?;
        let mut out = Vec::new();
        self.stop_prose(&mut out);
        self.tools.seal(reason.is_short(), &mut out)?;
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
            self.tools.fragment(fragment, &mut self.next_block, out)?;
        }
        Ok(())
    }

    fn prose(&mut self, kind: Prose, text: Cow<'_, str>, out: &mut Vec<Delta>) {
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

/// The server's own failure, described here: it gave only the reason `raw` for the end of the
/// response.
fn failed_finish(raw: &str, status: u16) -> ParseError {
    let words = format!("the provider ended the answer with finish_reason {raw}");
    ParseError::Failed(Failed::new(
        Some(status),
        &json!({"error": {"message": words}}).to_string(),
    ))
}
