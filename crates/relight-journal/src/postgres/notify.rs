//! Hints between replicas through `NOTIFY`.
//!
//! They are sent after the writes, several in one, because a `NOTIFY` inside a writing transaction
//! makes all commits of the database queue behind one lock. A lost hint costs a reader one polling
//! interval.

use std::{collections::HashSet, mem, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sqlx::{AnyPool, postgres::PgListener};
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep,
};

use super::super::{
    changes::Notices,
    sql::{SqlJournal, Store},
};
use crate::domain::ids::InvocationId;

/// The channel of all journals in a database.
const CHANNEL: &str = "relight_journal";
/// Between ids in a hint; no id holds it.
const SEPARATOR: char = '\u{1f}';
/// Bytes of a hint; the server takes less than 8000.
const HINT_BYTES: usize = 7000;
/// Interval at which a reader checks by itself while hints come.
const POLL_HEARING: Duration = Duration::from_secs(1);
/// Interval at which it checks while none come.
const POLL_DEAF: Duration = Duration::from_millis(200);
/// Between two attempts to listen again.
const RECONNECT: Duration = Duration::from_secs(1);

/// The queue of changes to announce to other replicas; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Backplane {
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    ids: Mutex<HashSet<InvocationId>>,
    wake: Notify,
}

// === impl Backplane ===

impl Backplane {
    /// Queues a change of an invocation without waiting; an id is queued at most once.
    pub(super) fn enqueue(&self, id: &InvocationId) {
        self.lock().insert(id.clone());
        self.pending.wake.notify_one();
    }

    /// Runs both directions until the journal is dropped.
    pub(super) fn run(self, url: String, pool: AnyPool, store: Store) -> SqlJournal {
        let (interval, poll) = watch::channel(POLL_DEAF);
        let notices = store.notices().clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { self.send(pool).await });
        tasks.spawn(async move { listen(&url, &notices, &interval).await });
        SqlJournal::new(store).listening(poll, tasks)
    }

    async fn send(self, pool: AnyPool) {
        loop {
            self.pending.wake.notified().await;
            let ids = mem::take(&mut *self.lock());
            for hint in hints(&ids) {
                let query = sqlx::query("SELECT pg_notify($1, $2)")
                    .bind(CHANNEL.to_owned())
                    .bind(hint);
                if let Err(error) = query.execute(&pool).await {
                    tracing::debug!(%error, "a hint to the other replicas was lost");
                }
            }
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, HashSet<InvocationId>> {
        self.pending.ids.lock()
    }
}

async fn listen(url: &str, notices: &Notices, poll: &watch::Sender<Duration>) {
    loop {
        if let Err(error) = hear(url, notices, poll).await {
            tracing::debug!(%error, "hints from the other replicas do not come");
        }
        poll.send_replace(POLL_DEAF);
        // Current waiters still use the longer interval.
        notices.announce_all();
        sleep(RECONNECT).await;
    }
}

/// Listens until the connection breaks.
async fn hear(
    url: &str,
    notices: &Notices,
    poll: &watch::Sender<Duration>,
) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect(url).await?;
    listener.listen(CHANNEL).await?;
    // Changes before the connection was made were not received.
    notices.announce_all();
    poll.send_replace(POLL_HEARING);
    while let Some(hint) = listener.try_recv().await? {
        for id in hint.payload().split(SEPARATOR) {
            notices.announce(&InvocationId::from(id));
        }
    }
    Ok(())
}

/// Returns the ids in as few hints as hold them.
fn hints(ids: &HashSet<InvocationId>) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for id in ids {
        match hints.last_mut() {
            Some(hint) if hint.len() + id.as_str().len() < HINT_BYTES => {
                hint.push(SEPARATOR);
                hint.push_str(id.as_str());
            }
            Some(_) | None => hints.push(id.as_str().to_owned()),
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_exactly_one_hint_and_no_hint_is_too_long() {
        let ids: HashSet<InvocationId> = (0..1000).map(|_| InvocationId::mint()).collect();
        let hints = hints(&ids);
        assert!(hints.len() > 1 && hints.iter().all(|hint| hint.len() < 8000));
        let announced: Vec<InvocationId> = hints
            .iter()
            .flat_map(|hint| hint.split(SEPARATOR))
            .map(InvocationId::from)
            .collect();
        assert_eq!(announced.len(), ids.len());
        assert_eq!(announced.into_iter().collect::<HashSet<_>>(), ids);
    }
}
