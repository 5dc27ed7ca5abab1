//! Which steps of an invocation are emitted, and when: at once, after a while, or only when they are final.
//!
//! The mode belongs to the invocation, so that all its followers see the same steps with the same numbers. The filter
//! keeps the answer so far and how much of it was emitted, and every step that it emits follows from the difference of
//! the two. It never emits a tool call's end before the answer is accepted, because what may be acted upon is not taken
//! back.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::domain::{
    failure::FailureClass,
    fold::{AnswerState, Block, StreamStep, hash_blocks, hash_text},
    invocation::RewindMode,
};

/// Most bytes of one delta, so that no message comes near the bounds of a transport.
const MAX_DELTA_BYTES: usize = 16 * 1024;

/// Emits the steps of an answer as a rewind mode allows.
#[derive(Debug)]
pub(super) struct DeliveryFilter {
    mode: RewindMode,
    made: AnswerState,
    /// What was emitted, in the order in which the blocks began.
    sent: Vec<SentPrefix>,
}

/// How much of a block was emitted; it is always a prefix of the block so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SentPrefix {
    block: u32,
    bytes: usize,
    stopped: bool,
}

// === impl DeliveryFilter ===

impl DeliveryFilter {
    /// A filter that emitted `blocks` before.
    pub(super) fn new(mode: RewindMode, blocks: Vec<Block>) -> Self {
        let sent = blocks.iter().map(SentPrefix::whole).collect();
        let mut made = AnswerState::default();
        made.restore(blocks);
        Self { mode, made, sent }
    }

    /// From here on only what is final is emitted.
    pub(super) const fn tighten(&mut self) {
        self.mode = RewindMode::Atomic;
    }

    /// What was emitted.
    pub(super) fn blocks(&self) -> Cow<'_, [Block]> {
        if self.made.blocks().iter().map(SentPrefix::whole).eq(self.sent.iter().copied()) {
            return Cow::Borrowed(self.made.blocks());
        }
        Cow::Owned(self.sent.iter().filter_map(|sent| Some(sent.of(self.made(sent.block)?))).collect())
    }

    /// What is emitted because of this step. A good end emits everything that its answer holds, and comes last itself.
    pub(super) fn pass(&mut self, step: StreamStep) -> Vec<StreamStep> {
        let mut out = Vec::new();
        if let Err(error) = self.made.apply(&step) {
            // The steps of the layers fold by construction; followers check every step once more.
            tracing::error!(%error, "a step does not fold");
            return out;
        }
        match step {
            StreamStep::BlockStart { block, .. } | StreamStep::BlockDelta { block, .. } => {
                self.release(block, false, &mut out);
            }
            StreamStep::BlockStop { block, committed, .. } => {
                // What is appended was compared with every attempt before: it is never taken back.
                let actionable = committed && self.mode != RewindMode::AppendOnly && self.is_tool_call(block);
                if !actionable {
                    self.release(block, false, &mut out);
                }
            }
            StreamStep::Rewind { cause, attempt, .. } => out.extend(self.take_back(cause, attempt)),
            StreamStep::Terminal(outcome) => {
                if outcome.result.is_ok() {
                    let all: Vec<u32> = self.made.blocks().iter().map(|block| block.id).collect();
                    for block in all {
                        self.release(block, true, &mut out);
                    }
                }
                out.push(StreamStep::Terminal(outcome));
            }
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::Recovery { .. }
            | StreamStep::Parked { .. }
            | StreamStep::Usage { .. } => out.push(step),
        }
        out
    }

    /// A block as it is so far.
    fn made(&self, block: u32) -> Option<&Block> {
        self.made.blocks().iter().find(|made| made.id == block)
    }

    fn is_tool_call(&self, block: u32) -> bool {
        use crate::domain::completion::BlockKind;
        self.made(block).is_some_and(|made| matches!(made.kind, BlockKind::ToolCall { .. }))
    }

    /// Emits what the mode allows of a block, or all of it.
    fn release(&mut self, id: u32, all: bool, out: &mut Vec<StreamStep>) {
        let Some(made) = self.made.blocks().iter().find(|block| block.id == id) else { return };
        let known = self.sent.iter().position(|sent| sent.block == id);
        let from = known.map_or(0, |index| self.sent[index].bytes);
        let to = if all || made.stopped { made.text.len() } else { self.limit(made, from) };
        let may_begin = match self.mode {
            RewindMode::Rewind | RewindMode::AppendOnly => true,
            RewindMode::HoldBack { .. } => to > 0 || made.stopped,
            RewindMode::Atomic => false,
        };
        if !all && !may_begin {
            return;
        }
        let index = known.unwrap_or_else(|| {
            out.push(StreamStep::BlockStart { block: id, kind: made.kind.clone() });
            self.sent.push(SentPrefix { block: id, bytes: 0, stopped: false });
            self.sent.len() - 1
        });
        let sent = &mut self.sent[index];
        for (offset, text) in pieces(&made.text[..to], from) {
            out.push(StreamStep::BlockDelta { block: id, offset: offset as u64, text: text.to_owned() });
        }
        sent.bytes = to;
        if made.stopped && !sent.stopped {
            sent.stopped = true;
            out.push(StreamStep::BlockStop {
                block: id,
                bytes: made.text.len() as u64,
                hash: hash_text(&made.text),
                opaque: made.opaque.clone(),
                committed: made.committed,
            });
        }
    }

    /// How much of an open block may be emitted by now, of which `from` bytes were.
    fn limit(&self, made: &Block, from: usize) -> usize {
        match self.mode {
            RewindMode::Rewind | RewindMode::AppendOnly => made.text.len(),
            RewindMode::HoldBack { bytes: 0 } | RewindMode::Atomic => from,
            RewindMode::HoldBack { bytes } => {
                let held = usize::try_from(bytes).unwrap_or(usize::MAX);
                let max = made.text.len().saturating_sub(held);
                whole_graphemes(&made.text, from, max)
            }
        }
    }

    /// Takes back what was emitted and is no longer part of the answer.
    fn take_back(&mut self, cause: FailureClass, attempt: u32) -> Option<StreamStep> {
        let kept = |sent: &SentPrefix| {
            let bytes = self.made(sent.block)?.text.len().min(sent.bytes);
            Some(SentPrefix { bytes, stopped: sent.stopped && bytes == sent.bytes, ..*sent })
        };
        let kept: Vec<SentPrefix> = self.sent.iter().filter_map(kept).collect();
        if kept == self.sent {
            return None;
        }
        self.sent = kept;
        let keep = self.sent.iter().map(|sent| (sent.block, sent.bytes as u64)).collect();
        Some(StreamStep::Rewind { keep, cause, attempt, hash: hash_blocks(self.blocks().iter()) })
    }
}

// === impl SentPrefix ===

impl SentPrefix {
    /// All of a block.
    fn whole(block: &Block) -> Self {
        Self { block: block.id, bytes: block.text.len(), stopped: block.stopped }
    }

    /// This much of the block.
    fn of(self, made: &Block) -> Block {
        let mut block = made.clone();
        if !self.stopped {
            block.text.truncate(self.bytes);
            (block.opaque, block.stopped, block.committed) = (None, false, false);
        }
        block
    }
}

/// The last end of a grapheme at or before `max`, searched from `from`, which is one.
fn whole_graphemes(text: &str, from: usize, max: usize) -> usize {
    let ends = text[from..].grapheme_indices(true).map(|(start, piece)| from + start + piece.len());
    ends.take_while(|end| *end <= max).last().unwrap_or(from)
}

/// The text after `from` in pieces of bounded length, each ending at a grapheme unless one alone is too long.
fn pieces(text: &str, from: usize) -> impl Iterator<Item = (usize, &str)> {
    let mut at = from;
    std::iter::from_fn(move || {
        if at >= text.len() {
            return None;
        }
        let start = at;
        at = if text.len() - start <= MAX_DELTA_BYTES {
            text.len()
        } else {
            let end = whole_graphemes(text, start, start + MAX_DELTA_BYTES);
            if end > start { end } else { text.floor_char_boundary(start + MAX_DELTA_BYTES) }
        };
        Some((start, &text[start..at]))
    })
}

#[cfg(test)]
mod tests;
