//! Selection of the steps of an invocation that are emitted, and their time: at once, after a
//! while, or only when they are final.
//!
//! The mode belongs to the invocation, so that all its followers see the same steps with the same
//! numbers. The filter keeps only what it holds back. It never emits a tool call's end before the
//! answer is accepted, because what may be acted upon is not taken back.

use std::mem;

use unicode_segmentation::GraphemeCursor;

use crate::domain::{
    completion::BlockKind,
    fold::{Block, StreamStep},
    invocation::RewindMode,
};

/// Most bytes of one delta, so that no message comes near the bounds of a transport.
const MAX_DELTA_BYTES: usize = 16 * 1024;

/// Emits the steps of a completion as a rewind mode allows.
#[derive(Debug)]
pub(super) struct DeliveryFilter {
    mode: RewindMode,
    /// Blocks of the completion, in the order in which they started.
    blocks: Vec<FilteredBlock>,
}

/// Emitted part of a block, and the part of it that is held back.
#[derive(Debug)]
struct FilteredBlock {
    id: u32,
    kind: BlockKind,
    /// `true` if its start was emitted.
    begun: bool,
    /// Number of bytes of its text that were emitted.
    emitted: u64,
    /// The text behind them.
    held: String,
    /// Its end, while that is held back.
    end: Option<StreamStep>,
}

// === impl DeliveryFilter ===

impl DeliveryFilter {
    /// A filter that emitted `blocks` before.
    pub(super) fn new(mode: RewindMode, blocks: &[Block]) -> Self {
        Self {
            mode,
            blocks: blocks.iter().map(FilteredBlock::emitted).collect(),
        }
    }

    /// From here on only what is final is emitted.
    pub(super) const fn tighten(&mut self) {
        self.mode = RewindMode::Atomic;
    }

    /// Returns the steps that are emitted because of this step. A good end emits everything that
    /// its completion holds, and comes last itself.
    pub(super) fn pass(&mut self, step: StreamStep) -> Vec<StreamStep> {
        let mut out = Vec::new();
        match step {
            StreamStep::BlockStart { block, kind } => {
                let mut begun = FilteredBlock::new(block, kind);
                begun.release(self.mode, &mut out);
                self.blocks.push(begun);
            }
            StreamStep::BlockDelta { block, text, .. } => {
                let mode = self.mode;
                if let Some(block) = self.block(block) {
                    block.grow(text);
                    block.release(mode, &mut out);
                }
            }
            StreamStep::BlockStop {
                block, committed, ..
            } => {
                let mode = self.mode;
                if let Some(block) = self.block(block) {
                    block.end = Some(step);
                    // What is appended was compared with every attempt before: it is never taken
                    // back.
                    let is_actionable =
                        committed && mode != RewindMode::AppendOnly && block.is_tool_call();
                    if !is_actionable {
                        block.release(mode, &mut out);
                    }
                }
            }
            // The layers keep nothing of an attempt that they abandon.
            StreamStep::Rewind { .. } => {
                if mem::take(&mut self.blocks).iter().any(|block| block.begun) {
                    out.push(step);
                }
            }
            StreamStep::Terminal(outcome) => {
                if outcome.result.is_ok() {
                    self.blocks
                        .iter_mut()
                        .for_each(|block| block.emit(block.held.len(), &mut out));
                }
                out.push(StreamStep::Terminal(outcome));
            }
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::Recovery { .. }
            | StreamStep::Parked { .. }
            | StreamStep::ResponseStarted { .. }
            | StreamStep::Usage { .. } => out.push(step),
        }
        out
    }

    fn block(&mut self, id: u32) -> Option<&mut FilteredBlock> {
        let known = self.blocks.iter_mut().find(|block| block.id == id);
        if known.is_none() {
            // The steps come from this very process, so this is a defect, not an input.
            tracing::error!(block = id, "a step names a block that did not begin");
        }
        known
    }
}

// === impl FilteredBlock ===

impl FilteredBlock {
    /// A block of which nothing was emitted.
    fn new(id: u32, kind: BlockKind) -> Self {
        Self {
            id,
            kind,
            begun: false,
            emitted: 0,
            held: String::new(),
            end: None,
        }
    }

    /// A block of which everything so far was emitted.
    fn emitted(block: &Block) -> Self {
        Self {
            begun: true,
            emitted: block.text.len() as u64,
            ..Self::new(block.id, block.kind.clone())
        }
    }

    fn is_tool_call(&self) -> bool {
        matches!(self.kind, BlockKind::ToolCall { .. })
    }

    fn grow(&mut self, text: String) {
        if self.held.is_empty() {
            self.held = text;
        } else {
            self.held.push_str(&text);
        }
    }

    /// Emits what the mode allows.
    fn release(&mut self, mode: RewindMode, out: &mut Vec<StreamStep>) {
        let is_whole = self.end.is_some();
        match mode {
            RewindMode::Rewind | RewindMode::AppendOnly => self.emit(self.held.len(), out),
            RewindMode::HoldBack { .. } if is_whole => self.emit(self.held.len(), out),
            // The whole block is held back.
            RewindMode::HoldBack { bytes: 0 } | RewindMode::Atomic => {}
            RewindMode::HoldBack { bytes } => {
                let kept = usize::try_from(bytes).unwrap_or(usize::MAX);
                let ready = whole_graphemes(&self.held, self.held.len().saturating_sub(kept));
                if ready > 0 {
                    self.emit(ready, out);
                }
            }
        }
    }

    /// Emits the next bytes of the text, behind the block's start and before its end, if those were
    /// not emitted.
    fn emit(&mut self, bytes: usize, out: &mut Vec<StreamStep>) {
        if !mem::replace(&mut self.begun, true) {
            out.push(StreamStep::BlockStart {
                block: self.id,
                kind: self.kind.clone(),
            });
        }
        let rest = self.held.split_off(bytes);
        let text = mem::replace(&mut self.held, rest);
        if text.len() > MAX_DELTA_BYTES {
            pieces(&text).for_each(|piece| self.emit_delta(piece.to_owned(), out));
        } else if !text.is_empty() {
            self.emit_delta(text, out);
        }
        out.extend(self.end.take());
    }

    fn emit_delta(&mut self, text: String, out: &mut Vec<StreamStep>) {
        let offset = self.emitted;
        self.emitted += text.len() as u64;
        out.push(StreamStep::BlockDelta {
            block: self.id,
            offset,
            text,
        });
    }
}

/// Returns the last end of a grapheme at or before `max`.
fn whole_graphemes(text: &str, max: usize) -> usize {
    let max = text.floor_char_boundary(max);
    // Reads only as far back as the grapheme at this place begins, however long the text is.
    let mut cursor = GraphemeCursor::new(max, text.len(), true);
    match cursor.is_boundary(text, 0) {
        Ok(true) => max,
        Ok(false) | Err(_) => cursor
            .prev_boundary(text, 0)
            .ok()
            .flatten()
            .unwrap_or_default(),
    }
}

/// Returns a text in pieces of bounded length, each ending at a grapheme unless one alone is too
/// long.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let bound = text.floor_char_boundary(MAX_DELTA_BYTES);
        let end = if bound == text.len() {
            bound
        } else {
            whole_graphemes(text, bound)
        };
        let (piece, rest) = text.split_at(if end > 0 { end } else { bound });
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests;
