//! The events of all replicas for one watcher: each once, with its replica.
//!
//! Every replica has a feed of its own, which goes on from where it broke; the cursor holds the
//! position in each. A replica that joins later is read from its beginning, for everything that it
//! did is new to this watcher.

use std::{
    collections::{BTreeSet, HashMap},
    pin::Pin,
    sync::Arc,
};

use futures_util::{
    Stream, StreamExt as _,
    stream::{SelectAll, select_all},
};
use relight_fleet::FleetMember;
use tokio::time::{Instant, timeout_at};

use crate::{
    domain::{clock::wall_now, ids::Cursor},
    grpc::{
        auth::Identity,
        convert::{
            event::bookmark_at,
            fleet_cursor::{FleetCursor, ReplicaKey},
            time::wire_time,
        },
        peers::{FeedItem, FeedStart, PATIENCE, Peers, follow},
        v1::{self, recovery_event::Body},
    },
};

type Feed = Pin<Box<dyn Stream<Item = (Arc<FleetMember>, FeedItem)> + Send>>;

/// Position at which a watcher of all replicas starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MergeStart {
    /// With what happens from now on, at every replica.
    Live,
    /// With the oldest event that each has.
    Oldest,
    /// After these positions.
    After(FleetCursor),
}

/// One watcher of all replicas, or of some by name.
pub(super) struct MergedWatch {
    peers: Peers,
    identity: Identity,
    filter: v1::RecoveryEventFilter,
    /// Names of the replicas that are watched; empty for all.
    names: BTreeSet<String>,
    feeds: SelectAll<Feed>,
    /// Replicas whose feeds run, or ended in order, by id.
    followed: HashMap<String, ReplicaKey>,
    cursor: FleetCursor,
    /// The last positions at replicas that are gone, should they come back.
    gone: FleetCursor,
    /// Replicas that ended in order, by id.
    ended: HashMap<String, ReplicaKey>,
    /// Replicas of whose events before this watch nothing is known.
    unknown: Vec<FleetMember>,
    /// Whether a replica that is not followed yet joined after this watch began.
    are_newcomers: bool,
}

/// Position at a replica that was not reached yet by a watch of what happens from now on.
const NOT_REACHED: Cursor = Cursor(u64::MAX);

// === impl MergedWatch ===

impl MergedWatch {
    /// Watches this replica by `local`, and all others that live.
    pub(super) fn new(
        peers: Peers,
        (identity, mut filter): (Identity, v1::RecoveryEventFilter),
        start: &MergeStart,
        local: Feed,
    ) -> Self {
        let names = std::mem::take(&mut filter.replicas).into_iter().collect();
        let me = Arc::clone(peers.me());
        let own = ReplicaKey::of(&me.id);
        let mut merged = Self {
            identity,
            filter,
            names,
            feeds: select_all([local]),
            followed: HashMap::from([(me.id.clone(), own)]),
            cursor: FleetCursor::default(),
            gone: FleetCursor::default(),
            ended: HashMap::new(),
            unknown: Vec::new(),
            are_newcomers: false,
            peers,
        };
        for member in merged.strangers() {
            if start.position(&member.id) == Some(NOT_REACHED) {
                merged.unknown.push(member.clone());
            }
            let start = start.at(&member.id);
            merged.follow(member, start, false);
        }
        if let MergeStart::After(cursor) = start {
            for (replica, position) in cursor.positions() {
                if !merged.followed.values().any(|known| *known == replica) {
                    merged.gone.set(replica, position);
                }
            }
        }
        merged.are_newcomers = merged.is_fleet_known();
        merged
    }

    /// Returns the live replicas that are to be watched, and are not.
    fn strangers(&self) -> Vec<FleetMember> {
        let mut others = self.peers.others();
        others.retain(|member| !self.followed.contains_key(&member.id) && self.is_wanted(member));
        others
    }

    fn is_wanted(&self, member: &FleetMember) -> bool {
        self.names.is_empty()
            || self.names.contains(&member.name)
            || self.names.contains(&member.id)
    }

    fn follow(&mut self, member: FleetMember, start: FeedStart, is_new: bool) {
        let key = ReplicaKey::of(&member.id);
        self.followed.insert(member.id.clone(), key);
        // Until it says another one: a watcher that returns starts there.
        let position = match start {
            FeedStart::Live => NOT_REACHED,
            FeedStart::Oldest => Cursor(0),
            FeedStart::After(position) => position,
        };
        self.cursor.set(key, position);
        let caller = (self.identity.clone(), self.filter.clone());
        let feed = follow(self.peers.clone(), Arc::new(member), caller, start, is_new);
        self.feeds.push(Box::pin(feed));
    }

    /// Follows the replicas that joined.
    pub(super) fn join(&mut self) {
        let live = self.peers.others();
        let cursor = &mut self.cursor;
        self.ended.retain(|id, key| {
            let lives = live.iter().any(|member| member.id == *id);
            lives || cursor.take(*key).is_none()
        });
        for member in self.strangers() {
            let start = match self.gone.take(ReplicaKey::of(&member.id)) {
                Some(position) if position != NOT_REACHED => FeedStart::After(position),
                None if self.are_newcomers => FeedStart::Oldest,
                Some(_) | None => FeedStart::Live,
            };
            self.follow(member, start, true);
        }
        self.are_newcomers |= self.is_fleet_known();
    }

    fn is_fleet_known(&self) -> bool {
        self.peers.watch().is_some_and(|fleet| {
            let status = fleet.borrow();
            status.is_known && status.away.is_none()
        })
    }

    /// Waits a moment for the position of each replica, and returns what came meanwhile.
    pub(super) async fn begin(&mut self) -> Vec<(Arc<FleetMember>, FeedItem)> {
        let end = Instant::now() + PATIENCE;
        let mut early = Vec::new();
        let mut waiting: BTreeSet<String> = self.followed.keys().cloned().collect();
        while !waiting.is_empty() {
            let Ok(Some((member, item))) = timeout_at(end, self.feeds.next()).await else {
                break;
            };
            waiting.remove(&member.id);
            match item.bookmark() {
                Some(position) => self.cursor.set(ReplicaKey::of(&member.id), position),
                None => early.push((member, item)),
            }
        }
        early
    }

    /// Returns the first message, and notices of replicas that are gone since the cursor was given
    /// out: what they did last is not known.
    pub(super) fn first(&self) -> Vec<v1::RecoveryEvent> {
        let nobody = FleetMember::default();
        let gone = self.gone.positions().map(|_| self.uncounted(&nobody));
        let unknown = self.unknown.iter().map(|member| self.uncounted(member));
        let notices = gone.chain(unknown);
        [self.bookmark()].into_iter().chain(notices).collect()
    }

    /// Returns the next item of any replica; `None` never, as long as this replica watches. Cancel
    /// safe.
    pub(super) async fn next(&mut self) -> Option<(Arc<FleetMember>, FeedItem)> {
        self.feeds.next().await
    }

    /// Returns a message that keeps an idle watcher's cursor fresh.
    pub(super) fn bookmark(&self) -> v1::RecoveryEvent {
        bookmark_at(self.cursor.text(), wall_now())
    }

    /// Returns what the watcher receives of an item.
    pub(super) fn take(&mut self, member: &FleetMember, item: FeedItem) -> Vec<v1::RecoveryEvent> {
        let key = ReplicaKey::of(&member.id);
        match item {
            FeedItem::Event(event) => self.event(key, member, *event).into_iter().collect(),
            FeedItem::Lost(reason) => {
                let lost = v1::ReplicaLost {
                    reason,
                    gone: false,
                };
                vec![self.notice(member, Body::ReplicaLost(lost))]
            }
            FeedItem::Found { has_gap } => {
                let found = self.notice(member, Body::ReplicaFound(v1::ReplicaFound {}));
                let gap = has_gap.then(|| self.uncounted(member));
                [found].into_iter().chain(gap).collect()
            }
            FeedItem::Ended => {
                // It stays known as long as it seems to live, so that it is not taken for one that
                // joined.
                self.ended.insert(member.id.clone(), key);
                let reason = "it ended in order".to_owned();
                let gone = v1::ReplicaLost { reason, gone: true };
                vec![self.notice(member, Body::ReplicaLost(gone))]
            }
            FeedItem::Gone => {
                self.followed.remove(&member.id);
                if let Some(position) = self.cursor.take(key) {
                    self.gone.set(key, position);
                }
                let reason = "it is gone, and what it did last is not known".to_owned();
                let gone = v1::ReplicaLost { reason, gone: true };
                vec![
                    self.notice(member, Body::ReplicaLost(gone)),
                    self.uncounted(member),
                ]
            }
            FeedItem::Refused(_) => Vec::new(),
        }
    }

    fn event(
        &mut self,
        key: ReplicaKey,
        member: &FleetMember,
        mut event: v1::RecoveryEvent,
    ) -> Option<v1::RecoveryEvent> {
        let before = self.cursor.at(key);
        let from_cursor = self.cursor.text();
        if let Ok(position) = event.cursor.parse() {
            self.cursor.set(key, Cursor(position));
        }
        event.cursor = self.cursor.text();
        event.replica.clone_from(&member.name);
        match &mut event.body {
            Some(Body::Bookmark(_)) => return None,
            Some(Body::Missed(missed)) => {
                missed.from_cursor = before.map_or_else(String::new, |_| from_cursor);
                missed.to_cursor.clone_from(&event.cursor);
            }
            _ => {}
        }
        self.is_wanted(member).then_some(event)
    }

    /// Returns the notice of events that nobody can count any more.
    fn uncounted(&self, member: &FleetMember) -> v1::RecoveryEvent {
        let cursor = self.cursor.text();
        let missed = v1::Missed {
            count: 0,
            from_cursor: cursor.clone(),
            to_cursor: cursor,
        };
        self.notice(member, Body::Missed(missed))
    }

    fn notice(&self, member: &FleetMember, body: Body) -> v1::RecoveryEvent {
        let name = &member.name;
        let display_text = match &body {
            Body::ReplicaLost(lost) => {
                format!("The events of replica {name} do not come: {}", lost.reason)
            }
            Body::ReplicaFound(_) => format!("The events of replica {name} come"),
            _ => String::new(),
        };
        v1::RecoveryEvent {
            cursor: self.cursor.text(),
            time: Some(wire_time(wall_now())),
            severity: v1::Severity::Warning.into(),
            replica: name.clone(),
            display_text,
            body: Some(body),
            ..v1::RecoveryEvent::default()
        }
    }
}

// === impl MergeStart ===

impl MergeStart {
    /// Returns the start at one replica that lives when the watch begins. One without a position
    /// joined after the cursor was given out.
    pub(super) fn at(&self, id: &str) -> FeedStart {
        match self {
            Self::Live => FeedStart::Live,
            Self::Oldest => FeedStart::Oldest,
            Self::After(_) => match self.position(id) {
                Some(NOT_REACHED) => FeedStart::Live,
                Some(position) => FeedStart::After(position),
                None => FeedStart::Oldest,
            },
        }
    }

    fn position(&self, id: &str) -> Option<Cursor> {
        match self {
            Self::Live | Self::Oldest => None,
            Self::After(cursor) => cursor.at(ReplicaKey::of(id)),
        }
    }
}
