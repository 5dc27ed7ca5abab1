//! One end per attempt, reported once, whatever happens below.
//!
//! A failure is reported when it happens, any other end when the answer is dropped: until then the
//! layers above may reject what the target answered.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    attempt::Attempt,
    event::InvocationEvent,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
};

use crate::domain::{
    completion::{Delta, Usage},
    failure::{Failure, FailureClass},
    invocation::AttemptCause,
};

/// Observes attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObserveAttemptLayer;

// === impl ObserveAttemptLayer ===

impl<S> tower::Layer<S> for ObserveAttemptLayer {
    type Service = Guarded<Self, S>;

    fn layer(&self, inner: S) -> Guarded<Self, S> {
        Guarded::new(*self, inner)
    }
}

impl AdmitAttempt for ObserveAttemptLayer {
    type Guard = AttemptSpanGuard;

    async fn admit(&self, attempt: &Arc<Attempt>) -> Result<AttemptSpanGuard, Failure> {
        Ok(AttemptSpanGuard::begin(attempt))
    }
}

/// Sees to it that an attempt has exactly one end.
#[derive(Debug)]
pub struct AttemptSpanGuard {
    attempt: Arc<Attempt>,
    began: Instant,
    first: bool,
    usage: Usage,
    /// Bytes of the answer so far.
    answered_bytes: usize,
    /// After which time the answer was whole; `None` while it is not.
    answered_after: Option<Duration>,
    over: bool,
}

// === impl AttemptSpanGuard ===

impl AttemptSpanGuard {
    fn begin(attempt: &Arc<Attempt>) -> Self {
        attempt.begin();
        if attempt.cause != AttemptCause::Hedge {
            attempt.state.called(Instant::now());
        }
        Self {
            attempt: Arc::clone(attempt),
            began: Instant::now(),
            first: true,
            usage: Usage::default(),
            answered_bytes: 0,
            answered_after: None,
            over: false,
        }
    }

    fn duration(&self) -> Duration {
        self.answered_after.unwrap_or_else(|| self.began.elapsed())
    }
}

impl AttemptGuard for AttemptSpanGuard {
    fn on_delta(&mut self, delta: &Delta) {
        if self.first && delta.is_content() {
            self.first = false;
            self.attempt.report(&InvocationEvent::FirstToken {
                after: self.began.elapsed(),
            });
        }
        match delta {
            Delta::Usage(usage) => self.usage = *usage,
            Delta::ReadOn(cut) => self.attempt.report(&InvocationEvent::ReadOn { cut: *cut }),
            Delta::Finish { .. } => self.answered_after = Some(self.began.elapsed()),
            Delta::Start { headers, .. } => self.attempt.report_request_id(headers),
            Delta::BlockDelta { text, .. } => self.answered_bytes += text.len(),
            Delta::BlockStart { .. } | Delta::BlockStop { .. } | Delta::ToolReply(_) => {}
        }
    }

    fn on_failure(&mut self, failure: &Failure) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        // Providers count at the end, which a cut answer has not; what came of it was paid for all
        // the same.
        let usage = if self.first || self.attempt.tool.is_some() {
            self.usage
        } else {
            self.usage.at_least(&self.attempt.call, self.answered_bytes)
        };
        let sent = !failure.class.is_local_refusal() && !failure.never_sent;
        let duration = self.duration();
        self.attempt.report(&InvocationEvent::AttemptFailed {
            failure,
            duration,
            sent,
            usage,
        });
    }
}

impl Drop for AttemptSpanGuard {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let rejected = self
            .attempt
            .scope
            .record(self.attempt.number())
            .and_then(|record| record.failure);
        match rejected {
            Some(failure) => self.on_failure(&failure),
            None if self.answered_after.is_some() => {
                let (duration, usage) = (self.duration(), self.usage);
                self.attempt
                    .report(&InvocationEvent::AttemptSucceeded { duration, usage });
            }
            None => {
                let mut gone = Failure::local(FailureClass::Cancelled, "the attempt was cancelled");
                gone.target = Some(self.attempt.target.id.clone());
                gone.never_sent = false;
                self.on_failure(&gone);
            }
        }
    }
}
