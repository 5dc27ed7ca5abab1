//! Measures of a target's attempts: whether they fail, how long they take, and how it counts.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    domain::target::Dialect,
    policy::{health::Health, latency::Latency, window::TokenRatio},
};

/// Measures of the attempts of one target.
#[derive(Debug)]
pub struct Observations {
    health: Mutex<Health>,
    latency: Mutex<Latency>,
    whole: Mutex<Latency>,
    tokens: Mutex<TokenRatio>,
    note_refused: AtomicBool,
}

// === impl Observations ===

impl Observations {
    /// None yet, of a target of this dialect.
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            health: Mutex::default(),
            latency: Mutex::new(Latency::new()),
            whole: Mutex::new(Latency::new()),
            tokens: Mutex::new(TokenRatio::assumed(dialect)),
            note_refused: AtomicBool::new(false),
        }
    }

    /// Returns the health of its last attempts. The lock is held briefly.
    pub fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock()
    }

    /// Returns the latency samples. Held shortly.
    pub fn latency(&self) -> MutexGuard<'_, Latency> {
        self.latency.lock()
    }

    /// Returns the duration of complete answers, for invocations with little time left. The lock is
    /// held briefly.
    pub fn whole(&self) -> MutexGuard<'_, Latency> {
        self.whole.lock()
    }

    /// Returns how many bytes its tokens have.
    pub fn token_ratio(&self) -> TokenRatio {
        *self.tokens.lock()
    }

    /// Learns from a prompt of so many bytes how many tokens it has.
    pub fn learn_tokens(&self, bytes: u64, tokens: u64) {
        self.tokens.lock().learn(bytes, tokens);
    }

    /// Returns whether the target refused a request because of a note.
    pub fn note_refused(&self) -> bool {
        self.note_refused.load(Ordering::Relaxed)
    }

    /// Remembers that it did.
    pub fn remember_note_refused(&self) {
        self.note_refused.store(true, Ordering::Relaxed);
    }
}
