//! The progress that servers report of calls under way, by the token of each call.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use rmcp::model::{ProgressNotificationParam, ProgressToken};

use crate::domain::tool::ToolProgress;

/// Receiver of the progress of a call.
pub type OnProgress = Arc<dyn Fn(ToolProgress) + Send + Sync>;

/// Receivers of progress, by the call of a session.
#[derive(Clone, Default)]
pub(super) struct ProgressListeners(Arc<Mutex<HashMap<ProgressToken, OnProgress>>>);

/// Tells of a call until it is dropped.
pub(super) struct Listening<'a> {
    listeners: &'a ProgressListeners,
    token: ProgressToken,
}

// === impl ProgressListeners ===

impl ProgressListeners {
    pub(super) fn listen(&self, token: ProgressToken, on_progress: OnProgress) -> Listening<'_> {
        self.map().insert(token.clone(), on_progress);
        Listening {
            listeners: self,
            token,
        }
    }

    pub(super) fn tell(&self, params: ProgressNotificationParam) {
        let on_progress = self.map().get(&params.progress_token).cloned();
        if let Some(on_progress) = on_progress {
            on_progress(ToolProgress {
                progress: params.progress,
                total: params.total,
                message: params.message,
            });
        }
    }

    fn map(&self) -> parking_lot::MutexGuard<'_, HashMap<ProgressToken, OnProgress>> {
        self.0.lock()
    }
}

// === impl Listening ===

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.listeners.map().remove(&self.token);
    }
}
