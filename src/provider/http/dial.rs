//! Connects to a provider: name, TCP and TLS within one time limit, each with an error type of its own.
//!
//! The types exist so that `fault` can distinguish a name that does not resolve from a refused connection without
//! parsing error texts.

use std::{
    io,
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
        dns::{GaiAddrs, GaiResolver, Name},
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::Service;

use crate::provider::spec::HttpSettings;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Boxed<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// Makes connections.
#[derive(Clone)]
pub(super) struct Dialer {
    connector: HttpsConnector<HttpConnector<Names>>,
    timeout: Duration,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
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
pub(super) struct NameError(#[source] pub(super) io::Error);

/// The system's resolver, with an error type of its own.
#[derive(Clone)]
pub(super) struct Names(GaiResolver);

// === impl Dialer ===

impl Dialer {
    pub(super) fn build(settings: &HttpSettings) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new_with_resolver(Names(GaiResolver::new()));
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

impl Service<Name> for Names {
    type Response = GaiAddrs;
    type Error = NameError;
    type Future = Boxed<GaiAddrs, NameError>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NameError>> {
        self.0.poll_ready(cx).map_err(NameError)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = self.0.call(name);
        Box::pin(async move { resolving.await.map_err(NameError) })
    }
}
