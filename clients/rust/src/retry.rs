//! Attempts of one call, and its deadline.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tonic::Request;

use crate::{Error, StatusError};

/// Attempts that are made without any progress between them, after a lost connection or at a
/// replica that goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnect {
    /// Attempts after the first one. Default: 12, which outlasts the takeover of a replica that was
    /// killed.
    pub attempts: u32,
    /// First wait, doubled up to `max_wait`; each is spread by half of itself. Default: 100 ms.
    pub wait: Duration,
    /// Longest wait, unless Relight states a longer one. Default: 2 s.
    pub max_wait: Duration,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self {
            attempts: 12,
            wait: Duration::from_millis(100),
            max_wait: Duration::from_secs(2),
        }
    }
}

/// Attempts that are left to one call.
#[derive(Debug)]
pub(crate) struct Retry {
    reconnect: Reconnect,
    deadline: Option<Instant>,
    failed: u32,
}

impl Retry {
    pub(crate) fn new(reconnect: Reconnect, timeout: Option<Duration>) -> Self {
        Self {
            reconnect,
            deadline: timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
            failed: 0,
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Gives all attempts back.
    pub(crate) const fn progressed(&mut self) {
        self.failed = 0;
    }

    /// Returns the request of one attempt, which tells the server the time that is left.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        request
    }

    /// Awaits an attempt until the deadline; returns `None` if that passes first.
    pub(crate) async fn within<F: Future>(&self, attempt: F) -> Option<F::Output> {
        match self.deadline {
            Some(deadline) => timeout_at(deadline, attempt).await.ok(),
            None => Some(attempt.await),
        }
    }

    /// Returns the wait before the next attempt, or the error with which the call ends.
    pub(crate) fn wait_after(&mut self, lost: StatusError) -> Result<Duration, Error> {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(Error::Deadline(Some(Box::new(lost))));
        }
        if !lost.is_transient || self.failed >= self.reconnect.attempts {
            return Err(lost.into());
        }
        let doubled = 1 << self.failed.min(20);
        let backoff = self
            .reconnect
            .wait
            .saturating_mul(doubled)
            .min(self.reconnect.max_wait)
            .mul_f64(rand::random_range(0.5..=1.0));
        let wait = backoff.max(lost.retry_after.unwrap_or_default());
        if left.is_some_and(|left| left <= wait) {
            return Err(Error::Deadline(Some(Box::new(lost))));
        }
        self.failed += 1;
        Ok(wait)
    }
}
