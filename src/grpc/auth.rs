//! Who calls: from an API key or a client certificate to a tenant and what it may do.
//!
//! Keys are compared by their SHA-256; the keys themselves are never stored. Where nobody is asked, everybody is the
//! tenant `default` and may do everything: that is for one host, or must have been written.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};
use tonic::{Request, Status};

use super::status;
use crate::{
    config::server::{ApiKeyConfig, AuthMode, ServerConfig},
    domain::{
        fold::hex,
        ids::{RouteName, TenantId},
    },
};

/// A caller, as authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who it is.
    pub tenant: TenantId,
    /// Whether it may use the `AdminService` and see other tenants' events.
    pub admin: bool,
    /// The routes that it may name; empty for all.
    pub routes: Vec<RouteName>,
}

/// Tells callers apart.
#[derive(Debug, Clone)]
pub struct Authenticator {
    mode: AuthMode,
    keys: HashMap<String, Identity>,
}

// === impl Identity ===

impl Identity {
    /// Everybody, where nobody is asked.
    fn anybody() -> Self {
        Self { tenant: TenantId::from("default"), admin: true, routes: Vec::new() }
    }

    /// Whether it may name this route.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` when it may not.
    pub fn may_use(&self, route: &RouteName) -> Result<(), Status> {
        if self.routes.is_empty() || self.routes.contains(route) {
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
    /// As the configuration says.
    pub fn new(server: &ServerConfig) -> Self {
        let identity = |key: &ApiKeyConfig| {
            let identity = Identity { tenant: key.tenant.clone(), admin: key.admin, routes: key.routes.clone() };
            (key.sha256.to_ascii_lowercase(), identity)
        };
        Self { mode: server.auth_mode(), keys: server.keys.iter().map(identity).collect() }
    }

    /// Who sent this request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` when nobody that is known.
    pub fn identify<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        let authorization = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        let certificates = request.peer_certs();
        let certificate = certificates.as_ref().and_then(|all| all.first()).map(AsRef::as_ref);
        self.recognise(authorization, certificate).ok_or_else(status::unauthenticated)
    }

    /// Who shows this `authorization` header and this certificate (DER); `None` when nobody that is known.
    pub fn recognise(&self, authorization: Option<&str>, certificate: Option<&[u8]>) -> Option<Identity> {
        match self.mode {
            AuthMode::None => Some(Identity::anybody()),
            AuthMode::ApiKey => self.by_plain_key(authorization.and_then(bearer)?),
            AuthMode::ClientCertificate => {
                // The listener only lets certificates in that the configured authority signed; its digest names it.
                let digest = hex(&Sha256::digest(certificate?));
                let unlisted =
                    || Identity { tenant: TenantId::from(digest.as_str()), admin: false, routes: Vec::new() };
                Some(self.keys.get(&digest).cloned().unwrap_or_else(unlisted))
            }
        }
    }

    /// Who owns this key.
    pub fn by_plain_key(&self, key: &str) -> Option<Identity> {
        self.keys.get(&hex(&Sha256::digest(key.as_bytes()))).cloned()
    }
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
    fn a_key_may_only_do_what_is_written() {
        let authenticator = Authenticator::new(&server(false));
        let identity = authenticator.identify(&with_header("bearer secret")).unwrap();
        assert!(identity.may_use(&RouteName::from("chat")).is_ok());
        assert!(identity.may_use(&RouteName::from("other")).is_err());
        assert!(identity.may_administer().is_err());
    }
}
