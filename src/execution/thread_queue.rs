//! The queues of invocations that wait here for a thread on which another one runs.
//!
//! First come, first served, and never more than the configuration allows. A queue belongs to this
//! replica; between replicas the journal's lock decides.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

use crate::journal::ThreadKey;

/// The queues of all threads; a thread that no invocation waits for has none.
#[derive(Debug, Default)]
pub(super) struct ThreadQueues {
    queues: Mutex<HashMap<ThreadKey, ThreadQueue>>,
}

#[derive(Debug, Default)]
struct ThreadQueue {
    head: Arc<Turns<()>>,
    waiting: usize,
}

/// A place in a queue; given up when it is dropped.
#[derive(Debug)]
pub(super) struct QueueTicket {
    queues: Arc<ThreadQueues>,
    key: ThreadKey,
    head: Arc<Turns<()>>,
}

/// The place at the head of a queue.
#[derive(Debug)]
pub(super) struct ThreadTurn {
    // Dropped before the place, so that the next one can move up.
    _turn: OwnedMutexGuard<()>,
    _ticket: QueueTicket,
}

// === impl ThreadQueues ===

impl ThreadQueues {
    /// Returns whether an invocation waits for a thread.
    pub(super) fn is_waited_for(&self, key: &ThreadKey) -> bool {
        self.lock().contains_key(key)
    }

    /// Joins the queue of a thread, if fewer than `max` wait.
    pub(super) fn join(self: &Arc<Self>, key: &ThreadKey, max: usize) -> Option<QueueTicket> {
        let mut queues = self.lock();
        if queues.get(key).map_or(0, |queue| queue.waiting) >= max {
            return None;
        }
        let queue = queues.entry(key.clone()).or_default();
        queue.waiting += 1;
        Some(QueueTicket {
            queues: Arc::clone(self),
            key: key.clone(),
            head: Arc::clone(&queue.head),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, ThreadQueue>> {
        self.queues.lock()
    }
}

// === impl QueueTicket ===

impl QueueTicket {
    /// Waits to be the first in the queue.
    pub(super) async fn head(self) -> ThreadTurn {
        let turn = Arc::clone(&self.head).lock_owned().await;
        ThreadTurn {
            _turn: turn,
            _ticket: self,
        }
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.waiting -= 1;
            if queue.waiting == 0 {
                queues.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_queue_is_first_come_first_served_and_has_a_limit() {
        let queues = Arc::new(ThreadQueues::default());
        let key = ThreadKey::new("acme".into(), "t".into());
        let first = queues.join(&key, 3).unwrap().head().await;
        let mut second = Box::pin(queues.join(&key, 3).unwrap().head());
        let mut third = Box::pin(queues.join(&key, 3).unwrap().head());
        assert!(queues.join(&key, 3).is_none(), "the queue is full");
        assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
        drop(first);
        assert!(
            (&mut third).now_or_never().is_none(),
            "it is the second one's turn"
        );
        drop(second);
        assert!(
            third.now_or_never().is_some(),
            "one who leaves lets the next one move up"
        );
        assert!(!queues.is_waited_for(&key));
    }
}
