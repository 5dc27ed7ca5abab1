//! How one attempt's answer continues another's: what may be sent, given what was sent already.
//!
//! A client of this mode cannot take back. So what was sent is a promise about how the answer begins: after a restart nothing is
//! sent while the new attempt only repeats it, the rest is sent once it has, and another text is an error.
//! Tool calls are sent only when they are whole, so that half a call never has to be kept. Reasoning is no part of the
//! promise: one that differs is left out. Pure: steps in, pieces out, no waits.

use serde_json::Value;

use crate::{
    config::server::HoldBack,
    domain::{
        completion::BlockKind,
        fold::{AnswerState, Block, StreamStep},
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
    /// Reasoning of another attempt than the one that was sent, whole, with what its provider needs back.
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
    fold: AnswerState,
    text: TextChannel,
    reasoning: TextChannel,
    refusal: TextChannel,
    calls: Vec<SentCall>,
    /// How many bytes of reasoning were sent when it was last signed.
    signed: usize,
    /// Whether another attempt was begun.
    restarted: bool,
}

/// One kind of text of the answer.
#[derive(Debug, Default)]
struct TextChannel {
    /// As the running attempt has it.
    now: String,
    /// The last block that it came from.
    last: Option<u32>,
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
            fold: AnswerState::default(),
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
        self.fold.restore(blocks.to_vec());
        let kinds = [BlockKind::Text, BlockKind::Reasoning, BlockKind::Refusal];
        for (channel, kind) in [&mut self.text, &mut self.reasoning, &mut self.refusal].into_iter().zip(kinds) {
            channel.now = joined(blocks, &kind);
            channel.sent = channel.now.len();
            channel.last = blocks.iter().rev().find(|block| block.kind == kind).map(|block| block.id);
        }
        let is_signed = blocks.iter().any(|block| block.kind == BlockKind::Reasoning && block.opaque.is_some());
        self.signed = if is_signed { self.reasoning.sent } else { 0 };
        let calls = blocks.iter().filter(|block| block.stopped && block.committed);
        self.calls = calls.filter_map(SentCall::of).collect();
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
    /// When the attempt's answer is another than the one that was begun; nothing may be sent any more then.
    pub(super) fn step(&mut self, step: &StreamStep) -> Result<Vec<AnswerPiece>, Diverged> {
        if let Err(error) = self.fold.apply(step) {
            // The steps come from this very process, so this is a defect, not an input.
            tracing::error!(%error, "a step of an invocation does not fold");
            return Err(Diverged);
        }
        match step {
            StreamStep::BlockDelta { block, text, .. } => self.grow(*block, text),
            StreamStep::Rewind { .. } => self.rewind(),
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::BlockStart { .. }
            | StreamStep::BlockStop { .. }
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
        if let StreamStep::BlockStop { block, opaque: Some(opaque), .. } = step {
            pieces.extend(self.sign(*block, opaque));
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
            let blocks = self.fold.blocks().to_vec();
            let signed = blocks.iter().filter_map(|block| Some((block, block.opaque.as_ref()?)));
            for (block, opaque) in signed.filter(|(block, _)| block.kind == BlockKind::Reasoning) {
                pieces.push(AnswerPiece::SignedAnew(block.text.clone(), opaque.clone()));
            }
            self.reasoning.closed |= !pieces.is_empty();
        }
        pieces.extend(self.pieces(0)?);
        let broken = |channel: &TextChannel| channel.promised.is_some() && !channel.closed;
        let calls = self.fold.blocks().iter().filter(|block| is_call(block)).count();
        if broken(&self.text) || broken(&self.refusal) || calls < self.calls.len() {
            return Err(Diverged);
        }
        Ok(pieces)
    }

    fn grow(&mut self, block: u32, text: &str) {
        let Some(grown) = self.fold.blocks().iter().find(|known| known.id == block) else { return };
        let channel = match grown.kind {
            BlockKind::Text => &mut self.text,
            BlockKind::Reasoning => &mut self.reasoning,
            BlockKind::Refusal => &mut self.refusal,
            BlockKind::ToolCall { .. } => return,
        };
        // Blocks of one kind follow each other; should one grow behind another, the whole is put together anew.
        if channel.last.is_none_or(|last| last <= block) {
            channel.last = Some(block);
            channel.now.push_str(text);
        } else {
            let kind = grown.kind.clone();
            channel.pin_sent_prefix();
            channel.now = joined(self.fold.blocks(), &kind);
        }
    }

    /// A block stopped with what its provider needs back: reasoning is sent to its end and signed. Where other reasoning was
    /// sent, and nothing that would come before it, it is sent whole; else what was sent stays as it is.
    fn sign(&mut self, block: u32, opaque: &Opaque) -> Vec<AnswerPiece> {
        let Some(signed) = self.fold.blocks().iter().find(|known| known.id == block) else { return Vec::new() };
        if signed.kind != BlockKind::Reasoning {
            return Vec::new();
        }
        let only_reasoning_was_sent = self.sent_only_text() && self.text.sent_text().is_empty();
        let is_another = self.reasoning.closed || self.reasoning.promised.is_some();
        if is_another || (signed.text.is_empty() && self.restarted) {
            let text = signed.text.clone();
            let anew = only_reasoning_was_sent.then(|| AnswerPiece::SignedAnew(text, opaque.clone()));
            return anew.into_iter().collect();
        }
        let mut pieces = Vec::from_iter(self.reasoning.next(0).map(AnswerPiece::Reasoning));
        if signed.text.is_empty() || self.reasoning.sent > self.signed {
            pieces.push(AnswerPiece::Signed(opaque.clone()));
        }
        self.signed = self.reasoning.sent;
        pieces
    }

    fn rewind(&mut self) {
        self.restarted = true;
        let kinds = [BlockKind::Text, BlockKind::Reasoning, BlockKind::Refusal];
        for (channel, kind) in [&mut self.text, &mut self.reasoning, &mut self.refusal].into_iter().zip(kinds) {
            channel.pin_sent_prefix();
            channel.now = joined(self.fold.blocks(), &kind);
            channel.last = self.fold.blocks().iter().rev().find(|block| block.kind == kind).map(|block| block.id);
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
        let calls: Vec<&Block> = self.fold.blocks().iter().filter(|block| is_call(block)).collect();
        for (index, block) in calls.into_iter().enumerate() {
            // Calls keep their order: one that is open holds those behind it.
            if !(block.stopped && block.committed) {
                break;
            }
            let Some(call) = SentCall::of(block) else { break };
            match self.calls.get(index) {
                // Its id differs from attempt to attempt; the one that was sent stays.
                Some(sent) if sent.name == call.name && same_json(&sent.arguments, &call.arguments) => {}
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

// === impl SentCall ===

impl SentCall {
    /// The tool call that a block holds; `None` of any other block.
    fn of(block: &Block) -> Option<Self> {
        let BlockKind::ToolCall { id, name } = &block.kind else { return None };
        let (arguments, opaque) = (block.text.clone(), block.opaque.clone());
        Some(Self { id: id.clone(), name: name.clone(), arguments, opaque })
    }
}

// === impl TextChannel ===

impl TextChannel {
    /// What was sent, whichever attempt it came from.
    fn sent_text(&self) -> &str {
        self.promised.as_deref().unwrap_or(&self.now[..self.sent])
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
        let Some(promised) = self.promised.as_deref().filter(|_| !self.closed) else { return Ok(()) };
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
        let end = self.now.floor_char_boundary(self.now.len().saturating_sub(hold_back));
        let piece = self.now.get(self.sent..end).filter(|piece| !piece.is_empty())?.to_owned();
        self.sent = end;
        Some(piece)
    }
}

fn is_call(block: &Block) -> bool {
    matches!(block.kind, BlockKind::ToolCall { .. })
}

fn joined(blocks: &[Block], kind: &BlockKind) -> String {
    blocks.iter().filter(|block| block.kind == *kind).map(|block| block.text.as_str()).collect()
}

/// Whether two argument texts are the same JSON.
fn same_json(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || read(one).is_some_and(|one| Some(one) == read(other))
}

#[cfg(test)]
mod tests;
