//! What the journal keeps of an invocation, and the results of its operations.
//!
//! Plain data. Times are wall-clock times that the caller passes in, kept to the microsecond.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{fingerprint::Fingerprint, thread::ThreadEnd, tool_execution::Whose};
use crate::{
    domain::{
        fold::{Block, StreamStep},
        ids::{InvocationId, Operation, RequestId, RouteName, TenantId, ThreadId},
        invocation::{Call, Outcome, Overrides},
        upstream::UpstreamHandle,
    },
    settings::{JournalConfig, Payloads},
};

/// Time for which a lease is valid unless renewed.
pub const LEASE: Duration = Duration::from_secs(10);
/// Time for which the events of a finished invocation are kept.
pub const EVENTS_KEPT: Duration = Duration::from_mins(15);
/// Expiry of a lease that was released: before every other one.
pub(super) const RELEASED: Timestamp = Timestamp::UNIX_EPOCH;
/// Expiry of a lease whose owner is known to be dead: after those that were released, before every
/// other one.
pub(super) const OWNER_DEAD: Timestamp = Timestamp::constant(0, 1_000);
/// Number of bytes of events that one invocation may hold.
pub const INVOCATION_CAP_BYTES: u64 = 8 * 1024 * 1024;

/// The bounds of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Time for which a lease is valid unless renewed.
    pub lease: Duration,
    /// Time for which the events of a finished invocation are kept; its snapshot and outcome stay.
    pub events_kept: Duration,
    /// Time for which a finished invocation is kept at all, and with it its request id.
    pub outcomes_kept: Duration,
    /// Maximum number of invocations that are kept; the oldest finished go first: at once in
    /// memory, in which a begin is refused if all of them run, and with the next compaction in a
    /// database.
    pub max_invocations: u64,
    /// Bytes of events that one invocation may hold.
    pub invocation_bytes: u64,
    /// Bytes of everything that is kept: requests, events, answers and threads. The oldest finished
    /// invocations are removed first: completely and at once in memory; with the next compaction in
    /// a database, first their events, then the records, then the threads that were unused for
    /// longest. In memory nothing new is accepted if that is not enough.
    pub total_bytes: u64,
    /// Time for which an unused thread is kept.
    pub threads_kept: Duration,
    /// Handling of content: kept or not.
    pub payloads: Payloads,
}

/// A process that executes invocations: the replica's name and its incarnation, so that a restarted
/// replica is another owner.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(Arc<str>);

/// Everything that is needed to execute an invocation again elsewhere.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RecordedRequest {
    /// The call.
    pub call: Option<Call>,
    /// Changes that the caller wants.
    pub overrides: Overrides,
}

/// An invocation about to be executed.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInvocation {
    /// Its id.
    pub id: InvocationId,
    /// The tenant.
    pub tenant: TenantId,
    /// The caller's idempotency key; without one nothing is deduplicated.
    pub request_id: Option<RequestId>,
    /// Of the canonical request.
    pub fingerprint: Fingerprint,
    /// The route.
    pub route: RouteName,
    /// Kind of work that the caller does.
    pub operation: Operation,
    /// The thread it runs on.
    pub thread: Option<ThreadId>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Latest end of the invocation.
    pub deadline_at: Timestamp,
    /// The request.
    pub request: RecordedRequest,
    /// The executing process.
    pub owner: Owner,
}

/// The result of beginning an invocation.
#[derive(Debug, Clone, PartialEq)]
pub enum BeginResult {
    /// It is recorded, and the caller of `begin` executes it.
    New {
        /// The epoch to write in: 1.
        epoch: u64,
    },
    /// The same request runs already: attach to it. Its lease may have expired: then take it over.
    Attached(Box<Record>),
    /// The same request is finished.
    Replay(Arc<Outcome>),
    /// The same request is finished, but its completion was not kept (`journal.payloads: none`).
    ResultNotRetained {
        /// The invocation that it was.
        invocation: InvocationId,
    },
    /// The request id was used for another request.
    Conflict {
        /// The invocation that used it.
        invocation: InvocationId,
    },
}

/// The state of an invocation in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// A process executes it, or did until the lease expired.
    Running {
        /// Until when its owner is taken to be alive.
        lease_expires_at: Timestamp,
    },
    /// It has its outcome.
    Finished {
        /// Since when.
        at: Timestamp,
    },
}

/// An invocation as the journal keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Its id.
    pub id: InvocationId,
    /// The tenant.
    pub tenant: TenantId,
    /// The caller's idempotency key.
    pub request_id: Option<RequestId>,
    /// Of the canonical request.
    pub fingerprint: Fingerprint,
    /// The route.
    pub route: RouteName,
    /// Kind of work that the caller did.
    pub operation: Operation,
    /// The thread it runs on.
    pub thread: Option<ThreadId>,
    /// The caller's labels.
    pub labels: BTreeMap<String, String>,
    /// Time of its start.
    pub created_at: Timestamp,
    /// Latest end of the invocation.
    pub deadline_at: Timestamp,
    /// Its state.
    pub state: RunState,
    /// The process that executes it, or did last.
    pub owner: Owner,
    /// Grows by one when the owner changes.
    pub epoch: u64,
    /// Number of times that it was taken over because its owner died.
    pub takeovers: u64,
    /// Number of the last recorded step; 0 if there is none.
    pub last_seq: u64,
    /// If set, a cancellation was requested.
    pub cancel_requested: bool,
    /// Request; `None` if payloads are not kept.
    pub request: Option<RecordedRequest>,
    /// Handle of its background response, if it had one; `None` if payloads are not kept.
    pub upstream: Option<UpstreamHandle>,
    /// End, if there is one and payloads are kept.
    pub outcome: Option<Arc<Outcome>>,
    /// All blocks as of `last_seq`, kept when it finished.
    pub snapshot: Option<Vec<Block>>,
}

/// Conditions on the invocations to list; all given ones must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those on these routes; empty for no limit.
    pub routes: Vec<RouteName>,
    /// Only those of this operation.
    pub operation: Option<Operation>,
    /// Only those on this thread.
    pub thread: Option<ThreadId>,
    /// Only those that are finished, or only those that run.
    pub finished: Option<bool>,
    /// Only those that started then or later.
    pub since: Option<Timestamp>,
    /// Only those with a smaller id: ids are minted in the order of time.
    pub before: Option<InvocationId>,
}

/// One step of an invocation with its position in the record.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The epoch of its writer.
    pub epoch: u64,
    /// Its number: 1 for the first of the invocation, without gaps, also across epochs.
    pub seq: u64,
    /// The attempt that it belongs to; 0 for none.
    pub attempt: u32,
    /// Time of the event.
    pub at: Timestamp,
    /// Step that happened.
    pub step: StreamStep,
}

/// A range of an invocation's steps.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The steps, in order.
    pub entries: Vec<Entry>,
    /// Number of the last recorded step; more than the page's own last if the page was full.
    pub last_seq: u64,
    /// The epoch that is in force.
    pub epoch: u64,
    /// If set, the invocation has its outcome.
    pub finished: bool,
    /// If set, steps after the cursor are gone (retention, or payloads are not kept): use the
    /// record's snapshot.
    pub gone: bool,
}

/// The end of an invocation, recorded atomically.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// The invocation.
    pub id: InvocationId,
    /// The epoch of its executor.
    pub epoch: u64,
    /// The last steps, `Terminal` included; not subject to the cap.
    pub entries: Vec<Entry>,
    /// The outcome.
    pub outcome: Arc<Outcome>,
    /// The blocks of the whole stream, for readers who come after its events are gone.
    pub snapshot: Vec<Block>,
    /// Change of its thread, which is unlocked in any case.
    pub thread: Option<ThreadEnd>,
    /// Time since it ended, if that could not be recorded at once.
    pub ended_before: Duration,
}

/// Invocation that was not recorded when it started, with all that is known of it so far.
#[derive(Debug, Clone, PartialEq)]
pub struct LateRecord {
    /// Invocation that started; it has neither a request id nor a thread.
    pub new: NewInvocation,
    /// Time of its start.
    pub began_at: Timestamp,
    /// Its steps, from the first one on.
    pub entries: Vec<Entry>,
    /// Its end and when it was; `None` while it runs.
    pub end: Option<(Finish, Timestamp)>,
}

/// An execution that a replica holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Held {
    /// The invocation.
    pub id: InvocationId,
    /// The epoch in which it is held.
    pub epoch: u64,
}

/// The result of renewing leases.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renewed {
    /// Held no longer: taken over, finished or gone. Their execution must stop.
    pub lost: Vec<InvocationId>,
    /// Still held, with a requested cancellation.
    pub cancel_requested: Vec<InvocationId>,
}

/// The result of an attempt to take an execution over.
#[derive(Debug, Clone, PartialEq)]
pub enum Takeover {
    /// It is the caller's now; the record holds the new epoch.
    Taken(Box<Record>),
    /// Another process was faster.
    Lost {
        /// The epoch that is in force.
        current_epoch: u64,
    },
    /// Its owner lives.
    Alive {
        /// Until when at least.
        until: Timestamp,
    },
    /// It has its outcome.
    Finished,
    /// No such invocation.
    Unknown,
}

/// The result of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelWish {
    /// It is recorded; the owner sees it at once on the same replica, else with its next renewal.
    Recorded,
    /// The invocation is finished.
    Finished,
    /// No such invocation.
    Unknown,
}

/// Counts of what a compaction removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Finished invocations whose events went.
    pub stripped: u64,
    /// Invocations that went whole, with their request ids.
    pub deleted: u64,
    /// Threads that went.
    pub threads: u64,
}

/// Counts of what the journal keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Invocations.
    pub invocations: u64,
    /// Of them, without an outcome.
    pub running: u64,
    /// Steps.
    pub events: u64,
    /// Bytes of steps.
    pub event_bytes: u64,
    /// Bytes of everything that is kept: requests, steps, answers and threads.
    pub bytes: u64,
    /// Threads.
    pub threads: u64,
}

// === impl Finish ===

impl Finish {
    /// Returns the time of its end, as seen from `now`.
    pub(super) fn ended_at(&self, now: Timestamp) -> Timestamp {
        now.checked_sub(self.ended_before).unwrap_or(now)
    }
}

// === impl Listing ===

impl Listing {
    /// Returns whether an invocation is among them.
    pub(super) fn holds(&self, record: &Record) -> bool {
        self.tenant
            .as_ref()
            .is_none_or(|tenant| *tenant == record.tenant)
            && record.route.is_allowed_by(&self.routes)
            && self
                .operation
                .as_ref()
                .is_none_or(|operation| *operation == record.operation)
            && self
                .thread
                .as_ref()
                .is_none_or(|thread| Some(thread) == record.thread.as_ref())
            && self
                .finished
                .is_none_or(|finished| finished == record.is_finished())
            && self.since.is_none_or(|since| record.created_at >= since)
            && self
                .before
                .as_ref()
                .is_none_or(|before| record.id < *before)
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self::from(&JournalConfig::default())
    }
}

impl From<&JournalConfig> for Limits {
    fn from(config: &JournalConfig) -> Self {
        Self {
            lease: LEASE,
            events_kept: EVENTS_KEPT.min(config.retention),
            outcomes_kept: config.retention,
            max_invocations: config.max_invocations,
            invocation_bytes: INVOCATION_CAP_BYTES,
            total_bytes: config.max_bytes,
            threads_kept: config.thread_retention,
            payloads: config.payloads,
        }
    }
}

// === impl Owner ===

impl Owner {
    /// An owner by name; no two processes may share one.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Record ===

impl Record {
    /// Returns whose it is, for what is kept of its tools.
    pub(super) fn whose(&self) -> Whose<'_> {
        let Self {
            tenant,
            route,
            operation,
            thread,
            ..
        } = self;
        Whose {
            tenant,
            route,
            operation,
            thread: thread.as_ref(),
        }
    }

    /// Returns whether it has its outcome.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        matches!(self.state, RunState::Finished { .. })
    }

    /// Returns whether it runs, and its owner surely does not: it gave it up of its own accord, or
    /// is known to be dead.
    #[must_use]
    pub fn is_released(&self) -> bool {
        matches!(self.state, RunState::Running { lease_expires_at } if lease_expires_at <= OWNER_DEAD)
    }

    /// Returns whether it runs and its owner is no longer taken to be alive.
    #[must_use]
    pub fn is_orphaned(&self, now: Timestamp) -> bool {
        match self.state {
            RunState::Running { lease_expires_at } => lease_expires_at <= now,
            RunState::Finished { .. } => false,
        }
    }
}
