//! About how many bytes a value takes: as JSON, counted without writing it, or the length of its texts where they may be long.

use std::io;

use serde::Serialize;

use super::RecordedRequest;
use crate::domain::{
    fold::{Block, StreamStep},
    invocation::Call,
};

/// A writer that counts bytes.
struct Count(u64);

/// The size of a step; of the end it is none, for the outcome is counted by itself.
pub(super) fn step_bytes(step: &StreamStep) -> u64 {
    match step {
        StreamStep::Terminal(_) => 0,
        other => json_bytes(other),
    }
}

/// The size of a request.
pub(super) fn request_bytes(request: &RecordedRequest) -> u64 {
    let call = match &request.call {
        Some(Call::Model(call)) => call.approximate_bytes() as u64 + json_bytes(&call.extra),
        Some(Call::Tool(call)) => json_bytes(call),
        None => 0,
    };
    call + json_bytes(&request.overrides)
}

/// The size of an answer's blocks.
pub(super) fn snapshot_bytes(blocks: &[Block]) -> u64 {
    const BLOCK_BYTES: u64 = 64;
    let opaque = |block: &Block| block.opaque.as_ref().map_or(0, |opaque| opaque.bytes.len() as u64);
    blocks.iter().map(|block| BLOCK_BYTES + block.text.len() as u64 + opaque(block)).sum()
}

/// The length of a value as JSON, in bytes.
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
