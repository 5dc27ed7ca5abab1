//! Makes a connection: name, TCP and TLS within one time limit, each with an error type of its own.
//!
//! The types exist so that `fault` can distinguish a name that does not resolve from a refused
//! connection without parsing error texts.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_rustls::{
    ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream,
};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use rustls::sign::SingleCertAndKey;
use tokio::net::TcpStream;
use tower::Service;

use super::{BoxError, ConnectionSettings, names::Names, proxy::Route};
use crate::tls::ClientTls;

/// Makes connections.
#[derive(Clone)]
pub struct Dialer {
    connector: HttpsConnector<Route>,
    timeout: Duration,
}

/// Reason why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// It took too long.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// It failed.
    #[error("no connection")]
    Failed(#[source] BoxError),
}

// === impl Dialer ===

impl Dialer {
    pub(super) fn build(settings: &ConnectionSettings) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new_with_resolver(Names::new(settings.allow_private));
        tcp.enforce_http(false);
        tcp.set_nodelay(settings.tcp_nodelay);
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(settings.tls.as_ref())?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(Route::new(tcp, settings.proxy.clone()));
        Ok(Self {
            connector,
            timeout: settings.connect_timeout,
        })
    }
}

impl Service<Uri> for Dialer {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

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

/// Trusts the well-known authorities and shows no certificate, unless the settings hold some.
fn client_config(tls: Option<&ClientTls>) -> Result<rustls::ClientConfig, rustls::Error> {
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()?;
    let builder = match tls.and_then(|tls| tls.authorities.clone()) {
        Some(authorities) => builder.with_root_certificates(authorities),
        None => builder.with_webpki_roots(),
    };
    Ok(match tls.and_then(|tls| tls.identity.clone()) {
        Some(identity) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
        }
        None => builder.with_no_client_auth(),
    })
}
