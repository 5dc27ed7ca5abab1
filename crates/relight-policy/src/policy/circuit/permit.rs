//! Permission for one attempt, and the report that it requires.
//!
//! A permit cannot be copied: its holder owes a report. It remembers what was reported, so that a
//! second verdict of the same attempt is not counted.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use super::Signal;

/// Permission for one attempt. It must be reported; a guard that drops it reports
/// [`Signal::Abandoned`].
#[derive(Debug)]
pub struct Permit {
    pub(super) generation: u64,
    pub(super) seq: u64,
    is_probe: bool,
    /// Verdicts already reported: one before the first token, one after it.
    phase: AtomicU8,
}

/// A call that was not admitted, and when to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// Earliest time to retry; an estimate while an operator holds the circuit open.
    pub retry_in: Duration,
}

/// Result of checking whether a call would be admitted now, without taking a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// Probably; `Circuit::admit` decides.
    Ready,
    /// Not now.
    Wait {
        /// Earliest time to retry; `None` while an operator holds it open.
        retry_in: Option<Duration>,
    },
}

const UNREPORTED: u8 = 0;
/// The first token was reported.
pub(super) const ANSWERED: u8 = 1;
const ENDED: u8 = 2;

// === impl Permit ===

impl Permit {
    pub(super) fn new(generation: u64, seq: u64, is_probe: bool) -> Self {
        Self {
            generation,
            seq,
            is_probe,
            phase: AtomicU8::new(UNREPORTED),
        }
    }

    /// Returns whether the attempt probes a half-open circuit.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Returns the generation in which it was given.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the phase before this report, if the report is the first that counts in it.
    pub(super) fn first_of_its_phase(&self, signal: Signal) -> Option<u8> {
        let next = if signal == Signal::FirstToken {
            ANSWERED
        } else {
            ENDED
        };
        let was = self.phase.fetch_max(next, Ordering::Relaxed);
        let cut = was == ANSWERED
            && matches!(
                signal,
                Signal::Failed {
                    local_origin: false,
                    ..
                }
            );
        (was == UNREPORTED || cut).then_some(was)
    }
}
