//! Logs refused callers, with a limit on lines: a client with a wrong key repeats it a hundred
//! times a second.

use std::{collections::HashMap, time::Duration};

use axum::response::Response;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::grpc::auth::Unrecognised;

/// Shortest interval at which refusals of one kind are logged.
const EVERY: Duration = Duration::from_secs(10);

/// Counts refusals by interface, status and reason between two lines of the log.
#[derive(Debug, Default)]
pub(super) struct RefusedCallers {
    kinds: Mutex<HashMap<RefusalKind, RefusalCount>>,
}

type RefusalKind = (&'static str, String, Option<Unrecognised>);

#[derive(Debug)]
struct RefusalCount {
    logged_at: Instant,
    since: u64,
}

// === impl RefusedCallers ===

impl RefusedCallers {
    /// A request was refused with this response: the first of its kind is logged at once, later
    /// ones with their number.
    pub(super) fn note(&self, interface: &'static str, status: &str, response: &Response) {
        let unrecognised = response.extensions().get::<Unrecognised>().copied();
        if let Some(count) = self.due(interface, status, unrecognised, Instant::now()) {
            let reason = unrecognised.map(|reason| reason.to_string());
            tracing::warn!(interface, status, count, reason, "callers were refused");
        }
    }

    /// Returns the number of refusals to be logged now, if any.
    fn due(
        &self,
        interface: &'static str,
        status: &str,
        reason: Option<Unrecognised>,
        now: Instant,
    ) -> Option<u64> {
        let mut kinds = self.kinds.lock();
        match kinds.get_mut(&(interface, status.to_owned(), reason)) {
            None => {
                kinds.insert(
                    (interface, status.to_owned(), reason),
                    RefusalCount {
                        logged_at: now,
                        since: 0,
                    },
                );
                Some(1)
            }
            Some(refusals) if now < refusals.logged_at + EVERY => {
                refusals.since += 1;
                None
            }
            Some(refusals) => {
                refusals.logged_at = now;
                Some(std::mem::take(&mut refusals.since) + 1)
            }
        }
    }
}

/// Returns a response to a caller that is not recognised, with the reason for the log.
pub(super) fn unrecognised(mut response: Response, reason: Unrecognised) -> Response {
    response.extensions_mut().insert(reason);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_logged_at_once_and_later_ones_together() {
        let refused = RefusedCallers::default();
        let now = Instant::now();
        assert_eq!(refused.due("grpc", "UNAUTHENTICATED", None, now), Some(1));
        for _ in 0..5 {
            assert_eq!(
                refused.due(
                    "grpc",
                    "UNAUTHENTICATED",
                    None,
                    now + Duration::from_secs(1)
                ),
                None
            );
        }
        assert_eq!(
            refused.due("http", "401", None, now),
            Some(1),
            "each kind by itself"
        );
        let expired = Some(Unrecognised::ExpiredKey);
        assert_eq!(
            refused.due("grpc", "UNAUTHENTICATED", expired, now),
            Some(1),
            "each reason by itself"
        );
        assert_eq!(
            refused.due("grpc", "UNAUTHENTICATED", None, now + EVERY),
            Some(6)
        );
    }
}
