//! The OpenAI-compatible front's listener, and its door: the same callers as the gRPC API has.
//!
//! Where TLS is configured it is served with TLS and never without. It has its own TLS listener, because the one of the
//! gRPC API offers HTTP/2 alone, which the HTTP clients of SDKs refuse.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::connect_info::Connected,
    http::{HeaderMap, header},
    serve::{IncomingStream, Listener, ListenerExt as _},
};
use rustls::{
    RootCertStore, ServerConfig as TlsSettings,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::StartError;
use crate::{
    config::server::{ServerConfig, TlsConfig},
    engine::Engine,
    front::{self, Caller, ClientCertificate, Door},
    grpc::{auth::Authenticator, presence::Presence},
};

/// How long a client may take to shake hands.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most handshakes at once; further connections wait in the host's queue.
const MAX_HANDSHAKES: usize = 256;

/// What the front is served with.
pub(super) struct FrontPort {
    pub(super) engine: Engine,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) presence: Presence,
    pub(super) max_body_bytes: usize,
}

/// Lets in whom the gRPC API lets in.
struct SharedDoor {
    authenticator: Arc<ArcSwap<Authenticator>>,
    presence: Presence,
}

/// Accepts connections and shakes hands with several clients at a time, so that a slow one delays nobody.
struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

// === impl FrontPort ===

impl FrontPort {
    /// Serves until it is told to stop.
    ///
    /// # Errors
    /// When the configured certificates cannot be used.
    pub(super) fn serve(
        self,
        server: &ServerConfig,
        listener: TcpListener,
        stop: watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), StartError> {
        let door = SharedDoor { authenticator: self.authenticator, presence: self.presence };
        let router = front::router(self.engine, Arc::new(door), self.max_body_bytes);
        match &server.tls {
            None => {
                // Small events must not wait for each other.
                let listener = listener.tap_io(|socket| {
                    let _ = socket.set_nodelay(true);
                });
                tasks.spawn(
                    async move { ended(axum::serve(listener, router).with_graceful_shutdown(told(stop)).await) },
                );
            }
            Some(tls) => {
                let acceptor = TlsAcceptor::from(Arc::new(tls_settings(tls)?));
                let listener = TlsListener { listener, acceptor, handshakes: JoinSet::new() };
                tasks.spawn(serve_tls(listener, router, stop));
            }
        }
        Ok(())
    }
}

async fn serve_tls(listener: TlsListener, router: Router, stop: watch::Receiver<bool>) {
    let service = router.into_make_service_with_connect_info::<ClientCertificate>();
    ended(axum::serve(listener, service).with_graceful_shutdown(told(stop)).await);
}

async fn told(mut stop: watch::Receiver<bool>) {
    // An error means that the server is gone, which is a stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn ended(how: io::Result<()>) {
    if let Err(error) = how {
        tracing::error!(%error, "the OpenAI-compatible listener ended");
    }
}

fn tls_settings(tls: &TlsConfig) -> Result<TlsSettings, StartError> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| StartError::Tls(format!("{}: {error}", path.display()));
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, StartError> {
        let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        read.map_err(|error| wrong(path, &error))
    };
    let key = PrivateKeyDer::from_pem_file(&tls.key_file).map_err(|error| wrong(&tls.key_file, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = TlsSettings::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| StartError::Tls(error.to_string()))?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| wrong(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().map_err(|error| wrong(path, &error))?)
        }
    };
    let mut settings =
        builder.with_single_cert(certificates(&tls.cert_file)?, key).map_err(|error| wrong(&tls.cert_file, &error))?;
    settings.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(settings)
}

// === impl TlsListener ===

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let room = self.handshakes.len() < MAX_HANDSHAKES;
            tokio::select! {
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = shaken {
                        return connection;
                    }
                }
                (socket, peer) = Listener::accept(&mut self.listener), if room => {
                    let acceptor = self.acceptor.clone();
                    self.handshakes.spawn(async move {
                        let _ = socket.set_nodelay(true);
                        let stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await.ok()?.ok()?;
                        Some((stream, peer))
                    });
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for ClientCertificate {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let (_, connection) = stream.io().get_ref();
        let first = connection.peer_certificates().and_then(<[CertificateDer<'_>]>::first);
        Self(first.map(|certificate| certificate.as_ref().into()))
    }
}

// === impl SharedDoor ===

impl Door for SharedDoor {
    fn identify(&self, headers: &HeaderMap, certificate: Option<&[u8]>) -> Option<Caller> {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let identity = self.authenticator.load().recognise(authorization, certificate)?;
        Some(Caller { tenant: identity.tenant, routes: identity.routes })
    }

    fn is_draining(&self) -> bool {
        self.presence.is_draining()
    }
}
