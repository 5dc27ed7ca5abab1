//! Identities that a cloud gives to what runs in it: short-lived tokens in the place of keys.
//!
//! A token is exchanged before the first request and renewed before it ends, by one request at a
//! time while the others use the old one. A token that a provider refuses is exchanged once, and
//! the request sent again with the new one. While a metadata service is away, a token is used until
//! it ends.
//!
//! The exchanges are the documented ones of each cloud, and own code: the crates for them
//! (`aws-config`, `google-cloud-auth`, `azure_identity`) bring HTTP clients, TLS and retries of
//! their own, which would pass by the proxies, certificates and limits that are configured here.

mod aws;
mod aws_places;
mod aws_profile;
mod aws_roles;
mod azure;
mod exchange;
mod google;
mod google_external;

use std::{fmt, sync::Arc, time::Duration};

use http::HeaderValue;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use self::exchange::TokenExchange;
use super::{
    BuildError,
    identity_spec::{Cloud, IdentitySpec},
    spec::ProviderSpec,
};
use crate::domain::{
    clock,
    failure::{ProviderError, TransportFault},
};

/// Time before its end at which a token is renewed: metadata services hand out a new one from five
/// minutes before on, and the same one until then.
const RENEWED_BEFORE: Duration = Duration::from_mins(4);
/// Share of its life at whose end a short-lived token is renewed.
const LAST_SHARE: u32 = 4;
/// Time for which an early renewal may hold up the request that makes it.
const EARLY_WITHIN: Duration = Duration::from_secs(2);
/// Time between two renewals of which the first brought nothing new.
const BETWEEN_RENEWALS: Duration = Duration::from_secs(10);
/// Waits between the exchanges for a token that is needed at once.
const WAITS: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
];

/// Proof of an identity.
#[derive(PartialEq, Eq)]
pub(super) enum Proof {
    /// Value of the `authorization` header.
    Bearer(HeaderValue),
    /// `{access key id}:{secret access key}:{session token}`, which sign requests.
    AwsKeys(String),
}

/// A proof and its end.
pub(super) struct IdentityToken {
    pub(super) proof: Proof,
    /// `None` if it does not end.
    ends_at: Option<Timestamp>,
    life: Duration,
}

/// Reason why there is no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IdentityError {
    /// The service that hands tokens out is away or throttles; later there may be one.
    Away {
        /// Description, without secrets.
        why: String,
        /// Stated wait.
        after: Option<Duration>,
    },
    /// There is none without another configuration or right.
    Refused(String),
}

/// The identity of one provider; cheap to clone.
#[derive(Clone)]
pub(super) struct CloudIdentity(Arc<IdentityState>);

struct IdentityState {
    spec: IdentitySpec,
    region: Option<String>,
    family: Arc<str>,
    exchange: TokenExchange,
    held: Mutex<HeldToken>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct HeldToken {
    token: Option<Arc<IdentityToken>>,
    /// Time before which no token is renewed early.
    not_before: Option<Instant>,
    /// Time of the last renewal that a refusal brought about.
    refused_at: Option<Instant>,
}

// === impl IdentityToken ===

impl IdentityToken {
    /// A bearer token that ends after `life`.
    fn bearer(token: &str, life: Duration) -> Result<Self, IdentityError> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| refused("the access token holds characters that no header takes"))?;
        value.set_sensitive(true);
        Ok(Self {
            proof: Proof::Bearer(value),
            ends_at: clock::wall_now().checked_add(life).ok(),
            life,
        })
    }

    /// Keys that sign, until this time.
    fn keys(keys: String, ends_at: Option<Timestamp>) -> Self {
        let left = ends_at.map(|end| end.duration_since(clock::wall_now()));
        let left = left.and_then(|left| Duration::try_from(left).ok());
        Self {
            proof: Proof::AwsKeys(keys),
            ends_at,
            life: left.unwrap_or_default(),
        }
    }

    /// Returns the `authorization` header, unless these are keys.
    pub(super) fn header(&self) -> Option<&HeaderValue> {
        match &self.proof {
            Proof::Bearer(value) => Some(value),
            Proof::AwsKeys(_) => None,
        }
    }

    /// Returns the keys, as a configured credential has them.
    pub(super) fn aws_keys(&self) -> Option<&str> {
        match &self.proof {
            Proof::Bearer(_) => None,
            Proof::AwsKeys(keys) => Some(keys),
        }
    }

    /// Returns the time that is left; `None` if it does not end.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        let left = self.ends_at?.duration_since(now);
        Some(Duration::try_from(left).unwrap_or_default())
    }

    fn is_due(&self, now: Timestamp) -> bool {
        let before = RENEWED_BEFORE.min(self.life / LAST_SHARE);
        self.left(now).is_some_and(|left| left <= before)
    }

    fn has_ended(&self, now: Timestamp) -> bool {
        self.left(now).is_some_and(|left| left.is_zero())
    }
}

// === impl IdentityError ===

impl IdentityError {
    fn away(why: impl Into<String>) -> Self {
        Self::Away {
            why: why.into(),
            after: None,
        }
    }

    /// Returns the facts of an attempt that had no token: it reached no provider.
    fn of_attempt(self, family: &Arc<str>) -> ProviderError {
        match self {
            Self::Away { why, .. } => ProviderError::transport(
                Arc::clone(family),
                TransportFault::Unreachable,
                format!("no token of the cloud identity: {why}"),
            ),
            Self::Refused(why) => ProviderError {
                provider: Arc::clone(family),
                message: Some(format!("Missing credentials: {why}")),
                ..ProviderError::default()
            },
        }
    }
}

fn refused(why: impl Into<String>) -> IdentityError {
    IdentityError::Refused(why.into())
}

// === impl CloudIdentity ===

impl CloudIdentity {
    /// The identity of a provider, if it has one; nothing is exchanged yet.
    pub(super) fn of(spec: &ProviderSpec) -> Result<Option<Self>, BuildError> {
        let Some(identity) = &spec.identity else {
            return Ok(None);
        };
        let exchange = TokenExchange::build(&spec.http).map_err(|source| BuildError::Tls {
            provider: Arc::clone(&spec.name),
            source,
        })?;
        Ok(Some(Self(Arc::new(IdentityState {
            spec: identity.clone(),
            region: spec.region.clone(),
            family: Arc::clone(&spec.family),
            exchange,
            held: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))))
    }

    /// Returns a token that has not ended.
    ///
    /// # Errors
    /// When there is none, as the fault of an attempt.
    pub(super) async fn token(&self) -> Result<Arc<IdentityToken>, ProviderError> {
        let state = &*self.0;
        let now = clock::wall_now();
        let held = state.held.lock().token.clone();
        let token = match held.filter(|token| !token.has_ended(now)) {
            Some(token) if !token.is_due(now) => Ok(token),
            Some(token) => Ok(state.renewed_early().await.unwrap_or(token)),
            None => state.exchanged_now().await,
        };
        token.map_err(|error| {
            // An attempt's failure does not repeat what others said.
            tracing::warn!(provider = %state.family, ?error, "the cloud identity has no token");
            error.of_attempt(&state.family)
        })
    }

    /// Returns another token in the place of one that the provider refused; `None` if there is no
    /// other one.
    pub(super) async fn instead_of(&self, used: &Arc<IdentityToken>) -> Option<Arc<IdentityToken>> {
        let state = &*self.0;
        let _turn = state.turn.lock().await;
        {
            let mut held = state.held.lock();
            let newer = held.token.as_ref();
            if let Some(newer) = newer.filter(|held| !Arc::ptr_eq(held, used)) {
                return Some(Arc::clone(newer));
            }
            // A right that is missing is refused again and again.
            let is_recent = held
                .refused_at
                .is_some_and(|at| at.elapsed() < BETWEEN_RENEWALS);
            if is_recent {
                return None;
            }
            held.refused_at = Some(Instant::now());
        }
        let renewed = timeout(EARLY_WITHIN, state.exchanged()).await.ok()?.ok()?;
        (renewed.proof != used.proof).then_some(renewed)
    }
}

impl fmt::Debug for CloudIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CloudIdentity")
            .field(&self.0.spec.cloud)
            .finish()
    }
}

// === impl IdentityState ===

impl IdentityState {
    /// Renews a token that still holds, unless another request does or just did.
    async fn renewed_early(&self) -> Option<Arc<IdentityToken>> {
        let _turn = self.turn.try_lock().ok()?;
        let waits = |held: &HeldToken| held.not_before.is_some_and(|at| Instant::now() < at);
        if waits(&self.held.lock()) {
            return None;
        }
        // Whatever comes of it, and if this request is dropped: the next one is not to try at once.
        self.held.lock().not_before = Some(Instant::now() + BETWEEN_RENEWALS);
        let renewed = timeout(EARLY_WITHIN, self.exchanged()).await;
        match renewed {
            Ok(Ok(token)) => Some(token),
            Ok(Err(error)) => {
                tracing::warn!(provider = %self.family, ?error, "a token of the cloud identity is not renewed yet");
                None
            }
            Err(_) => None,
        }
    }

    /// Exchanges a token that is needed at once; one request does, the others wait for it.
    async fn exchanged_now(&self) -> Result<Arc<IdentityToken>, IdentityError> {
        let _turn = self.turn.lock().await;
        let now = clock::wall_now();
        let held = self.held.lock().token.clone();
        if let Some(token) = held.filter(|token| !token.has_ended(now)) {
            return Ok(token);
        }
        let mut waits = WAITS.into_iter();
        loop {
            let error = match self.exchanged().await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            };
            let IdentityError::Away { after, .. } = &error else {
                return Err(error);
            };
            let Some(wait) = waits.next() else {
                return Err(error);
            };
            sleep(after.unwrap_or_default().min(WAITS[2]).max(wait)).await;
        }
    }

    async fn exchanged(&self) -> Result<Arc<IdentityToken>, IdentityError> {
        let token = match self.spec.cloud {
            Cloud::Aws => aws::token(&self.exchange, &self.spec, self.region.as_deref()).await,
            Cloud::Google => google::token(&self.exchange, &self.spec).await,
            Cloud::Azure => azure::token(&self.exchange, &self.spec).await,
        }?;
        let token = Arc::new(token);
        if token.has_ended(clock::wall_now()) {
            return Err(IdentityError::away(
                "the token that was handed out had ended",
            ));
        }
        let mut held = self.held.lock();
        held.token = Some(Arc::clone(&token));
        // One that is due at once came out of a cache, and would again.
        let is_due = token.is_due(clock::wall_now());
        held.not_before = is_due.then(|| Instant::now() + BETWEEN_RENEWALS);
        drop(held);
        Ok(token)
    }
}
