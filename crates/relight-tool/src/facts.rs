//! What a wire notes of one request beside its response, for the one who waits for it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{era::Era, session_doubt::SessionDoubt};
use crate::domain::failure::ProviderError;

/// The facts of one request; travels with it through the SDK as an extension that is never sent.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestFacts(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    was_sent: AtomicBool,
    error: Mutex<Option<ProviderError>>,
    doubt: Mutex<Option<SessionDoubt>>,
    kept: KeptResult,
    /// The result as it was sent, where it is kept.
    result: Mutex<Option<String>>,
}

/// The results of a request that are kept as they were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum KeptResult {
    #[default]
    None,
    /// Beside what the SDK reads of it: a list of tools.
    Beside,
    /// In place of what the SDK reads of it: the result of a tool.
    Alone,
}

/// State of a wire: whether it still works, and the facts of the fault that ended it.
#[derive(Debug, Clone, Default)]
pub(super) struct WireHealth(Arc<Ended>);

#[derive(Debug, Default)]
struct Ended {
    error: Mutex<Option<ProviderError>>,
    token: CancellationToken,
    is_retired: AtomicBool,
    shown_era: Mutex<Option<Era>>,
}

/// The last line that a child wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Option<String>>>);

// === impl RequestFacts ===

impl RequestFacts {
    /// The facts of a request that calls a tool: its result is kept as it is sent.
    pub(super) fn of_call() -> Self {
        Self::keeping(KeptResult::Alone)
    }

    /// The facts of a request that lists tools: its result is kept as it is sent, beside what the
    /// SDK reads of it.
    pub(super) fn of_list() -> Self {
        Self::keeping(KeptResult::Beside)
    }

    fn keeping(kept: KeptResult) -> Self {
        Self(Arc::new(Noted {
            kept,
            ..Noted::default()
        }))
    }

    /// Keeps the result as it was sent where that is wanted; returns whether the SDK need not read
    /// it.
    pub(super) fn keep_result(&self, result: &str) -> bool {
        if self.0.kept != KeptResult::None {
            let mut kept = self.0.result.lock();
            *kept = Some(result.to_owned());
        }
        self.0.kept == KeptResult::Alone
    }

    /// The result as it was sent, if one came.
    pub(super) fn take_result(&self) -> Option<String> {
        let mut kept = self.0.result.lock();
        kept.take()
    }

    /// From here on the server may get the request.
    pub(super) fn note_sent(&self) {
        self.0.was_sent.store(true, Ordering::Release);
    }

    /// The server surely did not execute the request after all.
    pub(super) fn note_unsent(&self) {
        self.0.was_sent.store(false, Ordering::Release);
    }

    /// Notes what the response says of the session; if that is lost, the request was not executed.
    pub(super) fn note_doubt(&self, doubt: SessionDoubt) {
        if doubt == SessionDoubt::Lost {
            self.note_unsent();
        }
        *self.0.doubt.lock() = Some(doubt);
    }

    /// Returns what the response says of the session, if anything.
    pub(super) fn doubt(&self) -> Option<SessionDoubt> {
        *self.0.doubt.lock()
    }

    /// Returns whether the server may have got the request.
    pub(super) fn was_sent(&self) -> bool {
        self.0.was_sent.load(Ordering::Acquire)
    }

    /// Notes what went wrong; the last fact counts.
    pub(super) fn note_error(&self, error: ProviderError) {
        *self.0.error.lock() = Some(error);
    }

    /// Takes the error, if anything failed.
    pub(super) fn take_error(&self) -> Option<ProviderError> {
        self.0.error.lock().take()
    }
}

// === impl WireHealth ===

impl WireHealth {
    /// Ends the wire; the first fault counts.
    pub(super) fn end(&self, error: ProviderError) {
        self.0.error.lock().get_or_insert(error);
        self.0.token.cancel();
    }

    /// Returns the reason for which it ended.
    pub(super) fn error(&self) -> Option<ProviderError> {
        self.0.error.lock().clone()
    }

    /// Returns whether it ended.
    pub(super) fn is_ended(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Begins no more requests on it; those under way go on.
    pub(super) fn retire(&self) {
        self.0.is_retired.store(true, Ordering::Release);
    }

    /// Returns whether requests may start on it.
    pub(super) fn is_usable(&self) -> bool {
        !self.is_ended() && !self.0.is_retired.load(Ordering::Acquire)
    }

    /// Notes that the server speaks in another way than the session was begun with.
    pub(super) fn note_era(&self, era: Era) {
        let mut shown = self.0.shown_era.lock();
        *shown = Some(era);
    }

    /// Returns the era that the server showed too late for the session, if it did.
    pub(super) fn shown_era(&self) -> Option<Era> {
        let shown = self.0.shown_era.lock();
        *shown
    }

    /// Waits until it ends. Cancel safe.
    pub(super) async fn ended(&self) {
        self.0.token.cancelled().await;
    }
}

// === impl LastWords ===

impl LastWords {
    pub(super) fn set(&self, line: String) {
        *self.0.lock() = Some(line);
    }

    /// Returns the line, ready to be put behind what happened; empty if there was none.
    pub(super) fn after_colon(&self) -> String {
        let line = self.0.lock().clone();
        line.map(|line| format!("; last on its standard error: {line}"))
            .unwrap_or_default()
    }
}
