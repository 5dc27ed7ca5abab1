//! A task that follows the event bus for one reader, and a handle that can wait for it.
//!
//! Metrics and logs differ only in what they do with a batch. The task does not block publishers:
//! one that falls behind is informed how many events it missed. Dropping the handle ends the task
//! at once; `finish` lets it read to the end first.

use std::{future::Future, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::events::{BusItem, EventReader};

/// Most readings that are handed over at once.
const BATCH: usize = 256;

/// A consumer of batches of events.
pub(super) trait Consume: Send + 'static {
    /// Consumes the items since the last call, oldest first; at least one.
    fn consume(&mut self, batch: Vec<BusItem>) -> impl Future<Output = ()> + Send;
}

/// The owning handle of a task that follows the bus.
#[derive(Debug)]
pub struct ReaderTask {
    task: JoinSet<()>,
    stop: CancellationToken,
}

// === impl ReaderTask ===

impl ReaderTask {
    pub(super) fn start(reader: EventReader, consumer: impl Consume) -> Self {
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(follow(reader, stop.clone(), consumer));
        Self { task, stop }
    }

    /// Reads what has happened up to now and ends, within `bound`. Whether it came to the end.
    pub async fn finish(mut self, bound: Duration) -> bool {
        self.stop.cancel();
        matches!(
            tokio::time::timeout(bound, self.task.join_next()).await,
            Ok(Some(Ok(())))
        )
    }
}

async fn follow(mut reader: EventReader, stop: CancellationToken, mut consumer: impl Consume) {
    let mut stopping = false;
    loop {
        let mut batch = Vec::new();
        if !stopping {
            tokio::select! {
                reading = reader.next() => batch.push(reading),
                () = stop.cancelled() => stopping = true,
            }
        }
        batch.extend(std::iter::from_fn(|| reader.try_next()).take(BATCH));
        if !batch.is_empty() {
            consumer.consume(batch).await;
        } else if stopping {
            return;
        }
    }
}
