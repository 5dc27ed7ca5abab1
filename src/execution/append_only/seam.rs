//! How one attempt's answer continues another's: what may be sent, given what was sent already.
//!
//! A client of this mode cannot take back. So what was sent is a promise about how the answer
//! begins: after a restart nothing is sent while the new attempt only repeats it, the rest is sent
//! once it has, and another text is an error. Tool calls are sent only when they are whole, so that
//! half a call never has to be kept. Reasoning is no part of the promise: one that differs is left
//! out. Pure: steps in, pieces out, no waits.

use serde_json::Value;

use crate::{
    config::server::HoldBack,
    domain::{
        completion::BlockKind,
        fold::{Block, StreamStep},
        message::Opaque,
    },
};

/// A piece of the answer that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AnswerPiece {
    /// Text for the reader.
    Text(String),
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
    /// What the provider needs back verbatim.
    pub(super) opaque: Option<Opaque>,
}

/// The new attempt's answer does not begin with what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Diverged;

/// What was sent, and what of the running attempt may be sent.
#[derive(Debug)]
pub(super) struct AppendOnlyAnswer {
    hold_back: HoldBack,
    /// The blocks of the running attempt, in the order in which they began.
    blocks: Vec<ReadBlock>,
    text: TextChannel,
    reasoning: TextChannel,
    refusal: TextChannel,
    calls: Vec<SentCall>,
    /// How many bytes of reasoning were sent when it was last signed.
    signed: usize,
    /// Whether another attempt was begun.
    restarted: bool,
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
    /// What the provider needs back verbatim.
    opaque: Option<Opaque>,
    /// Whether it stopped, and may be acted upon.
    is_whole: bool,
}

/// One kind of text of the answer.
#[derive(Debug, Default)]
struct TextChannel {
    /// As the running attempt has it, all blocks of the kind together.
    now: String,
    /// How many bytes of `now` were sent, unless `promised` says what was.
    sent: usize,
    /// What was sent of earlier attempts, while `now` does not cover it.
    promised: Option<String>,
    /// Nothing more is sent.
    closed: bool,
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
        }
    }

    /// The answer of which an earlier owner sent `blocks`.
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
        self.calls = self.blocks.iter().filter_map(ReadBlock::call).collect();
    }

    /// The text that was sent.
    pub(super) fn sent_text(&self) -> &str {
        self.text.sent_text()
    }

    /// Whether nothing but text, and reasoning, was sent.
    pub(super) fn sent_only_text(&self) -> bool {
        self.calls.is_empty() && self.refusal.sent_text().is_empty()
    }

    /// Takes a step, and returns what may be sent now.
    ///
    /// # Errors
    /// When the attempt's answer is another than the one that was begun; nothing may be sent any
    /// more then.
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
            | StreamStep::Usage { .. }
            | StreamStep::Terminal(_) => {}
        }
        let hold_back = match self.hold_back {
            HoldBack::Off => 0,
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

    /// The answer is whole: returns all that was not sent yet.
    ///
    /// # Errors
    /// When what was sent is not how the answer begins.
    pub(super) fn finish(&mut self) -> Result<Vec<AnswerPiece>, Diverged> {
        let mut pieces = Vec::new();
        if self.hold_back == HoldBack::Whole {
            for (index, block) in self.blocks.iter().enumerate() {
                if let (BlockKind::Reasoning, Some(opaque)) = (&block.kind, &block.opaque) {
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
        Ok(pieces)
    }

    /// The place of a block.
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

    /// Where in its kind's channel the text of a block begins.
    fn begin_of(&self, index: usize) -> usize {
        let (before, block) = (&self.blocks[..index], &self.blocks[index]);
        before
            .iter()
            .filter(|other| other.kind == block.kind)
            .map(|other| other.bytes)
            .sum()
    }

    /// The text of a block of reasoning.
    fn reasoning_of(&self, index: usize) -> &str {
        let begin = self.begin_of(index);
        &self.reasoning.now[begin..begin + self.blocks[index].bytes]
    }

    /// A block stopped with what its provider needs back: reasoning is sent to its end and signed.
    /// Where other reasoning was sent, and nothing that would come before it, it is sent whole;
    /// else what was sent stays as it is.
    fn sign(&mut self, index: usize, opaque: &Opaque) -> Vec<AnswerPiece> {
        if self.blocks[index].kind != BlockKind::Reasoning {
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
        let mut pieces = Vec::from_iter(self.reasoning.next(0).map(AnswerPiece::Reasoning));
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
        pieces.extend(self.reasoning.next(hold_back).map(AnswerPiece::Reasoning));
        pieces.extend(self.text.next(hold_back).map(AnswerPiece::Text));
        pieces.extend(self.refusal.next(hold_back).map(AnswerPiece::Refusal));
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

    fn is_call(&self) -> bool {
        matches!(self.kind, BlockKind::ToolCall { .. })
    }

    /// The tool call, where it is one and whole.
    fn call(&self) -> Option<SentCall> {
        let BlockKind::ToolCall { id, name } = &self.kind else {
            return None;
        };
        let (arguments, opaque) = (self.arguments.clone(), self.opaque.clone());
        self.is_whole.then(|| SentCall {
            id: id.clone(),
            name: name.clone(),
            arguments,
            opaque,
        })
    }
}

// === impl TextChannel ===

impl TextChannel {
    /// What was sent, whichever attempt it came from.
    fn sent_text(&self) -> &str {
        self.promised.as_deref().unwrap_or(&self.now[..self.sent])
    }

    /// Adds to the text. Blocks of one kind follow each other; should one grow before another, what
    /// was sent is compared with the whole anew.
    fn insert(&mut self, at: usize, text: &str) {
        if at == self.now.len() {
            self.now.push_str(text);
            return;
        }
        let mut now = self.now.clone();
        now.insert_str(at, text);
        self.pin_sent_prefix();
        self.now = now;
    }

    /// Keeps what was sent as what the next text must begin with.
    fn pin_sent_prefix(&mut self) {
        if self.promised.is_none() && self.sent > 0 {
            self.now.truncate(self.sent);
            self.promised = Some(std::mem::take(&mut self.now));
        }
        self.sent = 0;
    }

    /// Compares the text with the promise.
    fn settle(&mut self) -> Result<(), Diverged> {
        let Some(promised) = self.promised.as_deref().filter(|_| !self.closed) else {
            return Ok(());
        };
        if self.now.len() >= promised.len() && self.now.starts_with(promised) {
            self.sent = promised.len();
            self.promised = None;
            Ok(())
        } else if promised.starts_with(self.now.as_str()) {
            Ok(())
        } else {
            Err(Diverged)
        }
    }

    /// What may be sent now, all but the last `hold_back` bytes.
    fn next(&mut self, hold_back: usize) -> Option<String> {
        if self.closed || self.promised.is_some() {
            return None;
        }
        let end = self
            .now
            .floor_char_boundary(self.now.len().saturating_sub(hold_back));
        let piece = self
            .now
            .get(self.sent..end)
            .filter(|piece| !piece.is_empty())?
            .to_owned();
        self.sent = end;
        Some(piece)
    }
}

/// Whether two argument texts are the same JSON.
fn same_json(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || read(one).is_some_and(|one| Some(one) == read(other))
}

#[cfg(test)]
mod tests;
