//! Judges whether a store responds within the time that a probe waits for it.
//!
//! Where it does not, probes are decided alone although the store can be reached. One slow
//! operation proves nothing, and neither do two: a pause of the store, however long, slows the one
//! that is under way and perhaps the next. An operation that is slow while this process wakes late
//! proves nothing about the store, so that callers who keep this host busy change nothing.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, sleep};

/// Longest time that a probe waits for the store.
pub(crate) const PROBE_PATIENCE: Duration = Duration::from_millis(50);
/// Slow operations in a row after which the store is slow: reads and at least one write, since a
/// replica writes a sign of life each second and reads four times.
const SLOW_IN_A_ROW: u32 = 5;
/// Quick operations in a row after which it is no longer: more, so that a store that is slow half
/// of the time is slow.
const QUICK_IN_A_ROW: u32 = 10;
/// Time by which this process may wake late and still be a witness.
const LATE: Duration = Duration::from_millis(10);

/// Speed of a single operation, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperationSpeed {
    /// A probe would have waited for it.
    Quick,
    /// A probe would not have.
    Slow,
    /// This process was late itself.
    Unknown,
}

/// Speed of a store by its last operations.
#[derive(Debug, Default)]
pub(crate) struct StoreSpeed {
    is_slow: bool,
    /// Last operations in a row that were otherwise.
    otherwise: u32,
}

// === impl StoreSpeed ===

impl StoreSpeed {
    /// Returns whether probes cannot wait for it.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Counts an operation that ended.
    pub(crate) fn count(&mut self, speed: OperationSpeed) {
        let is_otherwise = match speed {
            OperationSpeed::Quick => self.is_slow,
            OperationSpeed::Slow => !self.is_slow,
            OperationSpeed::Unknown => return,
        };
        self.otherwise = if is_otherwise { self.otherwise + 1 } else { 0 };
        let enough = if self.is_slow {
            QUICK_IN_A_ROW
        } else {
            SLOW_IN_A_ROW
        };
        if self.otherwise >= enough {
            (self.is_slow, self.otherwise) = (!self.is_slow, 0);
        }
    }
}

/// Runs an operation to its end, and returns how long it took for a probe.
pub(crate) async fn timed<T>(operation: impl Future<Output = T>) -> (T, OperationSpeed) {
    let mut operation = pin!(operation);
    let began = Instant::now();
    tokio::select! {
        // What has ended is quick or unknown, whatever the timer is at.
        biased;
        ended = &mut operation => {
            let in_time = began.elapsed() <= PROBE_PATIENCE;
            let speed = if in_time { OperationSpeed::Quick } else { OperationSpeed::Unknown };
            return (ended, speed);
        }
        () = sleep(PROBE_PATIENCE) => {}
    }
    let in_time = began.elapsed() <= PROBE_PATIENCE + LATE;
    let speed = if in_time {
        OperationSpeed::Slow
    } else {
        OperationSpeed::Unknown
    };
    (operation.await, speed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts operations that take so long, in milliseconds, and returns whether the store is slow
    /// after each.
    async fn after(speed: &mut StoreSpeed, took: &[u64]) -> Vec<bool> {
        let mut slow = Vec::new();
        for took in took {
            let ((), of_one) = timed(sleep(Duration::from_millis(*took))).await;
            speed.count(of_one);
            slow.push(speed.is_slow());
        }
        slow
    }

    #[tokio::test(start_paused = true)]
    async fn five_slow_operations_in_a_row_are_a_slow_store_and_four_are_not() {
        let mut speed = StoreSpeed::default();
        let slow = after(&mut speed, &[400, 400, 400, 400, 2, 60, 60, 60, 60, 60]).await;
        let mut expected = [false; 10];
        expected[9] = true;
        assert_eq!(slow, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_store_is_well_after_ten_quick_operations_in_a_row() {
        let mut speed = StoreSpeed::default();
        after(&mut speed, &[60; 5]).await;
        let slow = after(&mut speed, &[2; 9]).await;
        assert_eq!(slow, [true; 9]);
        assert_eq!(after(&mut speed, &[60, 2]).await, [true; 2]);
        let slow = after(&mut speed, &[2; 9]).await;
        assert_eq!(slow.iter().filter(|slow| !**slow).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_that_ends_while_this_process_sleeps_proves_nothing() {
        let mut speed = StoreSpeed::default();
        for _ in 0..SLOW_IN_A_ROW {
            // The process gets no time until both the operation and the timer are due.
            let stalled = async { tokio::time::advance(Duration::from_millis(400)).await };
            let ((), of_one) = timed(stalled).await;
            assert_eq!(of_one, OperationSpeed::Unknown);
            speed.count(of_one);
        }
        assert!(!speed.is_slow());
    }
}
