//! Checks tokens of callers and the listener of the `AdminService`.

use super::Checker;
use crate::{
    config::server::{AuthMode, CallerRole, JwtConfig, ServerConfig},
    policy::tenant_limits::EVERY_OTHER,
};

impl Checker<'_> {
    /// Checks the means that identify callers beside a key or a certificate by itself.
    pub(super) fn tokens_and_roles(&mut self, server: &ServerConfig) {
        if let Some(jwt) = &server.jwt {
            if server.auth == Some(AuthMode::None) {
                self.fault(
                    "server.auth",
                    "leaves server.jwt without effect; remove one of them",
                );
            }
            self.jwt(jwt);
        } else if server.auth == Some(AuthMode::Jwt) && !self.is_written("server.jwt") {
            self.fault("server.auth", "lets nobody in without server.jwt");
        }
        for (index, key) in server.keys.iter().enumerate() {
            let role = format!("server.keys[{index}].role");
            if key.admin && key.role != CallerRole::Admin && self.is_written(&role) {
                self.fault(
                    &role,
                    "is another one than admin: true gives; keep one of them",
                );
            }
        }
    }

    /// Checks the settings of tenants, and that there are such tenants if all are known here.
    pub(super) fn tenants(&mut self, server: &ServerConfig) {
        let mode = server.auth_mode();
        let names_come_from_outside =
            mode == AuthMode::ClientCertificate || server.jwt.is_some() || mode == AuthMode::Jwt;
        let known: Vec<&str> = match mode {
            AuthMode::None => vec!["default"],
            _ => server.keys.iter().map(|key| key.tenant.as_str()).collect(),
        };
        for (name, tenant) in &server.tenants {
            let path = format!("server.tenants.{name}");
            let is_known = names_come_from_outside
                || name.as_str() == EVERY_OTHER
                || known.contains(&name.as_str());
            if !is_known {
                self.unknown(&path, name.as_str(), "tenant", known.iter().copied());
            }
            self.policy(&format!("{path}.limits"), tenant.limits.validate());
        }
    }

    fn jwt(&mut self, jwt: &JwtConfig) {
        for (name, value) in [
            ("issuer", &jwt.issuer),
            ("audience", &jwt.audience),
            ("tenant_claim", &jwt.tenant_claim),
            ("role_claim", &jwt.role_claim),
            ("routes_claim", &jwt.routes_claim),
        ] {
            if value.is_empty() {
                self.required(&format!("server.jwt.{name}"), "is missing");
            }
        }
        match (&jwt.jwks_url, &jwt.jwks_file) {
            (Some(_), Some(_)) => self.fault(
                "server.jwt.jwks_file",
                "is given beside jwks_url; keep one of them",
            ),
            (None, None) => {
                self.required("server.jwt.jwks_url", "is missing; write it or jwks_file");
            }
            (Some(url), None) => self.keys_url("server.jwt.jwks_url", url),
            (None, Some(_)) => {}
        }
    }
}
