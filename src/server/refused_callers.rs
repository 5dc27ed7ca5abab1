//! Logs refused callers, with a limit on lines: a client with a wrong key repeats it a hundred times a second.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How often refusals of one kind are logged at most.
const EVERY: Duration = Duration::from_secs(10);

/// Counts refusals by interface and status between two lines of the log.
#[derive(Debug, Default)]
pub(super) struct RefusedCallers {
    kinds: Mutex<HashMap<(&'static str, String), RefusalCount>>,
}

#[derive(Debug)]
struct RefusalCount {
    logged_at: Instant,
    since: u64,
}

// === impl RefusedCallers ===

impl RefusedCallers {
    /// A request was refused with this status: the first of its kind is logged at once, later ones with their number.
    pub(super) fn note(&self, interface: &'static str, status: &str) {
        if let Some(count) = self.due(interface, status, Instant::now()) {
            tracing::warn!(interface, status, count, "callers were refused");
        }
    }

    /// How many are to be logged now, if any.
    fn due(&self, interface: &'static str, status: &str, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        match kinds.get_mut(&(interface, status.to_owned())) {
            None => {
                kinds.insert((interface, status.to_owned()), RefusalCount { logged_at: now, since: 0 });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_logged_at_once_and_later_ones_together() {
        let (refused, now) = (RefusedCallers::default(), Instant::now());
        assert_eq!(refused.due("grpc", "UNAUTHENTICATED", now), Some(1));
        for _ in 0..5 {
            assert_eq!(refused.due("grpc", "UNAUTHENTICATED", now + Duration::from_secs(1)), None);
        }
        assert_eq!(refused.due("http", "401", now), Some(1), "each kind by itself");
        assert_eq!(refused.due("grpc", "UNAUTHENTICATED", now + EVERY), Some(6));
    }
}
