//! What a wire notes of one request beside its response, for the one who waits for it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::CancellationToken;

use crate::domain::failure::ProviderError;

/// The facts of one request; travels with it through the SDK as an extension that is never sent.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestFacts(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    was_sent: AtomicBool,
    error: Mutex<Option<ProviderError>>,
}

/// Whether a wire still works, and the facts of the fault that ended it.
#[derive(Debug, Clone, Default)]
pub(super) struct WireHealth(Arc<Ended>);

#[derive(Debug, Default)]
struct Ended {
    error: Mutex<Option<ProviderError>>,
    token: CancellationToken,
}

/// The last line that a child wrote to its standard error.
#[derive(Debug, Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<Option<String>>>);

// === impl RequestFacts ===

impl RequestFacts {
    /// From here on the server may get the request.
    pub(super) fn note_sent(&self) {
        self.0.was_sent.store(true, Ordering::Release);
    }

    /// The server refused the request because its session is over: it was not executed.
    pub(super) fn note_refused(&self) {
        self.0.was_sent.store(false, Ordering::Release);
    }

    /// Whether the server may have got the request.
    pub(super) fn was_sent(&self) -> bool {
        self.0.was_sent.load(Ordering::Acquire)
    }

    /// Notes what went wrong; the last fact counts.
    pub(super) fn note_error(&self, error: ProviderError) {
        *self.0.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    /// What went wrong, if anything did.
    pub(super) fn take_error(&self) -> Option<ProviderError> {
        self.0
            .error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

// === impl WireHealth ===

impl WireHealth {
    /// Ends the wire; the first fault counts.
    pub(super) fn end(&self, error: ProviderError) {
        self.0
            .error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.0.token.cancel();
    }

    /// Why it ended.
    pub(super) fn error(&self) -> Option<ProviderError> {
        self.0
            .error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether it ended.
    pub(super) fn is_ended(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Waits until it ends. Cancel safe.
    pub(super) async fn ended(&self) {
        self.0.token.cancelled().await;
    }
}

// === impl LastWords ===

impl LastWords {
    pub(super) fn set(&self, line: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }

    /// The line, ready to be put behind what happened; empty where there was none.
    pub(super) fn after_colon(&self) -> String {
        let line = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        line.map(|line| format!("; last on its standard error: {line}"))
            .unwrap_or_default()
    }
}
