//! Remembers which target took a conversation over from its own, so that it stays there while the
//! prompt cache of that target holds it.
//!
//! Nothing else needs to be remembered: a conversation's own target follows from its key, on every
//! replica. What another replica remembers is not known here, and costs one prompt that is read
//! anew.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    attempt::Attempt,
    guarded::{AdmitAttempt, AttemptGuard, Guarded},
};
use crate::{
    domain::{completion::Delta, failure::Failure, ids::TargetId},
    policy::select::{AffinityKey, Conversation},
};

/// Most conversations that are remembered away from their own target.
const MAX_MOVED: usize = 100_000;

/// Conversations that another target than their own took over; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct MovedConversations {
    shared: Arc<Mutex<HashMap<AffinityKey, TakenOver>>>,
}

/// A conversation away from its own target.
#[derive(Debug, Clone)]
struct TakenOver {
    by: TargetId,
    until: Instant,
}

/// The layer that sees which target answers a conversation.
#[derive(Debug, Clone)]
pub struct AffinityLayer {
    moved: MovedConversations,
}

/// See [`AffinityLayer`].
#[derive(Debug)]
pub struct ConversationGuard {
    moved: MovedConversations,
    attempt: Arc<Attempt>,
    silent: bool,
}

// === impl MovedConversations ===

impl MovedConversations {
    /// Returns a conversation with the target that took it over, if one did lately.
    pub fn conversation(&self, key: AffinityKey, now: Instant) -> Conversation {
        let shared = self.shared.lock();
        let taken = shared.get(&key).filter(|taken| taken.until > now);
        Conversation {
            key,
            kept_by: taken.map(|taken| taken.by.clone()),
        }
    }

    /// A target answered: the conversation stays there, or is back at its own.
    fn answered(&self, key: AffinityKey, by: &TargetId, until: Option<Instant>, now: Instant) {
        let mut shared = self.shared.lock();
        let Some(until) = until else {
            shared.remove(&key);
            return;
        };
        if shared.len() >= MAX_MOVED {
            shared.retain(|_, taken| taken.until > now);
        }
        if shared.len() < MAX_MOVED || shared.contains_key(&key) {
            let by = by.clone();
            shared.insert(key, TakenOver { by, until });
        }
    }

    /// A target failed: the conversation does not stay there.
    fn failed(&self, key: AffinityKey, target: &TargetId) {
        let mut shared = self.shared.lock();
        if shared.get(&key).is_some_and(|taken| taken.by == *target) {
            shared.remove(&key);
        }
    }
}

// === impl AffinityLayer ===

impl AffinityLayer {
    /// Writes to this memory.
    pub fn new(moved: MovedConversations) -> Self {
        Self { moved }
    }
}

impl<S> tower::Layer<S> for AffinityLayer {
    type Service = Guarded<Self, S>;

    fn layer(&self, inner: S) -> Guarded<Self, S> {
        Guarded::new(self.clone(), inner)
    }
}

impl AdmitAttempt for AffinityLayer {
    type Guard = ConversationGuard;

    async fn admit(&self, attempt: &Arc<Attempt>) -> Result<ConversationGuard, Failure> {
        Ok(ConversationGuard {
            moved: self.moved.clone(),
            attempt: Arc::clone(attempt),
            silent: true,
        })
    }
}

// === impl ConversationGuard ===

impl AttemptGuard for ConversationGuard {
    fn on_delta(&mut self, delta: &Delta) {
        let plan = &self.attempt.scope.plan;
        let Some(key) = plan
            .selection
            .conversation
            .filter(|_| self.silent && delta.is_content())
        else {
            return;
        };
        self.silent = false;
        let now = Instant::now();
        let by = &self.attempt.target().id;
        let own = plan.own_target().filter(|own| *own == by);
        let until = own
            .is_none()
            .then(|| now + plan.selection.policy.affinity.keep);
        self.moved.answered(key, by, until, now);
    }

    fn on_failure(&mut self, failure: &Failure) {
        let plan = &self.attempt.scope.plan;
        // What any target would refuse says nothing about this one.
        if let Some(key) = plan
            .selection
            .conversation
            .filter(|_| failure.fallback_helps)
        {
            self.moved.failed(key, &self.attempt.target().id);
        }
    }
}
