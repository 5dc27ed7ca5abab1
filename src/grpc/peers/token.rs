//! The token by which a replica proves to another that it is one, and says for whom it asks.
//!
//! It is signed with the fleet's key, and good for one method at one replica for a minute: whoever
//! reads it on the way can repeat a question, and nothing else. It gives no right to call models.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    config::{Config, server::CallerRole},
    domain::fold::hash_text,
    grpc::{
        auth::{Identity, Unrecognised},
        resume_token::TokenKey,
    },
};

/// The header of the token.
pub const PEER_HEADER: &str = "relight-peer";

/// The header of a refusal for the time alone, with the clock of the replica that was asked.
pub const PEER_CLOCK_HEADER: &str = "relight-peer-clock";

/// The methods at which a replica asks another.
const ASKED: [&str; 4] = [
    "/relight.v1.RecoveryService/WatchRecovery",
    "/relight.v1.RecoveryService/ListInvocations",
    "/relight.v1.AdminService/GetStatus",
    "/relight.v1.AdminService/ListTargets",
];

/// Longest difference from the clock of the replica that is asked, and so the longest time for which
/// a token is good.
const VALID_MS: u64 = 60_000;

/// A call of another replica, which speaks for one of its callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCall;

/// The key of the fleet at one replica.
#[derive(Debug, Clone)]
pub struct PeerKey {
    /// `None` as long as replicas need none.
    key: Option<TokenKey>,
    /// Id of this replica.
    me: String,
}

/// The content of a token.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PeerClaims {
    /// Id of the replica that is asked.
    to: String,
    method: String,
    at_ms: i64,
    tenant: String,
    role: CallerRole,
    routes: Vec<String>,
}

/// The clock of a replica that refused a token for its time.
#[derive(Debug, Serialize, Deserialize)]
struct PeerClock {
    clock_ms: i64,
    /// The hash of that token: it is said to the one that wrote it, and at once.
    refused: String,
}

// === impl PeerKey ===

impl PeerKey {
    /// The configured key, at the replica of this id.
    #[must_use]
    pub fn new(config: &Config, me: &str) -> Self {
        let key = config.fleet.key.as_ref();
        Self {
            key: key.map(|key| TokenKey::new(format!("peer {}", key.expose()).as_bytes())),
            me: me.to_owned(),
        }
    }

    /// Returns whether there is one, without which anybody may say that they are a replica.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.key.is_some()
    }

    fn key(&self) -> TokenKey {
        let key = self.key.clone();
        key.unwrap_or_else(|| TokenKey::new(b""))
    }

    /// Returns a token for one call of a method of the replica with this id.
    #[must_use]
    pub fn write(&self, to: &str, method: &str, identity: &Identity, now: Timestamp) -> String {
        let routes = identity.routes.iter().map(ToString::to_string);
        let claims = PeerClaims {
            to: to.to_owned(),
            method: method.to_owned(),
            at_ms: now.as_millisecond(),
            tenant: identity.tenant.to_string(),
            role: identity.role,
            routes: routes.collect(),
        };
        self.key()
            .seal(&serde_json::to_string(&claims).unwrap_or_default())
    }

    /// Returns what the clock here shows, for the replica that wrote a token of another time.
    #[must_use]
    pub fn write_clock(&self, token: &str, now: Timestamp) -> String {
        let clock = PeerClock {
            clock_ms: now.as_millisecond(),
            refused: hash_text(token),
        };
        self.key()
            .seal(&serde_json::to_string(&clock).unwrap_or_default())
    }

    /// Returns the clock of the replica that refused this token; `None` if it was said by nobody
    /// with this key, or of another token.
    #[must_use]
    pub fn read_clock(&self, clock: &str, token: &str) -> Option<Timestamp> {
        let text = self.key().open(clock)?;
        let clock: PeerClock = serde_json::from_str(&text).ok()?;
        let is_of_it = clock.refused == hash_text(token);
        let there = Timestamp::from_millisecond(clock.clock_ms).ok();
        there.filter(|_| is_of_it)
    }

    /// Returns the caller for whom another replica calls this method; `is_open`: whether nobody is
    /// authenticated here, so that a fleet without a key is asked.
    ///
    /// # Errors
    /// Returns the reason for which it is not another replica.
    pub fn identify(
        &self,
        token: &str,
        method: &str,
        is_open: bool,
        now: Timestamp,
    ) -> Result<Identity, Unrecognised> {
        if self.key.is_none() && !is_open {
            return Err(Unrecognised::NoFleetKey);
        }
        let claims: PeerClaims = self
            .key()
            .open(token)
            .and_then(|text| serde_json::from_str(&text).ok())
            .ok_or(Unrecognised::NotAPeer)?;
        if claims.to != self.me {
            return Err(Unrecognised::OtherReplica);
        }
        if claims.method != method || !ASKED.contains(&method) {
            return Err(Unrecognised::NotAPeer);
        }
        if now.as_millisecond().abs_diff(claims.at_ms) > VALID_MS {
            return Err(Unrecognised::PeerTooLate);
        }
        let routes = claims.routes.iter().map(|route| route.as_str().into());
        Ok(Identity {
            tenant: claims.tenant.as_str().into(),
            role: claims.role,
            routes: routes.collect(),
            until: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{RouteName, TenantId};

    const METHOD: &str = ASKED[0];

    fn key(text: &str, me: &str) -> PeerKey {
        let key = (!text.is_empty()).then(|| TokenKey::new(text.as_bytes()));
        let me = me.to_owned();
        PeerKey { key, me }
    }

    fn caller() -> Identity {
        Identity {
            tenant: TenantId::from("acme"),
            role: CallerRole::Watcher,
            routes: vec![RouteName::from("chat")],
            until: None,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millisecond(ms).unwrap()
    }

    #[test]
    fn a_token_is_good_for_one_replica_one_method_and_a_minute() {
        let now = at(1_000_000);
        let token = key("secret", "a").write("b", METHOD, &caller(), now);
        let b = key("secret", "b");
        let read = |key: &PeerKey, method, now| key.identify(&token, method, false, now);
        assert_eq!(read(&b, METHOD, now), Ok(caller()));
        assert_eq!(read(&b, METHOD, at(1_060_000)), Ok(caller()));
        for late in [at(1_060_001), at(939_999)] {
            assert_eq!(read(&b, METHOD, late), Err(Unrecognised::PeerTooLate));
        }
        let other = Err(Unrecognised::NotAPeer);
        assert_eq!(read(&b, ASKED[1], now), other);
        let c = key("secret", "c");
        assert_eq!(read(&c, METHOD, now), Err(Unrecognised::OtherReplica));
        assert_eq!(read(&key("another", "b"), METHOD, now), other);
    }

    #[test]
    fn a_clock_is_believed_of_a_replica_with_the_key_and_for_one_token_only() {
        let here = at(1_000_000);
        let there = at(9_000_000);
        let a = key("secret", "a");
        let token = a.write("b", METHOD, &caller(), here);
        let b = key("secret", "b");
        let refused = Err(Unrecognised::PeerTooLate);
        assert_eq!(b.identify(&token, METHOD, false, there), refused);
        let clock = b.write_clock(&token, there);
        assert_eq!(a.read_clock(&clock, &token), Some(there));
        // By that clock it is recognised, and the first token is not.
        let again = a.write("b", METHOD, &caller(), there);
        assert_eq!(b.identify(&again, METHOD, false, there), Ok(caller()));
        assert_eq!(b.identify(&token, METHOD, false, there), refused);
        // It is good for a minute of the clock there, whatever the one here shows.
        assert_eq!(b.identify(&again, METHOD, false, at(9_060_001)), refused);
        assert_eq!(b.identify(&again, METHOD, false, here), refused);
        // Whoever listens can say it to nobody else, and not make another one.
        assert_eq!(a.read_clock(&clock, &again), None);
        let forged = key("another", "b").write_clock(&token, there);
        assert_eq!(a.read_clock(&forged, &token), None);
        assert_eq!(a.read_clock(&token, &token), None);
        // Nor is it a token.
        let other = Err(Unrecognised::NotAPeer);
        assert_eq!(b.identify(&clock, METHOD, false, there), other);
    }

    #[test]
    fn no_token_calls_a_model() {
        let now = at(0);
        for method in [
            "/relight.v1.RecoveryService/InvokeWithRecovery",
            "/relight.v1.RecoveryService/CancelInvocation",
            "/relight.v1.AdminService/ForceCircuit",
        ] {
            let token = key("secret", "a").write("b", method, &caller(), now);
            let read = key("secret", "b").identify(&token, method, true, now);
            assert_eq!(read, Err(Unrecognised::NotAPeer), "{method}");
        }
    }

    #[test]
    fn without_a_key_replicas_are_known_only_where_callers_are_not_authenticated() {
        let now = at(0);
        let token = key("", "a").write("b", METHOD, &caller(), now);
        let b = key("", "b");
        assert_eq!(b.identify(&token, METHOD, true, now), Ok(caller()));
        let refused = Err(Unrecognised::NoFleetKey);
        assert_eq!(b.identify(&token, METHOD, false, now), refused);
        // A replica that has one takes no other, whoever may call.
        let refused = Err(Unrecognised::NotAPeer);
        assert_eq!(key("k", "b").identify(&token, METHOD, true, now), refused);
    }
}
