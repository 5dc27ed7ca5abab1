//! Threads: the conversation is loaded before an invocation, and its turn is saved with the end, or
//! not at all.
//!
//! Only a whole completion changes the messages. A failure is added to the thread's errors; a cancelled
//! or broken one leaves nothing but an unlocked thread. Two invocations never run on one thread:
//! the second one is refused, or queued, as `journal.thread_queue` says.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{ExecutionShared, Executions, thread_queue::ThreadTurn};
use crate::{
    call_error::CallError,
    domain::{
        clock,
        failure::FailureClass,
        ids::{InvocationId, RouteName},
        invocation::{Call, Invocation, Outcome},
        message::Message,
    },
    journal::{
        Held, JournalError, Locked, Thread, ThreadCommit, ThreadEnd, ThreadError, ThreadKey,
    },
};

/// The wait before a conversation that could not be loaded is loaded once more.
pub(super) const LOAD_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Time that an invocation that waits for a thread waits for a change of the journal before it
/// reads it anyway.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A turn on a thread.
#[derive(Debug, Clone)]
pub(super) struct ThreadCheckpoint {
    version: u64,
    messages: Vec<Message>,
}

/// Reason why a thread cannot be used now.
#[derive(Debug)]
pub(super) enum ThreadUnusable {
    /// Another invocation runs on it.
    Busy(InvocationId),
    /// It started on a route that the caller may not use.
    OtherRoute,
    /// It cannot be loaded.
    Load(JournalError),
}

impl ThreadCheckpoint {
    /// Returns the effect of the end on the thread.
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

impl Executions {
    /// Returns a kept conversation.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn thread(&self, key: &ThreadKey) -> Result<Option<Thread>, JournalError> {
        self.shared.journal.load_thread(key).await
    }

    /// Deletes a kept conversation, at `version` or at any; returns whether there was one.
    ///
    /// # Errors
    /// [`ThreadError::Version`] at another version, [`ThreadError::Busy`] while an invocation runs
    /// on it.
    pub async fn delete_thread(
        &self,
        key: &ThreadKey,
        version: Option<u64>,
    ) -> Result<bool, ThreadError> {
        self.shared
            .journal
            .delete_thread(key, version, clock::wall_now())
            .await
    }
}

impl ExecutionShared {
    /// Locks the thread and puts its conversation before the call's, for a caller that is limited
    /// to `routes`; one failure to load it is forgiven.
    pub(super) async fn load_turn(
        &self,
        key: &ThreadKey,
        invocation: &mut Arc<Invocation>,
        routes: &[RouteName],
    ) -> Result<ThreadCheckpoint, ThreadUnusable> {
        let thread = match self.lock_thread(key, &invocation.id).await {
            Err(ThreadUnusable::Load(error)) => {
                tracing::warn!(thread = %key.id, %error, "a thread could not be loaded; it is tried once more");
                sleep(LOAD_AGAIN_AFTER).await;
                self.lock_thread(key, &invocation.id).await?
            }
            other => other?,
        };
        if !thread.is_open_to(routes) {
            return Err(ThreadUnusable::OtherRoute);
        }
        let version = thread.version;
        let messages = match &mut Arc::make_mut(invocation).call {
            Call::Model(call) => {
                let call = Arc::make_mut(call);
                let mut turn = std::mem::replace(&mut call.messages, thread.messages);
                if call.own_instructions && !turn.is_empty() {
                    call.messages.insert(0, turn.remove(0));
                }
                call.messages.extend(turn.iter().cloned());
                turn
            }
            Call::Tool(_) => Vec::new(),
        };
        Ok(ThreadCheckpoint { version, messages })
    }

    /// Waits until no other invocation runs on the thread, if that is allowed; the place in the
    /// queue is to be held until the thread is locked.
    pub(super) async fn wait_in_line(
        &self,
        key: &ThreadKey,
        deadline: Instant,
    ) -> Result<Option<ThreadTurn>, CallError> {
        let busy = |running: &InvocationId| CallError::thread_busy(&key.id, running);
        let running = self.runs_on(key).await;
        if running.is_none() && !self.queues.is_waited_for(key) {
            return Ok(None);
        }
        let Some(ticket) = self.queues.join(key, self.settings.thread_queue) else {
            // Where no invocation runs, the lock decides.
            return running.map_or(Ok(None), |running| Err(busy(&running)));
        };
        let Ok(head) = timeout_at(deadline, ticket.head()).await else {
            return self
                .runs_on(key)
                .await
                .or(running)
                .map_or(Ok(None), |running| Err(busy(&running)));
        };
        while let Some(running) = self.runs_on(key).await {
            if Instant::now() >= deadline || self.tasks.are_closing() {
                return Err(busy(&running));
            }
            self.wait_for(&running, deadline).await;
        }
        Ok(Some(head))
    }

    /// Loads the turn; if another replica's invocation was faster and waiting is allowed, after
    /// that one.
    pub(super) async fn load_turn_in_line(
        &self,
        key: &ThreadKey,
        epoch: u64,
        invocation: &mut Arc<Invocation>,
        routes: &[RouteName],
    ) -> Result<ThreadCheckpoint, ThreadUnusable> {
        loop {
            let busy = self.load_turn(key, invocation, routes).await;
            let Err(ThreadUnusable::Busy(running)) = &busy else {
                return busy;
            };
            if self.settings.thread_queue == 0
                || Instant::now() >= invocation.deadline
                || self.tasks.are_closing()
            {
                return busy;
            }
            self.wait_for(running, invocation.deadline).await;
            // It is recorded and does not run yet, so that nothing else renews its lease.
            let held = [Held {
                id: invocation.id.clone(),
                epoch,
            }];
            if let Err(error) = self
                .journal
                .renew(&self.settings.owner, &held, clock::wall_now())
                .await
            {
                return Err(ThreadUnusable::Load(error));
            }
        }
    }

    /// Waits, for a while, until there is news of an invocation.
    async fn wait_for(&self, running: &InvocationId, deadline: Instant) {
        let mut changes = self.journal.changes(running);
        let left = deadline.saturating_duration_since(Instant::now());
        // A time-out is a reason to look, too.
        let _ = timeout(LOOK_AGAIN.min(left), changes.wait()).await;
    }

    /// Returns the live invocation that runs on the thread, if one does.
    pub(super) async fn runs_on(&self, key: &ThreadKey) -> Option<InvocationId> {
        // A thread that cannot be read now is loaded, and judged, later.
        let running = self.journal.load_thread(key).await.ok()??.running?;
        let record = self.journal.get(&running).await.ok()??;
        let alive = !record.is_finished() && !record.is_orphaned(clock::wall_now());
        alive.then_some(running)
    }

    async fn lock_thread(
        &self,
        key: &ThreadKey,
        invocation: &InvocationId,
    ) -> Result<Thread, ThreadUnusable> {
        match self
            .journal
            .lock_thread(key, invocation, clock::wall_now())
            .await
        {
            Ok(Locked::Locked(thread)) => Ok(*thread),
            Ok(Locked::Busy { running }) => Err(ThreadUnusable::Busy(running)),
            Err(error) => Err(ThreadUnusable::Load(error)),
        }
    }
}
