//! Background responses: responses that a provider generates and keeps, and their registration with
//! an invocation.
//!
//! Such a response continues without its reader, so three parties share its handle: the provider's
//! client, which cancels it when it has no reader; the owner of the invocation, which records the
//! handle; and the next owner, which reads the response. `BackgroundResponses` is what they share;
//! it makes no requests.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};

use super::ids::TargetId;

/// Place from which a response that a provider generates in the background can be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamHandle {
    /// The attempt that requested it, or that reads it now.
    pub attempt: u32,
    /// The target that generates it.
    pub target: TargetId,
    /// The provider's own name of it; opaque to all others.
    pub id: String,
}

/// The background responses of one invocation; clones share state.
#[derive(Debug, Clone)]
pub struct BackgroundResponses {
    shared: Arc<BackgroundState>,
}

#[derive(Debug)]
struct BackgroundState {
    /// Time until which no other replica can own the invocation; `None` if none ever can.
    leased_until: Option<watch::Receiver<Instant>>,
    /// Responses that are being generated, in the order in which they started.
    running: watch::Sender<Vec<UpstreamHandle>>,
    knowledge: Mutex<Knowledge>,
}

#[derive(Debug, Default)]
struct Knowledge {
    /// The response that the next owner may find in the journal.
    findable: Option<UpstreamHandle>,
    handed_over: bool,
}

// === impl UpstreamHandle ===

impl UpstreamHandle {
    /// Returns whether both are handles of the same response, whichever attempt reads it.
    #[must_use]
    pub fn is_same_response(&self, other: &Self) -> bool {
        (&self.target, &self.id) == (&other.target, &other.id)
    }
}

// === impl BackgroundResponses ===

impl BackgroundResponses {
    /// The responses of an invocation that this replica owns until then, and that another replica
    /// may own afterwards.
    #[must_use]
    pub fn leased(until: watch::Receiver<Instant>) -> Self {
        Self::new(Some(until))
    }

    fn new(leased_until: Option<watch::Receiver<Instant>>) -> Self {
        let running = watch::channel(Vec::new()).0;
        let knowledge = Mutex::default();
        Self {
            shared: Arc::new(BackgroundState {
                leased_until,
                running,
                knowledge,
            }),
        }
    }

    /// Registers a response that is being generated.
    pub fn register(&self, handle: UpstreamHandle) {
        self.shared
            .running
            .send_modify(|running| running.push(handle));
    }

    /// Removes a response that is complete or has no reader here any more.
    pub fn release(&self, handle: &UpstreamHandle) {
        self.shared.running.send_if_modified(|running| {
            let before = running.len();
            running.retain(|held| held != handle);
            running.len() < before
        });
    }

    /// Returns the responses that are being generated, the newest last.
    #[must_use]
    pub fn running(&self) -> watch::Receiver<Vec<UpstreamHandle>> {
        self.shared.running.subscribe()
    }

    /// Notes that the next owner may find this response: set before it is recorded, and reset if
    /// recording failed.
    pub fn set_findable(&self, handle: Option<UpstreamHandle>) {
        self.knowledge().findable = handle;
    }

    /// Notes that another replica owns the invocation now.
    pub fn hand_over(&self) {
        self.knowledge().handed_over = true;
    }

    /// Returns whether a response is to continue without its reader here because another owner may
    /// be reading it. In doubt it is: paying for an unread response is better than cancelling one
    /// that is being read.
    #[must_use]
    pub fn must_continue(&self, handle: &UpstreamHandle) -> bool {
        let knowledge = self.knowledge();
        let findable = knowledge
            .findable
            .as_ref()
            .is_some_and(|found| found.is_same_response(handle));
        let leased = self
            .shared
            .leased_until
            .as_ref()
            .is_none_or(|until| Instant::now() < *until.borrow());
        findable && (knowledge.handed_over || !leased)
    }

    fn knowledge(&self) -> MutexGuard<'_, Knowledge> {
        self.shared.knowledge.lock()
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
        UpstreamHandle {
            attempt,
            target: TargetId::from("main"),
            id: id.to_owned(),
        }
    }

    fn leased(left: Duration) -> (watch::Sender<Instant>, BackgroundResponses) {
        let (sender, until) = watch::channel(Instant::now() + left);
        (sender, BackgroundResponses::leased(until))
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_continues_only_where_another_owner_may_find_it() {
        let (_lease, background) = leased(Duration::from_secs(10));
        background.hand_over();
        assert!(
            !background.must_continue(&handle(1, "a")),
            "no other owner knows it"
        );
        background.set_findable(Some(handle(1, "a")));
        assert!(
            background.must_continue(&handle(2, "a")),
            "whichever attempt reads it"
        );
        assert!(!background.must_continue(&handle(1, "b")), "another one");
        background.set_findable(None);
        assert!(
            !background.must_continue(&handle(1, "a")),
            "it was not recorded after all"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_cancels_its_responses_only_while_it_certainly_is_the_owner() {
        let (lease, background) = leased(Duration::from_secs(10));
        background.set_findable(Some(handle(1, "a")));
        assert!(!background.must_continue(&handle(1, "a")), "it is its own");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(
            background.must_continue(&handle(1, "a")),
            "it slept too long to know"
        );
        lease.send_replace(Instant::now() + Duration::from_secs(10));
        assert!(
            !background.must_continue(&handle(1, "a")),
            "no other owner took it"
        );
    }

    #[test]
    fn of_two_responses_in_a_race_the_one_that_still_runs_is_reported_last() {
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
