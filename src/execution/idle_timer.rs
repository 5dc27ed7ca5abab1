//! The timer of a stream that must not stay silent for too long.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use tokio::time::{Instant, Sleep, sleep};

/// Bounds the waits of a stream by one timer. It is moved only when it is due, because most waits
/// are over long before; a timer for each would be entered and removed with each piece.
#[derive(Debug)]
pub struct IdleTimer {
    bound: Duration,
    alarm: Pin<Box<Sleep>>,
}

// === impl IdleTimer ===

impl IdleTimer {
    /// Bounds each wait by this time. Needs a Tokio runtime.
    #[must_use]
    pub fn new(bound: Duration) -> Self {
        Self {
            bound,
            alarm: Box::pin(sleep(bound)),
        }
    }

    /// Returns what `waited` returns; `None` if that takes longer than the bound. Cancel safe if
    /// `waited` is.
    pub async fn bounded<F: Future>(&mut self, waited: F) -> Option<F::Output> {
        let ends = Instant::now() + self.bound;
        let alarm = &mut self.alarm;
        tokio::pin!(waited);
        poll_fn(|context| {
            if let Poll::Ready(output) = waited.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            while alarm.as_mut().poll(context).is_ready() {
                if Instant::now() >= ends {
                    return Poll::Ready(None);
                }
                // It was set for an earlier wait.
                alarm.as_mut().reset(ends);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_wait_is_bounded_and_not_all_together() {
        let bound = Duration::from_secs(10);
        let mut timer = IdleTimer::new(bound);
        for _ in 0..5 {
            let waited = timer.bounded(sleep(Duration::from_secs(9))).await;
            assert_eq!(waited, Some(()));
        }
        for _ in 0..2 {
            let began = Instant::now();
            assert_eq!(timer.bounded(std::future::pending::<()>()).await, None);
            let took = began.elapsed();
            assert!(
                took >= bound && took < bound + Duration::from_millis(10),
                "{took:?}"
            );
        }
        assert_eq!(timer.bounded(std::future::ready(1)).await, Some(1));
    }
}
