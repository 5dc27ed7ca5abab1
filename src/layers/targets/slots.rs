//! The slots of one target: how many concurrent attempts it may have, and which one is next.
//!
//! Tenants share slots and queue fairly: hanging calls of one keep no other tenant out.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{sync::oneshot, time::Instant};

use crate::{
    domain::ids::TenantId,
    policy::concurrency::{ConcurrencyPolicy, Limiter, MAX_QUEUED, OverloadSignal},
};

/// The slots of one target; cheap to clone.
#[derive(Debug, Clone)]
pub struct Slots {
    shared: Arc<Mutex<SlotState>>,
}

#[derive(Debug)]
struct SlotState {
    limiter: Limiter,
    /// Attempts in flight that hold a slot.
    in_flight: u32,
    /// Attempts in flight that started before the circuit opened last: they hold no slot any more,
    /// so that one that hangs in an outage keeps no probe out.
    before_outage: u32,
    /// Number of times the circuit opened.
    outages: u64,
    /// Of the slots in flight, how many each tenant holds.
    held: HashMap<TenantId, u32>,
    queue: VecDeque<Waiter>,
    max_queued: usize,
    max_wait: Duration,
}

/// An attempt that waits for a slot.
#[derive(Debug)]
struct Waiter {
    tenant: TenantId,
    give: oneshot::Sender<Slot>,
}

/// A slot that is held; dropping it hands it to the next in the queue.
#[derive(Debug)]
pub struct Slot {
    slots: Slots,
    tenant: TenantId,
    /// Number of times the circuit had opened when it was taken.
    outages: u64,
    hand_on: bool,
}

/// Fraction of the limit that tenants that hold hardly any slot may have beyond it.
const EXTRA_SHARE: u32 = 8;

// === impl Slots ===

impl Slots {
    /// Slots by a policy.
    pub fn new(policy: &ConcurrencyPolicy) -> Self {
        Self::with_queue(policy, MAX_QUEUED)
    }

    /// Slots for which so many attempts may wait.
    fn with_queue(policy: &ConcurrencyPolicy, max_queued: usize) -> Self {
        let shared = SlotState {
            limiter: Limiter::new(policy.clone()),
            in_flight: 0,
            before_outage: 0,
            outages: 0,
            held: HashMap::new(),
            queue: VecDeque::new(),
            max_queued,
            max_wait: policy.max_queue_wait,
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    /// Applies a new policy; the current limit stays within its bounds.
    pub fn set_policy(&self, policy: &ConcurrencyPolicy) {
        let mut shared = self.lock();
        shared.limiter.reconfigure(policy.clone());
        shared.max_wait = policy.max_queue_wait;
    }

    /// Shares the largest limit with so many replicas.
    pub fn share_with(&self, replicas: u32) {
        self.lock().limiter.share_with(replicas);
        self.hand_out();
    }

    /// The target's circuit opened; `queued`: because calls queue up at it. Else that was about an
    /// outage, and not about its slots.
    pub fn outage(&self, queued: bool) {
        let mut shared = self.lock();
        shared.limiter.on_outage(Instant::now(), queued);
        shared.outages += 1;
        shared.before_outage += std::mem::take(&mut shared.in_flight);
        shared.held.clear();
        drop(shared);
        self.hand_out();
    }

    /// Attempts in flight.
    pub fn in_flight(&self) -> u32 {
        let shared = self.lock();
        shared.in_flight + shared.before_outage
    }

    /// Returns the attempts in flight with those that wait for a slot, and the number that may be
    /// in flight now.
    pub(super) fn in_use(&self) -> (u32, u32) {
        let shared = self.lock();
        let waiting = shared.queue.iter().filter(|one| !one.give.is_closed());
        let waiting = u32::try_from(waiting.count()).unwrap_or(u32::MAX);
        let in_flight = shared.in_flight + shared.before_outage;
        (in_flight.saturating_add(waiting), shared.limiter.limit())
    }

    /// Returns the number of attempts that may be in flight now.
    pub fn limit(&self) -> u32 {
        self.lock().limiter.limit()
    }

    /// Takes a slot, queueing if there is none; `Err` if the queue is full or the wait too long.
    /// Cancel safe: a slot whose waiter is gone is given to the next in the queue.
    pub(in crate::layers) async fn take(
        &self,
        tenant: &TenantId,
        until: Instant,
    ) -> Result<Slot, Duration> {
        let (waiting, give_up) = {
            let mut shared = self.lock();
            if shared.admits(tenant) {
                shared.occupy(tenant);
                return Ok(self.slot(tenant.clone(), shared.outages));
            }
            shared.queue.retain(|waiter| !waiter.give.is_closed());
            if shared.queue.len() >= shared.max_queued && !shared.make_room(tenant) {
                return Err(shared.max_wait);
            }
            let (give, waiting) = oneshot::channel();
            shared.queue.push_back(Waiter {
                tenant: tenant.clone(),
                give,
            });
            (waiting, until.min(Instant::now() + shared.max_wait))
        };
        match tokio::time::timeout_at(give_up, waiting).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(self.lock().max_wait),
        }
    }

    fn succeeded(&self, began: Instant) {
        let mut shared = self.lock();
        let reached = shared.in_flight >= shared.limiter.limit();
        shared.limiter.on_success(began, reached);
        drop(shared);
        self.hand_out();
    }

    /// An attempt that started then got an overload: fewer concurrent attempts would do better.
    pub(in crate::layers) fn pushed_back(&self, began: Instant, first_token_p50: Duration) {
        let mut shared = self.lock();
        let word = OverloadSignal {
            began,
            in_flight: shared.in_flight,
        };
        shared
            .limiter
            .on_back_pressure(Instant::now(), first_token_p50, word);
    }

    /// Gives free slots to those in line. A slot is handed over outside the lock: one whose waiter
    /// is gone drops back here.
    fn hand_out(&self) {
        loop {
            let (next, outages) = {
                let mut shared = self.lock();
                let Some(next) = shared.next() else { return };
                shared.occupy(&next.tenant);
                (next, shared.outages)
            };
            if let Err(unwanted) = next.give.send(self.slot(next.tenant, outages)) {
                unwanted.release();
            }
        }
    }

    fn slot(&self, tenant: TenantId, outages: u64) -> Slot {
        Slot {
            slots: self.clone(),
            tenant,
            outages,
            hand_on: true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.shared.lock()
    }
}

// === impl SlotState ===

impl SlotState {
    /// Returns whether a tenant may have another slot now. One that holds hardly any may have it
    /// beyond the limit, by an eighth of it at most: slots that others hold in silence are not
    /// taken from them, and must not keep everybody else out.
    fn admits(&self, tenant: &TenantId) -> bool {
        let limit = self.limiter.limit();
        let extra = (limit / EXTRA_SHARE).max(1);
        let is_small = self.held_by(tenant) < extra && self.in_flight < limit.saturating_add(extra);
        self.in_flight < limit || is_small
    }

    /// Returns the next that gets a slot: of the tenant that holds the fewest, the one that waits
    /// longest.
    fn next(&mut self) -> Option<Waiter> {
        self.queue.retain(|waiter| !waiter.give.is_closed());
        let waiting = self
            .queue
            .iter()
            .enumerate()
            .filter(|(_, waiter)| self.admits(&waiter.tenant));
        let (index, _) =
            waiting.min_by_key(|(index, waiter)| (self.held_by(&waiter.tenant), *index))?;
        self.queue.remove(index)
    }

    /// Makes room in a full queue for a tenant that has less in it than another: the newest of the
    /// tenant that has the most is refused.
    fn make_room(&mut self, tenant: &TenantId) -> bool {
        // Ordered, so that the same calls have the same result.
        let mut queued: BTreeMap<&TenantId, usize> = BTreeMap::new();
        for waiter in &self.queue {
            *queued.entry(&waiter.tenant).or_default() += 1;
        }
        let own = queued.get(tenant).copied().unwrap_or(0);
        let max = queued
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .filter(|(_, count)| *count > own + 1);
        let Some(max) = max.map(|(max, _)| max.clone()) else {
            return false;
        };
        let newest = self.queue.iter().rposition(|waiter| waiter.tenant == max);
        newest.and_then(|index| self.queue.remove(index)).is_some()
    }

    fn occupy(&mut self, tenant: &TenantId) {
        self.in_flight += 1;
        *self.held.entry(tenant.clone()).or_default() += 1;
    }

    fn vacate(&mut self, tenant: &TenantId, outages: u64) {
        if outages != self.outages {
            self.before_outage = self.before_outage.saturating_sub(1);
            return;
        }
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(held) = self.held.get_mut(tenant) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(tenant);
            }
        }
    }

    fn held_by(&self, tenant: &TenantId) -> u32 {
        self.held.get(tenant).copied().unwrap_or(0)
    }
}

// === impl Slot ===

impl Slot {
    /// Its attempt, begun then, succeeded.
    pub(in crate::layers) fn succeeded(&self, began: Instant) {
        self.slots.succeeded(began);
    }

    /// Gives the slot back without handing it on; the caller continues handing out.
    fn release(mut self) {
        self.hand_on = false;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.lock().vacate(&self.tenant, self.outages);
        if self.hand_on {
            self.slots.hand_out();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    fn slots(max: u32, max_queued: usize) -> Slots {
        let policy = ConcurrencyPolicy {
            max,
            ..ConcurrencyPolicy::default()
        };
        Slots::with_queue(&policy, max_queued)
    }

    async fn taken(slots: &Slots, tenant: &str) -> Option<Slot> {
        slots
            .take(&TenantId::from(tenant), Instant::now())
            .await
            .ok()
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_alone_has_all_slots_and_not_one_more() {
        let slots = slots(16, 0);
        let mut held = Vec::new();
        while let Some(slot) = taken(&slots, "a").await {
            held.push(slot);
        }
        assert_eq!(held.len(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_whose_calls_hang_keeps_no_other_out() {
        let slots = slots(16, 4);
        let mut hanging = Vec::new();
        for _ in 0..600 {
            hanging.extend(taken(&slots, "a").await);
        }
        for _ in 0..20 {
            assert!(taken(&slots, "b").await.is_some(), "calls of b come and go");
        }
        assert_eq!(slots.in_flight(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_makes_room_for_a_tenant_that_has_less_in_it() {
        let slots = slots(1, 3);
        let _held = taken(&slots, "a").await.unwrap();
        let extra = taken(&slots, "b").await.unwrap();
        let a = TenantId::from("a");
        let b = TenantId::from("b");
        let until = Instant::now() + Duration::from_secs(5);
        let of_a = join_all((0..3).map(|_| slots.take(&a, until)));
        let of_b = async {
            tokio::task::yield_now().await;
            // It is in line when the slot comes free.
            tokio::join!(slots.take(&b, until), async { drop(extra) }).0
        };
        let (of_a, of_b) = tokio::join!(of_a, of_b);
        assert!(of_b.is_ok(), "b holds none, and goes first");
        assert!(
            of_a.iter().all(Result::is_err),
            "a holds its slot to the end"
        );
    }
}
