//! The OpenAI-compatible front's listener, and its door: the same callers as the gRPC API has.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::{HeaderMap, header};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::{
    engine::Engine,
    front::{self, Caller, Door},
    grpc::{auth::Authenticator, presence::Presence},
};

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

// === impl FrontPort ===

impl FrontPort {
    pub(super) fn serve(self, listener: TcpListener, mut stop: watch::Receiver<bool>, tasks: &mut JoinSet<()>) {
        let door = SharedDoor { authenticator: self.authenticator, presence: self.presence };
        let router = front::router(self.engine, Arc::new(door), self.max_body_bytes);
        tasks.spawn(async move {
            let stopped = async move {
                // An error means that the server is gone, which is a stop as well.
                let _ = stop.wait_for(|stop| *stop).await;
            };
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
                tracing::error!(%error, "the OpenAI-compatible listener ended");
            }
        });
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
