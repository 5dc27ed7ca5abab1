//! Durations in whole milliseconds and times in UTC, as the contract has them.
//!
//! A wait is rounded up, so that no client returns too early; a measured time is rounded down. Out
//! of range becomes the nearest value in range instead of wrapping.

use std::time::Duration;

use jiff::Timestamp;

/// Returns a measured time in whole milliseconds, rounded down.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a wait in whole milliseconds, rounded up.
#[must_use]
pub fn wait_millis(wait: Duration) -> u64 {
    let whole = millis(wait);
    if wait.subsec_nanos().is_multiple_of(1_000_000) {
        whole
    } else {
        whole.saturating_add(1)
    }
}

/// A time as the contract has it.
#[must_use]
pub fn wire_time(time: Timestamp) -> prost_types::Timestamp {
    // The contract's nanoseconds always count forward, jiff's count away from the epoch.
    let nanos = time.subsec_nanosecond();
    if nanos < 0 {
        prost_types::Timestamp {
            seconds: time.as_second() - 1,
            nanos: nanos + 1_000_000_000,
        }
    } else {
        prost_types::Timestamp {
            seconds: time.as_second(),
            nanos,
        }
    }
}

/// Returns the time so long after another, or the last time there is.
#[must_use]
pub fn after(time: Timestamp, wait: Duration) -> Timestamp {
    time.checked_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up_and_a_measured_time_down() {
        let odd = Duration::from_micros(1_500);
        assert_eq!((wait_millis(odd), millis(odd)), (2, 1));
        let even = Duration::from_millis(3);
        assert_eq!((wait_millis(even), millis(even)), (3, 3));
        assert_eq!(
            (wait_millis(Duration::MAX), millis(Duration::MAX)),
            (u64::MAX, u64::MAX)
        );
    }

    #[test]
    fn nanoseconds_count_forward_also_before_the_epoch() {
        for (time, seconds, nanos) in [
            ("2026-01-02T03:04:05.25Z", 1_767_323_045, 250_000_000),
            ("1969-12-31T23:59:59.75Z", -1, 750_000_000),
            ("1970-01-01T00:00:00Z", 0, 0),
        ] {
            let time: Timestamp = time.parse().unwrap();
            assert_eq!(wire_time(time), prost_types::Timestamp { seconds, nanos });
        }
    }

    #[test]
    fn a_time_beyond_the_calendar_is_its_last_one() {
        assert_eq!(after(Timestamp::UNIX_EPOCH, Duration::MAX), Timestamp::MAX);
    }
}
