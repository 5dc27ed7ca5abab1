//! How long a complete response is still read: for its usage and the end of its body, and no
//! longer.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    domain::{
        completion::Delta,
        wire::{CompletionForm, ProviderRequest},
    },
    spec::HttpSettings,
};

/// Longest wait for the rest of a complete response.
const MAX_LINGER: Duration = Duration::from_secs(1);

/// The bounds of reading one response.
#[derive(Debug, Clone)]
pub(crate) struct ReadLimits {
    /// The provider's family, as errors name it.
    pub(super) provider: Arc<str>,
    /// Longest event, in bytes.
    pub(super) max_line_bytes: usize,
    /// Somebody reads the pieces as they come.
    pub(super) is_read_along: bool,
    idle: Option<Duration>,
    deadline: Instant,
}

/// The wait for the rest of a response whose mark of completeness was read.
#[derive(Debug, Default)]
pub(super) struct Linger {
    /// Since the mark: until when.
    until: Option<Instant>,
    /// Content came after the mark, so that this server's mark proves nothing.
    misled: bool,
}

// === impl ReadLimits ===

impl ReadLimits {
    /// The bounds of the response to this call.
    pub(crate) fn of(call: &ProviderRequest, settings: &HttpSettings) -> Self {
        let provider = Arc::clone(&call.target.family);
        Self {
            provider,
            max_line_bytes: settings.max_line_bytes,
            is_read_along: call.form == CompletionForm::Pieces,
            idle: call.idle,
            deadline: call.deadline,
        }
    }

    /// Returns the time to wait for the rest of a complete response: well within what ends the
    /// attempt.
    pub(super) fn linger(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now()) / 4;
        MAX_LINGER
            .min(left)
            .min(self.idle.unwrap_or(MAX_LINGER) / 2)
    }
}

// === impl Linger ===

impl Linger {
    /// Notes whether the response is complete, and the deltas that came just before.
    pub(super) fn note(&mut self, is_whole: bool, deltas: &[Delta], limits: &ReadLimits) {
        let is_content =
            |delta: &Delta| matches!(delta, Delta::BlockStart { .. } | Delta::BlockDelta { .. });
        self.misled |= self.until.is_some() && deltas.iter().any(is_content);
        if is_whole && self.until.is_none() {
            self.until = Some(Instant::now() + limits.linger());
        }
    }

    /// Returns whether content came after the mark.
    pub(super) const fn is_misled(&self) -> bool {
        self.misled
    }

    /// Returns the time for which the rest may still be waited for; `None` while the response is
    /// not known to be complete.
    pub(super) fn left(&self) -> Option<Duration> {
        self.until
            .filter(|_| !self.misled)
            .map(|until| until.saturating_duration_since(Instant::now()))
    }
}
