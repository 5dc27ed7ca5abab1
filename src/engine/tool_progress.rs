//! The progress of tool calls, from the servers that report it to those who follow their
//! invocations in this process.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use crate::domain::{ids::InvocationId, tool::ToolProgress};

/// Reports that wait for a slow follower; further ones are dropped.
const MAX_WAITING: usize = 64;

/// Followers of each invocation; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressBoard(Arc<Mutex<HashMap<InvocationId, mpsc::Sender<ToolProgress>>>>);

/// The progress of one invocation, until it is dropped.
#[derive(Debug)]
pub struct FollowedProgress {
    board: ProgressBoard,
    invocation: InvocationId,
    reports: mpsc::Receiver<ToolProgress>,
}

// === impl ProgressBoard ===

impl ProgressBoard {
    pub(super) fn follow(&self, invocation: &InvocationId) -> FollowedProgress {
        let (sender, reports) = mpsc::channel(MAX_WAITING);
        self.map().insert(invocation.clone(), sender);
        FollowedProgress {
            board: self.clone(),
            invocation: invocation.clone(),
            reports,
        }
    }

    pub(super) fn report(&self, invocation: &InvocationId, progress: ToolProgress) {
        if let Some(follower) = self.map().get(invocation) {
            let _ = follower.try_send(progress);
        }
    }

    fn map(&self) -> MutexGuard<'_, HashMap<InvocationId, mpsc::Sender<ToolProgress>>> {
        self.0.lock()
    }
}

// === impl FollowedProgress ===

impl FollowedProgress {
    /// Returns the next report; `None` if another one follows the invocation now. Cancel safe.
    pub async fn next(&mut self) -> Option<ToolProgress> {
        self.reports.recv().await
    }

    /// Returns a report that is there already.
    pub fn ready(&mut self) -> Option<ToolProgress> {
        self.reports.try_recv().ok()
    }
}

impl Drop for FollowedProgress {
    fn drop(&mut self) {
        self.reports.close();
        let mut map = self.board.map();
        // Not that of one who follows the same invocation now.
        if map
            .get(&self.invocation)
            .is_some_and(mpsc::Sender::is_closed)
        {
            map.remove(&self.invocation);
        }
    }
}
