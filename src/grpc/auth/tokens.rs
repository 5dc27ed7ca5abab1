//! Callers by JSON Web Token: verified with the keys of the identity provider, which are fetched
//! again as they are rotated.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::{sync::Mutex, time::Instant};

use super::{
    Identity, Unrecognised, is_usable_name,
    signing_keys::{SignatureFault, SigningKeys},
};
use crate::{
    config::server::{CallerRole, JwtConfig},
    domain::{
        clock::wall_now,
        ids::{RouteName, TenantId},
    },
    outbound,
    policy::shown_url::shown_url,
};

/// Longest token.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Most bytes of a key set.
const MAX_SET_BYTES: usize = 256 << 10;

/// Largest difference of the clocks when `exp` and `nbf` are judged.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// Interval at which the keys are fetched again.
const REFRESH: Duration = Duration::from_mins(5);

/// Shortest interval at which keys are fetched because a token names one that is not known.
const QUIET: Duration = Duration::from_secs(10);

/// Maximum time for fetching the keys.
const FETCH_BOUND: Duration = Duration::from_secs(5);

/// Verifies tokens, and keeps the keys for that.
#[derive(Debug)]
pub struct TokenVerifier {
    settings: JwtConfig,
    keys: ArcSwap<SigningKeys>,
    /// Time of the last fetch of the keys, or of the attempt at it; held while it runs.
    fetched: Mutex<Option<Instant>>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<Value>,
}

/// The claims that are judged. A value of the wrong type is a broken token and not a missing claim.
#[derive(Deserialize)]
struct Claims {
    exp: f64,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<Audience>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

// === impl TokenVerifier ===

impl TokenVerifier {
    /// A verifier that has no keys yet.
    pub fn new(settings: JwtConfig) -> Self {
        Self {
            settings,
            keys: ArcSwap::default(),
            fetched: Mutex::new(None),
        }
    }

    /// Returns whether a bearer credential has the form of a token: three parts between dots, of
    /// which an API key has none.
    pub(super) fn is_token(credential: &str) -> bool {
        credential.split('.').count() == 3
    }

    /// Fetches the keys now and then, as long as the server lives.
    pub async fn keep_fresh(self: Arc<Self>) {
        loop {
            let fetched = self.fetch(&mut *self.fetched.lock().await).await;
            // Without any key no token is accepted: that is not waited for as long.
            let wait = if fetched { REFRESH } else { REFRESH.min(QUIET) };
            tokio::time::sleep(wait).await;
        }
    }

    /// Fetches the keys if they were not fetched since `needed_at`, and not just now; returns
    /// whether they are new.
    pub(super) async fn fetch_since(&self, needed_at: Instant) -> bool {
        let mut fetched = self.fetched.lock().await;
        match *fetched {
            Some(at) if at >= needed_at => true,
            Some(at) if at.elapsed() < QUIET => false,
            Some(_) | None => self.fetch(&mut fetched).await,
        }
    }

    async fn fetch(&self, fetched: &mut Option<Instant>) -> bool {
        let read = tokio::time::timeout(FETCH_BOUND, self.source()).await;
        *fetched = Some(Instant::now());
        let read = read
            .unwrap_or_else(|_| Err(format!("nothing came within {} s", FETCH_BOUND.as_secs())));
        match read.and_then(|text| SigningKeys::read(&text)) {
            Ok(keys) => {
                tracing::debug!(keys = keys.len(), "the signing keys of tokens were fetched");
                self.keys.store(Arc::new(keys));
                true
            }
            Err(reason) => {
                let kept = self.keys.load().len();
                tracing::warn!(
                    reason,
                    kept,
                    "the signing keys of tokens cannot be fetched; those there are stay in force"
                );
                false
            }
        }
    }

    async fn source(&self) -> Result<Vec<u8>, String> {
        if let Some(file) = &self.settings.jwks_file {
            let text = tokio::fs::read(file)
                .await
                .map_err(|error| format!("{}: {error}", file.display()))?;
            return if text.len() > MAX_SET_BYTES {
                Err(format!("{}: too large", file.display()))
            } else {
                Ok(text)
            };
        }
        let url = self.settings.jwks_url.as_deref().unwrap_or_default();
        outbound::fetch(url, MAX_SET_BYTES)
            .await
            .map_err(|reason| format!("{}: {reason}", shown_url(url)))
    }

    /// Returns who a token says that its bearer is.
    ///
    /// # Errors
    /// Returns the reason for which it is not accepted.
    pub(super) fn identify(&self, token: &str) -> Result<Identity, Unrecognised> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(Unrecognised::BrokenToken);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Unrecognised::BrokenToken)?;
        let (header, claims) = signed.split_once('.').ok_or(Unrecognised::BrokenToken)?;
        let header: Header = part(header)?;
        // Extensions that change what a token means are not known here.
        if header.crit.is_some() {
            return Err(Unrecognised::BrokenToken);
        }
        let signature = BASE64
            .decode(signature)
            .map_err(|_| Unrecognised::BrokenToken)?;
        let keys = self.keys.load();
        keys.verify(
            &header.alg,
            header.kid.as_deref(),
            signed.as_bytes(),
            &signature,
        )
        .map_err(|fault| match fault {
            SignatureFault::UnknownKey => Unrecognised::UnknownSigner,
            SignatureFault::Wrong => Unrecognised::WrongSignature,
        })?;
        let claims: Claims = part(claims)?;
        self.judge(&claims)?;
        Ok(Identity {
            until: Self::end(&claims),
            ..self.identity(&claims.others)?
        })
    }

    /// Returns the keys in force.
    pub(super) fn keys_in_force(&self) -> Arc<SigningKeys> {
        self.keys.load_full()
    }

    /// Returns the time from which a token is no longer valid.
    fn end(claims: &Claims) -> Option<Timestamp> {
        let end = claims.exp + CLOCK_SKEW.as_secs_f64();
        let end = Duration::try_from_secs_f64(end).ok()?;
        Timestamp::UNIX_EPOCH.checked_add(end).ok()
    }

    fn judge(&self, claims: &Claims) -> Result<(), Unrecognised> {
        let now = wall_now().as_duration().as_secs_f64();
        let skew = CLOCK_SKEW.as_secs_f64();
        if now >= claims.exp + skew {
            return Err(Unrecognised::ExpiredToken);
        }
        if claims.nbf.is_some_and(|begin| now + skew < begin) {
            return Err(Unrecognised::EarlyToken);
        }
        if claims.iss.as_deref() != Some(self.settings.issuer.as_str()) {
            return Err(Unrecognised::OtherIssuer);
        }
        let wanted = self.settings.audience.as_str();
        let is_meant = match &claims.aud {
            Some(Audience::One(audience)) => audience == wanted,
            Some(Audience::Many(audiences)) => audiences.iter().any(|audience| audience == wanted),
            None => false,
        };
        if is_meant {
            Ok(())
        } else {
            Err(Unrecognised::OtherAudience)
        }
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, Unrecognised> {
        let tenant = claim(claims, &self.settings.tenant_claim).and_then(Value::as_str);
        let tenant = tenant
            .filter(|name| is_usable_name(name))
            .ok_or(Unrecognised::NoTenant)?;
        let role = match claim(claims, &self.settings.role_claim) {
            None => CallerRole::Caller,
            // What is named and not known gives no right, the weakest not either.
            Some(value) => words(value)
                .filter_map(role)
                .max()
                .ok_or(Unrecognised::NoRole)?,
        };
        let routes = match claim(claims, &self.settings.routes_claim) {
            None => Vec::new(),
            Some(value) => {
                let routes: Vec<RouteName> = words(value).map(RouteName::from).collect();
                // No route at all must not become every route.
                if routes.is_empty() {
                    return Err(Unrecognised::NoRole);
                }
                routes
            }
        };
        Ok(Identity {
            tenant: TenantId::from(tenant),
            role,
            routes,
            until: None,
        })
    }
}

fn part<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Unrecognised> {
    let bytes = BASE64.decode(text).map_err(|_| Unrecognised::BrokenToken)?;
    serde_json::from_slice(&bytes).map_err(|_| Unrecognised::BrokenToken)
}

/// Returns the claim of this name; if there is none, the one that a path with dots leads to.
fn claim<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let (first, rest) = path.split_once('.')?;
    claim(claims.get(first)?.as_object()?, rest)
}

/// Returns the words of a list, or of a text with spaces between them, as scopes are written.
fn words(value: &Value) -> impl Iterator<Item = &str> {
    let list = value
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .filter_map(Value::as_str);
    list.chain(value.as_str().unwrap_or_default().split_whitespace())
}

fn role(word: &str) -> Option<CallerRole> {
    match word {
        "watcher" => Some(CallerRole::Watcher),
        "caller" => Some(CallerRole::Caller),
        "admin" => Some(CallerRole::Admin),
        _ => None,
    }
}
