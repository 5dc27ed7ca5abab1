//! Invocations in memory: rows by id, and the indexes that keep every query cheap.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;

use super::super::{
    AppendError, BeginResult, CancelWish, Compacted, Entry, ExecutionListing, Finish, FinishError,
    Held, JournalError, Limits, Listing, NewInvocation, Owner, Page, Record, Renewed, RunState,
    Stats, Takeover, Thread, ThreadKey, ToolExecution,
    record::RELEASED,
    size::{content_bytes, outcome_bytes, request_bytes, snapshot_bytes},
    write_guard::WriteGuard,
};
use crate::{
    domain::{
        ids::{InvocationId, RequestId, RouteName, TenantId},
        upstream::UpstreamHandle,
    },
    settings::Payloads,
};

/// All records in memory.
#[derive(Debug)]
pub(super) struct MemoryState {
    pub(super) limits: Limits,
    rows: HashMap<InvocationId, InvocationRow>,
    by_request: HashMap<(TenantId, RequestId), InvocationId>,
    running: HashSet<InvocationId>,
    finished: BTreeSet<(Timestamp, InvocationId)>,
    pub(super) threads: HashMap<ThreadKey, ThreadRow>,
    /// Bytes of all that is kept, threads included.
    pub(super) bytes: u64,
}

/// A thread, and its size in bytes.
#[derive(Debug)]
pub(super) struct ThreadRow {
    pub(super) thread: Thread,
    pub(super) bytes: u64,
}

/// Bytes of an invocation besides its request, its steps and its outcome.
const ROW_BYTES: u64 = 1024;

/// Bytes that a step takes beside its content.
const STEP_BYTES: u64 = size_of::<Entry>() as u64;

#[derive(Debug)]
struct InvocationRow {
    record: Record,
    epoch_first_seq: u64,
    entries: Vec<Entry>,
    executions: Vec<ToolExecution>,
    /// Bytes of its request.
    request_bytes: u64,
    /// Bytes of the content of its steps, which its own cap is about.
    bytes: u64,
    /// Bytes of all that is kept of it.
    held: u64,
}

// === impl MemoryState ===

impl MemoryState {
    /// Returns the route of an invocation.
    pub(super) fn route_of(&self, invocation: &InvocationId) -> Option<RouteName> {
        self.rows
            .get(invocation)
            .map(|row| row.record.route.clone())
    }

    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            rows: HashMap::new(),
            by_request: HashMap::new(),
            running: HashSet::new(),
            finished: BTreeSet::new(),
            threads: HashMap::new(),
            bytes: 0,
        }
    }

    pub(super) fn begin(
        &mut self,
        new: NewInvocation,
        now: Timestamp,
    ) -> Result<BeginResult, JournalError> {
        if let Some(request) = &new.request_id
            && let Some(known) = self.get_by_request(&new.tenant, request)
        {
            return Ok(known.begin_again(&new));
        }
        if self.rows.contains_key(&new.id) {
            return Err(JournalError::Corrupt(format!(
                "invocation {} exists already",
                new.id
            )));
        }
        self.make_room();
        let request_bytes = if self.limits.payloads == Payloads::Full {
            request_bytes(&new.request)
        } else {
            0
        };
        let held = ROW_BYTES + request_bytes;
        if !self.free(held) {
            return Err(JournalError::Full(format!("{} bytes are kept", self.bytes)));
        }
        if self.rows.len() as u64 >= self.limits.max_invocations {
            return Err(JournalError::Full(format!(
                "{} invocations run",
                self.running.len()
            )));
        }
        let id = new.id.clone();
        if let Some(request) = &new.request_id {
            self.by_request
                .insert((new.tenant.clone(), request.clone()), id.clone());
        }
        self.running.insert(id.clone());
        let record = new.into_record(&self.limits, now);
        let row = InvocationRow {
            record,
            epoch_first_seq: 1,
            entries: Vec::new(),
            executions: Vec::new(),
            request_bytes,
            bytes: 0,
            held,
        };
        self.rows.insert(id, row);
        self.bytes += held;
        Ok(BeginResult::New { epoch: 1 })
    }

    pub(super) fn append(
        &mut self,
        id: &InvocationId,
        entries: &[Entry],
    ) -> Result<(), AppendError> {
        let row = self.rows.get(id).ok_or(AppendError::Unknown)?;
        let fresh = row.write_guard().fresh(entries)?;
        let added = content_bytes(fresh);
        if row.bytes + added > self.limits.invocation_bytes {
            return Err(AppendError::Full {
                held: row.bytes,
                cap: self.limits.invocation_bytes,
            });
        }
        if !self.free(added + STEP_BYTES * fresh.len() as u64) {
            return Err(AppendError::Full {
                held: self.bytes,
                cap: self.limits.total_bytes,
            });
        }
        self.record(id, fresh, added);
        Ok(())
    }

    pub(super) fn remember(
        &mut self,
        held: &Held,
        upstream: &UpstreamHandle,
    ) -> Result<(), AppendError> {
        let row = self.rows.get_mut(&held.id).ok_or(AppendError::Unknown)?;
        row.write_guard().admit(held.epoch)?;
        if self.limits.payloads == Payloads::Full {
            row.record.upstream = Some(upstream.clone());
        }
        Ok(())
    }

    pub(super) fn read(&self, id: &InvocationId, after_seq: u64, limit: usize) -> Option<Page> {
        let row = self.rows.get(id)?;
        let from = row.entries.partition_point(|entry| entry.seq <= after_seq);
        let page = Page {
            entries: row.entries[from..].iter().take(limit).cloned().collect(),
            last_seq: row.record.last_seq,
            epoch: row.record.epoch,
            finished: row.record.is_finished(),
            gone: false,
        };
        Some(page.with_gap_after(after_seq, limit))
    }

    pub(super) fn finish(&mut self, end: Finish, now: Timestamp) -> Result<(), FinishError> {
        let row = self.rows.get(&end.id).ok_or(AppendError::Unknown)?;
        let write_guard = row.write_guard();
        if write_guard.finished && write_guard.epoch == end.epoch {
            return Ok(());
        }
        write_guard.admit(end.epoch)?;
        let fresh = write_guard.fresh(&end.entries)?;
        let key = row
            .record
            .thread
            .clone()
            .map(|thread| ThreadKey::new(row.record.tenant.clone(), thread));
        self.end_thread(key.as_ref(), &end, now)?;
        let ended_at = end.ended_at(now);
        self.record(&end.id, fresh, content_bytes(fresh));
        if let Some(row) = self.rows.get_mut(&end.id) {
            row.record.state = RunState::Finished { at: ended_at };
            row.record.upstream = None;
            let executions = ToolExecution::of(
                &row.record.whose(),
                &end.outcome,
                self.limits.payloads == Payloads::Full,
            );
            let added = executions.iter().map(ToolExecution::bytes).sum::<u64>();
            row.executions = executions;
            row.held += added;
            self.bytes += added;
            if self.limits.payloads == Payloads::Full {
                // It is not executed again, and only the input of a turn is asked for later.
                if row.record.thread.is_none()
                    && let Some(request) = &mut row.record.request
                {
                    request.call = None;
                }
                let freed = row.request_bytes;
                row.request_bytes = row.record.request.as_ref().map_or(0, request_bytes);
                let added =
                    row.request_bytes + outcome_bytes(&end.outcome) + snapshot_bytes(&end.snapshot);
                row.held = (row.held + added).saturating_sub(freed);
                self.bytes = (self.bytes + added).saturating_sub(freed);
                row.record.outcome = Some(end.outcome);
                row.record.snapshot = Some(end.snapshot);
            }
        }
        self.running.remove(&end.id);
        self.finished.insert((ended_at, end.id));
        self.free(0);
        Ok(())
    }

    pub(super) fn get(&self, id: &InvocationId) -> Option<Record> {
        self.rows.get(id).map(|row| row.record.clone())
    }

    pub(super) fn get_by_request(&self, tenant: &TenantId, request: &RequestId) -> Option<Record> {
        self.get(self.by_request.get(&(tenant.clone(), request.clone()))?)
    }

    pub(super) fn list(&self, wanted: &Listing, limit: usize) -> Vec<Record> {
        let mut found: Vec<&Record> = self
            .rows
            .values()
            .map(|row| &row.record)
            .filter(|record| wanted.holds(record))
            .collect();
        found.sort_unstable_by(|one, other| other.id.cmp(&one.id));
        let short = |record: &Record| Record {
            request: None,
            snapshot: None,
            upstream: None,
            ..record.clone()
        };
        found.into_iter().take(limit).map(short).collect()
    }

    pub(super) fn executions(&self, wanted: &ExecutionListing, limit: usize) -> Vec<ToolExecution> {
        let all = self.rows.values().flat_map(|row| &row.executions);
        let mut found: Vec<&ToolExecution> = all.filter(|one| wanted.holds(one)).collect();
        found.sort_unstable_by(|one, other| {
            (&other.invocation, other.attempt).cmp(&(&one.invocation, one.attempt))
        });
        found.into_iter().take(limit).cloned().collect()
    }

    pub(super) fn renew(&mut self, owner: &Owner, held: &[Held], now: Timestamp) -> Renewed {
        let mut renewed = Renewed::default();
        let until = later(now, self.limits.lease);
        for Held { id, epoch } in held {
            match self.held(owner, id, *epoch) {
                Some(record) => {
                    record.state = RunState::Running {
                        lease_expires_at: until,
                    };
                    if record.cancel_requested {
                        renewed.cancel_requested.push(id.clone());
                    }
                }
                None => renewed.lost.push(id.clone()),
            }
        }
        renewed
    }

    pub(super) fn release(&mut self, owner: &Owner, held: &[Held]) {
        for Held { id, epoch } in held {
            if let Some(record) = self.held(owner, id, *epoch) {
                record.state = RunState::Running {
                    lease_expires_at: RELEASED,
                };
            }
        }
    }

    pub(super) fn expired(&self, now: Timestamp, limit: usize) -> Vec<Held> {
        let records = self
            .running
            .iter()
            .filter_map(|id| self.rows.get(id))
            .map(|row| &row.record);
        let mut orphans: Vec<(Timestamp, Held)> = records
            .filter_map(|record| match record.state {
                RunState::Running { lease_expires_at } if lease_expires_at <= now => Some((
                    lease_expires_at,
                    Held {
                        id: record.id.clone(),
                        epoch: record.epoch,
                    },
                )),
                RunState::Running { .. } | RunState::Finished { .. } => None,
            })
            .collect();
        orphans.sort_by_key(|orphan| orphan.0);
        orphans
            .into_iter()
            .take(limit)
            .map(|(_, held)| held)
            .collect()
    }

    pub(super) fn take_over(&mut self, expected: &Held, owner: &Owner, now: Timestamp) -> Takeover {
        let until = later(now, self.limits.lease);
        let Some(row) = self.rows.get_mut(&expected.id) else {
            return Takeover::Unknown;
        };
        if let Some(refused) = row.record.refuses_takeover(expected.epoch, now) {
            return refused;
        }
        let released = matches!(row.record.state, RunState::Running { lease_expires_at } if lease_expires_at <= RELEASED);
        row.record.takeovers += u64::from(!released);
        row.record.epoch += 1;
        row.record.owner = owner.clone();
        row.record.state = RunState::Running {
            lease_expires_at: until,
        };
        row.epoch_first_seq = row.record.last_seq + 1;
        Takeover::Taken(Box::new(row.record.clone()))
    }

    pub(super) fn free_request(&mut self, id: &InvocationId) {
        let Some(row) = self.rows.get_mut(id).filter(|row| row.record.is_finished()) else {
            return;
        };
        if let Some(request) = row.record.request_id.take() {
            self.by_request
                .remove(&(row.record.tenant.clone(), request));
        }
    }

    pub(super) fn request_cancel(&mut self, id: &InvocationId) -> CancelWish {
        match self.rows.get_mut(id) {
            None => CancelWish::Unknown,
            Some(row) if row.record.is_finished() => CancelWish::Finished,
            Some(row) => {
                row.record.cancel_requested = true;
                CancelWish::Recorded
            }
        }
    }

    pub(super) fn compact(&mut self, now: Timestamp) -> Compacted {
        let mut done = Compacted::default();
        let kept_since = earlier(now, self.limits.outcomes_kept);
        let old = self
            .finished
            .iter()
            .take_while(|(at, _)| *at <= kept_since)
            .map(|(_, id)| id.clone());
        let abandoned = self.running.iter().filter(|id| {
            let record = self.rows.get(*id).map(|row| &row.record);
            record.is_some_and(|record| record.is_orphaned(now) && record.deadline_at <= kept_since)
        });
        for id in old.chain(abandoned.cloned()).collect::<Vec<_>>() {
            self.delete(&id);
            done.deleted += 1;
        }
        let stripped_since = earlier(now, self.limits.events_kept);
        let old: Vec<InvocationId> = self
            .finished
            .iter()
            .take_while(|(at, _)| *at <= stripped_since)
            .map(|(_, id)| id.clone())
            .collect();
        for id in old {
            if let Some(row) = self.rows.get_mut(&id).filter(|row| !row.entries.is_empty()) {
                let freed = std::mem::take(&mut row.bytes) + STEP_BYTES * row.entries.len() as u64;
                row.entries = Vec::new();
                row.held -= freed;
                self.bytes -= freed;
                done.stripped += 1;
            }
        }
        done.threads = self.compact_threads(earlier(now, self.limits.threads_kept), now);
        done
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            invocations: self.rows.len() as u64,
            running: self.running.len() as u64,
            events: self.rows.values().map(|row| row.entries.len() as u64).sum(),
            event_bytes: self.rows.values().map(|row| row.bytes).sum(),
            bytes: self.bytes,
            threads: self.threads.len() as u64,
        }
    }

    /// Returns whether an owner holds the invocation's lease.
    pub(super) fn is_alive(&self, id: &InvocationId, now: Timestamp) -> bool {
        self.rows
            .get(id)
            .is_some_and(|row| !row.record.is_finished() && !row.record.is_orphaned(now))
    }

    fn held(&mut self, owner: &Owner, id: &InvocationId, epoch: u64) -> Option<&mut Record> {
        let record = &mut self.rows.get_mut(id)?.record;
        (record.owner == *owner && record.epoch == epoch && !record.is_finished()).then_some(record)
    }

    /// Adds steps whose content takes `added` bytes.
    fn record(&mut self, id: &InvocationId, fresh: &[Entry], added: u64) {
        let (Some(row), Some(last)) = (self.rows.get_mut(id), fresh.last()) else {
            return;
        };
        row.record.last_seq = last.seq;
        if self.limits.payloads == Payloads::Full {
            row.bytes += added;
            let held = added + STEP_BYTES * fresh.len() as u64;
            row.held += held;
            self.bytes += held;
            row.entries.extend_from_slice(fresh);
        }
    }

    /// Removes the oldest finished invocations until one more fits.
    fn make_room(&mut self) {
        while self.rows.len() as u64 >= self.limits.max_invocations && self.delete_oldest() {}
    }

    /// Removes the oldest finished invocations until `added` bytes fit; returns whether they do.
    pub(super) fn free(&mut self, added: u64) -> bool {
        while self.bytes + added > self.limits.total_bytes && self.delete_oldest() {}
        self.bytes + added <= self.limits.total_bytes
    }

    fn delete_oldest(&mut self) -> bool {
        let Some((_, id)) = self.finished.first().cloned() else {
            return false;
        };
        self.delete(&id);
        true
    }

    fn delete(&mut self, id: &InvocationId) {
        let Some(row) = self.rows.remove(id) else {
            return;
        };
        self.bytes -= row.held;
        self.running.remove(id);
        if let RunState::Finished { at } = row.record.state {
            self.finished.remove(&(at, id.clone()));
        }
        if let Some(request) = row.record.request_id {
            self.by_request.remove(&(row.record.tenant, request));
        }
    }
}

// === impl InvocationRow ===

impl InvocationRow {
    fn write_guard(&self) -> WriteGuard {
        WriteGuard {
            epoch: self.record.epoch,
            epoch_first_seq: self.epoch_first_seq,
            last_seq: self.record.last_seq,
            finished: self.record.is_finished(),
        }
    }
}

/// `now` and that much more, or the end of time.
fn later(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Returns `now` less that much, or the start of time.
fn earlier(now: Timestamp, by: Duration) -> Timestamp {
    now.checked_sub(by).unwrap_or(Timestamp::MIN)
}
