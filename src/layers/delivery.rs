//! What a follower of the invocation has been given so far, and how it is taken back.
//!
//! Attempts number their blocks from 0; followers see numbers from 1 that are unique within the invocation. When an
//! attempt is abandoned, one rewind names exactly what stays.

use std::collections::HashMap;

use crate::domain::{
    completion::{Completion, Delta, FinishReason, Usage},
    failure::FailureClass,
    fold::{Block, Fold, Progress, hash_blocks, hash_text},
    message::Message,
};

/// Turns the deltas of one attempt after another into one progress, and folds it as its followers do.
#[derive(Debug, Default)]
pub struct Delivery {
    fold: Fold,
    last_block: u32,
    numbers: HashMap<u32, u32>,
    model: Option<String>,
    response_id: Option<String>,
    usage: Usage,
    finish: Option<(FinishReason, String)>,
}

// === impl Delivery ===

impl Delivery {
    /// Whether a follower holds anything.
    pub fn has_content(&self) -> bool {
        !self.fold.blocks().is_empty()
    }

    /// What the running attempt cost so far.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Begins another attempt; what was delivered must have been taken back before.
    pub fn begin_attempt(&mut self) {
        self.numbers.clear();
        self.model = None;
        self.response_id = None;
        self.usage = Usage::default();
        self.finish = None;
    }

    /// The steps that a delta means for followers. A delta for a block
    /// that is not open means nothing.
    pub fn push(&mut self, attempt: u32, delta: Delta) -> Vec<Progress> {
        let mut steps = Vec::new();
        match delta {
            Delta::Start { model, response_id, .. } => {
                self.model = model;
                self.response_id = response_id;
            }
            Delta::BlockStart { block, kind } => {
                self.last_block += 1;
                let id = self.last_block;
                self.numbers.insert(block, id);
                steps.push(Progress::BlockStart { block: id, kind });
            }
            Delta::BlockDelta { block, text } => {
                if let Some(held) = self.open(block).filter(|_| !text.is_empty()) {
                    steps.push(Progress::BlockDelta { block: held.id, offset: held.text.len() as u64, text });
                }
            }
            Delta::BlockStop { block, opaque } => {
                if let Some(held) = self.open(block) {
                    steps.push(stop(held, opaque));
                }
            }
            Delta::Usage(usage) => {
                self.usage = usage;
                steps.push(Progress::Usage { attempt, usage });
            }
            Delta::Finish { reason, raw } => {
                let open: Vec<&Block> = self.fold.blocks().iter().filter(|block| !block.stopped).collect();
                steps.extend(open.into_iter().map(|block| stop(block, None)));
                self.finish = Some((reason, raw));
            }
        }
        self.apply(&steps);
        steps
    }

    /// Takes everything back that was delivered since the last accepted answer.
    pub fn rewind(&mut self, attempt: u32, cause: FailureClass) -> Option<Progress> {
        if !self.has_content() {
            return None;
        }
        let step = Progress::Rewind { keep: Vec::new(), cause, attempt, hash: hash_blocks(std::iter::empty()) };
        self.apply(std::slice::from_ref(&step));
        Some(step)
    }

    /// The whole answer, once the attempt finished.
    pub fn completion(&self, asked_model: &str) -> Option<Completion> {
        let (finish, finish_raw) = self.finish.clone()?;
        Some(Completion {
            message: self.message(),
            finish,
            finish_raw,
            model: self.model.clone().unwrap_or_else(|| asked_model.to_owned()),
            response_id: self.response_id.clone(),
            usage: self.usage,
        })
    }

    /// The assistant's turn as delivered so far.
    pub fn message(&self) -> Message {
        self.fold.message()
    }

    fn open(&self, block: u32) -> Option<&Block> {
        let id = self.numbers.get(&block)?;
        self.fold.blocks().iter().find(|held| held.id == *id && !held.stopped)
    }

    fn apply(&mut self, steps: &[Progress]) {
        for step in steps {
            if let Err(error) = self.fold.apply(step) {
                // The steps were made from this very fold, so this is a defect of this file, not of any input.
                tracing::error!(%error, "a delivered step does not fold");
            }
        }
    }
}

fn stop(block: &Block, opaque: Option<crate::domain::message::Opaque>) -> Progress {
    Progress::BlockStop {
        block: block.id,
        bytes: block.text.len() as u64,
        hash: hash_text(&block.text),
        opaque,
        committed: true,
    }
}
