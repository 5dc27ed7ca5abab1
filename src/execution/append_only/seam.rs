//! Continuation of one attempt's answer by another's: the pieces that may be sent, given those that
//! were sent already.
//!
//! A client of this mode cannot take back. So what was sent is a promise about the start of the
//! answer: after a restart nothing is sent while the new attempt only repeats it, the rest is sent
//! once it has, and another text is an error. Tool calls are sent only when they are whole, so that
//! half a call never has to be kept. Reasoning is not part of the promise: one that differs is left
//! out. Pure: steps in, pieces out, no waits.

use serde_json::Value;

use super::channel::{Diverged, TextChannel};
use crate::{
    config::server::HoldBack,
    domain::{
        completion::BlockKind,
        fold::{Block, StreamStep},
        message::Opaque,
        own_fields,
    },
};

/// Piece of the completion that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerPiece {
    /// Text for the reader.
    Text(String),
    /// The text so far is whole, and another one follows.
    TextEnd,
    /// Reasoning.
    Reasoning(String),
    /// The reasoning so far is whole, with what its provider needs back.
    Signed(Opaque),
    /// Reasoning of another attempt than the one that was sent, whole, with what its provider needs
    /// back.
    SignedAnew(String, Opaque),
    /// A refusal in the model's words.
    Refusal(String),
    /// A whole tool call.
    ToolCall(SentCall),
}

/// A tool call as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SentCall {
    /// Its id.
    pub(super) id: String,
    /// The tool's name.
    pub(super) name: String,
    /// Raw JSON text.
    pub(super) arguments: String,
    /// Data that the provider needs back verbatim.
    pub(super) opaque: Option<Opaque>,
}

/// Sent content, and the part of the running attempt that may be sent.
#[derive(Debug)]
pub(super) struct AppendOnlyAnswer {
    hold_back: HoldBack,
    /// Blocks of the running attempt, in the order in which they started.
    blocks: Vec<ReadBlock>,
    text: TextChannel,
    reasoning: TextChannel,
    refusal: TextChannel,
    calls: Vec<SentCall>,
    /// Number of bytes of reasoning that were sent when it was last signed.
    signed: usize,
    /// `true` if another attempt was started.
    restarted: bool,
    /// Whether the message's own fields were sent; they are with its end.
    own_sent: bool,
    /// Bytes of text before the end of a text that was sent last.
    ends_sent: usize,
}

/// A block of the running attempt; its text is a part of its kind's channel.
#[derive(Debug)]
struct ReadBlock {
    id: u32,
    kind: BlockKind,
    /// Bytes of its text so far.
    bytes: usize,
    /// The text of a tool call.
    arguments: String,
    /// Data that the provider needs back verbatim.
    opaque: Option<Opaque>,
    /// `true` if it stopped, and may be acted upon.
    is_whole: bool,
}

// === impl AppendOnlyAnswer ===

impl AppendOnlyAnswer {
    /// Nothing was sent.
    pub(super) fn new(hold_back: HoldBack) -> Self {
        Self {
            hold_back,
            blocks: Vec::new(),
            text: TextChannel::default(),
            reasoning: TextChannel::default(),
            refusal: TextChannel::default(),
            calls: Vec::new(),
            signed: 0,
            restarted: false,
            own_sent: false,
            ends_sent: 0,
        }
    }

    /// Returns the seam of another answer, of which nothing was sent, with the same hold back.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.hold_back)
    }

    /// Restores the completion of which an earlier owner sent `blocks`.
    pub(super) fn restore(&mut self, blocks: &[Block]) {
        for block in blocks {
            self.blocks
                .push(ReadBlock::new(block.id, block.kind.clone()));
            self.grow(self.blocks.len() - 1, &block.text);
            if block.stopped {
                self.stop(
                    self.blocks.len() - 1,
                    block.opaque.as_ref(),
                    block.committed,
                );
            }
        }
        for channel in [&mut self.text, &mut self.reasoning, &mut self.refusal] {
            channel.sent = channel.now.len();
        }
        let is_signed = blocks
            .iter()
            .any(|block| block.kind == BlockKind::Reasoning && block.opaque.is_some());
        self.signed = if is_signed { self.reasoning.sent } else { 0 };
        let has_own = self.own().next().is_some();
        self.own_sent = has_own;
        self.ends_sent = self.ends_of_texts().last().map_or(0, |(end, _)| *end);
        self.calls = self.blocks.iter().filter_map(ReadBlock::call).collect();
    }

    /// Returns the text that was sent.
    pub(super) fn sent_text(&self) -> &str {
        self.text.sent_text()
    }

    /// Returns whether nothing but text, and reasoning, was sent.
    pub(super) fn sent_only_text(&self) -> bool {
        self.calls.is_empty() && self.refusal.sent_text().is_empty()
    }

    /// Takes a step, and returns the pieces that may be sent now.
    ///
    /// # Errors
    /// Returns an error if the attempt's answer is another than the one that was started; nothing
    /// may be sent any more then.
    pub(super) fn step(&mut self, step: &StreamStep) -> Result<Vec<AnswerPiece>, Diverged> {
        match step {
            StreamStep::BlockStart { block, kind } => {
                self.blocks.push(ReadBlock::new(*block, kind.clone()));
            }
            StreamStep::BlockDelta { block, text, .. } => self.grow(self.index(*block)?, text),
            StreamStep::BlockStop {
                block,
                opaque,
                committed,
                ..
            } => {
                self.stop(self.index(*block)?, opaque.as_ref(), *committed);
            }
            StreamStep::Rewind { .. } => self.rewind(),
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::Recovery { .. }
            | StreamStep::Parked { .. }
            | StreamStep::ResponseStarted { .. }
            | StreamStep::Usage { .. }
            | StreamStep::Terminal(_) => {}
        }
        let hold_back = match self.hold_back {
            HoldBack::Off | HoldBack::Json => 0,
            HoldBack::Bytes(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            HoldBack::Whole => return Ok(Vec::new()),
        };
        let mut pieces = self.pieces(hold_back)?;
        if let StreamStep::BlockStop {
            block,
            opaque: Some(opaque),
            ..
        } = step
        {
            pieces.extend(self.sign(self.index(*block)?, opaque));
        }
        Ok(pieces)
    }

    /// Completes the completion: returns all that was not sent yet.
    ///
    /// # Errors
    /// Returns an error if what was sent is not the start of the completion.
    pub(super) fn finish(&mut self) -> Result<Vec<AnswerPiece>, Diverged> {
        let mut pieces = Vec::new();
        if self.hold_back == HoldBack::Whole {
            for (index, block) in self.blocks.iter().enumerate() {
                if let (BlockKind::Reasoning, Some(opaque)) = (&block.kind, &block.opaque)
                    && !own_fields::is_kept(opaque)
                {
                    pieces.push(AnswerPiece::SignedAnew(
                        self.reasoning_of(index).to_owned(),
                        opaque.clone(),
                    ));
                }
            }
            self.reasoning.closed |= !pieces.is_empty();
        }
        pieces.extend(self.pieces(0)?);
        let broken = |channel: &TextChannel| channel.promised.is_some() && !channel.closed;
        let calls = self.blocks.iter().filter(|block| block.is_call()).count();
        if broken(&self.text) || broken(&self.refusal) || calls < self.calls.len() {
            return Err(Diverged);
        }
        if !self.own_sent {
            let own = self.own().cloned();
            pieces.extend(own.map(|own| AnswerPiece::SignedAnew(String::new(), own)));
        }
        Ok(pieces)
    }

    /// Fields of the message that only its dialect knows.
    fn own(&self) -> impl Iterator<Item = &Opaque> {
        let opaque = self.blocks.iter().filter_map(ReadBlock::reasoning);
        opaque.filter(|opaque| own_fields::is_kept(opaque) && !own_fields::is_of_text(opaque))
    }

    /// Ends of texts that were not sent yet, with the bytes of text before them, and the fields of
    /// the text that only its dialect knows.
    fn ends_of_texts(&self) -> Vec<(usize, Option<Opaque>)> {
        let mut before = 0;
        let mut all: Vec<(usize, Option<Opaque>)> = Vec::new();
        for block in &self.blocks {
            let fields = block.reasoning().filter(|it| own_fields::is_of_text(it));
            let is_next = block.kind == BlockKind::Text && block.bytes > 0;
            let is_ended = all.last().is_some_and(|(end, _)| *end == before);
            if before > self.ends_sent && !is_ended && (fields.is_some() || is_next) {
                all.push((before, fields.cloned()));
            }
            if is_next {
                before += block.bytes;
            }
        }
        all
    }

    /// Returns the text that may be sent now, each piece of it with its end and its fields behind
    /// it. These are no part of the promise: those of a text that was sent with others are left out.
    fn texts(&mut self, hold_back: usize) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        for (end, fields) in self.ends_of_texts() {
            pieces.extend(self.text.next(hold_back, end).map(AnswerPiece::Text));
            if self.text.promised.is_some() || self.text.sent < end {
                return pieces;
            }
            self.ends_sent = end;
            let end = fields.map_or(AnswerPiece::TextEnd, |fields| {
                AnswerPiece::SignedAnew(String::new(), fields)
            });
            pieces.push(end);
        }
        pieces.extend(self.text.next(hold_back, usize::MAX).map(AnswerPiece::Text));
        pieces
    }

    /// Returns the place of a block.
    fn index(&self, id: u32) -> Result<usize, Diverged> {
        self.blocks
            .iter()
            .position(|block| block.id == id)
            .ok_or_else(|| {
                // The steps come from this very process, so this is a defect, not an input.
                tracing::error!(block = id, "a step names a block that did not begin");
                Diverged
            })
    }

    fn grow(&mut self, index: usize, text: &str) {
        let at = self.begin_of(index) + self.blocks[index].bytes;
        let block = &mut self.blocks[index];
        block.bytes += text.len();
        match block.kind {
            BlockKind::Text => self.text.insert(at, text),
            BlockKind::Reasoning => self.reasoning.insert(at, text),
            BlockKind::Refusal => self.refusal.insert(at, text),
            BlockKind::ToolCall { .. } => block.arguments.push_str(text),
        }
    }

    fn stop(&mut self, index: usize, opaque: Option<&Opaque>, committed: bool) {
        let block = &mut self.blocks[index];
        block.opaque = opaque.cloned();
        block.is_whole = committed;
    }

    /// Returns the place in its kind's channel at which the text of a block starts.
    fn begin_of(&self, index: usize) -> usize {
        let before = &self.blocks[..index];
        let block = &self.blocks[index];
        before
            .iter()
            .filter(|other| other.kind == block.kind)
            .map(|other| other.bytes)
            .sum()
    }

    /// Returns the text of a block of reasoning.
    fn reasoning_of(&self, index: usize) -> &str {
        let begin = self.begin_of(index);
        &self.reasoning.now[begin..begin + self.blocks[index].bytes]
    }

    /// Ends a block with what its provider needs back: reasoning is sent to its end and signed. If
    /// other reasoning was sent, and nothing that would come before it, it is sent whole; else what
    /// was sent stays as it is.
    fn sign(&mut self, index: usize, opaque: &Opaque) -> Vec<AnswerPiece> {
        if self.blocks[index].kind != BlockKind::Reasoning || own_fields::is_kept(opaque) {
            return Vec::new();
        }
        let is_empty = self.blocks[index].bytes == 0;
        let only_reasoning_was_sent = self.sent_only_text() && self.text.sent_text().is_empty();
        let is_another = self.reasoning.closed || self.reasoning.promised.is_some();
        if is_another || (is_empty && self.restarted) {
            let signed =
                || AnswerPiece::SignedAnew(self.reasoning_of(index).to_owned(), opaque.clone());
            return Vec::from_iter(only_reasoning_was_sent.then(signed));
        }
        let rest = self.reasoning.next(0, usize::MAX);
        let mut pieces = Vec::from_iter(rest.map(AnswerPiece::Reasoning));
        if is_empty || self.reasoning.sent > self.signed {
            pieces.push(AnswerPiece::Signed(opaque.clone()));
        }
        self.signed = self.reasoning.sent;
        pieces
    }

    /// The layers keep nothing of an attempt that they abandon.
    fn rewind(&mut self) {
        self.restarted = true;
        self.blocks.clear();
        for channel in [&mut self.text, &mut self.reasoning, &mut self.refusal] {
            channel.pin_sent_prefix();
            channel.now.clear();
        }
    }

    fn pieces(&mut self, hold_back: usize) -> Result<Vec<AnswerPiece>, Diverged> {
        if self.reasoning.settle().is_err() {
            self.reasoning.closed = true;
        }
        self.text.settle()?;
        self.refusal.settle()?;
        let mut pieces = Vec::new();
        let reasoning = self.reasoning.next(hold_back, usize::MAX);
        pieces.extend(reasoning.map(AnswerPiece::Reasoning));
        pieces.extend(self.texts(hold_back));
        let refusal = self.refusal.next(hold_back, usize::MAX);
        pieces.extend(refusal.map(AnswerPiece::Refusal));
        for (index, block) in self
            .blocks
            .iter()
            .filter(|block| block.is_call())
            .enumerate()
        {
            // Calls keep their order: one that is open holds those behind it.
            let Some(call) = block.call() else { break };
            match self.calls.get(index) {
                // Its id differs from attempt to attempt; the one that was sent stays.
                Some(sent)
                    if sent.name == call.name && same_json(&sent.arguments, &call.arguments) => {}
                Some(_) => return Err(Diverged),
                None => {
                    self.calls.push(call.clone());
                    pieces.push(AnswerPiece::ToolCall(call));
                }
            }
        }
        Ok(pieces)
    }
}

// === impl ReadBlock ===

impl ReadBlock {
    fn new(id: u32, kind: BlockKind) -> Self {
        Self {
            id,
            kind,
            bytes: 0,
            arguments: String::new(),
            opaque: None,
            is_whole: false,
        }
    }

    /// Returns the value that its provider needs back with it, if it is reasoning.
    fn reasoning(&self) -> Option<&Opaque> {
        let opaque = self.opaque.as_ref();
        opaque.filter(|_| self.kind == BlockKind::Reasoning)
    }

    fn is_call(&self) -> bool {
        matches!(self.kind, BlockKind::ToolCall { .. })
    }

    /// Returns the tool call, if it is one and whole.
    fn call(&self) -> Option<SentCall> {
        let BlockKind::ToolCall { id, name } = &self.kind else {
            return None;
        };
        let arguments = self.arguments.clone();
        let opaque = self.opaque.clone();
        self.is_whole.then(|| SentCall {
            id: id.clone(),
            name: name.clone(),
            arguments,
            opaque,
        })
    }
}

/// Returns whether two argument texts are the same JSON.
fn same_json(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || read(one).is_some_and(|one| Some(one) == read(other))
}

#[cfg(test)]
mod tests;
