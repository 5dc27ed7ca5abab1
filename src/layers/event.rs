//! Events of an invocation and of its attempts, as layers report them.
//!
//! A layer that learns something publishes one `EventBody`, writes what the record of the attempt
//! keeps (`amend`), and emits the step that followers of the stream receive, if there is one.

use std::time::Duration;

use crate::{
    domain::{
        completion::Usage,
        event::{EventBody, millis},
        failure::{Failure, Wait},
        invocation::Outcome,
    },
    policy::release,
};

/// Decisions about an attempt before it starts; reported when it does.
#[derive(Debug, Clone, Default)]
pub struct Preparation {
    /// The wait before it.
    pub wait: Option<Wait>,
    /// Events that led to it.
    pub events: Vec<EventBody>,
    /// The note about the failure that was added for the model.
    pub note: Option<PlacedNote>,
    /// Reason why there is no note, if there was a failure.
    pub injection_skipped: Option<String>,
}

/// A note about the failure in the request of an attempt.
#[derive(Debug, Clone)]
pub struct PlacedNote {
    /// The note.
    pub text: String,
    /// Part of the request that holds it.
    pub vehicle: &'static str,
    /// The position of the first message that it is in.
    pub message: u32,
}

/// Returns the event of an attempt that failed.
pub(super) fn attempt_failed(
    failure: &Failure,
    duration: Duration,
    sent: bool,
    usage: Usage,
) -> EventBody {
    EventBody::AttemptFailed {
        class: failure.class,
        detail: failure.detail,
        signature: release::signature(failure).to_owned(),
        message: failure.own_words().into_owned(),
        recovery_hint: failure.recovery_hint.clone(),
        retryable: failure.retryable,
        retry_after: failure.retry_after,
        status: failure.status,
        duration_ms: millis(duration),
        sent,
        usage,
    }
}

/// Returns the event of an invocation that ended.
pub(super) fn ended(outcome: &Outcome, duration: Duration) -> EventBody {
    let duration_ms = millis(duration);
    let attempts = u32::try_from(outcome.attempts.len()).unwrap_or(u32::MAX);
    match &outcome.result {
        Ok(_) if attempts <= 1 => EventBody::InvocationSucceeded {
            duration_ms,
            usage: outcome.usage,
        },
        Ok(_) => EventBody::InvocationRecovered {
            duration_ms,
            attempts,
            strategies: outcome.recovery_applied.clone(),
            usage: outcome.usage,
            first_failure: outcome.first_failure(),
        },
        Err(failure) => EventBody::InvocationFailed {
            duration_ms,
            attempts,
            usage: outcome.usage,
            strategies: outcome.recovery_applied.clone(),
            class: failure.class,
            detail: failure.detail,
            message: failure.own_words().into_owned(),
            user_message: failure.user_message.clone(),
            recovery_hint: failure.recovery_hint.clone(),
            stopped_by: outcome.stopped_by(),
        },
    }
}
