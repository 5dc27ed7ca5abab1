//! Makes a connection: name, TCP and TLS within one time limit, each with an error type of its own.
//!
//! The types exist so that `fault` can distinguish a name that does not resolve from a refused connection without
//! parsing error texts.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{
        HttpConnector,
        dns::{GaiResolver, Name},
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::Service;

use super::ConnectionSettings;
use crate::config::provider::is_private_address;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Makes connections.
#[derive(Clone)]
pub struct Dialer {
    connector: HttpsConnector<HttpConnector<Names>>,
    timeout: Duration,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// It took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// It failed.
    #[error("no connection")]
    Failed(#[source] BoxError),
}

/// A name that does not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve")]
pub struct NameError(#[source] pub(super) io::Error);

/// The system's resolver, with an error that can be told from others. Private addresses are left out where they are not
/// allowed: of a name nobody knows before it is dialled where it leads, and the next time it may lead elsewhere.
#[derive(Clone)]
pub struct Names {
    resolver: GaiResolver,
    allow_private: bool,
}

// === impl Dialer ===

impl Dialer {
    pub(super) fn build(settings: &ConnectionSettings) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new_with_resolver(Names::new(settings.allow_private));
        tcp.enforce_http(false);
        tcp.set_nodelay(settings.tcp_nodelay);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_webpki_roots()
            .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_all_versions().wrap_connector(tcp);
        Ok(Self { connector, timeout: settings.connect_timeout })
    }
}

impl Service<Uri> for Dialer {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = DialError;
    type Future = Boxed<Self::Response, DialError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        self.connector.poll_ready(cx).map_err(DialError::Failed)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let timeout = self.timeout;
        let dialing = self.connector.call(uri);
        Box::pin(async move {
            match tokio::time::timeout(timeout, dialing).await {
                Ok(dialed) => dialed.map_err(DialError::Failed),
                Err(_) => Err(DialError::Timeout(timeout)),
            }
        })
    }
}

// === impl Names ===

impl Names {
    fn new(allow_private: bool) -> Self {
        Self { resolver: GaiResolver::new(), allow_private }
    }
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NameError;
    type Future = Boxed<Self::Response, NameError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NameError>> {
        self.resolver.poll_ready(cx).map_err(NameError)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (resolving, allow_private) = (self.resolver.call(name), self.allow_private);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = resolving.await.map_err(NameError)?.collect();
            public(addresses, allow_private).map(Vec::into_iter)
        })
    }
}

/// The addresses that may be dialled.
fn public(mut addresses: Vec<SocketAddr>, allow_private: bool) -> Result<Vec<SocketAddr>, NameError> {
    addresses.retain(|address| allow_private || !is_private_address(address.ip()));
    if addresses.is_empty() {
        let reason = "it leads to private addresses only; write allow_private_addresses: true if that is meant";
        return Err(NameError(io::Error::new(io::ErrorKind::PermissionDenied, reason)));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_private_addresses_only_where_they_are_allowed() {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let private = addresses(&[
            "10.1.2.3:443",
            "169.254.169.254:80",
            "[fd00::1]:443",
            "[::ffff:192.168.0.1]:443",
            "0.0.0.0:1",
        ]);
        assert!(public(private.clone(), false).is_err());
        assert_eq!(public(private.clone(), true).unwrap(), private);
        let others = addresses(&["203.0.113.7:443", "127.0.0.1:443", "[2001:db8::1]:443"]);
        assert_eq!(public([private, others.clone()].concat(), false).unwrap(), others);
    }
}
