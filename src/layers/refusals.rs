//! Counts calls that are shed, and publishes one summary per second and target.
//!
//! Such refusals come by the thousand, when there is least time for them.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use crate::{
    domain::{event::EventBody, ids::TargetId},
    events::EventBus,
};

/// Period for which refusals are counted for one summary.
const PERIOD: Duration = Duration::from_secs(1);

/// The counts of shed calls; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Refusals {
    events: EventBus,
    counted: Arc<Mutex<Counted>>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Since the last summary, by target; `None` for those that were refused before one was chosen.
    by_target: BTreeMap<Option<TargetId>, u64>,
    /// `true` if `reports` holds a task that will publish them.
    is_reporting: bool,
    reports: JoinSet<()>,
}

// === impl Refusals ===

impl Refusals {
    /// Publishes summaries there.
    pub(super) fn new(events: EventBus) -> Self {
        Self {
            events,
            counted: Arc::default(),
        }
    }

    /// Counts a call. Needs a Tokio runtime.
    pub(super) fn count(&self, target: Option<&TargetId>) {
        let mut counted = lock(&self.counted);
        *counted.by_target.entry(target.cloned()).or_default() += 1;
        if !mem::replace(&mut counted.is_reporting, true) {
            while counted.reports.try_join_next().is_some() {}
            counted
                .reports
                .spawn(report(self.events.clone(), Arc::clone(&self.counted)));
        }
    }
}

/// Publishes what was counted, each second until nothing was.
async fn report(events: EventBus, counted: Arc<Mutex<Counted>>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        let by_target = {
            let mut counted = lock(&counted);
            let by_target = mem::take(&mut counted.by_target);
            counted.is_reporting = !by_target.is_empty();
            by_target
        };
        if by_target.is_empty() {
            return;
        }
        for (target, count) in by_target {
            events.publish(None, 0, target, EventBody::CallsRefused { count });
        }
    }
}

fn lock(counted: &Mutex<Counted>) -> MutexGuard<'_, Counted> {
    counted.lock()
}
