//! Sums over a window that slides with time, of a size that does not grow with the traffic.

use std::{
    ops::{AddAssign, SubAssign},
    time::Duration,
};

use tokio::time::Instant;

/// Parts of a window.
const PARTS: usize = 20;

/// Sums over a sliding window, exact to one of its parts.
#[derive(Debug)]
pub(super) struct Sliding<T> {
    parts: [T; PARTS],
    width_ms: u64,
    origin: Option<Instant>,
    newest: u64,
    total: T,
}

// === impl Sliding ===

impl<T: Copy + Default + AddAssign + SubAssign> Sliding<T> {
    pub(super) fn new(window: Duration) -> Self {
        let width_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX) / PARTS as u64;
        Self {
            parts: [T::default(); PARTS],
            width_ms: width_ms.max(1),
            origin: None,
            newest: 0,
            total: T::default(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, amount: T) {
        self.advance(now);
        self.parts[Self::slot(self.newest)] += amount;
        self.total += amount;
    }

    /// Subtracts what was added at that time, if the window still holds it.
    pub(super) fn take_back(&mut self, at: Instant, amount: T) {
        let part = self.part(at);
        if part <= self.newest && self.newest - part < PARTS as u64 {
            self.parts[Self::slot(part)] -= amount;
            self.total -= amount;
        }
    }

    /// Returns the total of the window when it was last looked at.
    pub(super) const fn last_total(&self) -> T {
        self.total
    }

    pub(super) fn total(&mut self, now: Instant) -> T {
        self.advance(now);
        self.total
    }

    fn advance(&mut self, now: Instant) {
        let part = self.part(now);
        for passed in self.newest + 1..=part.min(self.newest + PARTS as u64) {
            let slot = Self::slot(passed);
            self.total -= self.parts[slot];
            self.parts[slot] = T::default();
        }
        self.newest = self.newest.max(part);
    }

    fn part(&mut self, at: Instant) -> u64 {
        let origin = *self.origin.get_or_insert(at);
        let age = at.saturating_duration_since(origin);
        (age.as_secs() * 1000 + u64::from(age.subsec_millis())) / self.width_ms
    }

    #[expect(clippy::cast_possible_truncation, reason = "a remainder of 20")]
    fn slot(part: u64) -> usize {
        (part % PARTS as u64) as usize
    }
}
