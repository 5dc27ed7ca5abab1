//! TLS connections of the gRPC API and of the OpenAI-compatible front, accepted with the
//! certificates now in force.
//!
//! One listener serves both, so that both use renewed certificates at the same moment. Settings are
//! read for each handshake: an open connection keeps the certificates with which it started.

use std::{io, net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use axum::serve::Listener;
use rustls::ServerConfig as TlsSettings;
use tokio::{task::JoinSet, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::connection::{LimitedListener, LimitedStream};
use crate::config::server::ServerConfig;

/// Certificates for new connections, if the server was started with TLS; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Certificates {
    in_force: Option<Arc<ArcSwap<TlsSettings>>>,
}

/// Accepts connections and performs several handshakes at a time, so that a slow one delays no
/// other.
pub(super) struct TlsListener {
    listener: LimitedListener,
    settings: Arc<ArcSwap<TlsSettings>>,
    handshakes: JoinSet<Option<(TlsStream<LimitedStream>, SocketAddr)>>,
}

// === impl Certificates ===

impl Certificates {
    pub(super) fn new(server: &ServerConfig) -> Self {
        Self {
            in_force: loaded(server).map(|settings| Arc::new(ArcSwap::new(settings))),
        }
    }

    /// Returns a listener that serves them; the bare one if there are none.
    pub(super) fn listener(
        &self,
        listener: LimitedListener,
    ) -> Result<TlsListener, LimitedListener> {
        match &self.in_force {
            Some(settings) => Ok(TlsListener {
                listener,
                settings: Arc::clone(settings),
                handshakes: JoinSet::new(),
            }),
            None => Err(listener),
        }
    }

    /// Serves new connections with what a changed configuration holds. TLS itself is neither
    /// switched on nor off.
    pub(super) fn renew(&self, server: &ServerConfig) {
        if let (Some(in_force), Some(settings)) = (&self.in_force, loaded(server)) {
            in_force.store(settings);
        }
    }
}

fn loaded(server: &ServerConfig) -> Option<Arc<TlsSettings>> {
    server.tls.as_ref()?.loaded.clone()
}

// === impl TlsListener ===

impl Listener for TlsListener {
    type Io = TlsStream<LimitedStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(shaken) = self.handshakes.join_next() => {
                    if let Ok(Some(connection)) = shaken {
                        return connection;
                    }
                }
                (socket, peer) = Listener::accept(&mut self.listener) => {
                    let acceptor = TlsAcceptor::from(self.settings.load_full());
                    let limit = self.listener.handshake_timeout();
                    self.handshakes.spawn(async move {
                        let stream = timeout(limit, acceptor.accept(socket)).await.ok()?.ok()?;
                        let (socket, session) = stream.get_ref();
                        socket.activity().secured(session.alpn_protocol() == Some(b"h2"));
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
