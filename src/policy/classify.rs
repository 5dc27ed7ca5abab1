//! The one place that judges failures: facts in, verdict out.

use jiff::Timestamp;

use crate::domain::{
    failure::{Failure, FailureClass, ProviderError, TransportFault, Wait},
    ids::TargetId,
};

/// Judges failures.
#[derive(Debug, Default)]
pub struct Classifier;

/// A judgement.
#[derive(Debug)]
pub struct Verdict {
    class: FailureClass,
    retry_after: Option<Wait>,
}

impl Classifier {
    /// The built-in tables.
    pub fn new() -> Self {
        Self
    }

    /// Judges bare facts.
    pub fn classify(&self, error: &ProviderError, _now: Timestamp) -> Verdict {
        let class = match (error.fault, error.status) {
            (Some(TransportFault::FirstTokenTimeout | TransportFault::Deadline), _) => FailureClass::Timeout,
            (Some(TransportFault::Cut | TransportFault::IdleTimeout), _) => FailureClass::StreamInterrupted,
            (Some(TransportFault::Protocol | TransportFault::TooLarge), _) => FailureClass::MalformedResponse,
            (Some(TransportFault::Cancelled), _) => FailureClass::Cancelled,
            (Some(TransportFault::ProcessExited), _) => FailureClass::Crash,
            (Some(_), _) => FailureClass::Network,
            (None, Some(429)) => FailureClass::RateLimited,
            (None, Some(400)) => FailureClass::InvalidRequest,
            (None, Some(401)) => FailureClass::Authentication,
            (None, Some(503 | 529)) => FailureClass::Overloaded,
            (None, Some(500..)) => FailureClass::ServerError,
            (None, _) => FailureClass::Unknown,
        };
        let wait = error.header("retry-after").and_then(|value| value.parse().ok());
        let wait = wait.map(std::time::Duration::from_secs);
        let source = crate::domain::failure::WaitSource::RetryAfter;
        Verdict { class, retry_after: wait.map(|duration| Wait { duration, source }) }
    }
}

impl Verdict {
    /// The verdict as a failure.
    pub fn into_failure(self, error: &ProviderError, target: Option<TargetId>, at: Timestamp) -> Failure {
        let mut failure = Failure::local(self.class, error.to_string());
        failure.retryable = matches!(
            self.class,
            FailureClass::RateLimited
                | FailureClass::Overloaded
                | FailureClass::ServerError
                | FailureClass::Timeout
                | FailureClass::Network
                | FailureClass::StreamInterrupted
                | FailureClass::MalformedResponse
        );
        failure.fallback_helps = !matches!(self.class, FailureClass::InvalidRequest | FailureClass::Cancelled);
        failure.retry_after = self.retry_after;
        failure.target = target;
        failure.status = error.status;
        failure.fault = error.fault;
        failure.never_sent = error.fault.is_some_and(TransportFault::never_sent);
        failure.at = at;
        failure
    }
}
