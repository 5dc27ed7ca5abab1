//! Estimates the number of bytes that a value takes: as JSON, counted without writing it, or the
//! length of its texts if they may be long.

use std::io;

use serde::Serialize;

use super::{Entry, RecordedRequest};
use crate::domain::{
    fold::{Block, StreamStep},
    invocation::{AttemptRecord, Call, Outcome},
    message::Message,
};

/// Bytes around the numbers and the text of a delta as JSON.
const DELTA_BYTES: u64 = 51;

/// Approximate size of an attempt beside its failure, its note and its tool, and of an outcome
/// beside its attempts and its completion, in bytes.
const RECORD_BYTES: u64 = 512;

/// A writer that counts bytes.
struct Count(u64);

/// Returns the size of what steps hold; for the end it is none, for the outcome is counted by
/// itself.
pub(super) fn content_bytes(steps: &[Entry]) -> u64 {
    steps.iter().map(|entry| step_bytes(&entry.step)).sum()
}

fn step_bytes(step: &StreamStep) -> u64 {
    match step {
        StreamStep::Terminal(_) => 0,
        // As JSON, but for what must be escaped in its text.
        StreamStep::BlockDelta {
            block,
            offset,
            text,
        } => DELTA_BYTES + digits(u64::from(*block)) + digits(*offset) + text.len() as u64,
        other => json_bytes(other),
    }
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

/// Returns the size of an outcome.
pub(super) fn outcome_bytes(outcome: &Outcome) -> u64 {
    let result = match &outcome.result {
        Ok(answer) => answer.message.approximate_bytes() as u64 + json_bytes(&answer.tool_output),
        Err(failure) => json_bytes(failure),
    };
    let own = |attempt: &AttemptRecord| {
        json_bytes(&(&attempt.failure, &attempt.injection.note, &attempt.tool))
    };
    let attempts = outcome
        .attempts
        .iter()
        .map(|attempt| RECORD_BYTES + own(attempt));
    let patch = outcome
        .history_patch
        .messages
        .iter()
        .map(Message::approximate_bytes);
    let words =
        outcome.reasoning.len() + outcome.alternatives.iter().map(String::len).sum::<usize>();
    RECORD_BYTES + result + attempts.sum::<u64>() + patch.sum::<usize>() as u64 + words as u64
}

/// Returns the size of a request.
pub(super) fn request_bytes(request: &RecordedRequest) -> u64 {
    let call = match &request.call {
        Some(Call::Model(call)) => call.approximate_bytes() as u64 + json_bytes(&call.extra),
        Some(Call::Tool(call)) => json_bytes(call),
        None => 0,
    };
    call + json_bytes(&request.overrides)
}

/// Returns the size of a completion's blocks.
pub(super) fn snapshot_bytes(blocks: &[Block]) -> u64 {
    const BLOCK_BYTES: u64 = 64;
    let opaque = |block: &Block| {
        block
            .opaque
            .as_ref()
            .map_or(0, |opaque| opaque.bytes.len() as u64)
    };
    blocks
        .iter()
        .map(|block| BLOCK_BYTES + block.text.len() as u64 + opaque(block))
        .sum()
}

/// Returns the length of a value as JSON, in bytes.
pub(super) fn json_bytes<T: Serialize>(value: &T) -> u64 {
    let mut count = Count(0);
    // What cannot be written counts as far as it came; the durable engines refuse it.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

// === impl Count ===

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delta_is_as_long_as_its_json() {
        for (block, offset) in [(0, 0), (9, 10), (10, 99), (u32::MAX, u64::MAX)] {
            let step = StreamStep::BlockDelta {
                block,
                offset,
                text: "Hello, wörld".into(),
            };
            assert_eq!(step_bytes(&step), json_bytes(&step), "{step:?}");
        }
    }
}
