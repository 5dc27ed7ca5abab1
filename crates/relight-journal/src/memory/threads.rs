//! Threads in memory.

use jiff::Timestamp;

use super::{
    super::{
        Finish, JournalError, Locked, THREAD_ERRORS_KEPT, Thread, ThreadCommit, ThreadEnd,
        ThreadError, ThreadKey, size::json_bytes,
    },
    state::{MemoryState, ThreadRow},
};
use crate::{
    domain::{
        ids::{InvocationId, RouteName},
        invocation::Outcome,
        message::Message,
    },
    settings::Payloads,
};

/// Bytes that a thread takes beside its messages and errors.
const ROW_BYTES: u64 = 512;

impl MemoryState {
    pub(super) fn load_thread(&self, key: &ThreadKey) -> Option<Thread> {
        self.threads.get(key).map(|row| row.thread.clone())
    }

    pub(super) fn lock_thread(
        &mut self,
        key: &ThreadKey,
        invocation: &InvocationId,
        now: Timestamp,
    ) -> Result<Locked, JournalError> {
        if self.limits.payloads == Payloads::None {
            return Err(JournalError::NotKept("a thread"));
        }
        if let Some(running) = self
            .threads
            .get(key)
            .and_then(|row| row.thread.running.clone())
            && running != *invocation
            && self.is_alive(&running, now)
        {
            return Ok(Locked::Busy { running });
        }
        // A conversation is not removed in favour of another: at the bound new threads are refused.
        if !self.threads.contains_key(key)
            && self.threads.len() as u64 >= self.limits.max_invocations
        {
            return Err(JournalError::Full(format!(
                "{} threads are kept",
                self.threads.len()
            )));
        }
        if !self.free(0) {
            return Err(JournalError::Full(format!("{} bytes are kept", self.bytes)));
        }
        if !self.threads.contains_key(key) {
            self.bytes += ROW_BYTES;
        }
        let route = self.route_of(invocation);
        let row = self
            .threads
            .entry(key.clone())
            .or_insert_with(|| ThreadRow::new(now, route));
        row.thread.running = Some(invocation.clone());
        Ok(Locked::Locked(Box::new(row.thread.clone())))
    }

    fn commit_thread(
        &mut self,
        key: &ThreadKey,
        invocation: &InvocationId,
        commit: &ThreadCommit,
        now: Timestamp,
    ) -> Result<(), ThreadError> {
        let row = self
            .threads
            .get_mut(key)
            .ok_or(ThreadError::NotLocked { holder: None })?;
        let thread = &mut row.thread;
        if thread.running.as_ref() != Some(invocation) {
            return Err(ThreadError::NotLocked {
                holder: thread.running.clone(),
            });
        }
        if thread.version != commit.expected_version {
            return Err(ThreadError::Version {
                current: thread.version,
            });
        }
        let splice = commit.splice();
        thread
            .messages
            .truncate(thread.messages.len().saturating_sub(splice.drop));
        thread.messages.extend(splice.append);
        thread.version += 1;
        thread.updated_at = now;
        thread.running = None;
        self.measure(key);
        Ok(())
    }

    /// Counts what the thread takes now.
    fn measure(&mut self, key: &ThreadKey) {
        let Some(row) = self.threads.get_mut(key) else {
            return;
        };
        let messages: usize = row
            .thread
            .messages
            .iter()
            .map(Message::approximate_bytes)
            .sum();
        let bytes = ROW_BYTES + messages as u64 + json_bytes(&row.thread.errors);
        self.bytes = self.bytes.saturating_sub(row.bytes) + bytes;
        row.bytes = bytes;
    }

    /// Removes threads that were not used since `kept_since`; returns how many.
    pub(super) fn compact_threads(&mut self, kept_since: Timestamp, now: Timestamp) -> u64 {
        let unused = |row: &ThreadRow| row.thread.updated_at <= kept_since;
        let idle = |row: &ThreadRow| {
            !row.thread
                .running
                .as_ref()
                .is_some_and(|running| self.is_alive(running, now))
        };
        let old: Vec<ThreadKey> = self
            .threads
            .iter()
            .filter(|(_, row)| unused(row) && idle(row))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &old {
            if let Some(row) = self.threads.remove(key) {
                self.bytes = self.bytes.saturating_sub(row.bytes);
            }
        }
        old.len() as u64
    }

    fn fail_thread(
        &mut self,
        key: &ThreadKey,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Result<(), ThreadError> {
        let row = self
            .threads
            .get_mut(key)
            .ok_or(ThreadError::NotLocked { holder: None })?;
        let thread = &mut row.thread;
        if thread.running.as_ref() != Some(&outcome.invocation) {
            return Err(ThreadError::NotLocked {
                holder: thread.running.clone(),
            });
        }
        if thread.errors.len() >= THREAD_ERRORS_KEPT {
            thread.errors.remove(0);
        }
        thread.errors.push(outcome.clone());
        thread.updated_at = now;
        thread.running = None;
        self.measure(key);
        Ok(())
    }

    pub(super) fn delete_thread(
        &mut self,
        key: &ThreadKey,
        version: Option<u64>,
        now: Timestamp,
    ) -> Result<bool, ThreadError> {
        let Some(row) = self.threads.get(key) else {
            return Ok(false);
        };
        if let Some(running) = row
            .thread
            .running
            .clone()
            .filter(|running| self.is_alive(running, now))
        {
            return Err(ThreadError::Busy { running });
        }
        if version.is_some_and(|version| version != row.thread.version) {
            return Err(ThreadError::Version {
                current: row.thread.version,
            });
        }
        if let Some(row) = self.threads.remove(key) {
            self.bytes = self.bytes.saturating_sub(row.bytes);
        }
        Ok(true)
    }

    /// Applies the end of its invocation to the thread, or only unlocks it.
    pub(super) fn end_thread(
        &mut self,
        key: Option<&ThreadKey>,
        end: &Finish,
        now: Timestamp,
    ) -> Result<(), ThreadError> {
        match (key, &end.thread) {
            (Some(key), Some(ThreadEnd::Commit(commit))) => {
                self.commit_thread(key, &end.id, commit, now)
            }
            (Some(key), Some(ThreadEnd::Fail)) => self.fail_thread(key, &end.outcome, now),
            (None, Some(_)) => Err(ThreadError::NotLocked { holder: None }),
            (key, None) => {
                let row = key.and_then(|key| self.threads.get_mut(key));
                if let Some(row) = row.filter(|row| row.thread.running.as_ref() == Some(&end.id)) {
                    row.thread.running = None;
                }
                Ok(())
            }
        }
    }
}

// === impl ThreadRow ===

impl ThreadRow {
    const fn new(now: Timestamp, route: Option<RouteName>) -> Self {
        let thread = Thread {
            version: 1,
            messages: Vec::new(),
            errors: Vec::new(),
            created_at: now,
            updated_at: now,
            running: None,
            route,
        };
        Self {
            thread,
            bytes: ROW_BYTES,
        }
    }
}
