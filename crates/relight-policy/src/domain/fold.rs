//! The steps of an invocation as readers receive them, and the reference way to fold them into an
//! answer.
//!
//! A reader that applies every step in order, and discards the parts that each rewind names, holds
//! exactly the completion. Offsets and hashes are checked, so that a lost or repeated step is an error
//! instead of a silently wrong text.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    completion::{BlockKind, Usage},
    failure::{FailureClass, Wait},
    ids::TargetId,
    invocation::{AttemptCause, Outcome, RecoveryStrategy},
    message::{Message, Opaque, Part, Reasoning, Role, ToolCall},
    tool::ExecutedTool,
};

/// One step of an invocation's stream, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamStep {
    /// An attempt began on a target.
    AttemptStarted {
        /// 1 for the first.
        attempt: u32,
        /// The target that is called.
        target: TargetId,
        /// Reason for which the attempt is made.
        cause: AttemptCause,
        /// The target's model.
        #[serde(default)]
        model: String,
        /// Parts of the caller's request that were repaired or left out for it, in words, unless an
        /// earlier attempt reported it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repaired: Option<String>,
        /// The tool that it executes, for the list of executions; `None` for a model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool: Option<Box<ExecutedTool>>,
    },
    /// A note about the failure was added for the model.
    ContextInjected {
        /// The attempt that carries the note.
        attempt: u32,
        /// The note.
        note: String,
        /// Position in which it was sent.
        vehicle: String,
        /// The position of the message that holds it, from 0.
        #[serde(default)]
        message: u32,
    },
    /// A provider began its response, and says something around the answer.
    ResponseStarted {
        /// The attempt.
        attempt: u32,
        /// The model, as the provider names it.
        model: Option<String>,
        /// Fields around the answer that only its dialect knows, as far as they came before it.
        around: Opaque,
    },
    /// A block starts; numbers are unique within the invocation.
    BlockStart {
        /// The block.
        block: u32,
        /// Content of the block.
        kind: BlockKind,
    },
    /// Text is added to a block.
    BlockDelta {
        /// The block.
        block: u32,
        /// The block's length so far, in UTF-8 bytes.
        offset: u64,
        /// Text that is added.
        text: String,
    },
    /// A block is whole.
    BlockStop {
        /// The block.
        block: u32,
        /// Its length in UTF-8 bytes.
        bytes: u64,
        /// SHA-256 of its text, hex.
        hash: String,
        /// Part that the provider needs back verbatim.
        opaque: Option<Opaque>,
        /// `true` if a tool call may be acted upon.
        committed: bool,
    },
    /// Everything but what is kept is to be discarded.
    Rewind {
        /// Blocks to keep, and how many bytes of each.
        keep: Vec<(u32, u64)>,
        /// The class of the failure.
        cause: FailureClass,
        /// The attempt that failed.
        attempt: u32,
        /// SHA-256 of what stays, hex.
        hash: String,
    },
    /// Recovery was decided.
    Recovery {
        /// The attempt that failed.
        attempt: u32,
        /// Class of the failure.
        class: FailureClass,
        /// Recovery that will be done.
        strategy: RecoveryStrategy,
        /// The wait before it.
        wait: Wait,
        /// Words for people.
        display: String,
        /// Rest of the failed target's retry budget, as a share of its capacity, 0 to 1.
        #[serde(default)]
        budget_left: f64,
        /// Change of the request so that the target accepts it, in words; `None` if nothing was
        /// changed.
        #[serde(default)]
        adaptation: Option<String>,
    },
    /// No target can be called for now, and the invocation waits.
    Parked {
        /// Last attempt; 0 if none was made yet.
        attempt: u32,
        /// The target that it waits for.
        target: TargetId,
        /// Reason for which it cannot be called: the class that closed its gate, or `circuit_open`.
        class: FailureClass,
        /// Longest wait.
        wait: Wait,
        /// Words for people.
        display: String,
    },
    /// Cost of an attempt.
    Usage {
        /// The attempt.
        attempt: u32,
        /// Its tokens.
        usage: Usage,
    },
    /// The end; exactly one, last.
    Terminal(Arc<Outcome>),
}

/// A block of a completion, folded from its deltas so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its number.
    pub id: u32,
    /// Content of the block.
    pub kind: BlockKind,
    /// Its text, or a tool call's raw arguments.
    pub text: String,
    /// Part that the provider needs back verbatim.
    pub opaque: Option<Opaque>,
    /// `true` if it is whole.
    pub stopped: bool,
    /// `true` if a tool call may be acted upon.
    pub committed: bool,
}

/// Reason for which steps cannot be folded: one is missing, repeated or corrupt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// A delta does not start where the block ends.
    #[error("block {block}: a delta begins at {got}, but the block holds {held} bytes")]
    Offset {
        /// The block.
        block: u32,
        /// Offset at which the delta starts.
        got: u64,
        /// Bytes that the block holds.
        held: u64,
    },
    /// A step names a block that is not there, or that is there already, or that is whole.
    #[error("block {0} is not in the state that the step needs")]
    State(u32),
    /// A hash does not fit.
    #[error("the hash of {0} does not fit")]
    Hash(String),
    /// Something came after the end.
    #[error("a step came after the end")]
    AfterEnd,
}

/// A text that is written on and not kept: its length and hash so far.
#[derive(Debug, Clone, Default)]
pub struct WrittenText {
    bytes: u64,
    hasher: Sha256,
}

/// The completion as folded from the steps so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AnswerState {
    blocks: Vec<Block>,
    outcome: Option<Arc<Outcome>>,
}

// === impl AnswerState ===

impl AnswerState {
    /// Returns the blocks so far, in order of their start.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Returns the blocks, without a copy of them.
    #[must_use]
    pub fn into_blocks(self) -> Vec<Block> {
        self.blocks
    }

    /// Returns the end, once it came.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_deref()
    }

    /// Replaces everything by a snapshot.
    pub fn restore(&mut self, blocks: Vec<Block>) {
        self.blocks = blocks;
        self.outcome = None;
    }

    /// Returns the SHA-256 over all blocks, hex: the same for every legal way to the same completion.
    #[must_use]
    pub fn hash(&self) -> String {
        hash_blocks(self.blocks.iter())
    }

    /// Applies one step.
    ///
    /// # Errors
    /// When the step does not fit what was folded so far; the fold is then unchanged.
    pub fn apply(&mut self, step: &StreamStep) -> Result<(), FoldError> {
        if self.outcome.is_some() {
            return Err(FoldError::AfterEnd);
        }
        match step {
            StreamStep::BlockStart { block, kind } => {
                if self.blocks.iter().any(|known| known.id == *block) {
                    return Err(FoldError::State(*block));
                }
                self.blocks.push(Block {
                    id: *block,
                    kind: kind.clone(),
                    text: String::new(),
                    opaque: None,
                    stopped: false,
                    committed: false,
                });
            }
            StreamStep::BlockDelta {
                block,
                offset,
                text,
            } => {
                let known = self.open_block(*block)?;
                let held = known.text.len() as u64;
                if held != *offset {
                    return Err(FoldError::Offset {
                        block: *block,
                        got: *offset,
                        held,
                    });
                }
                known.text.push_str(text);
            }
            StreamStep::BlockStop {
                block,
                bytes,
                hash,
                opaque,
                committed,
            } => {
                let known = self.open_block(*block)?;
                if known.text.len() as u64 != *bytes || hash_text(&known.text) != *hash {
                    return Err(FoldError::Hash(format!("block {block}")));
                }
                known.opaque.clone_from(opaque);
                known.stopped = true;
                known.committed = *committed;
            }
            StreamStep::Rewind { keep, hash, .. } => self.rewind(keep, hash)?,
            StreamStep::Terminal(outcome) => self.outcome = Some(Arc::clone(outcome)),
            StreamStep::AttemptStarted { .. }
            | StreamStep::ContextInjected { .. }
            | StreamStep::Recovery { .. }
            | StreamStep::Parked { .. }
            | StreamStep::ResponseStarted { .. }
            | StreamStep::Usage { .. } => {}
        }
        Ok(())
    }

    /// Returns the assistant's turn that the blocks make, without tool calls that are not whole.
    #[must_use]
    pub fn message(&self) -> Message {
        let is_cut_call =
            |block: &Block| !block.stopped && matches!(block.kind, BlockKind::ToolCall { .. });
        let parts = self
            .blocks
            .iter()
            .filter(|block| !is_cut_call(block))
            .map(Block::part)
            .collect();
        Message::new(Role::Assistant, parts)
    }

    fn open_block(&mut self, block: u32) -> Result<&mut Block, FoldError> {
        self.blocks
            .iter_mut()
            .find(|known| known.id == block && !known.stopped)
            .ok_or(FoldError::State(block))
    }

    fn rewind(&mut self, keep: &[(u32, u64)], hash: &str) -> Result<(), FoldError> {
        let mut kept = Vec::with_capacity(keep.len());
        for (block, bytes) in keep {
            let known = self
                .blocks
                .iter()
                .find(|known| known.id == *block)
                .ok_or(FoldError::State(*block))?;
            let mut known = known.clone();
            let end = usize::try_from(*bytes).map_err(|_| FoldError::State(*block))?;
            if end > known.text.len() || !known.text.is_char_boundary(end) {
                return Err(FoldError::State(*block));
            }
            if end < known.text.len() {
                known.text.truncate(end);
                known.stopped = false;
                known.committed = false;
                known.opaque = None;
            }
            kept.push(known);
        }
        if hash_blocks(kept.iter()) != hash {
            return Err(FoldError::Hash("what a rewind keeps".to_owned()));
        }
        self.blocks = kept;
        Ok(())
    }
}

// === impl WrittenText ===

impl WrittenText {
    /// Adds to the text.
    pub fn grow(&mut self, more: &str) {
        self.bytes += more.len() as u64;
        self.hasher.update(more);
    }

    /// Returns its length in UTF-8 bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// SHA-256 of it, hex.
    #[must_use]
    pub fn hash(&self) -> String {
        hex(&self.hasher.clone().finalize())
    }

    /// Returns the text that follows it in this text; `None` if the text does not start with it.
    #[must_use]
    pub fn rest_of<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (begin, rest) = text.split_at_checked(usize::try_from(self.bytes).ok()?)?;
        (hash_text(begin) == self.hash()).then_some(rest)
    }
}

// === impl Block ===

impl Block {
    /// Returns the block as a part of a message.
    #[must_use]
    pub fn part(&self) -> Part {
        match &self.kind {
            BlockKind::Text => Part::Text(self.text.clone()),
            BlockKind::Refusal => Part::Refusal(self.text.clone()),
            BlockKind::Reasoning => Part::Reasoning(Reasoning {
                text: self.text.clone(),
                opaque: self.opaque.clone(),
            }),
            BlockKind::ToolCall { id, name } => Part::ToolCall(ToolCall {
                id: id.clone(),
                name: name.clone(),
                arguments: self.text.clone(),
                opaque: self.opaque.clone(),
            }),
        }
    }
}

/// SHA-256 of a text, hex.
#[must_use]
pub fn hash_text(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// SHA-256 over blocks as the contract has it (`proto/relight/v1/stream.proto`): in ascending id,
/// each block's id, kind number, length and the hash of its text.
pub fn hash_blocks<'a>(blocks: impl Iterator<Item = &'a Block>) -> String {
    let mut blocks: Vec<&Block> = blocks.collect();
    blocks.sort_by_key(|block| block.id);
    let mut hasher = Sha256::new();
    for block in blocks {
        hasher.update(block.id.to_be_bytes());
        hasher.update(kind_number(&block.kind).to_be_bytes());
        hasher.update((block.text.len() as u64).to_be_bytes());
        hasher.update(Sha256::digest(block.text.as_bytes()));
    }
    hex(&hasher.finalize())
}

/// Returns the kind's number in the contract.
const fn kind_number(kind: &BlockKind) -> u32 {
    match kind {
        BlockKind::Text => 1,
        BlockKind::Reasoning => 2,
        BlockKind::ToolCall { .. } => 3,
        BlockKind::Refusal => 4,
    }
}

/// Bytes as hexadecimal digits in lower case.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}
