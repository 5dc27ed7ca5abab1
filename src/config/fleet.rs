//! Settings of the store by which replicas act as one.

use std::{net::SocketAddr, path::PathBuf};

use relight_fleet::ValkeyAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, Environment, Secret, server::AuthMode, url::has_usable_port};
use crate::{domain::secret::REDACTED, journal::JournalStore};

/// Fewest bytes of a key that is not guessed.
const MIN_KEY_BYTES: usize = 16;

/// Store that replicas share, so that they act as one.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FleetConfig {
    /// Location of what replicas share: `auto` is the journal's database if that is `PostgreSQL`,
    /// else none; `none`; `postgres://user:password@host/database`; or Valkey, or Redis 7 and newer:
    /// `redis://user:password@host:6379/0`, `rediss://` with TLS, and for one that sentinels watch
    /// `redis+sentinel://user:password@host:26379,host:26379/service/0`. Default `auto`.
    #[schemars(with = "String")]
    pub store: SharedStore,
    /// If set, a Valkey that other hosts reach may be without a password: whoever reaches it can
    /// then open circuits and close gates of all replicas. Default `false`.
    pub allow_no_password: bool,
    /// Name of this replica that people see. Unset: `POD_NAME` of the environment, else a name that
    /// no other process has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address at which other replicas reach the gRPC API of this one, as `host` or `host:port`;
    /// without a port, that of `server.listen`. Unset: `POD_IP` of the environment, else
    /// `server.listen` if that names one address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<String>,
    /// Key by which replicas prove to each other that they are some, the same for all; at least 16
    /// bytes. It gives no right to call models. Unset: replicas ask each other only where callers
    /// are not authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// A file that holds it, as Kubernetes mounts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The authorities that signed the certificates of `server.tls`, PEM. Unset: the certificate is
    /// its own authority, or its file has that of its authority, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

/// Location of what replicas share.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Secret", into = "String")]
pub enum SharedStore {
    /// The journal's database if it is `PostgreSQL`, else none.
    #[default]
    Auto,
    /// Nothing is shared.
    None,
    /// `PostgreSQL`, by URL.
    Postgres(Secret),
    /// Valkey or Redis, by URL.
    Valkey(Secret),
}

// === impl FleetConfig ===

impl FleetConfig {
    /// Takes over what the environment knows and nobody wrote.
    pub(super) fn complete(&mut self, environment: &dyn Environment) {
        let known = |name| environment.var(name).filter(|text| !text.is_empty());
        self.name = self.name.take().or_else(|| known("POD_NAME"));
        self.advertise = self.advertise.take().or_else(|| known("POD_IP"));
    }

    /// Returns the URL at which other replicas reach this one, whose gRPC API has this address;
    /// `None` if nobody knows.
    #[must_use]
    pub fn url(&self, listening: SocketAddr, is_secured: bool) -> Option<String> {
        let scheme = if is_secured { "https" } else { "http" };
        let place = match &self.advertise {
            None if listening.ip().is_unspecified() => return None,
            None => listening.to_string(),
            Some(place) => match place.parse() {
                Ok(ip) => SocketAddr::new(ip, listening.port()).to_string(),
                Err(_) if has_port(place) => place.clone(),
                Err(_) => format!("{place}:{}", listening.port()),
            },
        };
        Some(format!("{scheme}://{place}"))
    }

    /// Returns the settings that cannot be used, by path, and why.
    pub(super) fn faults(&self) -> Vec<(String, String)> {
        let mut faults = Vec::new();
        let is_place = |place: &String| {
            let is_ip = place.parse::<std::net::IpAddr>().is_ok();
            let is_authority = place.parse::<http::uri::Authority>().is_ok_and(|it| {
                !it.host().is_empty() && !place.contains('@') && has_usable_port(&it)
            });
            is_ip || is_authority
        };
        if self.advertise.as_ref().is_some_and(|it| !is_place(it)) {
            let reason =
                "is no address; write it as host or host:port, with a port from 1 to 65535";
            faults.push(("fleet.advertise".to_owned(), reason.to_owned()));
        }
        if let Some(name) = &self.name
            && (name.is_empty() || name.len() > 256 || name.chars().any(char::is_control))
        {
            let reason = "is no name; it has 1 to 256 bytes, and no control characters";
            faults.push(("fleet.name".to_owned(), reason.to_owned()));
        }
        if let Some(key) = &self.key
            && key.expose().len() < MIN_KEY_BYTES
        {
            let reason = format!("is shorter than {MIN_KEY_BYTES} bytes");
            faults.push(("fleet.key".to_owned(), reason));
        }
        faults
    }
}

impl Config {
    /// Returns whether replicas may ask each other without a key.
    #[must_use]
    pub fn has_open_fleet(&self) -> bool {
        self.fleet.key.is_none() && self.server.auth_mode() == AuthMode::None
    }
}

fn has_port(place: &str) -> bool {
    let authority = place.parse::<http::uri::Authority>();
    authority.is_ok_and(|authority| authority.port().is_some())
}

// === impl SharedStore ===

impl SharedStore {
    /// Returns the URL of the database, if there is one.
    #[must_use]
    pub fn postgres<'a>(&'a self, journal: &'a JournalStore) -> Option<&'a Secret> {
        match (self, journal) {
            (Self::Postgres(url), _) | (Self::Auto, JournalStore::Postgres(url)) => Some(url),
            (Self::Auto | Self::None | Self::Valkey(_), _) => None,
        }
    }

    /// Returns the URL that is written here, if there is one.
    pub(super) fn url(&self) -> Option<&Secret> {
        match self {
            Self::Postgres(url) | Self::Valkey(url) => Some(url),
            Self::Auto | Self::None => None,
        }
    }
}

impl TryFrom<Secret> for SharedStore {
    type Error = String;

    fn try_from(text: Secret) -> Result<Self, Self::Error> {
        let url = text.expose();
        match url {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                JournalStore::try_from(text.clone()).map(|_| Self::Postgres(text))
            }
            url if url.starts_with("redis") => match ValkeyAddress::parse(url) {
                Ok(_) => Ok(Self::Valkey(text)),
                Err(error) => Err(error.to_string()),
            },
            _ => Err(
                "is not a store; write auto, none, postgres://USER:PASSWORD@HOST/DATABASE or \
                 redis://USER:PASSWORD@HOST:PORT/DATABASE"
                    .to_owned(),
            ),
        }
    }
}

impl From<SharedStore> for String {
    fn from(store: SharedStore) -> Self {
        match store {
            SharedStore::Auto => "auto".to_owned(),
            SharedStore::None => "none".to_owned(),
            SharedStore::Postgres(_) | SharedStore::Valkey(_) => REDACTED.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GivenEnvironment, load_text};

    fn loaded(text: &str, environment: &[(&str, &str)]) -> Result<FleetConfig, String> {
        let environment: GivenEnvironment = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        load_text(text, None, &environment)
            .map(|loaded| loaded.config.fleet)
            .map_err(|faults| faults.to_string())
    }

    #[test]
    fn others_reach_a_replica_where_it_says_or_its_pod_is_or_it_listens() {
        let every: SocketAddr = "0.0.0.0:50051".parse().unwrap();
        let one: SocketAddr = "10.0.0.7:50052".parse().unwrap();
        let pod = [("POD_IP", "10.1.2.3"), ("POD_NAME", "relight-0")];
        let url = |text: &str, environment: &[(&str, &str)], at, is_secured| {
            loaded(text, environment).unwrap().url(at, is_secured)
        };
        for (text, environment, at, expected) in [
            ("{}", &[][..], every, None),
            ("{}", &[], one, Some("http://10.0.0.7:50052")),
            ("{}", &pod, every, Some("http://10.1.2.3:50051")),
            (
                "{}",
                &[("POD_IP", "fd00::7")],
                every,
                Some("http://[fd00::7]:50051"),
            ),
            (
                "fleet: { advertise: a.example }",
                &pod,
                every,
                Some("http://a.example:50051"),
            ),
            (
                "fleet: { advertise: \"a.example:1\" }",
                &[],
                one,
                Some("http://a.example:1"),
            ),
        ] {
            let found = url(text, environment, at, false);
            assert_eq!(found.as_deref(), expected, "{text} {environment:?}");
        }
        assert_eq!(
            url("{}", &pod, every, true).unwrap(),
            "https://10.1.2.3:50051"
        );
        assert_eq!(
            loaded("{}", &pod).unwrap().name.as_deref(),
            Some("relight-0")
        );
    }

    #[test]
    fn an_address_that_is_none_and_a_key_that_is_guessed_are_refused() {
        for (text, path) in [
            ("fleet: { advertise: \"http://a/b\" }", "fleet.advertise"),
            ("fleet: { advertise: \"user@a\" }", "fleet.advertise"),
            ("fleet: { key: short }", "fleet.key"),
            ("fleet: { name: \"\" }", "fleet.name"),
        ] {
            let fault = loaded(text, &[]).unwrap_err();
            assert!(fault.contains(path) && !fault.contains("short,"), "{fault}");
        }
        assert!(loaded("fleet: { key: a-key-of-32-bytes-or-some-more }", &[]).is_ok());
    }
}
