//! How often one kind of line is written: the first one at once, those behind it counted.

use std::time::Duration;

use tokio::time::Instant;

/// Shortest interval at which one kind of refusal is logged.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Limits how often a log line is written.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    last: Option<Instant>,
    held_back: u64,
}

// === impl LogLimit ===

impl LogLimit {
    /// Returns the number of lines that were held back since the last one, if another may be
    /// written.
    pub(super) fn pass(&mut self) -> Option<u64> {
        if self.last.is_some_and(|last| last.elapsed() < LOG_EVERY) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.held_back))
    }
}
