//! Content that followers of the invocation have received so far, and how it is taken back.
//!
//! Attempts number their blocks from 0; followers see numbers from 1 that are unique within the
//! invocation. When an attempt is abandoned, one rewind names exactly what stays; a text that the
//! next attempt repeats word for word is not taken back at all: followers just see it continue. No
//! delta ends inside a grapheme, unless everything is delivered at once, and a tool call is
//! committed only together with the whole completion, so that what may be acted upon is never taken
//! back.

mod facts;
mod graphemes;

use std::{collections::HashMap, sync::Arc};

use self::facts::ResponseFacts;
pub use self::graphemes::DeltaEnds;
use crate::domain::{
    completion::{BlockKind, Completion, Delta, FinishReason},
    failure::FailureClass,
    fold::{AnswerState, Block, StreamStep, hash_blocks, hash_text},
    message::{Message, Opaque},
};

/// Turns the deltas of one attempt after another into one progress, and folds it as its followers
/// do.
#[derive(Debug, Default)]
pub struct DeltaAssembler {
    fold: AnswerState,
    /// Places at which a delta may end.
    ends: DeltaEnds,
    last_block: u32,
    /// Last block of the attempts before.
    earlier_blocks: u32,
    /// Open blocks of the running attempt, by its own numbers.
    running: HashMap<u32, RunningBlock>,
    /// Whole tool calls, and the data that their provider needs back: committed with the completion.
    uncommitted: Vec<(u32, Option<Opaque>)>,
    /// The end of the newest text, held back while the text may be continued, with what of it may
    /// be the beginning of a stop sequence.
    closing: Option<(u32, Option<Opaque>, String)>,
    /// Such a beginning at the end of a completion that is being continued, and the bytes before it.
    cut_tail: (usize, String),
    abandoned: Option<AbandonedText>,
    /// Facts of the running attempt's response, beside its blocks.
    facts: ResponseFacts,
}

/// An open block of the running attempt.
#[derive(Debug, Default)]
struct RunningBlock {
    /// Its number as followers know it.
    id: u32,
    /// Text of it that is not delivered yet: its last grapheme may still grow.
    tail: String,
}

/// A text of an abandoned attempt that followers still hold, while the next attempt may be
/// repeating it.
#[derive(Debug)]
struct AbandonedText {
    /// Its block as followers know it.
    id: u32,
    cause: FailureClass,
    attempt: u32,
    /// The running attempt's block that repeats it, once there is one.
    repeated_by: Option<u32>,
    /// Number of bytes of it that were repeated.
    matched: usize,
}

// === impl DeltaAssembler ===

impl DeltaAssembler {
    /// Returns the delivery of an invocation that an earlier owner started.
    pub fn after(blocks: Vec<Block>, last_block: u32) -> Self {
        let mut assembler = Self {
            last_block,
            ..Self::default()
        };
        assembler.fold.restore(blocks);
        assembler
    }

    /// The same delivery, whose deltas may end there.
    pub fn ending_at(self, ends: DeltaEnds) -> Self {
        Self { ends, ..self }
    }

    /// Returns whether a follower holds anything.
    pub fn has_content(&self) -> bool {
        !self.fold.blocks().is_empty()
    }

    /// Begins another attempt; what was delivered must have been abandoned before.
    pub fn begin_attempt(&mut self) {
        self.earlier_blocks = self.last_block;
        self.running.clear();
        self.uncommitted.clear();
        self.closing = None;
        self.facts = ResponseFacts::default();
    }

    /// Takes a delta, and returns the steps that it means for followers. A delta for a block that is not open
    /// means nothing.
    pub fn push(&mut self, attempt: u32, delta: Delta) -> Vec<StreamStep> {
        let mut steps = Vec::new();
        match delta {
            Delta::Start {
                model, response_id, ..
            } => {
                self.facts.model = model;
                self.facts.response_id = response_id;
            }
            Delta::BlockStart { block, kind } => self.start(block, kind, &mut steps),
            Delta::BlockDelta { block, text } => self.grow(block, &text, &mut steps),
            Delta::BlockStop { block, opaque } => self.end(block, opaque, &mut steps),
            Delta::Usage(usage) => {
                self.facts.usage = usage;
                self.emit(StreamStep::Usage { attempt, usage }, &mut steps);
            }
            Delta::Around(fields) => {
                let is_first =
                    self.facts.around.is_none() && self.last_block == self.earlier_blocks;
                let around = self.facts.around.insert(fields).clone();
                let model = self.facts.model.clone();
                let started = StreamStep::ResponseStarted {
                    attempt,
                    model,
                    around,
                };
                steps.extend(is_first.then_some(started));
            }
            // Followers see a completion that continues; the result of a tool is delivered when the
            // planner accepts it.
            Delta::ReadOn(_) | Delta::ToolReply(_) => {}
            Delta::Finish { reason, raw } => {
                // A tool call that did not stop is cut: it never stops, and so is never committed.
                let mut open: Vec<u32> = self
                    .running
                    .keys()
                    .copied()
                    .filter(|block| !self.is_call(*block))
                    .collect();
                open.sort_unstable();
                for block in open {
                    self.end(block, None, &mut steps);
                }
                // A completion without the text that followers hold is another completion.
                self.diverge(&mut steps);
                self.facts.finish = Some((reason, raw));
            }
        }
        steps
    }

    /// Abandons what was delivered since the last accepted answer. With `seamless`, a text that is
    /// the only block is only taken back once the next attempt turns out not to repeat it.
    pub fn abandon(
        &mut self,
        attempt: u32,
        cause: FailureClass,
        seamless: bool,
    ) -> Vec<StreamStep> {
        self.uncommitted.clear();
        self.closing = None;
        let alone = match self.fold.blocks() {
            [only] if seamless && only.kind == BlockKind::Text => Some(only.id),
            [] | [_, ..] => None,
        };
        let steps = if alone.is_some() {
            self.flush()
        } else {
            Vec::new()
        };
        for block in self.running.values_mut() {
            block.tail.clear();
        }
        self.abandoned = alone.map(|id| AbandonedText {
            id,
            cause,
            attempt,
            repeated_by: None,
            matched: 0,
        });
        if self.abandoned.is_some() || !self.has_content() {
            return steps;
        }
        let step = StreamStep::Rewind {
            keep: Vec::new(),
            cause,
            attempt,
            hash: hash_blocks(std::iter::empty()),
        };
        self.apply(&step);
        vec![step]
    }

    /// Returns the text of an abandoned attempt that followers still hold.
    pub fn held_text(&self) -> Option<Arc<str>> {
        let held = self.open_block(self.abandoned.as_ref()?.id)?;
        Some(Arc::from(held.text.as_str()))
    }

    /// Returns the blocks as delivered so far, and how the running attempt finished, once it did.
    pub fn finished(&self) -> Option<(&[Block], FinishReason)> {
        Some((self.fold.blocks(), self.facts.finish.as_ref()?.0))
    }

    /// Bytes that followers hold, or are about to.
    pub fn bytes(&self) -> usize {
        let blocks = self.fold.blocks().iter();
        let held: usize = blocks.map(|block| block.text.len()).sum();
        let waiting = self.running.values().map(|block| block.tail.len());
        held + waiting.sum::<usize>()
    }

    /// Keeps the text of a whole completion open, so that the next attempt continues it. Returns how it
    /// had finished.
    pub fn reopen(&mut self, attempt: u32) -> Option<(FinishReason, String)> {
        let (id, _, tail) = self.closing.take()?;
        self.cut_tail = (self.bytes(), tail);
        let cause = FailureClass::StreamInterrupted;
        self.abandoned = Some(AbandonedText {
            id,
            cause,
            attempt,
            repeated_by: None,
            matched: 0,
        });
        self.facts.finish.take()
    }

    /// Takes what followers hold for the whole completion after all, which finished like this.
    pub fn settle(&mut self, finish: (FinishReason, String)) -> Vec<StreamStep> {
        let mut steps = self.flush();
        self.abandoned = None;
        self.closing = None;
        self.facts.finish = Some(finish);
        let (bytes, tail) = std::mem::take(&mut self.cut_tail);
        let tail = if bytes == self.bytes() {
            tail
        } else {
            String::new()
        };
        let open = self.fold.blocks().iter().filter(|block| !block.stopped);
        let open: Vec<u32> = open.map(|block| block.id).collect();
        for id in open {
            self.add(id, tail.clone(), &mut steps);
            if let Some(held) = self.fold.blocks().iter().find(|held| held.id == id) {
                let step = stop(held, None);
                self.emit(step, &mut steps);
            }
        }
        steps
    }

    /// Delivers what was held back for a grapheme that may grow: nothing more comes. What may be the
    /// beginning of a stop sequence is not: who continues the text writes it anew.
    pub fn flush(&mut self) -> Vec<StreamStep> {
        let mut steps = Vec::new();
        let with_text = self.running.iter_mut();
        let with_text = with_text.filter(|(_, block)| !block.tail.is_empty());
        let mut tails: Vec<(u32, u32, String)> = with_text
            .map(|(number, block)| (*number, block.id, std::mem::take(&mut block.tail)))
            .collect();
        tails.sort_unstable();
        for (_, id, mut tail) in tails {
            tail.truncate(self.ends.sure(&tail));
            self.add(id, tail, &mut steps);
        }
        steps
    }

    /// Commits the tool calls of a whole completion: what comes next is the end.
    pub fn commit(&mut self) -> Vec<StreamStep> {
        let mut steps = Vec::new();
        self.close(&mut steps);
        for (id, opaque) in std::mem::take(&mut self.uncommitted) {
            self.stop(id, opaque, &mut steps);
        }
        steps
    }

    /// Returns the whole completion, once the attempt finished and was committed.
    pub fn completion(&self, asked_model: &str) -> Option<Completion> {
        self.facts.completion(self.message(), asked_model)
    }

    /// Returns the assistant's turn as delivered so far.
    pub fn message(&self) -> Message {
        self.fold.message()
    }

    fn start(&mut self, block: u32, kind: BlockKind, steps: &mut Vec<StreamStep>) {
        self.close(steps);
        if let Some(abandoned) = &mut self.abandoned {
            if abandoned.repeated_by.is_none() && kind == BlockKind::Text {
                abandoned.repeated_by = Some(block);
                self.running.entry(block).or_default().id = abandoned.id;
                return;
            }
            self.diverge(steps);
        }
        self.last_block += 1;
        let id = self.last_block;
        self.running.entry(block).or_default().id = id;
        self.emit(StreamStep::BlockStart { block: id, kind }, steps);
    }

    fn grow(&mut self, block: u32, text: &str, steps: &mut Vec<StreamStep>) {
        if text.is_empty() || !self.running.contains_key(&block) {
            return;
        }
        let mut new = text;
        if let Some(abandoned) = self
            .abandoned
            .as_mut()
            .filter(|abandoned| abandoned.repeated_by == Some(block))
        {
            let mut blocks = self.fold.blocks().iter();
            let held = blocks.find(|held| held.id == abandoned.id);
            let (left, open) = held.map_or(("", false), |held| {
                (&held.text[abandoned.matched..], !held.stopped)
            });
            if left.starts_with(text) {
                abandoned.matched += text.len();
                return;
            }
            match text.strip_prefix(left) {
                Some(rest) if open && held.is_some_and(|it| self.ends.fit(&it.text, rest)) => {
                    // All of it was repeated: from here on it simply continues.
                    self.abandoned = None;
                    new = rest;
                }
                Some(_) | None => {
                    self.diverge(steps);
                    self.grow(block, text, steps);
                    return;
                }
            }
        }
        let Some(RunningBlock { id, tail }) = self.running.get_mut(&block) else {
            return;
        };
        let id = *id;
        tail.push_str(new);
        let ready = self.ends.settled(tail);
        let rest = tail.split_off(ready);
        let ready = std::mem::replace(tail, rest);
        self.add(id, ready, steps);
    }

    fn end(&mut self, block: u32, opaque: Option<Opaque>, steps: &mut Vec<StreamStep>) {
        if let Some(abandoned) = self
            .abandoned
            .as_ref()
            .filter(|abandoned| abandoned.repeated_by == Some(block))
        {
            let mut blocks = self.fold.blocks().iter();
            let held = blocks.find(|held| held.id == abandoned.id);
            if held.is_some_and(|held| {
                held.text.len() == abandoned.matched && (!held.stopped || held.opaque == opaque)
            }) {
                self.abandoned = None;
            } else {
                self.diverge(steps);
            }
        }
        let Some(RunningBlock { id, tail: mut rest }) = self.running.remove(&block) else {
            return;
        };
        let kind = self.open_block(id).map(|held| held.kind.clone());
        match kind {
            None => {}
            Some(BlockKind::ToolCall { .. }) => {
                self.add(id, rest, steps);
                self.uncommitted.push((id, opaque));
            }
            Some(BlockKind::Text) => {
                self.close(steps);
                let tail = rest.split_off(self.ends.sure(&rest));
                self.add(id, rest, steps);
                self.closing = Some((id, opaque, tail));
            }
            Some(BlockKind::Reasoning | BlockKind::Refusal) => {
                self.add(id, rest, steps);
                self.stop(id, opaque, steps);
            }
        }
    }

    fn is_call(&self, block: u32) -> bool {
        let Some(RunningBlock { id, .. }) = self.running.get(&block) else {
            return false;
        };
        let mut blocks = self.fold.blocks().iter();
        let is_call = |held: &Block| matches!(held.kind, BlockKind::ToolCall { .. });
        blocks.any(|held| held.id == *id && is_call(held))
    }

    /// Ends the text whose end was held back.
    fn close(&mut self, steps: &mut Vec<StreamStep>) {
        if let Some((id, opaque, tail)) = self.closing.take() {
            self.add(id, tail, steps);
            self.stop(id, opaque, steps);
        }
    }

    fn open_block(&self, id: u32) -> Option<&Block> {
        let mut blocks = self.fold.blocks().iter();
        blocks.find(|held| held.id == id && !held.stopped)
    }

    fn stop(&mut self, id: u32, opaque: Option<Opaque>, steps: &mut Vec<StreamStep>) {
        if let Some(step) = self.open_block(id).map(|held| stop(held, opaque)) {
            self.emit(step, steps);
        }
    }

    /// The running attempt does not repeat what was delivered: takes it back, and delivers what was
    /// passed over so far.
    fn diverge(&mut self, steps: &mut Vec<StreamStep>) {
        let Some(AbandonedText {
            id,
            cause,
            attempt,
            repeated_by,
            matched,
        }) = self.abandoned.take()
        else {
            return;
        };
        let held = self.fold.blocks().iter().find(|held| held.id == id);
        let repeated = held
            .map(|held| held.text[..matched].to_owned())
            .unwrap_or_default();
        let hash = hash_blocks(std::iter::empty());
        self.emit(
            StreamStep::Rewind {
                keep: Vec::new(),
                cause,
                attempt,
                hash,
            },
            steps,
        );
        if let Some(block) = repeated_by {
            self.start(block, BlockKind::Text, steps);
            self.grow(block, &repeated, steps);
        }
    }

    fn add(&mut self, id: u32, text: String, steps: &mut Vec<StreamStep>) {
        let held = self.open_block(id);
        if let Some(held) = held.filter(|_| !text.is_empty()) {
            let offset = held.text.len() as u64;
            self.emit(
                StreamStep::BlockDelta {
                    block: id,
                    offset,
                    text,
                },
                steps,
            );
        }
    }

    fn emit(&mut self, step: StreamStep, steps: &mut Vec<StreamStep>) {
        self.apply(&step);
        steps.push(step);
    }

    fn apply(&mut self, step: &StreamStep) {
        if let Err(error) = self.fold.apply(step) {
            // The steps were made from this very fold, so this is a defect of this file, not of any
            // input.
            tracing::error!(%error, "a delivered step does not fold");
        }
    }
}

fn stop(block: &Block, opaque: Option<Opaque>) -> StreamStep {
    StreamStep::BlockStop {
        block: block.id,
        bytes: block.text.len() as u64,
        hash: hash_text(&block.text),
        opaque,
        committed: true,
    }
}

#[cfg(test)]
mod tests;
