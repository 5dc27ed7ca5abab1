//! Load of a target.

use std::time::Duration;

/// Work that a target has at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Attempts in flight, with those that wait for a slot.
    pub in_flight: u32,
    /// Number of attempts that it may have at once.
    pub limit: u32,
    /// Recent median time to its first token; `None` if unknown.
    pub first_token: Option<Duration>,
}

// === impl Load ===

impl Default for Load {
    fn default() -> Self {
        Self {
            in_flight: 0,
            limit: u32::MAX,
            first_token: None,
        }
    }
}
