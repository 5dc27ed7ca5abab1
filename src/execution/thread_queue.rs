//! The lines of invocations that wait here for a thread on which another one runs.
//!
//! First come, first served, and never more than the configuration allows. A line is a matter of this replica; between
//! replicas the journal's lock decides.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use crate::journal::ThreadKey;

/// The queues of all threads; a thread that no invocation waits for has none.
#[derive(Debug, Default)]
pub(super) struct ThreadQueues {
    lines: Mutex<HashMap<ThreadKey, ThreadQueue>>,
}

#[derive(Debug, Default)]
struct ThreadQueue {
    head: Arc<Turns<()>>,
    standing: usize,
}

/// A place in a line; given up when it is dropped.
#[derive(Debug)]
pub(super) struct QueueTicket {
    lines: Arc<ThreadQueues>,
    key: ThreadKey,
    head: Arc<Turns<()>>,
}

/// The place at the head of a line.
#[derive(Debug)]
pub(super) struct ThreadTurn {
    // Dropped before the place, so that the next one can move up.
    _turn: OwnedMutexGuard<()>,
    _spot: QueueTicket,
}

// === impl ThreadQueues ===

impl ThreadQueues {
    /// Whether somebody waits for a thread.
    pub(super) fn is_waited_for(&self, key: &ThreadKey) -> bool {
        self.lock().contains_key(key)
    }

    /// Joins the line of a thread, where fewer than `max` stand.
    pub(super) fn join(self: &Arc<Self>, key: &ThreadKey, max: usize) -> Option<QueueTicket> {
        let mut lines = self.lock();
        if lines.get(key).map_or(0, |line| line.standing) >= max {
            return None;
        }
        let line = lines.entry(key.clone()).or_default();
        line.standing += 1;
        Some(QueueTicket { lines: Arc::clone(self), key: key.clone(), head: Arc::clone(&line.head) })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, ThreadQueue>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl QueueTicket ===

impl QueueTicket {
    /// Waits to be the first in line.
    pub(super) async fn head(self) -> ThreadTurn {
        let turn = Arc::clone(&self.head).lock_owned().await;
        ThreadTurn { _turn: turn, _spot: self }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get_mut(&self.key) {
            line.standing -= 1;
            if line.standing == 0 {
                lines.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_line_is_first_come_first_served_and_has_an_end() {
        let lines = Arc::new(ThreadQueues::default());
        let key = ThreadKey::new("acme".into(), "t".into());
        let first = lines.join(&key, 3).unwrap().head().await;
        let mut second = Box::pin(lines.join(&key, 3).unwrap().head());
        let mut third = Box::pin(lines.join(&key, 3).unwrap().head());
        assert!(lines.join(&key, 3).is_none(), "the line is full");
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "it is the second one's turn");
        drop(second);
        assert!(third.now_or_never().is_some(), "one who leaves lets the next one move up");
        assert!(!lines.is_waited_for(&key));
    }
}
