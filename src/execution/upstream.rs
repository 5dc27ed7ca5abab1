//! Keeps, for the next owner, the place at which the response is found that a provider makes in the
//! background.
//!
//! It is recorded as soon as it is known, beside the steps, and replaced when another response is
//! being made. A journal that cannot take it costs nothing but the response, should the replica
//! die: nothing waits for it here.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::{sync::watch, time::Duration};

use super::{ExecutionShared, live::Execution, recorder::WriteResult};
use crate::{
    domain::upstream::UpstreamHandle,
    journal::{AppendError, Held, JournalError},
};

/// Time after which the journal is tried again after it was away.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

type PendingHandleWrite = BoxFuture<'static, (UpstreamHandle, Result<bool, AppendError>)>;

/// Records the newest response that is being made for one execution.
pub(super) struct UpstreamHandleRecorder {
    shared: Arc<ExecutionShared>,
    execution: Arc<Execution>,
    running: watch::Receiver<Vec<UpstreamHandle>>,
    /// Handle that is recorded, or cannot be.
    settled: Option<UpstreamHandle>,
    pending: Option<PendingHandleWrite>,
}

// === impl UpstreamHandleRecorder ===

impl UpstreamHandleRecorder {
    pub(super) fn new(shared: Arc<ExecutionShared>, execution: Arc<Execution>) -> Self {
        let running = execution.links.background.running();
        Self {
            shared,
            execution,
            running,
            settled: None,
            pending: None,
        }
    }

    /// Records new handles, and returns the result. Returns only if something was written; cancel
    /// safe.
    pub(super) async fn turn(&mut self) -> WriteResult {
        if !self.execution.commitments.is_recorded {
            return std::future::pending().await;
        }
        loop {
            if let Some(pending) = &mut self.pending {
                let (handle, result) = pending.await;
                self.pending = None;
                return self.written(handle, result);
            }
            let newest = self.running.borrow_and_update().last().cloned();
            match newest.filter(|handle| self.settled.as_ref() != Some(handle)) {
                Some(handle) => self.launch(handle, Duration::ZERO),
                // The sender lives as long as the execution, so that waiting cannot fail.
                None => drop(self.running.changed().await),
            }
        }
    }

    fn launch(&mut self, handle: UpstreamHandle, after: Duration) {
        // In doubt the next owner finds it: a write whose response is lost may have been made.
        self.execution
            .links
            .background
            .set_findable(Some(handle.clone()));
        let journal = Arc::clone(&self.shared.journal);
        let held = Held {
            id: self.execution.id.clone(),
            epoch: self.execution.epoch,
        };
        self.pending = Some(Box::pin(async move {
            tokio::time::sleep(after).await;
            let result = journal.remember(&held, &handle).await;
            (handle, result)
        }));
    }

    fn written(
        &mut self,
        handle: UpstreamHandle,
        result: Result<bool, AppendError>,
    ) -> WriteResult {
        match result {
            Ok(is_findable) => {
                if !is_findable {
                    self.execution.links.background.set_findable(None);
                }
                self.settled = Some(handle);
            }
            Err(AppendError::Fenced { .. } | AppendError::Finished) => {
                self.execution.links.background.set_findable(None);
                return WriteResult::Lost;
            }
            Err(AppendError::Store(JournalError::Unavailable(_)))
                if self.is_still_made(&handle) =>
            {
                self.launch(handle, RETRY_INTERVAL);
            }
            Err(error) => {
                tracing::warn!(invocation = %self.execution.id, %error, "where an answer is made could not be recorded");
                self.settled = Some(handle);
            }
        }
        WriteResult::GoOn
    }

    fn is_still_made(&self, handle: &UpstreamHandle) -> bool {
        self.running.borrow().last() == Some(handle)
    }
}
