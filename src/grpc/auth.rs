//! Authentication: from an API key, a signed token or a client certificate to a tenant and its
//! permissions.
//!
//! Keys are compared by their SHA-256; the keys themselves are not stored. Without authentication
//! every caller is the tenant `default` and may do everything: that is for one host, or must be
//! configured explicitly.

mod signing_keys;
mod tokens;

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tonic::{Request, Status};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

pub use self::tokens::TokenVerifier;
use super::status;
use crate::{
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
    /// What it may do.
    pub role: CallerRole,
    /// The routes that it may name; empty for all.
    pub routes: Vec<RouteName>,
}

/// Why a caller is not recognised; its text is for operators, since callers learn no more than that
/// they are not.
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
    /// The token is none yet.
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

/// A caller of the configuration, and until when it is one.
#[derive(Debug, Clone)]
struct KnownCaller {
    identity: Identity,
    expires: Option<Timestamp>,
}

/// The methods that change nothing and call no model: what a watcher may call.
const LOOKING: [&str; 5] = [
    "WatchRecovery",
    "GetInvocation",
    "ListInvocations",
    "GetThread",
    "ClassifyFailure",
];

// === impl Identity ===

impl Identity {
    /// The identity of every caller where there is no authentication.
    fn unauthenticated() -> Self {
        Self {
            tenant: TenantId::from("default"),
            role: CallerRole::Admin,
            routes: Vec::new(),
        }
    }

    /// Whether it may use the `AdminService` and see what is other tenants'.
    pub fn is_admin(&self) -> bool {
        self.role == CallerRole::Admin
    }

    /// Whether it may call models.
    pub fn may_invoke(&self) -> bool {
        self.role != CallerRole::Watcher
    }

    /// Whether its role is enough for a method, by the path of its calls; what else the method
    /// needs it checks itself.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` when it is not.
    pub fn may_call(&self, path: &str) -> Result<(), Status> {
        let method = path.rsplit('/').next().unwrap_or_default();
        if self.may_invoke() || LOOKING.contains(&method) {
            return Ok(());
        }
        Err(status::permission_denied("a watcher may look and not call"))
    }

    /// Whether it may name this route.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` when it may not.
    pub fn may_use(&self, route: &RouteName) -> Result<(), Status> {
        if route.is_allowed_by(&self.routes) {
            return Ok(());
        }
        Err(status::permission_denied(&format!(
            "this key may not use the route `{route}`"
        )))
    }

    /// Whether it may administer.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` when it may not.
    pub fn may_administer(&self) -> Result<(), Status> {
        if self.is_admin() {
            Ok(())
        } else {
            Err(status::permission_denied(
                "the AdminService needs an admin key",
            ))
        }
    }
}

// === impl Authenticator ===

impl Authenticator {
    /// Authenticates as configured; tokens are verified by `tokens`, where they are accepted.
    pub fn new(server: &ServerConfig, tokens: Option<Arc<TokenVerifier>>) -> Self {
        let (mut keys, mut names) = (HashMap::new(), HashMap::new());
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
            let entry = KnownCaller {
                identity: Identity {
                    tenant,
                    role,
                    routes,
                },
                expires,
            };
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

    /// Authenticates the caller of this request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` when the caller is not known.
    pub fn identify<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
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
            .map_err(|_| status::unauthenticated())
    }

    /// Whether callers are authenticated.
    pub fn authenticates(&self) -> bool {
        self.mode != AuthMode::None
    }

    /// As [`Self::recognise`]; where a token names a key that is not known, the keys are fetched
    /// again before it is refused.
    ///
    /// # Errors
    /// Why it is not recognised.
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

    /// Who shows this `authorization` header and this certificate (DER).
    ///
    /// # Errors
    /// Why the caller is not recognised.
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
                    let (tenant, role) = (TenantId::from(name.as_str()), CallerRole::Caller);
                    Ok(Identity {
                        tenant,
                        role,
                        routes: Vec::new(),
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
        if self.expires.is_some_and(|end| end <= wall_now()) {
            return Err(Unrecognised::ExpiredKey);
        }
        Ok(self.identity.clone())
    }
}

/// The name that identifies a certificate (DER): its first URI, else its first DNS name, else its
/// first email address, else its common name. `None` where it has none of them, or one too long or
/// too odd to be a tenant's.
fn certificate_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternatives = alternatives.map_or(&[][..], |extension| &extension.value.general_names);
    let first =
        |wanted: fn(&GeneralName<'_>) -> Option<String>| alternatives.iter().find_map(wanted);
    let name = first(|name| {
        if let GeneralName::URI(uri) = name {
            Some((*uri).to_owned())
        } else {
            None
        }
    })
    .or_else(|| {
        first(|name| {
            if let GeneralName::DNSName(dns) = name {
                Some((*dns).to_owned())
            } else {
                None
            }
        })
    })
    .or_else(|| {
        first(|name| {
            if let GeneralName::RFC822Name(at) = name {
                Some((*at).to_owned())
            } else {
                None
            }
        })
    })
    .or_else(|| {
        certificate
            .subject()
            .iter_common_name()
            .next()?
            .as_str()
            .ok()
            .map(str::to_owned)
    })?;
    is_usable_name(&name).then_some(name)
}

/// Whether a name that a caller brings can be a tenant's.
fn is_usable_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

/// The key of a `Bearer` header.
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
            assert_eq!(
                authenticator.identify(&request).unwrap_err().code(),
                tonic::Code::Unauthenticated
            );
        }
    }

    #[test]
    fn a_certificate_is_identified_by_uri_then_dns_then_email_then_common_name() {
        use rcgen::{CertificateParams, DnType, KeyPair, SanType};
        let name = |names: &[&str], common: Option<&str>| {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            if let Some(common) = common {
                params.distinguished_name.push(DnType::CommonName, common);
            }
            params.subject_alt_names = names
                .iter()
                .map(|name| match name.split_once(':').unwrap() {
                    ("uri", _) => SanType::URI(format!("spiffe://{name}").try_into().unwrap()),
                    ("dns", dns) => SanType::DnsName(dns.try_into().unwrap()),
                    (_, mail) => SanType::Rfc822Name(mail.try_into().unwrap()),
                })
                .collect();
            certificate_name(
                params
                    .self_signed(&KeyPair::generate().unwrap())
                    .unwrap()
                    .der(),
            )
        };
        assert_eq!(
            name(&["mail:a@b.c", "dns:one.example", "uri:x/y"], Some("n")).unwrap(),
            "spiffe://uri:x/y"
        );
        assert_eq!(
            name(
                &["mail:a@b.c", "dns:one.example", "dns:two.example"],
                Some("n")
            )
            .unwrap(),
            "one.example"
        );
        assert_eq!(name(&["mail:a@b.c"], Some("n")).unwrap(), "a@b.c");
        assert_eq!(name(&[], Some("n")).unwrap(), "n");
        assert_eq!(name(&[], None), None);
        assert_eq!(name(&[], Some(&"n".repeat(300))), None);
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
}
