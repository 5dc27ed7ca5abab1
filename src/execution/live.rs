//! One running invocation, as its followers and its owner share it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::replay_buffer::{FollowerPlace, ReplayBuffer};
use crate::{
    domain::{ids::InvocationId, upstream::BackgroundResponses},
    layers::{cancel::Cancel, invocation::InvocationContext},
};

/// One running invocation.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) id: InvocationId,
    pub(super) epoch: u64,
    /// Number of steps that were published before this owner's first.
    pub(super) base: u64,
    pub(super) commitments: Commitments,
    pub(super) replay: ReplayBuffer,
    pub(super) links: LayerLinks,
    fenced: CancellationToken,
    is_ending: AtomicBool,
    has_lost_record: AtomicBool,
    subscribers: watch::Sender<usize>,
}

/// Commitments of an execution beyond the call that started it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Commitments {
    /// `true` if the journal knows of it.
    pub(super) is_recorded: bool,
    /// `true` if more was promised than to serve this call: a request id, a thread, or a stream
    /// that can be resumed.
    pub(super) is_promised: bool,
}

/// Links of an execution to the layers below, which hold the other ends.
#[derive(Debug, Clone)]
pub(super) struct LayerLinks {
    /// Request for it to end.
    pub(super) cancel: Cancel,
    /// Responses that are made for it in the background.
    pub(super) background: BackgroundResponses,
}

/// A follower's subscription; as long as one exists, the invocation has a client.
#[derive(Debug)]
pub(super) struct SubscriberGuard {
    execution: Arc<Execution>,
    reader: FollowerPlace,
}

// === impl Execution ===

impl Execution {
    /// Creates an execution whose next step follows those of `replay`.
    pub(super) fn new(
        id: InvocationId,
        epoch: u64,
        commitments: Commitments,
        links: LayerLinks,
        replay: ReplayBuffer,
    ) -> Self {
        Self {
            id,
            epoch,
            base: replay.last(),
            commitments,
            replay,
            links,
            fenced: CancellationToken::new(),
            is_ending: AtomicBool::new(false),
            has_lost_record: AtomicBool::new(false),
            subscribers: watch::channel(0).0,
        }
    }

    /// Takes a place among the followers.
    pub(super) fn subscribe(self: &Arc<Self>) -> SubscriberGuard {
        self.subscribers
            .send_modify(|subscribers| *subscribers += 1);
        SubscriberGuard {
            execution: Arc::clone(self),
            reader: self.replay.join(),
        }
    }

    /// Returns when it had no follower for so long. Cancel safe, but the time then starts anew.
    pub(super) async fn abandoned(&self, grace: Duration) {
        let mut subscribers = self.subscribers.subscribe();
        loop {
            // The sender lives as long as this, so that waiting cannot fail.
            let _ = subscribers.wait_for(|subscribers| *subscribers == 0).await;
            if timeout(grace, subscribers.wait_for(|subscribers| *subscribers > 0))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    /// Marks it as executed here no longer and wakes its followers. Only
    /// [`ExecutionShared::fence`](super::ExecutionShared::fence) calls this, after it took the
    /// execution off the list: a follower that wakes up must not find it there again.
    pub(super) fn mark_fenced(&self) {
        // First, because what is below is dropped next.
        self.links.background.hand_over();
        self.fenced.cancel();
        self.replay.wake();
    }

    /// Returns whether it is executed here no longer.
    pub(super) fn is_fenced(&self) -> bool {
        self.fenced.is_cancelled()
    }

    /// Its end is about to be written: from then on the journal may know it as ended before its
    /// followers do.
    pub(super) fn mark_ending(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// Returns whether its end is being written, or was. The write itself learns whether this is
    /// still its owner.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// The journal has its record no longer; returns whether that is new.
    pub(super) fn lose_record(&self) -> bool {
        !self.has_lost_record.swap(true, Ordering::AcqRel)
    }

    /// Returns whether the journal has its record no longer, although it had one.
    pub(super) fn has_lost_record(&self) -> bool {
        self.has_lost_record.load(Ordering::Acquire)
    }

    /// Returns when it is executed here no longer. Cancel safe.
    pub(super) async fn fenced(&self) {
        self.fenced.cancelled().await;
    }
}

// === impl LayerLinks ===

impl LayerLinks {
    /// Returns the links of an invocation that is about to run.
    pub(super) fn of(incoming: &InvocationContext) -> Self {
        Self {
            cancel: incoming.cancel.clone(),
            background: incoming.background.clone(),
        }
    }
}

// === impl SubscriberGuard ===

impl SubscriberGuard {
    pub(super) fn execution(&self) -> &Arc<Execution> {
        &self.execution
    }

    /// Returns its place among the readers of the steps.
    pub(super) fn reader(&self) -> FollowerPlace {
        self.reader
    }
}

impl Drop for SubscriberGuard {
    fn drop(&mut self) {
        self.execution.replay.leave(self.reader);
        self.execution
            .subscribers
            .send_modify(|subscribers| *subscribers = subscribers.saturating_sub(1));
    }
}
