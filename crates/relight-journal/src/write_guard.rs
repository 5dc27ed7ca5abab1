//! The rules that all engines share: which steps may be recorded, what a repeated request returns,
//! who may take over.
//!
//! Pure functions of what is stored; an engine stores only what they allow, in the same
//! transaction.

use jiff::Timestamp;

use super::{
    error::AppendError,
    record::{BeginResult, Entry, Limits, NewInvocation, Page, Record, RunState, Takeover},
};
use crate::settings::Payloads;

/// The state of an invocation's record, as far as it concerns a writer.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteGuard {
    /// The epoch in force.
    pub(super) epoch: u64,
    /// The first step that this epoch could write.
    pub(super) epoch_first_seq: u64,
    /// The last recorded step.
    pub(super) last_seq: u64,
    /// If set, there is an outcome.
    pub(super) finished: bool,
}

// === impl WriteGuard ===

impl WriteGuard {
    /// Checks the writer's epoch, and that the invocation has not ended.
    pub(super) const fn admit(&self, epoch: u64) -> Result<(), AppendError> {
        if epoch != self.epoch {
            return Err(AppendError::Fenced {
                current_epoch: self.epoch,
            });
        }
        if self.finished {
            return Err(AppendError::Finished);
        }
        Ok(())
    }

    /// Returns the part of a batch that is not recorded yet.
    pub(super) fn fresh<'a>(&self, entries: &'a [Entry]) -> Result<&'a [Entry], AppendError> {
        let known = self.known(entries.iter().map(|entry| (entry.epoch, entry.seq)))?;
        Ok(entries.get(known..).unwrap_or_default())
    }

    /// Returns the number of steps of a batch, from its first one on, that are recorded already; a
    /// step is its epoch and its number.
    ///
    /// Steps that the same epoch recorded are known: only its owner writes in an epoch, so they can
    /// only be the same batch sent again. Steps of an earlier epoch are not.
    pub(super) fn known(
        &self,
        steps: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<usize, AppendError> {
        let mut steps = steps.into_iter().peekable();
        let Some(&(_, first)) = steps.peek() else {
            return Ok(0);
        };
        for (expected, (epoch, seq)) in (first..).zip(steps) {
            self.admit(epoch)?;
            if seq != expected {
                return Err(AppendError::Gap { expected, got: seq });
            }
        }
        let next = self.last_seq + 1;
        if first > next || first < self.epoch_first_seq {
            return Err(AppendError::Gap {
                expected: next,
                got: first,
            });
        }
        Ok(usize::try_from(next - first).unwrap_or(usize::MAX))
    }
}

// === impl Page ===

impl Page {
    /// Notes whether a reader that holds steps up to `after_seq` can continue from here.
    pub(super) fn with_gap_after(mut self, after_seq: u64, limit: usize) -> Self {
        self.gone = match self.entries.first() {
            Some(first) => first.seq != after_seq + 1,
            None => limit > 0 && after_seq < self.last_seq,
        };
        self
    }
}

// === impl NewInvocation ===

impl NewInvocation {
    /// Returns the invocation as it is kept when it starts.
    pub(super) fn into_record(self, limits: &Limits, now: Timestamp) -> Record {
        let lease_expires_at = now.checked_add(limits.lease).unwrap_or(Timestamp::MAX);
        Record {
            id: self.id,
            tenant: self.tenant,
            request_id: self.request_id,
            fingerprint: self.fingerprint,
            route: self.route,
            operation: self.operation,
            thread: self.thread,
            labels: self.labels,
            created_at: now,
            deadline_at: self.deadline_at,
            state: RunState::Running { lease_expires_at },
            owner: self.owner,
            epoch: 1,
            takeovers: 0,
            last_seq: 0,
            cancel_requested: false,
            request: (limits.payloads == Payloads::Full).then_some(self.request),
            upstream: None,
            outcome: None,
            snapshot: None,
        }
    }
}

// === impl Record ===

impl Record {
    /// Returns the result of a repeated request with the request id of this invocation.
    pub(super) fn begin_again(self, new: &NewInvocation) -> BeginResult {
        if self.fingerprint != new.fingerprint {
            return BeginResult::Conflict {
                invocation: self.id,
            };
        }
        if !self.is_finished() {
            return BeginResult::Attached(Box::new(self));
        }
        match self.outcome {
            Some(outcome) => BeginResult::Replay(outcome),
            None => BeginResult::ResultNotRetained {
                invocation: self.id,
            },
        }
    }

    /// Returns the reason for which it cannot be taken over by one who saw it at `epoch`; `None` if
    /// it can.
    pub(super) fn refuses_takeover(&self, epoch: u64, now: Timestamp) -> Option<Takeover> {
        match self.state {
            RunState::Finished { .. } => Some(Takeover::Finished),
            RunState::Running { .. } if self.epoch != epoch => Some(Takeover::Lost {
                current_epoch: self.epoch,
            }),
            RunState::Running { lease_expires_at } if lease_expires_at > now => {
                Some(Takeover::Alive {
                    until: lease_expires_at,
                })
            }
            RunState::Running { .. } => None,
        }
    }
}
