//! A store in memory, for replicas of one process: tests and the simulation.
//!
//! It can be away, slow, forgetful and deaf, and its clock can be set, as with a real one.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::store::{FleetStore, FleetStoreError, ProbeLease, RecordWrite, SET_BACK, StoredRecord};

/// A store in memory; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    kept: Arc<Mutex<KeptRecords>>,
    hint: Arc<Notify>,
}

#[derive(Debug, Default)]
struct KeptRecords {
    records: HashMap<(String, String), KeptRecord>,
    leases: HashMap<(String, u32), (String, Instant)>,
    faults: StoreFaults,
    operations: u64,
}

#[derive(Debug, Clone)]
struct KeptRecord {
    epoch: u64,
    value: String,
    written: Instant,
    expires: Option<Instant>,
}

/// Faults of the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreFaults {
    /// If set, every operation fails.
    pub away: bool,
    /// Time that every operation takes.
    pub delay: Duration,
    /// If set, no hint is sent.
    pub silent: bool,
    /// If set, nothing can be written.
    pub full: bool,
    /// Time by which its clock is ahead.
    pub ahead: Duration,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// Sets what is wrong with it.
    pub fn set_faults(&self, faults: StoreFaults) {
        self.kept.lock().faults = faults;
    }

    /// Forgets everything, as one does that was emptied.
    pub fn forget(&self) {
        let mut kept = self.kept.lock();
        kept.records.clear();
        kept.leases.clear();
    }

    /// Returns the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.kept.lock().operations
    }

    /// Counts an operation, takes its time, and fails if the store is away; returns the time by its
    /// clock.
    async fn operate(&self) -> Result<Instant, FleetStoreError> {
        let faults = {
            let mut kept = self.kept.lock();
            kept.operations += 1;
            kept.faults
        };
        if !faults.delay.is_zero() {
            tokio::time::sleep(faults.delay).await;
        }
        if faults.away {
            return Err(FleetStoreError("the store is away".to_owned()));
        }
        Ok(Instant::now() + faults.ahead)
    }
}

impl FleetStore for MemoryStore {
    fn engine(&self) -> &'static str {
        "memory"
    }

    fn publish<'a>(
        &'a self,
        writes: &'a [RecordWrite],
        hint: bool,
    ) -> BoxFuture<'a, Result<(), FleetStoreError>> {
        Box::pin(async move {
            let now = self.operate().await?;
            let silent = {
                let mut kept = self.kept.lock();
                if kept.faults.full {
                    return Err(FleetStoreError("the store is full".to_owned()));
                }
                for write in writes {
                    kept.keep(write, now);
                }
                kept.faults.silent
            };
            if hint && !silent {
                self.hint.notify_waiters();
            }
            Ok(())
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<StoredRecord>, FleetStoreError>> {
        Box::pin(async move {
            let now = self.operate().await?;
            let mut kept = self.kept.lock();
            kept.records.retain(|_, row| !row.is_over(now));
            let records = kept
                .records
                .iter()
                .map(|((subject, owner), row)| StoredRecord {
                    subject: subject.clone(),
                    owner: owner.clone(),
                    epoch: row.epoch,
                    value: row.value.clone(),
                    age: now.saturating_duration_since(row.written),
                });
            Ok(records.collect())
        })
    }

    fn listen<'a>(
        &'a self,
        changed: &'a (dyn Fn() + Send + Sync),
    ) -> BoxFuture<'a, FleetStoreError> {
        Box::pin(async move {
            changed();
            loop {
                self.hint.notified().await;
                changed();
            }
        })
    }

    fn lease<'a>(
        &'a self,
        lease: &'a ProbeLease,
    ) -> BoxFuture<'a, Result<Result<(), Duration>, FleetStoreError>> {
        Box::pin(async move {
            let now = self.operate().await?;
            let mut kept = self.kept.lock();
            let mut free_in = Duration::MAX;
            for place in 0..lease.places {
                let key = (lease.name.clone(), place);
                let expires = kept.leases.get(&key).map(|(_, expires)| *expires);
                let is_held =
                    |ends: &Instant| *ends > now && *ends <= now + lease.lifetime + SET_BACK;
                if let Some(expires) = expires.filter(is_held) {
                    free_in = free_in.min(expires - now);
                } else {
                    let taken = (lease.holder.clone(), now + lease.lifetime);
                    kept.leases.insert(key, taken);
                    return Ok(Ok(()));
                }
            }
            Ok(Err(free_in))
        })
    }

    fn release<'a>(&'a self, lease: &'a ProbeLease) -> BoxFuture<'a, Result<(), FleetStoreError>> {
        Box::pin(async move {
            self.operate().await?;
            let mut kept = self.kept.lock();
            kept.leases
                .retain(|(name, _), (holder, _)| *name != lease.name || *holder != lease.holder);
            Ok(())
        })
    }
}

// === impl KeptRecord ===

impl KeptRecord {
    fn is_over(&self, now: Instant) -> bool {
        let is_over = |expires: Instant| expires <= now || self.written > now + SET_BACK;
        self.expires.is_some_and(is_over)
    }
}

// === impl KeptRecords ===

impl KeptRecords {
    fn keep(&mut self, write: &RecordWrite, now: Instant) {
        let key = (write.subject.clone(), write.owner.clone());
        let known = self.records.get(&key);
        let is_old = known.is_some_and(|row| row.epoch >= write.epoch && !row.is_over(now));
        if is_old {
            return;
        }
        match &write.value {
            None => drop(self.records.remove(&key)),
            Some(value) => {
                let row = KeptRecord {
                    epoch: write.epoch,
                    value: value.clone(),
                    written: now,
                    expires: write.lifetime.map(|lifetime| now + lifetime),
                };
                self.records.insert(key, row);
            }
        }
    }
}
