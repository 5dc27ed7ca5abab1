//! `WatchRecovery`: recovery events as they happen, from any cursor on.
//!
//! A watcher holds only a cursor. One that is too slow is informed how many events it missed and
//! continues; an idle one receives a bookmark now and then, so that its cursor stays fresh.

mod local;
mod merged;

use std::{pin::Pin, sync::Arc, time::Duration};

use async_stream::stream;
use futures_util::{Stream, StreamExt as _};
use tokio::time::sleep;
use tonic::Status;

use self::{
    local::LocalWatch,
    merged::{MergeStart, MergedWatch},
};
use super::{
    auth::{Access, Identity},
    convert::{filter::EventFilter, request::WatchStart},
    peers::{FeedItem, FeedStart},
    recovery::Recovery,
    v1,
};
use crate::{
    call_error::{
        CallError,
        table::{ROUTE_NOT_FOUND, TARGET_NOT_FOUND},
    },
    config::fault::nearest,
    domain::{
        event::{Event, EventBody},
        ids::{RouteName, TargetId},
    },
};

/// Silence after which a watcher receives a bookmark.
const BOOKMARK_AFTER: Duration = Duration::from_secs(15);

type Watching = Pin<Box<dyn Stream<Item = Result<v1::WatchRecoveryResponse, Status>> + Send>>;

/// A request to watch.
pub(super) struct WatchCall {
    pub(super) identity: Identity,
    pub(super) access: Option<Access>,
    /// The filter as it came, for other replicas.
    pub(super) wire: v1::RecoveryEventFilter,
    pub(super) filter: EventFilter,
    pub(super) start: WatchStart,
    /// Whether another replica watches, for its callers.
    pub(super) is_peer: bool,
}

/// Returns the events of this replica, and of all others in its fleet, for a watcher.
pub(super) fn stream(recovery: &Recovery, call: WatchCall) -> Watching {
    let peers = recovery.peers.clone();
    let WatchCall {
        identity,
        access,
        wire,
        filter,
        start,
        is_peer,
    } = call;
    let local = LocalWatch {
        identity: identity.clone(),
        access,
        filter,
        is_peer,
    };
    let own = start.at(&peers.me().id);
    let feed = local::stream(recovery, local, own);
    let Some(mut fleet) = peers.watch().filter(|_| !is_peer) else {
        return feed;
    };
    let start = match start {
        // A position of one replica is of this one.
        WatchStart::Live | WatchStart::After(_) => MergeStart::Live,
        WatchStart::Oldest => MergeStart::Oldest,
        WatchStart::AfterAll(cursor) => MergeStart::After(cursor),
    };
    let me = Arc::clone(peers.me());
    let feed = feed.map(move |event| {
        let item = match event {
            Ok(event) => FeedItem::Event(Box::new(event.event.unwrap_or_default())),
            Err(status) => FeedItem::Refused(status),
        };
        (Arc::clone(&me), item)
    });
    let mut merged = MergedWatch::new(peers, (identity, wire), &start, Box::pin(feed));
    Box::pin(stream! {
        let mut early = merged.begin().await.into_iter();
        for event in merged.first() {
            yield Ok(response(event));
        }
        loop {
            let next = if let Some(item) = early.next() {
                Some(item)
            } else {
                tokio::select! {
                    next = merged.next() => next,
                    Ok(()) = fleet.changed() => {
                        merged.join();
                        continue;
                    }
                    () = sleep(BOOKMARK_AFTER) => {
                        yield Ok(response(merged.bookmark()));
                        continue;
                    }
                }
            };
            match next {
                None => return,
                Some((_, FeedItem::Refused(status))) => {
                    yield Err(status);
                    return;
                }
                Some((member, item)) => {
                    for event in merged.take(&member, item) {
                        yield Ok(response(event));
                    }
                }
            }
        }
    })
}

// === impl WatchStart ===

impl WatchStart {
    /// Returns the start at the replica with this id.
    fn at(&self, id: &str) -> FeedStart {
        match self {
            Self::Live => FeedStart::Live,
            Self::Oldest => FeedStart::Oldest,
            Self::After(cursor) => FeedStart::After(*cursor),
            Self::AfterAll(cursor) => MergeStart::After(cursor.clone()).at(id),
        }
    }
}

/// Refuses a filter on a route, target or replica that is not there: nothing would ever match it.
///
/// # Errors
/// `NOT_FOUND` with the nearest name.
pub(super) fn check_names(recovery: &Recovery, call: &WatchCall) -> Result<(), CallError> {
    let WatchCall {
        identity,
        filter,
        wire,
        ..
    } = call;
    if call.is_peer {
        // Its configuration may have others.
        return Ok(());
    }
    for replica in &wire.replicas {
        recovery.peers.named(replica)?;
    }
    let config = recovery.engine.config();
    for route in filter.routes() {
        if !config.routes.contains_key(&RouteName::from(route)) {
            let names = config
                .routes
                .keys()
                .filter(|name| identity.may_use(name).is_ok());
            let names: Vec<&str> = names.map(RouteName::as_str).collect();
            let nearest = nearest(route, &names);
            return Err(CallError::not_found(ROUTE_NOT_FOUND, route, nearest));
        }
    }
    for target in filter.targets() {
        if !config.targets.contains_key(&TargetId::from(target)) {
            let names: Vec<&str> = config.targets.keys().map(TargetId::as_str).collect();
            let nearest = nearest(target, &names);
            return Err(CallError::not_found(TARGET_NOT_FOUND, target, nearest));
        }
    }
    Ok(())
}

/// Returns whether a caller sees an event: it sees the invocations of its tenant on the routes that
/// it may use, and what happens to targets; changes of the configuration are for those who
/// administer.
fn may_see(identity: &Identity, event: &Event) -> bool {
    let of_operators = matches!(
        event.body,
        EventBody::ConfigurationReloaded { .. } | EventBody::ConfigurationRejected { .. }
    );
    identity.is_admin()
        || event.scope.as_ref().map_or(!of_operators, |scope| {
            scope.tenant == identity.tenant && identity.may_use(&scope.route).is_ok()
        })
}

fn response(event: v1::RecoveryEvent) -> v1::WatchRecoveryResponse {
    v1::WatchRecoveryResponse { event: Some(event) }
}
