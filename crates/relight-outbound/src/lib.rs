//! HTTP requests that leave this process: how connections are made, what their faults are called,
//! how much of a response is read and which of its headers are kept. Providers of models and tool
//! servers are reached in the same way.

mod body;
mod dial;
mod fault;
mod fetch;
mod headers;
mod names;
mod proxy;
mod tls;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use std::time::Duration;

use relight_policy::domain;

use self::dial::Dialer;
pub use self::{
    body::ReplyBody,
    fault::head_fault,
    fetch::fetch,
    headers::{kept, lasting},
    names::is_private_address,
    proxy::Proxy,
    tls::ClientTls,
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends requests over pooled connections; cheap to clone. It never retries and never follows a
/// redirect.
pub type HttpConnections = Client<Dialer, Full<Bytes>>;

/// Settings of how connections are made and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionSettings {
    /// Longest time for name, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// Time for which an idle connection is kept.
    pub pool_idle_timeout: Duration,
    /// Idle connections kept per host.
    pub pool_max_idle_per_host: usize,
    /// If set, HTTP/2 is spoken without negotiation.
    pub http2_prior_knowledge: bool,
    /// If set, small packets are sent at once.
    pub tcp_nodelay: bool,
    /// If set, a name may lead to a private address.
    pub allow_private: bool,
    /// The proxy through which all connections are made; unset: none.
    pub proxy: Option<Proxy>,
    /// Authorities and client certificate; unset: the well-known authorities, and no certificate.
    pub tls: Option<ClientTls>,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            pool_idle_timeout: Duration::from_secs(50),
            pool_max_idle_per_host: 64,
            http2_prior_knowledge: false,
            tcp_nodelay: true,
            allow_private: false,
            proxy: None,
            tls: None,
        }
    }
}

/// Connections with these settings; nothing is connected yet.
///
/// # Errors
/// When TLS cannot be set up.
pub fn connections(settings: &ConnectionSettings) -> Result<HttpConnections, rustls::Error> {
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(settings.pool_idle_timeout)
        .pool_max_idle_per_host(settings.pool_max_idle_per_host)
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        // The planner above is the only one who tries again.
        .retry_canceled_requests(false)
        .http2_only(settings.http2_prior_knowledge)
        .build(Dialer::build(settings)?))
}

/// Returns whether a host of a URL is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || bare
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}
