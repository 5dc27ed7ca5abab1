//! Measures of a target's attempts: whether they fail, how long they take, and how it counts.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::{
    domain::target::Dialect,
    policy::{
        health::Health,
        latency::{Latency, document_in_time},
        timers::TimersPolicy,
        window::TokenRatio,
    },
};

/// Measures of the attempts of one target.
#[derive(Debug)]
pub struct Observations {
    health: Mutex<Health>,
    latency: Mutex<Latency>,
    whole: Mutex<Latency>,
    tokens: Mutex<TokenRatio>,
    note_refused: AtomicBool,
    document_refused: Mutex<Option<Instant>>,
}

/// Time for which a target that wanted a stream is not asked for a document again.
const NO_DOCUMENT_FOR: Duration = Duration::from_mins(10);

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
            document_refused: Mutex::default(),
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

    /// Returns the time in which the first token of an attempt usually comes, if it is to leave time for
    /// another one.
    pub fn usual_first_token(&self, is_lone: bool, now: Instant) -> Option<Duration> {
        let mut latency = self.latency();
        let waits = is_lone && latency.is_to_wait(now);
        (!waits).then(|| TimersPolicy::usual(latency.expected(now)))
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

    /// Returns whether a completion that nobody reads along may be requested as a document: its
    /// completions are usually whole within `patience`.
    pub fn allows_document(&self, patience: Duration, now: Instant) -> bool {
        let is_refused = |at| now.saturating_duration_since(at) < NO_DOCUMENT_FOR;
        document_in_time(&self.latency(), &self.whole(), patience, now)
            && !self.document_refused.lock().is_some_and(is_refused)
    }

    /// Remembers that the target refused a request because it was one for a document.
    pub fn document_refused(&self) {
        *self.document_refused.lock() = Some(Instant::now());
    }
}
