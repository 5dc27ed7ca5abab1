//! One end per attempt, reported once, whatever happens below.
//!
//! A failure is reported when it happens, any other end when the completion is dropped: until then the
//! layers above may reject what the target returned.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    attempt::Attempt,
    event::attempt_failed,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
};

use crate::{
    domain::{
        completion::{Delta, Exactness, Usage},
        event::{EventBody, millis},
        failure::{Failure, FailureClass},
        invocation::AttemptCause,
    },
    policy::{release::is_flawed, window::prompt_bytes},
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
    /// Bytes of the completion so far.
    answered_bytes: usize,
    /// `true` if the result of a tool is of no use.
    is_flawed: bool,
    /// Time after which the completion was whole; `None` while it is not.
    answered_after: Option<Duration>,
    over: bool,
}

// === impl AttemptSpanGuard ===

impl AttemptSpanGuard {
    fn begin(attempt: &Arc<Attempt>) -> Self {
        attempt.begin();
        if attempt.cause != AttemptCause::Hedge {
            attempt.at.state.extra.called(Instant::now());
        }
        Self {
            attempt: Arc::clone(attempt),
            began: Instant::now(),
            first: true,
            usage: Usage::default(),
            answered_bytes: 0,
            is_flawed: false,
            answered_after: None,
            over: false,
        }
    }

    fn duration(&self) -> Duration {
        self.answered_after.unwrap_or_else(|| self.began.elapsed())
    }

    /// Learns how long the target's tokens are, if its window is to be compared with prompts.
    fn learn_tokens(&self) {
        let Attempt { at, request, .. } = &*self.attempt;
        let is_own = !self.attempt.calls_tool() && !self.attempt.is_attached();
        if is_own && self.usage.exactness == Exactness::Exact && at.state.window().is_some() {
            at.state
                .observed
                .learn_tokens(prompt_bytes(&request.call), self.usage.input_tokens);
        }
    }

    fn on_success(&self) {
        let usage = self.usage;
        self.learn_tokens();
        let duration = self.duration();
        self.attempt.amend(|record| {
            record.duration = duration;
            record.usage = usage;
            record.sent = true;
            record.winner = true;
        });
        self.attempt.publish(EventBody::AttemptSucceeded {
            duration_ms: millis(duration),
            usage,
            is_flawed: self.is_flawed || self.attempt.scope.unfit.is_passed_on(),
        });
    }
}

impl AttemptGuard for AttemptSpanGuard {
    fn on_delta(&mut self, delta: &Delta) {
        if self.first && delta.is_content() {
            self.first = false;
            let after = self.began.elapsed();
            self.attempt
                .amend(|record| record.first_token = Some(after));
            self.attempt.publish(EventBody::FirstToken {
                after_ms: millis(after),
            });
        }
        match delta {
            Delta::Usage(usage) => self.usage = *usage,
            Delta::ReadOn(cut) => self.attempt.publish(EventBody::AttemptReadOn {
                reason: cut.words().to_owned(),
                requests: cut.requests,
            }),
            Delta::Finish { .. } => self.answered_after = Some(self.began.elapsed()),
            Delta::Start { headers, .. } => self.attempt.record_request_id(headers),
            Delta::BlockDelta { text, .. } => self.answered_bytes += text.len(),
            Delta::ToolReply(reply) => {
                let schema = self
                    .attempt
                    .request
                    .tool
                    .as_ref()
                    .and_then(|tool| tool.output_schema.as_deref());
                self.is_flawed = is_flawed(reply, schema);
            }
            Delta::BlockStart { .. } | Delta::BlockStop { .. } | Delta::Around(_) => {}
        }
    }

    fn on_failure(&mut self, failure: &Failure) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        // Providers count at the end, which a cut completion does not have; the received part was paid
        // for all the same.
        let usage = if self.first || self.attempt.calls_tool() {
            self.usage
        } else {
            self.usage
                .at_least(&self.attempt.request.call, self.answered_bytes)
        };
        let sent = !failure.class.is_local_refusal() && !failure.never_sent;
        let duration = self.duration();
        self.attempt.amend(|record| {
            (record.duration, record.usage, record.sent) = (duration, usage, sent);
            record.failure = Some(failure.without_reply());
        });
        self.attempt
            .publish(attempt_failed(failure, duration, sent, usage));
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
            None if self.answered_after.is_some() => self.on_success(),
            None => {
                let mut gone = Failure::local(FailureClass::Cancelled, "the attempt was cancelled");
                gone.target = Some(self.attempt.target().id.clone());
                gone.never_sent = false;
                self.on_failure(&gone);
            }
        }
    }
}
