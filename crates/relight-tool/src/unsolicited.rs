//! Limits how much a server may say that is not a response: a flood of it is a fault, however fast
//! it is read.

use tokio::time::Instant;

/// Messages that a server may send at once.
const BURST: f64 = 1000.0;
/// Messages that it may send in a second from then on.
const PER_SECOND: f64 = 50.0;

/// Counts the messages of a server that respond to nothing.
#[derive(Debug)]
pub(super) struct UnsolicitedMeter {
    left: f64,
    at: Instant,
}

// === impl UnsolicitedMeter ===

impl UnsolicitedMeter {
    pub(super) fn new() -> Self {
        Self {
            left: BURST,
            at: Instant::now(),
        }
    }

    /// Counts one message; whether that is a flood.
    pub(super) fn is_flood(&mut self) -> bool {
        let now = Instant::now();
        let earned = now.duration_since(self.at).as_secs_f64() * PER_SECOND;
        (self.left, self.at) = ((self.left + earned).min(BURST), now);
        if self.left < 1.0 {
            return true;
        }
        self.left -= 1.0;
        false
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_thousand_messages_at_once_and_fifty_a_second_are_taken_and_more_is_a_flood() {
        let mut meter = UnsolicitedMeter::new();
        assert!((0..1000).all(|_| !meter.is_flood()));
        assert!(meter.is_flood());
        for _ in 0..20 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!((0..50).all(|_| !meter.is_flood()));
            assert!(meter.is_flood());
        }
    }
}
