//! Authentication: from an API key or a client certificate to a tenant and its permissions.
//!
//! Keys are compared by their SHA-256; the keys themselves are not stored. Without authentication every caller is the
//! tenant `default` and may do everything: that is for one host, or must be configured explicitly.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use tonic::{Request, Status};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::status;
use crate::{
    config::server::{ApiKeyConfig, AuthMode, ServerConfig},
    domain::{
        fold::hex,
        ids::{RouteName, TenantId},
    },
};

/// Longest name of a certificate that identifies a tenant.
const MAX_NAME_BYTES: usize = 256;

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who it is.
    pub tenant: TenantId,
    /// Whether it may use the `AdminService` and see other tenants' events.
    pub admin: bool,
    /// The routes that it may name; empty for all.
    pub routes: Vec<RouteName>,
}

/// Authenticates callers.
#[derive(Debug, Clone)]
pub struct Authenticator {
    mode: AuthMode,
    /// By the SHA-256 of a key or of a certificate.
    keys: HashMap<String, Identity>,
    /// By the name of a certificate.
    names: HashMap<String, Identity>,
}

// === impl Identity ===

impl Identity {
    /// The identity of every caller where there is no authentication.
    fn unauthenticated() -> Self {
        Self { tenant: TenantId::from("default"), admin: true, routes: Vec::new() }
    }

    /// Whether it may name this route.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` when it may not.
    pub fn may_use(&self, route: &RouteName) -> Result<(), Status> {
        if route.is_allowed_by(&self.routes) {
            return Ok(());
        }
        Err(status::permission_denied(&format!("this key may not use the route `{route}`")))
    }

    /// Whether it may administer.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` when it may not.
    pub fn may_administer(&self) -> Result<(), Status> {
        if self.admin { Ok(()) } else { Err(status::permission_denied("the AdminService needs an admin key")) }
    }
}

// === impl Authenticator ===

impl Authenticator {
    /// Authenticates as configured.
    pub fn new(server: &ServerConfig) -> Self {
        let (mut keys, mut names) = (HashMap::new(), HashMap::new());
        for key in &server.keys {
            let ApiKeyConfig { tenant, sha256, certificate_name, admin, routes } = key.clone();
            let identity = Identity { tenant, admin, routes };
            match certificate_name {
                Some(name) => names.insert(name, identity),
                None => keys.insert(sha256.to_ascii_lowercase(), identity),
            };
        }
        Self { mode: server.auth_mode(), keys, names }
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
        let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let certificates = request.peer_certs();
        let certificate = certificates.as_ref().and_then(|all| all.first()).map(AsRef::as_ref);
        self.recognise(authorization, certificate).ok_or_else(status::unauthenticated)
    }

    /// Whether callers are authenticated.
    pub fn authenticates(&self) -> bool {
        self.mode != AuthMode::None
    }

    /// The caller with this `authorization` header and this certificate (DER); `None` when it is not known.
    pub fn recognise(&self, authorization: Option<&str>, certificate: Option<&[u8]>) -> Option<Identity> {
        match self.mode {
            AuthMode::None => Some(Identity::unauthenticated()),
            AuthMode::ApiKey => self.by_plain_key(authorization.and_then(bearer)?),
            AuthMode::ClientCertificate => {
                // The listener only lets certificates in that the configured authority signed.
                let certificate = certificate?;
                let name = certificate_name(certificate)?;
                let listed = self.names.get(&name).or_else(|| self.keys.get(&hex(&Sha256::digest(certificate))));
                let unlisted = || Identity { tenant: TenantId::from(name.as_str()), admin: false, routes: Vec::new() };
                Some(listed.cloned().unwrap_or_else(unlisted))
            }
        }
    }

    /// Who owns this key.
    pub fn by_plain_key(&self, key: &str) -> Option<Identity> {
        self.keys.get(&hex(&Sha256::digest(key.as_bytes()))).cloned()
    }
}

/// The name that identifies a certificate (DER): its first URI, else its first DNS name, else its first email address,
/// else its common name. `None` where it has none of them, or one too long or too odd to be a tenant's.
fn certificate_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternatives = alternatives.map_or(&[][..], |extension| &extension.value.general_names);
    let first = |wanted: fn(&GeneralName<'_>) -> Option<String>| alternatives.iter().find_map(wanted);
    let name = first(|name| if let GeneralName::URI(uri) = name { Some((*uri).to_owned()) } else { None })
        .or_else(|| first(|name| if let GeneralName::DNSName(dns) = name { Some((*dns).to_owned()) } else { None }))
        .or_else(|| first(|name| if let GeneralName::RFC822Name(at) = name { Some((*at).to_owned()) } else { None }))
        .or_else(|| certificate.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned))?;
    let usable = !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control);
    usable.then_some(name)
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
            certificate_name: None,
            admin,
            routes: vec![RouteName::from("chat")],
        };
        ServerConfig { keys: vec![key], ..ServerConfig::default() }
    }

    fn with_header(value: &str) -> Request<()> {
        let mut request = Request::new(());
        request.metadata_mut().insert("authorization", value.parse().unwrap());
        request
    }

    #[test]
    fn a_known_key_is_its_tenant_and_an_unknown_or_missing_one_is_refused() {
        let authenticator = Authenticator::new(&server(false));
        assert_eq!(authenticator.identify(&with_header("Bearer secret")).unwrap().tenant.as_str(), "acme");
        for request in [with_header("Bearer wrong"), with_header("secret"), Request::new(())] {
            assert_eq!(authenticator.identify(&request).unwrap_err().code(), tonic::Code::Unauthenticated);
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
            certificate_name(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
        };
        assert_eq!(name(&["mail:a@b.c", "dns:one.example", "uri:x/y"], Some("n")).unwrap(), "spiffe://uri:x/y");
        assert_eq!(name(&["mail:a@b.c", "dns:one.example", "dns:two.example"], Some("n")).unwrap(), "one.example");
        assert_eq!(name(&["mail:a@b.c"], Some("n")).unwrap(), "a@b.c");
        assert_eq!(name(&[], Some("n")).unwrap(), "n");
        assert_eq!(name(&[], None), None);
        assert_eq!(name(&[], Some(&"n".repeat(300))), None);
    }

    #[test]
    fn a_key_may_only_do_what_is_written() {
        let authenticator = Authenticator::new(&server(false));
        let identity = authenticator.identify(&with_header("bearer secret")).unwrap();
        assert!(identity.may_use(&RouteName::from("chat")).is_ok());
        assert!(identity.may_use(&RouteName::from("other")).is_err());
        assert!(identity.may_administer().is_err());
    }
}
