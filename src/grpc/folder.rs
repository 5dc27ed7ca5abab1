//! The reference way for a client to fold a `StreamWithRecovery`: the blocks held, the cursor, and
//! consistency checks.
//!
//! Apply every event in the order in which it came, over as many connections as that takes; resume
//! after its cursor. It skips events it has, discards what a rewind revokes, replaces missed events
//! by a snapshot, and checks offsets, lengths and hashes. What does not fit is an error instead of
//! a silently wrong answer.

use super::v1::{self, stream_event::Body};
use crate::domain::{
    completion::BlockKind,
    failure::FailureClass,
    fold::{AnswerState, Block, FoldError, StreamStep, hex},
    message::Opaque,
};

/// State that a client holds of one invocation.
#[derive(Debug, Default, Clone)]
pub struct Folder {
    fold: AnswerState,
    invocation: String,
    cursor: Option<(u64, u64)>,
    ended: bool,
}

/// Change that an event made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing: a sign of life, a welcome, or something that is held already.
    Nothing,
    /// Something was added.
    Added,
    /// Something was revoked, or everything was replaced.
    Replaced,
    /// It is the end.
    Ended,
}

/// Error returned if an event does not fit. Fetch the invocation again from its start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Events are missing between the last one and this one.
    #[error("event {got} came after event {last}")]
    Gap {
        /// The number of the last event.
        last: u64,
        /// The number of this one.
        got: u64,
    },
    /// The event is from an owner that was replaced.
    #[error("an event of epoch {got} came after one of epoch {last}")]
    OldOwner {
        /// The epoch of the last event.
        last: u64,
        /// The epoch of this one.
        got: u64,
    },
    /// It is of another invocation.
    #[error("an event of another invocation")]
    Stranger,
    /// It violates the contract.
    #[error("an event without its {0}")]
    Malformed(&'static str),
    /// Its content does not fit.
    #[error(transparent)]
    Content(#[from] FoldError),
}

// === impl Folder ===

impl Folder {
    /// Folds the next event.
    ///
    /// # Errors
    /// [`Unfit`]; what is held is then as it was.
    pub fn fold(&mut self, event: &v1::StreamEvent) -> Result<Change, Unfit> {
        if !self.invocation.is_empty() && self.invocation != event.invocation_id {
            return Err(Unfit::Stranger);
        }
        let body = event.body.as_ref().ok_or(Unfit::Malformed("body"))?;
        let change = match body {
            Body::Accepted(_) | Body::Heartbeat(_) => Change::Nothing,
            Body::Snapshot(snapshot) => {
                self.restore(snapshot)?;
                self.cursor = Some((event.epoch, event.seq)).filter(|(_, seq)| *seq > 0);
                self.ended = false;
                Change::Replaced
            }
            _ if self.has(event)? => Change::Nothing,
            body => {
                let change = self.apply(body)?;
                self.cursor = Some((event.epoch, event.seq));
                change
            }
        };
        self.invocation.clone_from(&event.invocation_id);
        Ok(change)
    }

    /// Returns the blocks that are held, in the order of their start.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        self.fold.blocks()
    }

    /// Returns the text of all text blocks.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self
            .blocks()
            .iter()
            .filter(|block| block.kind == BlockKind::Text);
        texts
            .map(|block| block.text.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns the id of the invocation; empty before the first event.
    #[must_use]
    pub fn invocation(&self) -> &str {
        &self.invocation
    }

    /// Returns the position at which to resume; `None` from the start.
    #[must_use]
    pub fn cursor(&self) -> Option<v1::StreamCursor> {
        self.cursor
            .map(|(epoch, seq)| v1::StreamCursor { epoch, seq })
    }

    /// Returns whether the end came.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// SHA-256 over all blocks: equal for equal blocks.
    #[must_use]
    pub fn hash(&self) -> Vec<u8> {
        bytes(&self.fold.hash())
    }

    /// Returns whether a numbered event is held already.
    fn has(&self, event: &v1::StreamEvent) -> Result<bool, Unfit> {
        let (last_epoch, last) = self.cursor.unwrap_or((event.epoch, 0));
        if event.epoch < last_epoch {
            return Err(Unfit::OldOwner {
                last: last_epoch,
                got: event.epoch,
            });
        }
        if event.epoch == last_epoch && event.seq <= last {
            return Ok(true);
        }
        if event.seq != last + 1 {
            return Err(Unfit::Gap {
                last,
                got: event.seq,
            });
        }
        if self.ended {
            Err(FoldError::AfterEnd.into())
        } else {
            Ok(false)
        }
    }

    fn apply(&mut self, body: &Body) -> Result<Change, Unfit> {
        let step = match body {
            Body::BlockStart(start) => StreamStep::BlockStart {
                block: start.block_id,
                kind: kind(start)?,
            },
            Body::BlockDelta(delta) => StreamStep::BlockDelta {
                block: delta.block_id,
                offset: delta.start_offset_bytes,
                text: delta.text.clone(),
            },
            Body::BlockStop(stop) => {
                self.check_arguments(stop)?;
                stopped(stop)
            }
            Body::Rewind(rewind) => StreamStep::Rewind {
                keep: rewind
                    .keep
                    .iter()
                    .map(|keep| (keep.block_id, keep.length_bytes))
                    .collect(),
                // What is folded does not depend on it.
                cause: FailureClass::Unknown,
                attempt: rewind.failed_attempt,
                hash: hex(&rewind.hash),
            },
            Body::Terminal(terminal) => {
                if terminal.result_hash != self.hash() {
                    return Err(FoldError::Hash("the result".to_owned()).into());
                }
                self.ended = true;
                return Ok(Change::Ended);
            }
            Body::AttemptStarted(_)
            | Body::ContextInjected(_)
            | Body::Recovery(_)
            | Body::Parked(_)
            | Body::ResponseStarted(_)
            | Body::Usage(_)
            | Body::Accepted(_)
            | Body::Heartbeat(_)
            | Body::Snapshot(_) => return Ok(Change::Added),
        };
        self.fold.apply(&step)?;
        Ok(if matches!(body, Body::Rewind(_)) {
            Change::Replaced
        } else {
            Change::Added
        })
    }

    /// A tool call's whole arguments are what its deltas made.
    fn check_arguments(&self, stop: &v1::BlockStop) -> Result<(), Unfit> {
        let held = self.blocks().iter().find(|block| block.id == stop.block_id);
        match (held, &stop.arguments_json) {
            (Some(held), Some(arguments)) if *arguments != held.text => {
                Err(FoldError::Hash(format!("the arguments of block {}", stop.block_id)).into())
            }
            (_, None) if stop.committed => Err(Unfit::Malformed("arguments_json")),
            (Some(_) | None, Some(_) | None) => Ok(()),
        }
    }

    fn restore(&mut self, snapshot: &v1::Snapshot) -> Result<(), Unfit> {
        let mut fold = AnswerState::default();
        for block in &snapshot.blocks {
            let start = block.start.as_ref().ok_or(Unfit::Malformed("start"))?;
            let id = start.block_id;
            fold.apply(&StreamStep::BlockStart {
                block: id,
                kind: kind(start)?,
            })?;
            fold.apply(&StreamStep::BlockDelta {
                block: id,
                offset: 0,
                text: block.text.clone(),
            })?;
            if let Some(stop) = &block.stop {
                fold.apply(&stopped(stop))?;
            }
        }
        if bytes(&fold.hash()) != snapshot.hash {
            return Err(FoldError::Hash("a snapshot".to_owned()).into());
        }
        self.fold = fold;
        Ok(())
    }
}

fn kind(start: &v1::BlockStart) -> Result<BlockKind, Unfit> {
    Ok(match start.kind() {
        v1::BlockKind::Text => BlockKind::Text,
        v1::BlockKind::Reasoning => BlockKind::Reasoning,
        v1::BlockKind::Refusal => BlockKind::Refusal,
        v1::BlockKind::ToolCall => BlockKind::ToolCall {
            id: start.call_id.clone(),
            name: start.tool_name.clone(),
        },
        v1::BlockKind::Unspecified => return Err(Unfit::Malformed("kind")),
    })
}

fn stopped(stop: &v1::BlockStop) -> StreamStep {
    let opaque = stop.opaque.first().map(|opaque| Opaque {
        kind: opaque.kind.clone(),
        bytes: opaque.data.clone(),
    });
    let block = stop.block_id;
    let bytes = stop.length_bytes;
    let hash = hex(&stop.hash);
    StreamStep::BlockStop {
        block,
        bytes,
        hash,
        opaque,
        committed: stop.committed,
    }
}

/// Returns the domain writes hashes in hex, the contract in bytes.
pub(super) fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
            .unwrap_or(0)
    };
    hex.as_bytes()
        .chunks_exact(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

#[cfg(test)]
mod tests;
