//! What of an invocation's progress goes out, and when: at once, after a while, or only when it is final.
//!
//! The mode belongs to the invocation, so that all its followers see the same steps with the same numbers. The outlet
//! keeps what was made and what went out, and every step that it lets out follows from the difference of the two. It
//! never lets out a tool call's end before the answer is accepted, because what may be acted upon is not taken back.

use unicode_segmentation::UnicodeSegmentation as _;

use crate::domain::{
    failure::FailureClass,
    fold::{AnswerState, Block, StreamStep, hash_blocks, hash_text},
    invocation::RewindMode,
};

/// Most bytes of one delta, so that no message comes near the bounds of a transport.
const MAX_DELTA_BYTES: usize = 16 * 1024;

/// Lets progress out by a rewind mode.
#[derive(Debug)]
pub(super) struct DeliveryFilter {
    mode: RewindMode,
    made: AnswerState,
    out: AnswerState,
}

// === impl DeliveryFilter ===

impl DeliveryFilter {
    /// An outlet of which `blocks` went out before.
    pub(super) fn new(mode: RewindMode, blocks: Vec<Block>) -> Self {
        let mut fold = AnswerState::default();
        fold.restore(blocks);
        Self { mode, made: fold.clone(), out: fold }
    }

    /// From here on only what is final goes out.
    pub(super) const fn tighten(&mut self) {
        self.mode = RewindMode::Atomic;
    }

    /// What went out.
    pub(super) fn blocks(&self) -> &[Block] {
        self.out.blocks()
    }

    /// What goes out because of this step. An end lets everything out that its answer holds, and comes last itself.
    pub(super) fn pass(&mut self, step: StreamStep) -> Vec<StreamStep> {
        let mut out = Vec::new();
        if let Err(error) = self.made.apply(&step) {
            // What layers below say folds by construction; followers check every step once more.
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
        for step in out.iter().filter(|step| !matches!(step, StreamStep::Terminal(_))) {
            if let Err(error) = self.out.apply(step) {
                tracing::error!(%error, "a step that goes out does not fold");
            }
        }
        out
    }

    fn is_tool_call(&self, block: u32) -> bool {
        use crate::domain::completion::BlockKind;
        let held = self.made.blocks().iter().find(|held| held.id == block);
        held.is_some_and(|held| matches!(held.kind, BlockKind::ToolCall { .. }))
    }

    /// Lets out of a block what may go by the mode, or all of it.
    fn release(&self, id: u32, all: bool, out: &mut Vec<StreamStep>) {
        let Some(made) = self.made.blocks().iter().find(|block| block.id == id) else { return };
        let gone = self.out.blocks().iter().find(|block| block.id == id);
        let from = gone.map_or(0, |block| block.text.len());
        let to = if all || made.stopped { made.text.len() } else { self.limit(made, from) };
        let may_begin = match self.mode {
            RewindMode::Rewind | RewindMode::AppendOnly => true,
            RewindMode::HoldBack { .. } => to > 0 || made.stopped,
            RewindMode::Atomic => false,
        };
        if !all && !may_begin {
            return;
        }
        if gone.is_none() {
            out.push(StreamStep::BlockStart { block: id, kind: made.kind.clone() });
        }
        for (offset, text) in pieces(&made.text[..to], from) {
            out.push(StreamStep::BlockDelta { block: id, offset: offset as u64, text: text.to_owned() });
        }
        if made.stopped && !gone.is_some_and(|block| block.stopped) {
            out.push(StreamStep::BlockStop {
                block: id,
                bytes: made.text.len() as u64,
                hash: hash_text(&made.text),
                opaque: made.opaque.clone(),
                committed: made.committed,
            });
        }
    }

    /// How much of an open block may have gone out by now, of which `from` bytes have.
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

    /// Takes back what went out and is no longer made.
    fn take_back(&self, cause: FailureClass, attempt: u32) -> Option<StreamStep> {
        let kept = |gone: &Block| {
            let made = self.made.blocks().iter().find(|block| block.id == gone.id)?;
            Some((gone.id, made.text.len().min(gone.text.len()) as u64))
        };
        let keep: Vec<(u32, u64)> = self.out.blocks().iter().filter_map(kept).collect();
        let whole = |gone: &Block| keep.contains(&(gone.id, gone.text.len() as u64));
        if self.out.blocks().iter().all(whole) {
            return None;
        }
        let mut after = Vec::new();
        for (id, bytes) in &keep {
            let Some(gone) = self.out.blocks().iter().find(|block| block.id == *id) else { continue };
            let mut block = gone.clone();
            block.text.truncate(usize::try_from(*bytes).unwrap_or(usize::MAX));
            after.push(block);
        }
        Some(StreamStep::Rewind { keep, cause, attempt, hash: hash_blocks(after.iter()) })
    }
}

/// The last end of a grapheme that is at most at `max`, looked for after `from`, which is one.
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
