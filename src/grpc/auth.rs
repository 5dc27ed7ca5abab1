//! Authentication: from an API key, a signed token or a client certificate to a tenant and its
//! permissions.
//!
//! Keys are compared by their SHA-256; the keys themselves are not stored. Without authentication
//! every caller is the tenant `default` and may do everything: that is for one host, or must be
//! configured explicitly.

mod access;
mod certificate;
mod signing_keys;
mod tokens;

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tonic::Request;

pub(super) use self::certificate::dns_name;
pub use self::{
    access::{Access, Withdrawn, withdrawn},
    tokens::TokenVerifier,
};
use self::{certificate::certificate_name, signing_keys::SigningKeys};
use crate::{
    call_error::{
        CallError,
        table::{ADMIN_ONLY, ROLE_NOT_ALLOWED, ROUTE_NOT_ALLOWED, UNAUTHENTICATED},
    },
    config::server::{ApiKeyConfig, AuthMode, CallerRole, ServerConfig},
    domain::{
        clock::wall_now,
        fold::hex,
        ids::{RouteName, TenantId},
    },
};

/// Longest name in a certificate or token that identifies a tenant.
const MAX_NAME_BYTES: usize = 256;

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The tenant.
    pub tenant: TenantId,
    /// Role that decides what the caller may do.
    pub role: CallerRole,
    /// The routes that it may name; empty for all.
    pub routes: Vec<RouteName>,
    /// Expiry of the caller's credential; `None` if it has no end.
    pub until: Option<Timestamp>,
}

/// Error returned if a caller is not recognised; its text is for operators, since callers learn no
/// more than that they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unrecognised {
    /// Nothing was shown.
    #[error("no credential was sent")]
    NoCredential,
    /// No principal has this key.
    #[error("the key is not known")]
    UnknownKey,
    /// The key is one no longer.
    #[error("the key has expired")]
    ExpiredKey,
    /// The certificate says nothing of whose it is.
    #[error("the client certificate has no usable name")]
    NamelessCertificate,
    /// The token cannot be read, or says what is not understood.
    #[error("the token is malformed")]
    BrokenToken,
    /// None of the keys in force has the name that the token gives, or its algorithm.
    #[error("the token is signed by an unknown key")]
    UnknownSigner,
    /// The token was changed, or made by another issuer.
    #[error("the token's signature is wrong")]
    WrongSignature,
    /// The token is one no longer.
    #[error("the token has expired")]
    ExpiredToken,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    EarlyToken,
    /// The token is another identity provider's.
    #[error("the token is of another issuer")]
    OtherIssuer,
    /// The token is for another service.
    #[error("the token is for another audience")]
    OtherAudience,
    /// The token does not say whose it is.
    #[error("the token names no tenant")]
    NoTenant,
    /// The header of another replica is not from one, or for another call.
    #[error("the token of another replica is wrong: fleet.key differs")]
    NotAPeer,
    /// The header of another replica is for one that is not here any more.
    #[error("the token of another replica is for another process, which had this address")]
    OtherReplica,
    /// The header of another replica is too old.
    #[error("the token of another replica is over a minute old: the clocks differ")]
    PeerTooLate,
    /// Another replica asks, and cannot prove that it is one.
    #[error("another replica asks, and fleet.key is not set")]
    NoFleetKey,
    /// The token gives no right that is known.
    #[error("the token names no role or route that is known")]
    NoRole,
}

/// Authenticates callers.
#[derive(Debug, Clone)]
pub struct Authenticator {
    mode: AuthMode,
    /// By the SHA-256 of a key or of a certificate.
    keys: HashMap<String, KnownCaller>,
    /// By the name of a certificate.
    names: HashMap<String, KnownCaller>,
    tokens: Option<Arc<TokenVerifier>>,
}

/// A caller of the configuration.
#[derive(Debug, Clone)]
struct KnownCaller(Identity);

/// The methods that change nothing and call no model: what a watcher may call.
const LOOKING: [&str; 6] = [
    "WatchRecovery",
    "GetInvocation",
    "ListInvocations",
    "ListExecutions",
    "GetThread",
    "ClassifyFailure",
];

// === impl Identity ===

impl Identity {
    /// Returns the identity of every caller if there is no authentication.
    fn unauthenticated() -> Self {
        Self {
            tenant: TenantId::from("default"),
            role: CallerRole::Admin,
            routes: Vec::new(),
            until: None,
        }
    }

    /// Returns the identity of a replica that asks for itself.
    #[must_use]
    pub fn of_replica() -> Self {
        Self::unauthenticated()
    }

    /// Returns whether it may do all that it could do at an earlier time.
    pub fn covers(&self, earlier: &Self) -> bool {
        let has_routes = self.routes.is_empty()
            || (!earlier.routes.is_empty()
                && earlier
                    .routes
                    .iter()
                    .all(|route| self.routes.contains(route)));
        has_routes && self.tenant == earlier.tenant && self.role >= earlier.role
    }

    /// Returns whether it may use the `AdminService` and see data of other tenants.
    pub fn is_admin(&self) -> bool {
        self.role == CallerRole::Admin
    }

    /// Returns whether it may call models.
    pub fn may_invoke(&self) -> bool {
        self.role != CallerRole::Watcher
    }

    /// Checks whether its role is enough for a method, by the path of its calls; the method
    /// checks by itself what else it needs.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` if it is not.
    pub fn may_call(&self, path: &str) -> Result<(), CallError> {
        let (service, method) = path.rsplit_once('/').unwrap_or_default();
        if self.may_invoke() || LOOKING.contains(&method) {
            return Ok(());
        }
        if service.ends_with("AdminService") {
            return self.may_administer();
        }
        Err(CallError::new(ROLE_NOT_ALLOWED))
    }

    /// Checks whether it may name this route.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` if it may not.
    pub fn may_use(&self, route: &RouteName) -> Result<(), CallError> {
        if route.is_allowed_by(&self.routes) {
            return Ok(());
        }
        Err(CallError::new(ROUTE_NOT_ALLOWED).word("name", route))
    }

    /// Checks whether it may administer.
    ///
    /// # Errors
    /// Returns `PERMISSION_DENIED` if it may not.
    pub fn may_administer(&self) -> Result<(), CallError> {
        if self.is_admin() {
            Ok(())
        } else {
            Err(CallError::new(ADMIN_ONLY))
        }
    }
}

// === impl Authenticator ===

impl Authenticator {
    /// Authenticates as configured; tokens are verified by `tokens`, if they are accepted.
    pub fn new(server: &ServerConfig, tokens: Option<Arc<TokenVerifier>>) -> Self {
        let mut keys = HashMap::new();
        let mut names = HashMap::new();
        for key in &server.keys {
            let ApiKeyConfig {
                tenant,
                sha256,
                certificate_name,
                admin,
                role,
                routes,
                expires,
            } = key.clone();
            let role = if admin { CallerRole::Admin } else { role };
            let entry = KnownCaller(Identity {
                tenant,
                role,
                routes,
                until: expires,
            });
            match certificate_name {
                Some(name) => names.insert(name, entry),
                None => keys.insert(sha256.to_ascii_lowercase(), entry),
            };
        }
        Self {
            mode: server.auth_mode(),
            keys,
            names,
            tokens,
        }
    }

    /// Authenticates as another configuration says, with the tokens of this one.
    #[must_use]
    pub fn changed(&self, server: &ServerConfig) -> Self {
        Self::new(server, self.tokens.clone())
    }

    /// Returns the keys by which tokens are verified now, if they are accepted.
    fn signing_keys(&self) -> Option<Arc<SigningKeys>> {
        self.tokens.as_ref().map(|tokens| tokens.keys_in_force())
    }

    /// Authenticates the caller of this request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` when the caller is not known.
    pub fn identify<T>(&self, request: &Request<T>) -> Result<Identity, CallError> {
        // The server recognises callers before it reads their requests.
        if let Some(identity) = request.extensions().get::<Identity>() {
            return Ok(identity.clone());
        }
        let authorization = request
            .metadata()
            .get("authorization")
            .and_then(|value| value.to_str().ok());
        let certificates = request.peer_certs();
        let certificate = certificates
            .as_ref()
            .and_then(|all| all.first())
            .map(AsRef::as_ref);
        self.recognise(authorization, certificate)
            .map_err(|_| CallError::new(UNAUTHENTICATED))
    }

    /// Returns whether callers are authenticated.
    pub fn authenticates(&self) -> bool {
        self.mode != AuthMode::None
    }

    /// Works as [`Self::recognise`]; if a token names a key that is not known, the keys are
    /// fetched again before it is refused.
    ///
    /// # Errors
    /// Returns the reason for which it is not recognised.
    pub async fn recognise_fresh(
        &self,
        authorization: Option<&str>,
        certificate: Option<&[u8]>,
    ) -> Result<Identity, Unrecognised> {
        let asked = Instant::now();
        match (self.recognise(authorization, certificate), &self.tokens) {
            (Err(Unrecognised::UnknownSigner), Some(tokens)) if tokens.fetch_since(asked).await => {
                self.recognise(authorization, certificate)
            }
            (recognised, _) => recognised,
        }
    }

    /// Returns the identity that shows this `authorization` header and this certificate (DER).
    ///
    /// # Errors
    /// Returns the reason for which the caller is not recognised.
    pub fn recognise(
        &self,
        authorization: Option<&str>,
        certificate: Option<&[u8]>,
    ) -> Result<Identity, Unrecognised> {
        let shown = authorization.and_then(bearer);
        if let (Some(tokens), Some(token)) = (
            &self.tokens,
            shown.filter(|shown| TokenVerifier::is_token(shown)),
        ) {
            return tokens.identify(token);
        }
        match self.mode {
            AuthMode::None => Ok(Identity::unauthenticated()),
            AuthMode::ApiKey => {
                let key = shown.ok_or(Unrecognised::NoCredential)?;
                let entry = self.keys.get(&hex(&Sha256::digest(key.as_bytes())));
                entry.ok_or(Unrecognised::UnknownKey)?.in_force()
            }
            AuthMode::ClientCertificate => {
                // The listener only accepts certificates that the configured authority signed.
                let certificate = certificate.ok_or(Unrecognised::NoCredential)?;
                let name =
                    certificate_name(certificate).ok_or(Unrecognised::NamelessCertificate)?;
                let listed = self
                    .names
                    .get(&name)
                    .or_else(|| self.keys.get(&hex(&Sha256::digest(certificate))));
                let unlisted = || {
                    let tenant = TenantId::from(name.as_str());
                    let role = CallerRole::Caller;
                    Ok(Identity {
                        tenant,
                        role,
                        routes: Vec::new(),
                        until: None,
                    })
                };
                listed.map_or_else(unlisted, KnownCaller::in_force)
            }
            AuthMode::Jwt => Err(if shown.is_some() {
                Unrecognised::BrokenToken
            } else {
                Unrecognised::NoCredential
            }),
        }
    }
}

// === impl KnownCaller ===

impl KnownCaller {
    fn in_force(&self) -> Result<Identity, Unrecognised> {
        if self.0.until.is_some_and(|end| end <= wall_now()) {
            return Err(Unrecognised::ExpiredKey);
        }
        Ok(self.0.clone())
    }
}

/// Returns whether a name that a caller brings can be a tenant's.
fn is_usable_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

/// Returns the key of a `Bearer` header.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(admin: bool) -> ServerConfig {
        let key = ApiKeyConfig {
            tenant: TenantId::from("acme"),
            sha256: hex(&Sha256::digest(b"secret")).to_uppercase(),
            admin,
            routes: vec![RouteName::from("chat")],
            ..ApiKeyConfig::default()
        };
        ServerConfig {
            keys: vec![key],
            ..ServerConfig::default()
        }
    }

    fn with_header(value: &str) -> Request<()> {
        let mut request = Request::new(());
        request
            .metadata_mut()
            .insert("authorization", value.parse().unwrap());
        request
    }

    #[test]
    fn a_known_key_is_its_tenant_and_an_unknown_or_missing_one_is_refused() {
        let authenticator = Authenticator::new(&server(false), None);
        assert_eq!(
            authenticator
                .identify(&with_header("Bearer secret"))
                .unwrap()
                .tenant
                .as_str(),
            "acme"
        );
        for request in [
            with_header("Bearer wrong"),
            with_header("secret"),
            Request::new(()),
        ] {
            let refused = authenticator.identify(&request).unwrap_err();
            assert!(refused.is(UNAUTHENTICATED), "{refused:?}");
        }
    }

    #[test]
    fn a_key_may_only_do_what_is_written() {
        let authenticator = Authenticator::new(&server(false), None);
        let identity = authenticator
            .identify(&with_header("bearer secret"))
            .unwrap();
        assert!(identity.may_use(&RouteName::from("chat")).is_ok());
        assert!(identity.may_use(&RouteName::from("other")).is_err());
        assert!(identity.may_administer().is_err());
    }

    #[test]
    fn a_watcher_is_told_what_its_role_lacks() {
        let watcher = Identity {
            role: CallerRole::Watcher,
            ..Identity::unauthenticated()
        };
        let may = |path: &str| watcher.may_call(path).err();
        assert!(may("/relight.v1.RecoveryService/GetThread").is_none());
        let calls = may("/relight.v1.RecoveryService/InvokeWithRecovery");
        assert!(calls.is_some_and(|refused| refused.is(ROLE_NOT_ALLOWED)));
        let administers = may("/relight.v1.AdminService/GetStatus").unwrap();
        assert!(
            administers.to_string().contains("admin key"),
            "{administers}"
        );
    }
}
