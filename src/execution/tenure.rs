//! Keeps what this replica holds: renews its leases, hears of cancellations, takes over what others left.

use std::sync::{Arc, PoisonError};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Shared, live::Execution};
use crate::{domain::clock, journal::JournalError};

/// How many orphans are taken over in one go; more are left to other replicas, or to the next time.
const ORPHANS: usize = 32;

/// Renews, takes over and compacts for ever.
pub(super) async fn keep(shared: &Arc<Shared>) {
    // Three chances before a lease is over: every 3 s of 10 s.
    let mut renewal = interval(shared.settings.lease * 3 / 10);
    let mut compaction = interval(shared.settings.compact_every);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    compaction.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = renewal.tick() => {
                renew(shared).await;
                adopt_orphans(shared).await;
            }
            _ = compaction.tick() => compact(shared).await,
        }
    }
}

/// Applies the journal's retention, and notes what is left.
async fn compact(shared: &Arc<Shared>) {
    let done = async {
        let removed = shared.journal.compact(clock::wall_now()).await?;
        Ok::<_, JournalError>((removed, shared.journal.stats().await?))
    };
    match done.await {
        Ok((removed, stats)) => {
            let mut kept = shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.0 = stats;
            kept.1.stripped += removed.stripped;
            kept.1.deleted += removed.deleted;
        }
        Err(error) => tracing::warn!(%error, "the journal's retention could not be applied"),
    }
}

async fn renew(shared: &Arc<Shared>) {
    let held = shared.held();
    let asked_at = Instant::now();
    let renewed = match shared.journal.renew(&shared.settings.owner, &held, clock::wall_now()).await {
        Ok(renewed) => renewed,
        Err(error) => {
            tracing::warn!(%error, "leases could not be renewed");
            return;
        }
    };
    shared.leases_renewed(asked_at);
    for id in &renewed.lost {
        // One that ended meanwhile is lost, too, and does not mind.
        let execution = shared.execution(id);
        let still = |execution: &Execution| held.iter().any(|held| held.id == *id && held.epoch == execution.epoch);
        if let Some(execution) = execution.filter(|execution| still(execution) && !execution.tail_has_end()) {
            execution.lose();
        }
    }
    for id in &renewed.cancel_requested {
        if let Some(execution) = shared.execution(id) {
            execution.cancel.cancel("CancelInvocation");
        }
    }
}

async fn adopt_orphans(shared: &Arc<Shared>) {
    let orphans = shared.journal.expired(clock::wall_now(), ORPHANS).await;
    shared.journal_was(orphans.as_ref().err());
    let orphans = match orphans {
        Ok(orphans) => orphans,
        Err(error) => {
            tracing::warn!(%error, "orphaned invocations could not be looked for");
            return;
        }
    };
    for orphan in orphans {
        if shared.execution(&orphan.id).is_some_and(|execution| execution.epoch == orphan.epoch) {
            // This replica's own: the renewal was late, and nobody took it.
            continue;
        }
        if let Err(error) = shared.take_over(&orphan).await {
            tracing::warn!(invocation = %orphan.id, %error, "an orphaned invocation could not be taken over");
        }
    }
}
