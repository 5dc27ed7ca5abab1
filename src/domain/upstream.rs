//! Answers that a provider makes in the background, and what ties an invocation to them.
//!
//! Such an answer goes on without its reader, so that three parties have to agree on it: the provider's client, which
//! knows its name and cancels what nobody reads any more; the owner of the invocation, which keeps the name for whoever
//! owns it next; and that one, who reads the answer on. A tether is where they meet. It never asks anybody for anything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use super::ids::TargetId;

/// Where an answer that is made in the background is found again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamHandle {
    /// The attempt that asked for it, or that reads it now.
    pub attempt: u32,
    /// Who makes it.
    pub target: TargetId,
    /// The provider's own name of it; opaque to everybody but that target.
    pub id: String,
}

/// What ties an invocation to its answers that are made in the background; clones share it.
#[derive(Debug, Clone)]
pub struct BackgroundResponses {
    shared: Arc<BackgroundState>,
}

#[derive(Debug)]
struct BackgroundState {
    /// Until when nobody else can own the invocation; `None` where nobody else ever can.
    leased_until: Option<watch::Receiver<Instant>>,
    /// The answers that are being made, in the order of their begin.
    running: watch::Sender<Vec<UpstreamHandle>>,
    knowledge: Mutex<Knowledge>,
}

#[derive(Debug, Default)]
struct Knowledge {
    /// The answer that the next owner finds, or may find.
    findable: Option<UpstreamHandle>,
    handed_over: bool,
}

// === impl UpstreamHandle ===

impl UpstreamHandle {
    /// Whether both are found at the same place, whichever attempt reads there.
    #[must_use]
    pub fn is_same_answer(&self, other: &Self) -> bool {
        (&self.target, &self.id) == (&other.target, &other.id)
    }
}

// === impl BackgroundResponses ===

impl BackgroundResponses {
    /// The tether of an invocation that is this replica's until then, and may be another one's after that.
    #[must_use]
    pub fn leased(until: watch::Receiver<Instant>) -> Self {
        Self::new(Some(until))
    }

    fn new(leased_until: Option<watch::Receiver<Instant>>) -> Self {
        let (running, knowledge) = (watch::channel(Vec::new()).0, Mutex::default());
        Self { shared: Arc::new(BackgroundState { leased_until, running, knowledge }) }
    }

    /// An answer is being made.
    pub fn register(&self, handle: UpstreamHandle) {
        self.shared.running.send_modify(|running| running.push(handle));
    }

    /// An answer is made no longer, or nobody here reads it any more.
    pub fn release(&self, handle: &UpstreamHandle) {
        self.shared.running.send_if_modified(|running| {
            let before = running.len();
            running.retain(|held| held != handle);
            running.len() < before
        });
    }

    /// The answers that are being made; the newest is the last.
    #[must_use]
    pub fn running(&self) -> watch::Receiver<Vec<UpstreamHandle>> {
        self.shared.running.subscribe()
    }

    /// From here on the next owner finds this answer, or may: said before it is recorded, and taken back where it was not.
    pub fn is_findable(&self, handle: Option<UpstreamHandle>) {
        self.knowledge().findable = handle;
    }

    /// The invocation is somebody else's now.
    pub fn hand_over(&self) {
        self.knowledge().handed_over = true;
    }

    /// Whether an answer is to live on without its reader here, because another owner may be reading it: in doubt it is,
    /// because an answer that is paid for in vain is better than one that is taken away.
    #[must_use]
    pub fn lets_live(&self, handle: &UpstreamHandle) -> bool {
        let knowledge = self.knowledge();
        let findable = knowledge.findable.as_ref().is_some_and(|found| found.is_same_answer(handle));
        let leased = self.shared.leased_until.as_ref().is_none_or(|until| Instant::now() < *until.borrow());
        findable && (knowledge.handed_over || !leased)
    }

    fn knowledge(&self) -> MutexGuard<'_, Knowledge> {
        self.shared.knowledge.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for BackgroundResponses {
    fn default() -> Self {
        Self::new(None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn handle(attempt: u32, id: &str) -> UpstreamHandle {
        UpstreamHandle { attempt, target: TargetId::from("main"), id: id.to_owned() }
    }

    fn leased(left: Duration) -> (watch::Sender<Instant>, BackgroundResponses) {
        let (sender, until) = watch::channel(Instant::now() + left);
        (sender, BackgroundResponses::leased(until))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_lives_on_only_where_another_owner_may_find_it() {
        let (_lease, background) = leased(Duration::from_secs(10));
        background.hand_over();
        assert!(!background.lets_live(&handle(1, "a")), "nobody else knows of it");
        background.is_findable(Some(handle(1, "a")));
        assert!(background.lets_live(&handle(2, "a")), "whichever attempt reads it");
        assert!(!background.lets_live(&handle(1, "b")), "another one");
        background.is_findable(None);
        assert!(!background.lets_live(&handle(1, "a")), "it was not recorded after all");
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_takes_its_answers_away_only_while_it_surely_is_the_owner() {
        let (lease, background) = leased(Duration::from_secs(10));
        background.is_findable(Some(handle(1, "a")));
        assert!(!background.lets_live(&handle(1, "a")), "it is its own");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(background.lets_live(&handle(1, "a")), "it slept too long to know");
        lease.send_replace(Instant::now() + Duration::from_secs(10));
        assert!(!background.lets_live(&handle(1, "a")), "nobody took it");
    }

    #[test]
    fn of_two_answers_in_a_race_the_one_that_still_runs_is_told_last() {
        let background = BackgroundResponses::default();
        let mut running = background.running();
        background.register(handle(1, "a"));
        background.register(handle(2, "b"));
        assert_eq!(running.borrow_and_update().last(), Some(&handle(2, "b")));
        background.release(&handle(2, "b"));
        assert!(running.has_changed().unwrap());
        assert_eq!(running.borrow_and_update().last(), Some(&handle(1, "a")));
        background.release(&handle(2, "b"));
        assert!(!running.has_changed().unwrap(), "it was gone before");
    }
}
