//! Threads: the conversation is loaded before an invocation, and its turn is saved with the end, or not at all.
//!
//! Only a whole answer changes the messages. A failure is added to the thread's errors; a cancelled or broken one
//! leaves nothing but an unlocked thread.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::Shared;
use crate::{
    domain::{
        clock,
        failure::FailureClass,
        ids::InvocationId,
        invocation::{Call, Invocation, Outcome},
        message::Message,
    },
    journal::{JournalError, Locked, Thread, ThreadCommit, ThreadEnd, ThreadKey},
};

/// The wait before a conversation that could not be loaded is asked for once more.
const LOAD_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// A turn on a thread.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    version: u64,
    messages: Vec<Message>,
}

/// Why a thread cannot be used now.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Another invocation runs on it.
    Busy(InvocationId),
    /// It cannot be loaded.
    Load(JournalError),
}

impl Turn {
    /// What the end means for the thread.
    pub(super) fn end(&self, outcome: &Outcome) -> Option<ThreadEnd> {
        match &outcome.result {
            Ok(_) => Some(ThreadEnd::Commit(ThreadCommit {
                expected_version: self.version,
                turn: self.messages.clone(),
                patch: outcome.history_patch.clone(),
            })),
            Err(failure) if failure.class == FailureClass::Cancelled => None,
            Err(_) => Some(ThreadEnd::Fail),
        }
    }
}

impl Shared {
    /// Locks the thread and puts its conversation before the call's; one failure to load it is forgiven.
    pub(super) async fn load_turn(&self, key: &ThreadKey, invocation: &mut Arc<Invocation>) -> Result<Turn, Unusable> {
        let thread = match self.lock_thread(key, &invocation.id).await {
            Err(Unusable::Load(error)) => {
                tracing::warn!(thread = %key.id, %error, "a thread could not be loaded; it is tried once more");
                sleep(LOAD_AGAIN_AFTER).await;
                self.lock_thread(key, &invocation.id).await?
            }
            other => other?,
        };
        let version = thread.version;
        let messages = match &mut Arc::make_mut(invocation).call {
            Call::Model(call) => {
                let turn = std::mem::replace(&mut call.messages, thread.messages);
                call.messages.extend(turn.iter().cloned());
                turn
            }
            Call::Tool(_) => Vec::new(),
        };
        Ok(Turn { version, messages })
    }

    /// The live invocation that runs on the thread, where one does.
    pub(super) async fn runs_on(&self, key: &ThreadKey) -> Option<InvocationId> {
        // A thread that cannot be read now is loaded, and judged, later.
        let running = self.journal.load_thread(key).await.ok()??.running?;
        let record = self.journal.get(&running).await.ok()??;
        let alive = !record.is_finished() && !record.is_orphaned(clock::wall_now());
        alive.then_some(running)
    }

    async fn lock_thread(&self, key: &ThreadKey, invocation: &InvocationId) -> Result<Thread, Unusable> {
        match self.journal.lock_thread(key, invocation, clock::wall_now()).await {
            Ok(Locked::Locked(thread)) => Ok(*thread),
            Ok(Locked::Busy { running }) => Err(Unusable::Busy(running)),
            Err(error) => Err(Unusable::Load(error)),
        }
    }
}
