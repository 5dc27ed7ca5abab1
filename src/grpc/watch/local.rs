//! The events of this replica for one watcher.

use std::time::Duration;

use async_stream::stream;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::{BOOKMARK_AFTER, Watching, may_see, response};
use crate::{
    call_error::{CallError, table::DRAINING},
    domain::{clock, ids::Cursor},
    events::BusItem,
    grpc::{
        auth::{Access, Identity, withdrawn},
        convert::{
            event::{bookmark, missed, recovery_event},
            filter::EventFilter,
        },
        peers::FeedStart,
        recovery::Recovery,
    },
};

/// Interval at which a replica that drains looks for the end of its last invocations.
const LOOK: Duration = Duration::from_millis(20);

/// Time without an invocation after which none comes any more: clients know by then that this
/// replica drains (`server/shutdown.rs`).
const SETTLED: Duration = Duration::from_secs(1);

/// A watcher of this replica.
pub(super) struct LocalWatch {
    pub(super) identity: Identity,
    pub(super) access: Option<Access>,
    pub(super) filter: EventFilter,
    /// Whether another replica watches, for its callers.
    pub(super) is_peer: bool,
}

/// Returns the events for a watcher, until it may no longer watch them.
pub(super) fn stream(recovery: &Recovery, watch: LocalWatch, start: FeedStart) -> Watching {
    let LocalWatch {
        identity,
        access,
        filter,
        is_peer,
    } = watch;
    let events = recovery.engine.events();
    let mut reader = match start {
        FeedStart::After(cursor) => events.reader(cursor),
        FeedStart::Oldest => events.reader(Cursor(0)),
        FeedStart::Live => events.live(),
    };
    let drain = recovery.drain.clone();
    // A caller is counted by the replica that it watches.
    let watcher = (!is_peer).then(|| drain.watch());
    let ended = ended(recovery.clone(), is_peer);
    Box::pin(stream! {
        // The first message is the watcher's position, so that it can return to it whatever happens
        // next.
        yield Ok(response(bookmark(reader.position(), clock::wall_now())));
        let withdrawn = withdrawn(access, |now| now.covers(&identity));
        tokio::pin!(withdrawn, ended);
        loop {
            let reading = tokio::select! {
                biased;
                why = &mut withdrawn => {
                    yield Err(Status::from(CallError::from(why)));
                    return;
                }
                reading = reader.next() => reading,
                () = &mut ended => {
                    yield Err(Status::from(CallError::new(DRAINING)));
                    return;
                }
                () = sleep(BOOKMARK_AFTER) => {
                    yield Ok(response(bookmark(reader.position(), clock::wall_now())));
                    continue;
                }
            };
            let event = match reading {
                BusItem::Event(event) if may_see(&identity, &event) && filter.matches(&event) => {
                    recovery_event(&event)
                }
                BusItem::Event(_) => None,
                BusItem::Missed { count, from, to } => {
                    if let Some(watcher) = &watcher {
                        watcher.missed(count);
                    }
                    Some(missed(count, from, to, clock::wall_now()))
                }
            };
            if let Some(event) = event {
                yield Ok(response(event));
            }
        }
    })
}

/// Completes when this replica drains. Other replicas get the events of its last invocations, too:
/// their watchers stay.
async fn ended(recovery: Recovery, is_peer: bool) {
    recovery.drain.drained().await;
    let mut idle_since = Instant::now();
    while is_peer && idle_since.elapsed() < SETTLED {
        if recovery.engine.in_flight() > 0 || recovery.executions.running() > 0 {
            idle_since = Instant::now();
        }
        sleep(LOOK).await;
    }
}
