//! The one place that reads the wall clock; everything else uses `tokio::time::Instant`, which
//! tests can pause.
//!
//! Wall time is for people (event times, HTTP dates); no decision about waiting depends on it
//! alone.

use jiff::Timestamp;

/// Returns the wall-clock time now, in UTC.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one clock file")]
pub fn wall_now() -> Timestamp {
    Timestamp::now()
}
