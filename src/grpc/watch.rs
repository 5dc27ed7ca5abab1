//! `WatchRecovery`: recovery events as they happen, from any cursor on.
//!
//! A watcher holds only a cursor. One that is too slow is informed how many events it missed and
//! continues; an idle one receives a bookmark now and then, so that its cursor stays fresh.

use std::{pin::Pin, time::Duration};

use async_stream::stream;
use futures_util::Stream;
use tonic::Status;

use super::{
    auth::Identity,
    convert::{
        event::{bookmark, missed, recovery_event},
        filter::EventFilter,
        request::WatchStart,
    },
    recovery::Recovery,
    status, v1,
};
use crate::{
    config::fault::nearest,
    domain::{
        clock,
        event::{Event, EventBody},
        ids::{Cursor, RouteName, TargetId},
    },
    engine::Engine,
    events::BusItem,
};

/// Silence after which a watcher receives a bookmark.
const BOOKMARK_AFTER: Duration = Duration::from_secs(15);

/// When a watcher that a drain disconnected may return.
const RETRY_AFTER: Duration = Duration::from_secs(1);

type Watching = Pin<Box<dyn Stream<Item = Result<v1::WatchRecoveryResponse, Status>> + Send>>;

/// What a watcher gets.
pub(super) fn stream(
    recovery: &Recovery,
    identity: Identity,
    filter: EventFilter,
    start: WatchStart,
) -> Watching {
    let events = recovery.engine.events();
    let mut reader = match start {
        WatchStart::After(cursor) => events.reader(cursor),
        WatchStart::Oldest => events.reader(Cursor(0)),
        WatchStart::Live => events.live(),
    };
    let drain = recovery.drain.clone();
    let watcher = drain.watch();
    Box::pin(stream! {
        // The first message is the watcher's position, so that it can return to it whatever happens
        // next.
        yield Ok(response(bookmark(reader.position(), clock::wall_now())));
        loop {
            let reading = tokio::select! {
                biased;
                reading = reader.next() => reading,
                () = drain.drained() => {
                    yield Err(status::draining(RETRY_AFTER));
                    return;
                }
                () = tokio::time::sleep(BOOKMARK_AFTER) => {
                    yield Ok(response(bookmark(reader.position(), clock::wall_now())));
                    continue;
                }
            };
            match reading {
                BusItem::Event(event) => {
                    if may_see(&identity, &event) && filter.matches(&event)
                        && let Some(event) = recovery_event(&event) {
                            yield Ok(response(event));
                        }
                }
                BusItem::Missed { count, from, to } => {
                    watcher.missed(count);
                    yield Ok(response(missed(count, from, to, clock::wall_now())));
                }
            }
        }
    })
}

/// Refuses a filter on a route or target that is not configured: nothing would ever match it.
///
/// # Errors
/// `NOT_FOUND` with the nearest name.
pub(super) fn check_names(
    engine: &Engine,
    identity: &Identity,
    filter: &EventFilter,
) -> Result<(), Status> {
    let config = engine.config();
    for route in filter.routes() {
        if !config.routes.contains_key(&RouteName::from(route)) {
            let names = config
                .routes
                .keys()
                .filter(|name| identity.may_use(name).is_ok());
            let names: Vec<&str> = names.map(RouteName::as_str).collect();
            return Err(status::route_not_found(route, nearest(route, &names)));
        }
    }
    for target in filter.targets() {
        if !config.targets.contains_key(&TargetId::from(target)) {
            let names: Vec<&str> = config.targets.keys().map(TargetId::as_str).collect();
            return Err(status::not_found("target", target, nearest(target, &names)));
        }
    }
    Ok(())
}

/// A caller sees the invocations of its tenant on the routes that it may use, and what happens to
/// targets; changes of the configuration are for those who administer.
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
