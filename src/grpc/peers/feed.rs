//! The events of one other replica, as they are watched there: after a break they go on from where
//! they were.

use std::{sync::Arc, time::Duration};

use async_stream::stream;
use futures_util::Stream;
use relight_fleet::{FleetMember, FleetStatus};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt as _;

use super::{Asking, MAX_RESPONSE_BYTES, PATIENCE, Peers, Question, words};
use crate::{
    domain::ids::Cursor,
    grpc::{
        auth::Identity,
        convert::event::{cursor_text, parse_cursor},
        v1::{
            self, recovery_event::Body, recovery_service_client::RecoveryServiceClient,
            watch_recovery_request::Start,
        },
    },
};

const METHOD: &str = "/relight.v1.RecoveryService/WatchRecovery";

/// The wait before a broken feed is taken up again: doubled each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Time for which a replica that is not known to live may be unreachable before it is gone: a store
/// that comes back has forgotten everybody for a moment.
const GONE_AFTER: Duration = Duration::from_secs(3);

/// Position at which the feed of a replica starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::grpc) enum FeedStart {
    /// With what happens from now on.
    Live,
    /// With the oldest event that it has.
    Oldest,
    /// After this one.
    After(Cursor),
}

/// Item of a feed.
#[derive(Debug)]
pub(in crate::grpc) enum FeedItem {
    /// An event, with the cursor of its replica alone.
    Event(Box<v1::RecoveryEvent>),
    /// The replica cannot be reached, for this reason; it is tried again.
    Lost(String),
    /// It is reached, as it was not before; if set, what it did meanwhile is not known.
    Found { has_gap: bool },
    /// It ended in order, and everything came.
    Ended,
    /// It is gone, and what it did last is not known.
    Gone,
    /// The caller may not watch any longer.
    Refused(Status),
}

/// Follows a replica, for a caller, until it is gone. With `is_new` its first events are announced.
pub(in crate::grpc) fn follow(
    peers: Peers,
    member: Arc<FleetMember>,
    (identity, filter): (Identity, v1::RecoveryEventFilter),
    start: FeedStart,
    is_new: bool,
) -> impl Stream<Item = (Arc<FleetMember>, FeedItem)> + Send {
    stream! {
        let mut at = start;
        let mut is_announced = !is_new;
        let mut is_silent = false;
        // A connection that only broke is made anew at once; that is no news.
        let mut wait = None;
        let mut since = Instant::now();
        let fleet = peers.watch();
        loop {
            let opened = open(&peers, &member, (&identity, &filter), at).await;
            let reason = match opened {
                Err(reason) => {
                    if !is_silent && wait != Some(Duration::ZERO) {
                        is_silent = true;
                        yield (Arc::clone(&member), FeedItem::Lost(reason.clone()));
                    }
                    reason
                }
                Ok(mut events) => {
                    if is_silent || !is_announced {
                        let has_gap = is_silent && at == FeedStart::Live;
                        yield (Arc::clone(&member), FeedItem::Found { has_gap });
                    }
                    (is_silent, is_announced) = (false, true);
                    let status = loop {
                        match events.message().await {
                            Ok(Some(response)) => {
                                let Some(event) = response.event else { continue };
                                if let Ok(cursor) = parse_cursor(&event.cursor) {
                                    at = FeedStart::After(cursor);
                                }
                                yield (Arc::clone(&member), FeedItem::Event(Box::new(event)));
                            }
                            Ok(None) => break Status::unavailable("it ended the watch"),
                            Err(status) => break status,
                        }
                    };
                    if is_in_order(&status) {
                        yield (member, FeedItem::Ended);
                        return;
                    }
                    since = Instant::now();
                    wait = Some(Duration::ZERO);
                    words(&status)
                }
            };
            tracing::debug!(replica = member.name, reason, "the events of a replica do not come");
            if since.elapsed() >= GONE_AFTER && is_gone(fleet.as_ref(), &member) {
                yield (member, FeedItem::Gone);
                return;
            }
            let next = wait.unwrap_or(FIRST_WAIT);
            sleep(next).await;
            wait = Some((next * 2).clamp(FIRST_WAIT, LONGEST_WAIT));
        }
    }
}

/// Works as [`connect`], in time.
async fn open(
    peers: &Peers,
    member: &FleetMember,
    caller: (&Identity, &v1::RecoveryEventFilter),
    start: FeedStart,
) -> Result<Streaming<v1::WatchRecoveryResponse>, String> {
    let opened = timeout(PATIENCE, connect(peers, member, caller, start)).await;
    let opened = opened.unwrap_or_else(|_| Err(format!("no response within {PATIENCE:?}")));
    peers.note(member, opened.as_ref().map(|_| ()).map_err(Clone::clone));
    opened
}

/// Opens the feed on a connection of its own: a slow watcher keeps nobody else's events back.
async fn connect(
    peers: &Peers,
    member: &FleetMember,
    (identity, filter): (&Identity, &v1::RecoveryEventFilter),
    start: FeedStart,
) -> Result<Streaming<v1::WatchRecoveryResponse>, String> {
    let channel = peers.endpoint(member).await?.connect().await;
    let channel = channel.map_err(|error| words(&Status::from_error(Box::new(error))))?;
    let start = match start {
        FeedStart::Live => Start::Live(true),
        FeedStart::Oldest => Start::FromStart(true),
        FeedStart::After(cursor) => Start::After(cursor_text(cursor)),
    };
    let message = v1::WatchRecoveryRequest {
        filter: Some(filter.clone()),
        start: Some(start),
    };
    let question = Question {
        method: METHOD,
        identity,
    };
    let watch = |request: Request<()>| -> Asking<_> {
        let request = request.map(|()| message.clone());
        let client = RecoveryServiceClient::new(channel.clone());
        let mut client = client.max_decoding_message_size(MAX_RESPONSE_BYTES);
        Box::pin(async move { client.watch_recovery(request).await })
    };
    let watched = peers.call(member, question, watch).await;
    watched.map_err(|status| words(&status))
}

/// Returns whether a replica ended its feed because it drained, after all its events.
fn is_in_order(status: &Status) -> bool {
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| info.reason.as_str());
    status.code() == Code::Unavailable && reason == Some("DRAINING")
}

/// Returns whether a replica is known not to live.
fn is_gone(fleet: Option<&watch::Receiver<FleetStatus>>, member: &FleetMember) -> bool {
    fleet.is_none_or(|fleet| {
        let status = fleet.borrow();
        let lives = status.live.iter().any(|live| live.id == member.id);
        status.away.is_none() && !lives
    })
}

impl FeedItem {
    /// Returns the position that the first message of every feed says.
    pub(in crate::grpc) fn bookmark(&self) -> Option<Cursor> {
        match self {
            Self::Event(event) if matches!(event.body, Some(Body::Bookmark(_))) => {
                parse_cursor(&event.cursor).ok()
            }
            Self::Event(_)
            | Self::Lost(_)
            | Self::Found { .. }
            | Self::Ended
            | Self::Gone
            | Self::Refused(_) => None,
        }
    }
}
