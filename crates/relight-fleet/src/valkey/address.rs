//! URLs of Valkey: one server, or the sentinels that know it.

use std::net::IpAddr;

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo,
    RedisError, TlsMode,
    io::tcp::TcpSettings,
    sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType},
};
use tokio::sync::Mutex;

use super::Servers;
use crate::store::FleetStoreError;

/// Port of a sentinel, unless one is written.
const SENTINEL_PORT: u16 = 26379;

/// Location of a Valkey or Redis server, and what it asks of those who connect.
#[derive(Clone)]
pub struct ValkeyAddress {
    /// The server, or its sentinels.
    addresses: Vec<ConnectionAddr>,
    /// Name by which sentinels know the server; `None` if the address is its own.
    service: Option<String>,
    settings: RedisConnectionInfo,
    is_tls: bool,
}

// === impl ValkeyAddress ===

impl ValkeyAddress {
    /// Reads `redis://USER:PASSWORD@HOST:PORT/DATABASE`, `rediss://` for TLS, or
    /// `redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/SERVICE/DATABASE`, `rediss+sentinel://`.
    ///
    /// # Errors
    /// [`FleetStoreError`] if it is no such URL; its text does not repeat the URL.
    pub fn parse(url: &str) -> Result<Self, FleetStoreError> {
        let not_one = || FleetStoreError("is not a URL of a Valkey or Redis server".to_owned());
        let (scheme, rest) = url.split_once("://").ok_or_else(not_one)?;
        let is_tls = scheme.starts_with("rediss");
        match scheme {
            "redis" | "rediss" => {
                let info = info(url)?;
                Ok(Self {
                    addresses: vec![info.addr().clone()],
                    service: None,
                    settings: info.redis_settings().clone(),
                    is_tls,
                })
            }
            "redis+sentinel" | "rediss+sentinel" => sentinels(rest, is_tls),
            _ => Err(not_one()),
        }
    }

    /// Returns whether strangers are kept out: by a password, or because it listens on loopback.
    #[must_use]
    pub fn is_guarded(&self) -> bool {
        let has_password = self.settings.password().is_some_and(|it| !it.is_empty());
        has_password || self.addresses.iter().all(is_loopback)
    }

    /// Returns the number of the database.
    #[must_use]
    pub fn database(&self) -> i64 {
        self.settings.db()
    }

    /// Returns the way to the server.
    pub(super) fn servers(&self) -> Result<Servers, FleetStoreError> {
        let tcp = TcpSettings::default().set_nodelay(true);
        let mut all = Vec::new();
        for address in &self.addresses {
            let info = address.clone().into_connection_info().map_err(unreadable)?;
            all.push(info.set_tcp_settings(tcp.clone()));
        }
        if let Some(service) = &self.service {
            let mut node = SentinelNodeConnectionInfo::default()
                .set_redis_connection_info(self.settings.clone())
                .set_tcp_settings(tcp);
            if self.is_tls {
                node = node.set_tls_mode(TlsMode::Secure);
            }
            let kind = SentinelServerType::Master;
            let client = SentinelClient::build(all, service.clone(), Some(node), kind);
            return Ok(Servers::Watched(Box::new(Mutex::new(
                client.map_err(unreadable)?,
            ))));
        }
        let one = all.remove(0).set_redis_settings(self.settings.clone());
        Client::open(one).map(Servers::One).map_err(unreadable)
    }
}

/// Reads what follows the scheme: the sentinels, the name of the service, and the database.
fn sentinels(rest: &str, is_tls: bool) -> Result<ValkeyAddress, FleetStoreError> {
    let (account, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (service, database) = path.split_once('/').unwrap_or((path, ""));
    if service.is_empty() {
        let reason = "names no service: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE";
        return Err(FleetStoreError(reason.to_owned()));
    }
    let scheme = if is_tls { "rediss" } else { "redis" };
    let mut addresses = Vec::new();
    for host in hosts.split(',') {
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let port = if has_port {
            String::new()
        } else {
            format!(":{SENTINEL_PORT}")
        };
        addresses.push(info(&format!("{scheme}://{host}{port}"))?.addr().clone());
    }
    // The account and the database are read as those of a server are.
    let node = info(&format!("{scheme}://{account}@localhost/{database}"))?;
    Ok(ValkeyAddress {
        addresses,
        service: Some(service.to_owned()),
        settings: node.redis_settings().clone(),
        is_tls,
    })
}

fn info(url: &str) -> Result<ConnectionInfo, FleetStoreError> {
    let info = url.into_connection_info().map_err(unreadable)?;
    match info.addr() {
        ConnectionAddr::Tcp(_, 0) | ConnectionAddr::TcpTls { port: 0, .. } => {
            Err(FleetStoreError("has no port from 1 to 65535".to_owned()))
        }
        _ => Ok(info),
    }
}

/// The error without its details, which may repeat a part of the URL.
fn unreadable(_: RedisError) -> FleetStoreError {
    FleetStoreError("is not redis://USER:PASSWORD@HOST:PORT/DATABASE".to_owned())
}

fn is_loopback(address: &ConnectionAddr) -> bool {
    match address {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => {
            let bare = host.trim_start_matches('[').trim_end_matches(']');
            bare.eq_ignore_ascii_case("localhost")
                || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
        ConnectionAddr::Unix(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_or_loopback_keeps_strangers_out() {
        for (url, is_guarded) in [
            ("redis://127.0.0.1", true),
            ("redis://localhost:7000/3", true),
            ("redis://[::1]:7000", true),
            ("rediss://:secret@valkey.example", true),
            ("redis://relight:secret@10.1.2.3:6379/2", true),
            ("redis://10.1.2.3", false),
            ("redis://valkey", false),
            ("redis://relight:@valkey", false),
            ("rediss://valkey.example", false),
            ("redis+sentinel://127.0.0.1,10.0.0.1/main", false),
            ("redis+sentinel://:secret@a,b:26380/main/2", true),
        ] {
            let address = ValkeyAddress::parse(url).unwrap();
            assert_eq!(address.is_guarded(), is_guarded, "{url}");
            assert!(address.servers().is_ok(), "{url}");
        }
    }

    #[test]
    fn sentinels_have_their_own_port_and_know_a_service() {
        let url = "rediss+sentinel://me:p%40ss@one,[::1]:7001/main/4";
        let address = ValkeyAddress::parse(url).unwrap();
        assert_eq!(address.service.as_deref(), Some("main"));
        assert_eq!(address.database(), 4);
        assert_eq!(address.settings.password(), Some("p@ss"));
        let shown: Vec<String> = address.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["one:26379", "::1:7001"]);
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for url in [
            "valkey.example",
            "mysql://:secret@valkey",
            "redis://:secret@",
            "redis://:secret@valkey/database",
            "redis+sentinel://:secret@one,two",
            "redis+sentinel://:secret@one:what/main",
            "redis://:secret@valkey:0",
            "rediss+sentinel://:secret@one:0/main",
        ] {
            let Err(FleetStoreError(reason)) = ValkeyAddress::parse(url) else {
                panic!("{url} was read");
            };
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
