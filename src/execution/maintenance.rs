//! Maintains what this replica holds: renews its leases, cancels, takes over what others left,
//! applies the retention.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{ExecutionShared, RECONNECT_GRACE, live::Execution};
use crate::{
    domain::clock,
    journal::{Held, JournalError, StoreHealth},
};

/// Number of orphans that are looked at in one go; more are left to other replicas, or to the next
/// time.
const ORPHANS: usize = 256;

/// Time after a renewal that failed until the next one is made: an owner that lives renews before
/// others may take over.
const RENEW_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Renews, takes over and compacts for ever. None waits for another: a long compaction, or a
/// takeover that waits for room, must not let leases expire.
pub(super) async fn keep(shared: &Arc<ExecutionShared>) {
    tokio::join!(
        keep_leases(shared),
        keep_adopting(shared),
        keep_compacting(shared),
        keep_watching(shared),
        shared.keep_learning()
    );
}

async fn keep_leases(shared: &Arc<ExecutionShared>) {
    // Three chances before a lease is over: every 3 s of 10 s.
    let usual = shared.settings.lease * 3 / 10;
    loop {
        let asked_at = Instant::now();
        let renewed = renew(shared).await;
        shared.leases.renewed(asked_at, renewed.is_ok());
        let next = match renewed {
            Ok(()) => asked_at + usual,
            Err(error) => {
                tracing::debug!(%error, "leases could not be renewed");
                Instant::now() + RENEW_AGAIN_AFTER.min(usual)
            }
        };
        sleep_until(next).await;
    }
}

async fn keep_adopting(shared: &Arc<ExecutionShared>) {
    let mut often = interval(shared.settings.lease * 3 / 10);
    often.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = HashMap::new();
    loop {
        often.tick().await;
        adopt_orphans(shared, &mut seen).await;
    }
}

/// Reports when the journal's store is lost, and when it is found.
async fn keep_watching(shared: &ExecutionShared) {
    let Some(mut health) = shared.journal.health() else {
        return;
    };
    loop {
        let failure = match &*health.borrow_and_update() {
            StoreHealth::Up => None,
            StoreHealth::Down(reason) => Some(JournalError::Unavailable(reason.clone())),
        };
        shared.journal_was(failure.as_ref());
        if health.changed().await.is_err() {
            return;
        }
    }
}

async fn keep_compacting(shared: &Arc<ExecutionShared>) {
    let mut often = interval(shared.settings.compact_every);
    often.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        often.tick().await;
        compact(shared).await;
    }
}

/// Applies the journal's retention, and notes what is left.
async fn compact(shared: &Arc<ExecutionShared>) {
    let done = async {
        let removed = shared.journal.compact(clock::wall_now()).await?;
        Ok::<_, JournalError>((removed, shared.journal.stats().await?))
    };
    match done.await {
        Ok((removed, left)) => shared.journal_use.compacted(removed, left),
        Err(error) => tracing::warn!(%error, "the journal's retention could not be applied"),
    }
}

async fn renew(shared: &Arc<ExecutionShared>) -> Result<(), JournalError> {
    let held = shared.held();
    let renewed = shared
        .journal
        .renew(&shared.settings.owner, &held, clock::wall_now())
        .await?;
    for id in &renewed.lost {
        // One that ends meanwhile is lost, too, and does not mind: fenced, it would keep its end
        // from its followers.
        let execution = shared.execution(id);
        let still = |execution: &Execution| {
            held.iter()
                .any(|held| held.id == *id && held.epoch == execution.epoch)
        };
        if let Some(execution) =
            execution.filter(|execution| still(execution) && !execution.is_ending())
        {
            if shared.journal.get(id).await?.is_none() {
                shared.continues_without_record(&execution);
                continue;
            }
            tracing::warn!(invocation = %id, epoch = execution.epoch, "another replica owns an invocation now");
            shared.fence(&execution);
        }
    }
    for id in &renewed.cancel_requested {
        if let Some(execution) = shared.execution(id) {
            execution.links.cancel.cancel("CancelInvocation");
        }
    }
    Ok(())
}

/// Goes through what needs an owner. `seen`: what waits for its caller, and since when.
async fn adopt_orphans(shared: &Arc<ExecutionShared>, seen: &mut HashMap<Held, Instant>) {
    let orphans = match orphans(shared).await {
        Ok(orphans) => orphans,
        Err(error) => {
            // A store that is away is reported once, by its health.
            tracing::debug!(%error, "orphaned invocations could not be looked for");
            return;
        }
    };
    seen.retain(|held, _| orphans.contains(held));
    for orphan in orphans {
        if shared
            .execution(&orphan.id)
            .is_some_and(|execution| execution.epoch == orphan.epoch)
        {
            // This replica's own: the renewal was late, and no other replica took it.
            continue;
        }
        let since = seen.get(&orphan).copied();
        let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
        if since.is_some() && waited < RECONNECT_GRACE {
            continue;
        }
        seen.entry(orphan.clone()).or_insert_with(Instant::now);
        if let Err(error) = shared.look_after(&orphan, waited >= RECONNECT_GRACE).await {
            tracing::warn!(invocation = %orphan.id, %error, "an orphaned invocation could not be taken over");
        }
    }
}

/// Returns the invocations that were released, and, if this replica may judge it, those that
/// expired.
async fn orphans(shared: &ExecutionShared) -> Result<Vec<Held>, JournalError> {
    if shared.leases.may_take_over() {
        shared.journal.expired(clock::wall_now(), ORPHANS).await
    } else {
        shared.journal.released(ORPHANS).await
    }
}
