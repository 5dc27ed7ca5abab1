//! Notifies readers that an invocation's record changed, so that they need not poll.
//!
//! A reader subscribes, then reads, then waits: what was written between its read and its wait
//! wakes it at once. A notification is a hint without content; the journal alone holds the facts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::watch, time::timeout};

use crate::domain::ids::InvocationId;

/// The sender of change notifications; one per journal.
#[derive(Debug, Clone, Default)]
pub struct Notices {
    readers: Arc<Mutex<HashMap<InvocationId, watch::Sender<()>>>>,
}

/// A reader's subscription to one invocation.
#[derive(Debug)]
pub struct Changes {
    id: InvocationId,
    signal: watch::Receiver<()>,
    notices: Notices,
    poll: Option<watch::Receiver<Duration>>,
}

// === impl Notices ===

impl Notices {
    /// Wakes the readers of an invocation on this replica.
    pub(super) fn announce(&self, id: &InvocationId) {
        if let Some(sender) = self.lock().get(id) {
            sender.send_replace(());
        }
    }

    /// Wakes every reader: what happened was missed.
    pub(super) fn announce_all(&self) {
        for sender in self.lock().values() {
            sender.send_replace(());
        }
    }

    /// Subscribes to an invocation; with `poll`, the subscription also wakes after that long
    /// without a notification.
    pub(super) fn subscribe(
        &self,
        id: &InvocationId,
        poll: Option<watch::Receiver<Duration>>,
    ) -> Changes {
        let signal = self
            .lock()
            .entry(id.clone())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe();
        Changes {
            id: id.clone(),
            signal,
            notices: self.clone(),
            poll,
        }
    }

    /// Returns the number of invocations that are listened to.
    #[cfg(test)]
    pub(super) fn listened(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashMap<InvocationId, watch::Sender<()>>> {
        self.readers.lock()
    }
}

// === impl Changes ===

impl Changes {
    /// Waits until the record may have changed since this was made or last returned. Cancel safe.
    pub async fn wait(&mut self) {
        let poll = self.poll.as_ref().map(|poll| *poll.borrow());
        // The sender lives as long as an subscription does, so that `changed` cannot fail; a
        // time-out is a reason to look, too.
        match poll {
            Some(limit) => drop(timeout(limit, self.signal.changed()).await),
            None => drop(self.signal.changed().await),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut readers = self.notices.lock();
        // This subscription still counts as one.
        if readers
            .get(&self.id)
            .is_some_and(|sender| sender.receiver_count() <= 1)
        {
            readers.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_change_between_reading_and_waiting_is_not_missed() {
        let notices = Notices::default();
        let id = InvocationId::from("a");
        let mut subscription = notices.subscribe(&id, None);
        assert!(
            subscription.wait().now_or_never().is_none(),
            "nothing happened yet"
        );
        notices.announce(&id);
        assert!(subscription.wait().now_or_never().is_some());
        assert!(
            subscription.wait().now_or_never().is_none(),
            "one change wakes once"
        );
    }

    #[tokio::test]
    async fn nothing_is_kept_of_an_invocation_without_subscribers() {
        let notices = Notices::default();
        let id = InvocationId::from("a");
        let one = notices.subscribe(&id, None);
        let other = notices.subscribe(&id, None);
        drop(one);
        assert_eq!(notices.listened(), 1);
        drop(other);
        assert_eq!(notices.listened(), 0);
    }
}
