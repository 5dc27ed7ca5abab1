//! What was recorded of an invocation, and what of it its new owner continues.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::{
    domain::{
        completion::Usage,
        failure::{Failure, FailureClass},
        fold::{AnswerState, StreamStep},
        invocation::{AttemptCause, AttemptRecord},
        upstream::UpstreamHandle,
    },
    journal::{Entry, JournalError},
};

/// Largest number of times one invocation's answer is read on by a new owner: a completion that kills
/// its readers is not read for ever.
const MAX_ATTACHED: usize = 8;

/// Recorded data of an invocation.
#[derive(Debug, Default)]
pub(super) struct RecoveredState {
    pub(super) fold: AnswerState,
    pub(super) attempts: Vec<AttemptRecord>,
    pub(super) last_block: u32,
    pub(super) last_seq: u64,
    /// `true` if steps are missing.
    pub(super) gone: bool,
    /// The attempts after which recovery was decided upon.
    decided: BTreeSet<u32>,
    /// The epoch in which each attempt was begun.
    epochs: BTreeMap<u32, u64>,
}

// === impl RecoveredState ===

impl RecoveredState {
    pub(super) fn see(&mut self, entry: &Entry) -> Result<(), JournalError> {
        self.last_seq = entry.seq;
        self.fold
            .apply(&entry.step)
            .map_err(|error| JournalError::Corrupt(error.to_string()))?;
        match &entry.step {
            StreamStep::AttemptStarted {
                attempt,
                target,
                cause,
                model,
                repaired,
                tool,
            } => {
                self.epochs.insert(*attempt, entry.epoch);
                self.attempts.push(AttemptRecord {
                    sent: true,
                    repaired: repaired.clone(),
                    tool: tool.clone(),
                    ..AttemptRecord::begun(
                        *attempt,
                        *cause,
                        target.clone(),
                        model.clone(),
                        entry.at,
                    )
                });
            }
            StreamStep::Recovery {
                attempt,
                class,
                adaptation,
                ..
            } => {
                self.decided.insert(*attempt);
                let begun_in = self.epochs.get(attempt).copied();
                if let Some(record) = self.attempt(*attempt) {
                    let mut failure = Failure::local(*class, class.phrase());
                    // Something was done about it, so that something could be; the class says what
                    // could not.
                    (
                        failure.retryable,
                        failure.fallback_helps,
                        failure.never_sent,
                    ) = (true, true, false);
                    failure.target.clone_from(&record.target);
                    failure.at = entry.at;
                    record.duration = between(record.started_at, entry.at);
                    record.failure = Some(failure);
                    record.adaptation.clone_from(adaptation);
                    // A later owner decided what follows: the one that made the attempt was gone.
                    record.lost_with_replica = begun_in.is_some_and(|epoch| epoch < entry.epoch);
                }
            }
            StreamStep::ContextInjected { attempt, note, .. } => {
                if let Some(record) = self.attempt(*attempt) {
                    record.injection.note = Some(note.clone());
                }
            }
            StreamStep::Usage { attempt, usage } => {
                if let Some(record) = self.attempt(*attempt) {
                    record.usage = *usage;
                }
            }
            StreamStep::BlockStart { block, .. } => {
                self.last_block = self.last_block.max(*block);
                if let Some(record) = self.attempts.last_mut() {
                    let after = between(record.started_at, entry.at);
                    record.first_token.get_or_insert(after);
                }
            }
            StreamStep::ResponseStarted { .. }
            | StreamStep::BlockDelta { .. }
            | StreamStep::BlockStop { .. }
            | StreamStep::Rewind { .. }
            | StreamStep::Parked { .. }
            | StreamStep::Terminal(_) => {}
        }
        Ok(())
    }

    fn attempt(&mut self, number: u32) -> Option<&mut AttemptRecord> {
        self.attempts
            .iter_mut()
            .find(|record| record.number == number)
    }

    /// Returns whether the attempt that waits for the completion at this handle had not been given up.
    pub(super) fn is_under_way(&self, handle: &UpstreamHandle) -> bool {
        !self.decided.contains(&handle.attempt)
    }

    /// Returns whether the completion at this handle is the one that its attempt was to bring: whole,
    /// and as the conversation knows it.
    pub(super) fn may_be_read_on(&self, handle: &UpstreamHandle) -> bool {
        let attached = self
            .attempts
            .iter()
            .filter(|record| record.cause.reads_existing_response())
            .count();
        let suits = |record: &AttemptRecord| match record.cause {
            AttemptCause::Initial
            | AttemptCause::Retry(_)
            | AttemptCause::Fallback(_)
            | AttemptCause::Hedge
            | AttemptCause::Adapt(_)
            | AttemptCause::Rotate(_)
            // The text of an injected note is not known here any more.
            | AttemptCause::Attach(_) => record.injection.note.is_none(),
            // Such a completion is only the rest of one.
            AttemptCause::Continue(_) | AttemptCause::Extend | AttemptCause::Chunk(_) => false,
        };
        let made_by = self
            .attempts
            .iter()
            .find(|record| record.number == handle.attempt);
        let suits = match made_by {
            Some(record) => suits(record),
            // Its very first steps died with the owner that made them.
            None => self.attempts.is_empty() && handle.attempt == 1,
        };
        attached < MAX_ATTACHED && suits
    }

    /// Counts the cost of a completion with the attempt that brings it, once.
    pub(super) fn count_once(&mut self, handle: &UpstreamHandle) {
        if let Some(record) = self.attempt(handle.attempt) {
            record.usage = Usage::default();
        }
    }

    /// Whatever was under way ended with its replica.
    pub(super) fn orphan_last(&mut self) {
        let Some(record) = self
            .attempts
            .last_mut()
            .filter(|record| record.failure.is_none())
        else {
            return;
        };
        record.lost_with_replica = true;
        let mut failure = Failure::local(
            FailureClass::StreamInterrupted,
            "the replica that sent the request is gone",
        );
        (
            failure.retryable,
            failure.fallback_helps,
            failure.never_sent,
        ) = (true, true, false);
        failure.target.clone_from(&record.target);
        record.failure = Some(failure);
    }
}

fn between(from: jiff::Timestamp, to: jiff::Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
