//! How large a step is as JSON, counted without writing it anywhere.

use std::io;

use crate::domain::fold::Progress;

/// Counts what is written to it.
struct Count(u64);

/// The length of a step as JSON, in bytes.
pub(super) fn step_bytes(step: &Progress) -> u64 {
    let mut count = Count(0);
    // What cannot be written counts as far as it came; the durable engines refuse it.
    let _ = serde_json::to_writer(&mut count, step);
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
