//! Messages of a server that are no responses. That its tools changed, and how far a call is, is noted
//! at once; what asks for a response goes to the SDK, within a limit; the rest is passed over. So a
//! flood costs the time to read it, and only one without end is a fault.

use rmcp::model::{ServerJsonRpcMessage, ServerNotification};
use tokio::time::Instant;

use super::{progress::ProgressListeners, session::ListChanges};

const MEBIBYTE: f64 = 1_048_576.0;
/// Bytes that a server may send at once without a response among them, and in a second from then
/// on.
const BYTES: (f64, f64) = (64.0 * MEBIBYTE, MEBIBYTE);
/// Messages that the SDK is given at once, and in a second from then on.
const MESSAGES: (f64, f64) = (1000.0, 50.0);

/// Takes what a server says that is no response, on one pipe or stream.
#[derive(Clone)]
pub(super) struct Unsolicited {
    changes: ListChanges,
    progress: ProgressListeners,
    bytes: Allowance,
    messages: Allowance,
}

/// An amount that may be used at once, and comes back with time.
#[derive(Debug, Clone)]
struct Allowance {
    most: f64,
    per_second: f64,
    left: f64,
    at: Instant,
}

// === impl Unsolicited ===

impl Unsolicited {
    pub(super) fn new(changes: ListChanges, progress: ProgressListeners) -> Self {
        Self {
            changes,
            progress,
            bytes: Allowance::new(BYTES),
            messages: Allowance::new(MESSAGES),
        }
    }

    /// Takes a message; returns it if the SDK has to get it. A response is none of them.
    pub(super) fn take(&mut self, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let is_for_sdk = match &message {
            ServerJsonRpcMessage::Request(_) => true,
            ServerJsonRpcMessage::Notification(told) => self.is_for_sdk(&told.notification),
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => false,
        };
        (is_for_sdk && self.messages.allows(1)).then_some(message)
    }

    fn is_for_sdk(&self, notification: &ServerNotification) -> bool {
        match notification {
            ServerNotification::ToolListChangedNotification(_) => {
                self.changes.note();
                false
            }
            ServerNotification::ProgressNotification(progress) => {
                self.progress.tell(progress.params.clone());
                false
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(_)
            | ServerNotification::CancelledNotification(_) => true,
            _ => false,
        }
    }

    /// Counts bytes that are no response; whether they are a flood without end.
    pub(super) fn is_flood(&mut self, bytes: usize) -> bool {
        !self.bytes.allows(bytes)
    }

    /// Begins to count anew: the server responds.
    pub(super) fn note_response(&mut self) {
        self.bytes.left = self.bytes.most;
    }
}

// === impl Allowance ===

impl Allowance {
    fn new((most, per_second): (f64, f64)) -> Self {
        Self {
            most,
            per_second,
            left: most,
            at: Instant::now(),
        }
    }

    /// Uses as much, if that is left.
    #[expect(clippy::cast_precision_loss, reason = "amounts are small")]
    fn allows(&mut self, amount: usize) -> bool {
        let now = Instant::now();
        let earned = now.duration_since(self.at).as_secs_f64() * self.per_second;
        self.at = now;
        self.left = (self.left + earned).min(self.most);
        let is_left = self.left >= amount as f64;
        if is_left {
            self.left -= amount as f64;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn every_change_of_a_flood_is_noted_and_the_sdk_gets_as_many_requests_as_it_can_bear() {
        let changes = ListChanges::default();
        let mut unsolicited = Unsolicited::new(changes.clone(), ProgressListeners::default());
        let mut passed = |method: &str| {
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
            let mut message = message;
            if method.starts_with("notifications/") {
                message.as_object_mut().unwrap().remove("id");
            }
            unsolicited
                .take(serde_json::from_value(message).unwrap())
                .is_some()
        };
        for _ in 0..5000 {
            assert!(!passed("notifications/tools/list_changed"));
            assert!(!passed("notifications/later"));
        }
        assert_eq!(changes.count(), 5000);
        assert!((0..1000).all(|_| passed("ping")));
        assert!(!passed("ping"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!((0..50).all(|_| passed("ping")));
        assert!(!passed("ping"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mebibyte_a_second_is_read_for_ever_and_many_at_once_end_with_a_response() {
        let mut unsolicited =
            Unsolicited::new(ListChanges::default(), ProgressListeners::default());
        for _ in 0..3600 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!unsolicited.is_flood(1 << 20));
        }
        assert!(!unsolicited.is_flood(60 << 20));
        assert!(unsolicited.is_flood(8 << 20));
        unsolicited.note_response();
        assert!(!unsolicited.is_flood(60 << 20));
    }
}
