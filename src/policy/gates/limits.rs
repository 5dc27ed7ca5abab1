//! What the headers of an answer say about the caller's limits: how much is left, and when it is full again.

use std::time::Duration;

/// How long until the exhausted limits are reset; `None` when nothing is exhausted or nothing can be read.
pub(super) fn wait_for_reset(_headers: &[(String, String)]) -> Option<Duration> {
    None
}
