//! Threads: conversations that Relight keeps, each with a version, a lock and its accumulated
//! errors.
//!
//! Only an accepted answer changes the messages, atomically; a failure is added to the errors and
//! nowhere else.

use jiff::Timestamp;

use crate::domain::{
    ids::{InvocationId, RouteName, TenantId, ThreadId},
    invocation::{HistoryPatch, Outcome},
    message::Message,
};

/// Number of failures that a thread keeps; the oldest go first.
pub const THREAD_ERRORS_KEPT: usize = 256;

/// The identity of a thread: the same id of different tenants names different threads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ThreadKey {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its id within the tenant.
    pub id: ThreadId,
}

/// A thread as the journal keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// 1 when it is created; grows by one with every committed turn.
    pub version: u64,
    /// The conversation up to the last good checkpoint, oldest first.
    pub messages: Vec<Message>,
    /// The failed outcomes of its invocations, oldest first; not part of `messages`.
    pub errors: Vec<Outcome>,
    /// Time of its creation.
    pub created_at: Timestamp,
    /// Time of its last change.
    pub updated_at: Timestamp,
    /// The invocation that runs on it.
    pub running: Option<InvocationId>,
    /// Route on which it started; unset for one from before routes were kept.
    pub route: Option<RouteName>,
}

impl Thread {
    /// Returns whether a caller that is limited to these routes may use it; one of which no route
    /// is known is for callers without a limit.
    #[must_use]
    pub fn is_open_to(&self, routes: &[RouteName]) -> bool {
        self.route
            .as_ref()
            .map_or(routes.is_empty(), |route| route.is_allowed_by(routes))
    }
}

/// The result of locking a thread.
#[derive(Debug, Clone, PartialEq)]
pub enum Locked {
    /// It is the invocation's until committed, failed, or its lease expires.
    Locked(Box<Thread>),
    /// Another live invocation runs on it.
    Busy {
        /// The invocation that runs on it.
        running: InvocationId,
    },
}

/// An accepted turn to append to a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadCommit {
    /// The version that was locked.
    pub expected_version: u64,
    /// The messages that the caller sent.
    pub turn: Vec<Message>,
    /// Changes that follow them, relative to thread + turn as they were sent.
    pub patch: HistoryPatch,
}

/// Change of a thread when its invocation ends.
#[derive(Debug, Clone, PartialEq)]
pub enum ThreadEnd {
    /// The turn and its completion are appended.
    Commit(ThreadCommit),
    /// The outcome, a failure, is appended to the errors; the messages stay as they are.
    Fail,
}

/// A change of stored messages: drop some at the end, then append.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Splice {
    /// Stored messages to drop.
    pub(super) drop: usize,
    /// Messages to append.
    pub(super) append: Vec<Message>,
}

// === impl ThreadKey ===

impl ThreadKey {
    /// The thread `id` of `tenant`.
    #[must_use]
    pub const fn new(tenant: TenantId, id: ThreadId) -> Self {
        Self { tenant, id }
    }
}

// === impl ThreadCommit ===

impl ThreadCommit {
    /// Returns the commit as a change of the stored messages. A patch may reach back over the turn
    /// into what is stored, if a note changed an older message.
    pub(super) fn splice(&self) -> Splice {
        let replaced = usize::try_from(self.patch.replace_tail).unwrap_or(usize::MAX);
        let drop = replaced.saturating_sub(self.turn.len());
        let kept = self.turn.len().saturating_sub(replaced);
        let append = self.turn[..kept]
            .iter()
            .chain(&self.patch.messages)
            .cloned()
            .collect();
        Splice { drop, append }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::Role;

    fn message_of(text: &str) -> Message {
        Message::text(Role::User, text)
    }

    #[test]
    fn a_commit_does_to_the_stored_messages_what_the_patch_does_to_the_sent_history() {
        for stored in 0..4_usize {
            for turn in 0..3_usize {
                for replace_tail in 0..6_u32 {
                    let stored: Vec<Message> = (0..stored)
                        .map(|n| message_of(&format!("stored {n}")))
                        .collect();
                    let turn: Vec<Message> = (0..turn)
                        .map(|n| message_of(&format!("turn {n}")))
                        .collect();
                    let patch = HistoryPatch {
                        replace_tail,
                        messages: vec![message_of("patched"), message_of("answer")],
                    };
                    let mut expected: Vec<Message> = stored.iter().chain(&turn).cloned().collect();
                    patch.apply(&mut expected);

                    let splice = ThreadCommit {
                        expected_version: 1,
                        turn,
                        patch,
                    }
                    .splice();
                    let mut got = stored;
                    got.truncate(got.len().saturating_sub(splice.drop));
                    got.extend(splice.append);
                    assert_eq!(got, expected);
                }
            }
        }
    }
}
