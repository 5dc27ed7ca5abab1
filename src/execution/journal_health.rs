//! Whether the journal can be reached, since when, and what is said when that changes.
//!
//! An unavailable journal stops no call; it is reported once when it becomes unavailable and once
//! when it is back.

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    domain::{clock, event::EventBody},
    journal::JournalError,
};

/// Availability of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JournalHealth {
    /// Reason why it cannot be reached; `None` while it can.
    pub away: Option<String>,
    /// Time at which it was last lost or found; `None`: neither happened.
    pub since: Option<Timestamp>,
    lost_at: Option<Instant>,
}

// === impl JournalHealth ===

impl JournalHealth {
    /// Takes the result of a use of the journal, and returns the event that it is reported by.
    pub(super) fn take(&mut self, failure: Option<&JournalError>) -> Option<EventBody> {
        let failure = failure.filter(|failure| matches!(failure, JournalError::Unavailable(_)));
        let store = "journal".to_owned();
        let event = match (failure, self.lost_at) {
            (Some(_), Some(_)) | (None, None) => return None,
            (Some(error), None) => {
                self.lost_at = Some(Instant::now());
                self.away = Some(error.to_string());
                EventBody::StoreLost {
                    store,
                    reason: error.to_string(),
                }
            }
            (None, Some(lost_at)) => {
                self.lost_at = None;
                self.away = None;
                EventBody::StoreFound {
                    store,
                    lost_ms: u64::try_from(lost_at.elapsed().as_millis()).unwrap_or(u64::MAX),
                }
            }
        };
        self.since = Some(clock::wall_now());
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_told_once_and_so_is_its_end_with_how_long_it_lasted() {
        let lost = JournalError::Unavailable("connection refused".to_owned());
        let mut health = JournalHealth::default();
        assert_eq!(health.take(None), None);
        assert_eq!(health, JournalHealth::default());
        assert!(matches!(
            health.take(Some(&lost)),
            Some(EventBody::StoreLost { .. })
        ));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(health.take(Some(&lost)), None);
        assert!(
            health
                .away
                .as_ref()
                .is_some_and(|why| why.contains("connection refused"))
                && health.since.is_some()
        );
        let found = EventBody::StoreFound {
            store: "journal".to_owned(),
            lost_ms: 7000,
        };
        assert_eq!(health.take(None), Some(found));
        assert_eq!(health.away, None);
    }
}
