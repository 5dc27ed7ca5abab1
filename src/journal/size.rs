//! The size of a value as JSON, counted without writing it.

use std::io;

use serde::Serialize;

use crate::domain::fold::StreamStep;

/// A writer that counts bytes.
struct Count(u64);

/// The length of a step as JSON, in bytes.
pub(super) fn step_bytes(step: &StreamStep) -> u64 {
    json_bytes(step)
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
