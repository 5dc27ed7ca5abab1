//! The clocks of other replicas, which may be hours apart from the one here.
//!
//! A token is good for a minute by the clock of the replica that is asked, and nothing else counts.
//! One that refuses a token for its time alone says what its clock shows, signed with the fleet's
//! key and for that token; this one then asks once more, by that clock.

use std::{collections::HashMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use relight_fleet::FleetMember;
use tonic::{Request, Response, Status};

use super::{
    Asking, PEER_HEADER, Peers, Question,
    token::{PEER_CLOCK_HEADER, PeerKey},
};
use crate::domain::clock::wall_now;

/// Time by which the clock of each replica is ahead of the one here, by its id; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct PeerClocks(Arc<Mutex<HashMap<String, SignedDuration>>>);

// === impl PeerClocks ===

impl PeerClocks {
    /// Returns what the clock of a replica shows, as far as is known.
    pub(super) fn now_at(&self, id: &str) -> Timestamp {
        let ahead = self.0.lock().get(id).copied().unwrap_or_default();
        let now = wall_now();
        now.checked_add(ahead).unwrap_or(now)
    }

    /// Takes over the clock of a replica that refused this token; returns whether it said it.
    fn learn(&self, member: &FleetMember, key: &PeerKey, token: &str, refusal: &Status) -> bool {
        let clock = refusal.metadata().get(PEER_CLOCK_HEADER);
        let clock = clock.and_then(|clock| clock.to_str().ok());
        let Some(there) = clock.and_then(|clock| key.read_clock(clock, token)) else {
            return false;
        };
        let ahead = there.duration_since(wall_now());
        tracing::warn!(
            replica = member.name,
            ahead_seconds = ahead.as_secs(),
            "the clock of another replica differs"
        );
        self.0.lock().insert(member.id.clone(), ahead);
        true
    }

    /// Forgets the clocks of replicas that are gone.
    pub(super) fn keep(&self, live: &[FleetMember]) {
        let mut known = self.0.lock();
        known.retain(|id, _| live.iter().any(|member| member.id == *id));
    }
}

// === impl Peers ===

impl Peers {
    /// Calls another replica, and once more if its clock differs.
    pub(super) async fn call<T>(
        &self,
        member: &FleetMember,
        question: Question<'_>,
        call: impl Fn(Request<()>) -> Asking<T>,
    ) -> Result<T, Status> {
        let request = self.request(member, question);
        let token = request.metadata().get(PEER_HEADER).cloned();
        let ended = call(request).await;
        let token = token.as_ref().and_then(|token| token.to_str().ok());
        if let (Err(refusal), Some(token)) = (&ended, token)
            && self.clocks.learn(member, &self.key, token, refusal)
        {
            let again = call(self.request(member, question)).await;
            return again.map(Response::into_inner);
        }
        ended.map(Response::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tonic::metadata::MetadataValue;

    use super::*;
    use crate::{
        config::{Config, Secret},
        fleet::Replicas,
        grpc::auth::{Identity, Unrecognised},
    };

    const METHOD: &str = "/relight.v1.AdminService/GetStatus";

    fn config(key: &str) -> Config {
        let mut config = Config::default();
        config.fleet.key = Some(Secret::new(key));
        config
    }

    fn member(id: &str) -> FleetMember {
        FleetMember {
            id: id.to_owned(),
            name: id.to_owned(),
            ..FleetMember::default()
        }
    }

    /// Asks a replica whose clock is so many hours ahead and whose key is this one; returns whether
    /// it recognised this replica, and how often it was called.
    async fn ask(peers: &Peers, key: &str, hours: i64) -> (bool, u32) {
        let there = PeerKey::new(&config(key), "b");
        let ahead = SignedDuration::from_hours(hours);
        let calls = Cell::new(0);
        let call = |request: Request<()>| -> Asking<()> {
            calls.set(calls.get() + 1);
            let token = request.metadata().get(PEER_HEADER).unwrap();
            let token = token.to_str().unwrap();
            let now = wall_now().checked_add(ahead).unwrap();
            let recognised = there.identify(token, METHOD, false, now);
            let called = recognised.map(|_| Response::new(())).map_err(|reason| {
                let mut refusal = Status::unauthenticated("");
                if reason == Unrecognised::PeerTooLate {
                    let clock = MetadataValue::try_from(there.write_clock(token, now));
                    refusal
                        .metadata_mut()
                        .insert(PEER_CLOCK_HEADER, clock.unwrap());
                }
                refusal
            });
            Box::pin(std::future::ready(called))
        };
        let nobody = Identity::of_replica();
        let question = Question {
            method: METHOD,
            identity: &nobody,
        };
        let called = peers.call(&member("b"), question, call).await;
        (called.is_ok(), calls.get())
    }

    #[tokio::test]
    async fn a_replica_whose_clock_is_hours_apart_is_asked_twice_once_and_once_from_then_on() {
        let peers = Peers::new(&config("the-key"), member("a"), Replicas::default());
        assert_eq!(ask(&peers, "the-key", 5).await, (true, 2));
        assert_eq!(ask(&peers, "the-key", 5).await, (true, 1));
        // Its clock was set right.
        assert_eq!(ask(&peers, "the-key", 0).await, (true, 2));
        assert_eq!(ask(&peers, "the-key", -300).await, (true, 2));
    }

    #[tokio::test]
    async fn one_with_another_key_is_asked_once_whatever_its_clock() {
        let peers = Peers::new(&config("the-key"), member("a"), Replicas::default());
        assert_eq!(ask(&peers, "another-key", 0).await, (false, 1));
        assert_eq!(ask(&peers, "another-key", 5).await, (false, 1));
    }
}
