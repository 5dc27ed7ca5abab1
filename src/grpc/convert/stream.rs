//! The events of `StreamWithRecovery`: an invocation's progress, step by step, as clients fold it.
//!
//! The writer folds what it writes, as a client does: the contract sends a tool call's complete
//! arguments at its end and a hash of all blocks at the end of the stream, and a step that does not
//! fit is detected here rather than at the client. It numbers nothing and reads no clock: the owner
//! of the invocation assigns a step's position.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    answer_view::see_end,
    enums::{IntoProto as _, class_field, strategies_field, vehicle, wait_fields},
    message::wire_opaque,
    outcome::{
        ResponseContext, attempts, completion_of, failure_of, final_model, final_target,
        history_patch, usage,
    },
    time::{millis, wire_time},
};
use crate::{
    domain::{
        completion::BlockKind,
        failure::{FailureClass, Wait},
        fold::{AnswerState, Block, FoldError, StreamStep, hash_text},
        ids::{InvocationId, TargetId},
        invocation::{Outcome, RecoveryStrategy, RewindMode},
        message::Opaque,
    },
    grpc::{folder::bytes as hash_bytes, v1},
};
use v1::stream_event::Body;

/// The position of a step in an invocation's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPosition {
    /// Grows when another replica took the invocation over; 1 and up.
    pub epoch: u64,
    /// Number within the epoch, without gaps; 1 and up.
    pub seq: u64,
    /// Time of the event.
    pub at: Timestamp,
}

/// First message to a client when its stream starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamHeader {
    /// Token to resume the invocation with.
    pub resume_token: String,
    /// Latest end of the invocation.
    pub deadline: Timestamp,
    /// Time for which its events are kept after its end; zero if they are not.
    pub retention: Duration,
    /// Mode in which content is delivered.
    pub mode: RewindMode,
}

/// Writes one client's stream of one invocation.
#[derive(Debug, Clone)]
pub struct StreamWriter {
    invocation: InvocationId,
    context: ResponseContext,
    max_retries: u32,
    fold: AnswerState,
    /// The attempt that runs, or ran last.
    attempt: u32,
    started: u32,
    view: v1::AnswerView,
}

// === impl StreamWriter ===

impl StreamWriter {
    /// A writer before the first step. `max_retries` is how many attempts may be made after the
    /// first.
    #[must_use]
    pub fn new(invocation: InvocationId, context: ResponseContext, max_retries: u32) -> Self {
        Self {
            invocation,
            context,
            max_retries,
            fold: AnswerState::default(),
            attempt: 0,
            started: 0,
            view: v1::AnswerView::Unspecified,
        }
    }

    /// The same writer, whose stream holds the completion as often as this view has it.
    #[must_use]
    pub fn seen(self, view: v1::AnswerView) -> Self {
        Self { view, ..self }
    }

    /// Returns the first event of a stream.
    #[must_use]
    pub fn accepted(&self, place: EventPosition, header: &StreamHeader) -> v1::StreamEvent {
        let (mode, hold_back_bytes) = match header.mode {
            RewindMode::Rewind | RewindMode::AppendOnly => (v1::RewindMode::Rewind, None),
            RewindMode::HoldBack { bytes } => {
                (v1::RewindMode::Holdback, (bytes > 0).then_some(bytes))
            }
            RewindMode::Atomic => (v1::RewindMode::Atomic, None),
        };
        let body = Body::Accepted(v1::Accepted {
            disposition: self.context.disposition.into(),
            resume_token: header.resume_token.clone(),
            deadline: Some(wire_time(header.deadline)),
            retention_ms: millis(header.retention),
            rewind_mode: mode.into(),
            hold_back_bytes,
        });
        self.event(place, 0, body)
    }

    /// Returns the next step.
    ///
    /// # Errors
    /// When the step does not fit those before it; nothing of it is kept then.
    pub fn step(
        &mut self,
        place: EventPosition,
        step: &StreamStep,
    ) -> Result<v1::StreamEvent, FoldError> {
        let known_arguments = if let StreamStep::BlockStop { block, .. } = step {
            self.arguments(*block)
        } else {
            None
        };
        self.fold.apply(step)?;
        if let StreamStep::AttemptStarted { attempt, .. } = step {
            self.attempt = *attempt;
            self.started = self.started.saturating_add(1);
        }
        let (attempt, body) = self.body(step, known_arguments);
        Ok(self.event(place, attempt, body))
    }

    /// Returns all blocks at once, in place of the steps up to `place`, whose number it carries.
    #[must_use]
    pub fn snapshot(&self, place: EventPosition) -> v1::StreamEvent {
        let mut blocks: Vec<&Block> = self.fold.blocks().iter().collect();
        blocks.sort_by_key(|block| block.id);
        let blocks = blocks.into_iter().map(block_snapshot).collect();
        let body = Body::Snapshot(v1::Snapshot {
            blocks,
            hash: self.hash(),
        });
        self.event(place, self.attempt, body)
    }

    /// Returns a heartbeat. `upstream_silence` is the time since the last byte from the target that
    /// is being called.
    #[must_use]
    pub fn heartbeat(
        &self,
        last: EventPosition,
        upstream_silence: Option<Duration>,
    ) -> v1::StreamEvent {
        let upstream_silence_ms = upstream_silence.map(millis);
        let body = Body::Heartbeat(v1::Heartbeat {
            last_seq: last.seq,
            upstream_silence_ms,
        });
        self.event(EventPosition { seq: 0, ..last }, self.attempt, body)
    }

    /// Begins from blocks that a journal kept, in place of the steps that made them.
    pub fn restore(&mut self, blocks: Vec<Block>, attempts_started: u32) {
        self.fold.restore(blocks);
        self.attempt = attempts_started;
        self.started = attempts_started;
    }

    fn event(&self, place: EventPosition, attempt: u32, body: Body) -> v1::StreamEvent {
        v1::StreamEvent {
            invocation_id: self.invocation.as_str().to_owned(),
            epoch: place.epoch,
            seq: place.seq,
            attempt,
            time: Some(wire_time(place.at)),
            body: Some(body),
        }
    }

    /// Returns the body of a step that was folded already, and the attempt that it belongs to.
    fn body(&self, step: &StreamStep, known_arguments: Option<String>) -> (u32, Body) {
        match step {
            StreamStep::AttemptStarted {
                attempt,
                target,
                cause,
                model,
                ..
            } => {
                let started = v1::AttemptStarted {
                    target: target.as_str().to_owned(),
                    model: model.clone(),
                    cause: cause.into_proto().into(),
                    after: class_field(cause.class()),
                };
                (*attempt, Body::AttemptStarted(started))
            }
            StreamStep::ContextInjected {
                attempt,
                note,
                vehicle: place,
                message,
            } => {
                let injected = v1::ContextInjected {
                    note: note.clone(),
                    vehicle: vehicle(place).into(),
                    message_index: *message,
                };
                (*attempt, Body::ContextInjected(injected))
            }
            StreamStep::BlockStart { block, kind } => {
                (self.attempt, Body::BlockStart(block_start(*block, kind)))
            }
            StreamStep::BlockDelta {
                block,
                offset,
                text,
            } => (
                self.attempt,
                Body::BlockDelta(block_delta(*block, *offset, text)),
            ),
            StreamStep::BlockStop {
                block,
                bytes,
                hash,
                opaque,
                committed,
            } => {
                let end = v1::BlockStop {
                    block_id: *block,
                    length_bytes: *bytes,
                    hash: hash_bytes(hash),
                    opaque: opaque.iter().map(wire_opaque).collect(),
                    committed: *committed && known_arguments.is_some(),
                    arguments_json: known_arguments,
                };
                (self.attempt, Body::BlockStop(end))
            }
            StreamStep::Rewind {
                keep,
                cause,
                attempt,
                hash,
            } => (*attempt, Body::Rewind(rewind(keep, *cause, *attempt, hash))),
            StreamStep::Recovery {
                attempt,
                class,
                strategy,
                wait,
                display,
                budget_left,
                adaptation: _,
            } => {
                let recovery = self.recovery(*class, *strategy, *wait, display, *budget_left);
                (*attempt, Body::Recovery(recovery))
            }
            StreamStep::Parked {
                attempt,
                target,
                class,
                wait,
                display,
            } => (
                *attempt,
                Body::Parked(parked(target, *class, *wait, display)),
            ),
            StreamStep::Usage {
                attempt,
                usage: spent,
            } => (*attempt, Body::Usage(usage(spent))),
            StreamStep::ResponseStarted {
                attempt,
                model,
                around,
            } => (
                *attempt,
                Body::ResponseStarted(response_started(model.as_deref(), around)),
            ),
            StreamStep::Terminal(outcome) => (0, Body::Terminal(self.terminal(outcome))),
        }
    }

    fn recovery(
        &self,
        class: FailureClass,
        strategy: RecoveryStrategy,
        wait: Wait,
        display: &str,
        budget_left: f64,
    ) -> v1::Recovery {
        let to_other = strategy == RecoveryStrategy::Fallback;
        let (wait_ms, wait_source) = wait_fields(Some(wait), to_other, Some(class));
        v1::Recovery {
            failure_class: class_field(Some(class)),
            strategy: strategy.into_proto().into(),
            wait_ms,
            wait_source,
            attempts_left: self
                .max_retries
                .saturating_add(1)
                .saturating_sub(self.started),
            budget_left: budget_left.clamp(0.0, 1.0),
            display_text: display.to_owned(),
        }
    }

    fn terminal(&self, outcome: &Outcome) -> v1::Terminal {
        use v1::terminal::Outcome as End;
        let end = match &outcome.result {
            Ok(completion) => {
                let whole = completion_of(completion);
                let mut history_patch = history_patch(outcome);
                let turn = whole.message.as_ref();
                see_end(self.view, self.fold.blocks(), turn, &mut history_patch);
                End::Completed(v1::Completed {
                    finish_reason: whole.finish_reason,
                    raw_finish_reason: whole.raw_finish_reason,
                    history_patch,
                    history_replace_tail: outcome.history_patch.replace_tail,
                    usage: whole.usage,
                    tool_output: whole.tool_output,
                    around: whole.around,
                })
            }
            Err(failure) => {
                let failure_detail = failure_of(outcome, &self.context);
                if failure.class == FailureClass::Cancelled {
                    End::Cancelled(v1::Cancelled {
                        reason: failure.message.clone(),
                        failure: failure_detail,
                    })
                } else {
                    End::Failed(failure_detail.unwrap_or_default())
                }
            }
        };
        v1::Terminal {
            outcome: Some(end),
            history_patch: match &outcome.result {
                Ok(_) => Vec::new(),
                Err(_) => history_patch(outcome),
            },
            result_hash: self.hash(),
            recovery_applied: strategies_field(&outcome.recovery_applied),
            reasoning: outcome.reasoning.clone(),
            attempts: attempts(outcome),
            usage: Some(usage(&outcome.usage)),
            final_model: final_model(outcome),
            final_target: final_target(outcome),
        }
    }

    /// Returns the raw arguments of a block that is a tool call.
    fn arguments(&self, block: u32) -> Option<String> {
        let known = self.fold.blocks().iter().find(|known| known.id == block)?;
        arguments_of(known)
    }

    fn hash(&self) -> Vec<u8> {
        hash_bytes(&self.fold.hash())
    }
}

fn block_delta(block: u32, offset: u64, text: &str) -> v1::BlockDelta {
    v1::BlockDelta {
        block_id: block,
        start_offset_bytes: offset,
        text: text.to_owned(),
    }
}

fn response_started(model: Option<&str>, around: &Opaque) -> v1::ResponseStarted {
    v1::ResponseStarted {
        model: model.unwrap_or_default().to_owned(),
        around: Some(wire_opaque(around)),
    }
}

fn rewind(keep: &[(u32, u64)], cause: FailureClass, failed_attempt: u32, hash: &str) -> v1::Rewind {
    let kept = |(block_id, length_bytes): &(u32, u64)| v1::KeptBlock {
        block_id: *block_id,
        length_bytes: *length_bytes,
    };
    v1::Rewind {
        keep: keep.iter().map(kept).collect(),
        cause: class_field(Some(cause)),
        failed_attempt,
        hash: hash_bytes(hash),
    }
}

fn parked(target: &TargetId, class: FailureClass, wait: Wait, display: &str) -> v1::Parked {
    let (wait_ms, wait_source) = wait_fields(Some(wait), false, Some(class));
    v1::Parked {
        target: target.as_str().to_owned(),
        failure_class: class_field(Some(class)),
        wait_ms,
        wait_source,
        display_text: display.to_owned(),
    }
}

fn block_start(block: u32, kind: &BlockKind) -> v1::BlockStart {
    let (call_id, tool_name) = match kind {
        BlockKind::ToolCall { id, name } => (id.clone(), name.clone()),
        BlockKind::Text | BlockKind::Reasoning | BlockKind::Refusal => {
            (String::new(), String::new())
        }
    };
    v1::BlockStart {
        block_id: block,
        kind: kind.into_proto().into(),
        call_id,
        tool_name,
    }
}

fn block_snapshot(block: &Block) -> v1::BlockSnapshot {
    let arguments_json = arguments_of(block);
    let stop = block.stopped.then(|| v1::BlockStop {
        block_id: block.id,
        length_bytes: block.text.len() as u64,
        hash: hash_bytes(&hash_text(&block.text)),
        opaque: block.opaque.iter().map(wire_opaque).collect(),
        committed: block.committed && arguments_json.is_some(),
        arguments_json,
    });
    v1::BlockSnapshot {
        start: Some(block_start(block.id, &block.kind)),
        text: block.text.clone(),
        stop,
    }
}

fn arguments_of(block: &Block) -> Option<String> {
    match block.kind {
        BlockKind::ToolCall { .. } => Some(block.text.clone()),
        BlockKind::Text | BlockKind::Reasoning | BlockKind::Refusal => None,
    }
}

#[cfg(test)]
mod tests;
