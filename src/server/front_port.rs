//! The listeners of the HTTP fronts and their authentication: the same callers as the gRPC API.
//!
//! Where TLS is configured, the front is served with TLS only.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::{Request, connect_info::Connected},
    http::{HeaderMap, HeaderValue, Version, header},
    middleware::{Next, from_fn},
    serve::{IncomingStream, Listener},
};
use tokio::{sync::watch, task::JoinSet};

use super::{
    connection::LimitedListener,
    http_metrics,
    intake::{Intake, http::FrontConnection},
    refused_callers::RefusedCallers,
    tls::Certificates,
};
use crate::{
    config::server::CorsConfig,
    engine::Engine,
    execution::Executions,
    front::{self, Authenticate, Principal},
    grpc::auth::Authenticator,
    telemetry::Metrics,
};

/// What a front's listener requires.
#[derive(Clone)]
pub(super) struct FrontPort {
    pub(super) engine: Engine,
    pub(super) executions: Executions,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) draining: watch::Receiver<bool>,
    pub(super) intake: Intake,
    pub(super) cors: CorsConfig,
    pub(super) max_body_bytes: usize,
    pub(super) metrics: Metrics,
    pub(super) refused: Arc<RefusedCallers>,
}

/// What is served on a listener.
pub(super) enum Routes {
    /// The front for the protocols of models.
    OpenAi,
    /// Relight as an MCP server, at this path.
    Mcp(String),
}

/// Authenticates callers as the gRPC API does.
struct SharedDoor {
    authenticator: Arc<ArcSwap<Authenticator>>,
}

// === impl FrontPort ===

impl FrontPort {
    /// Serves until it is stopped.
    pub(super) fn serve(
        self,
        routes: Routes,
        listener: LimitedListener,
        certificates: &Certificates,
        stop: watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) {
        let door = Arc::new(SharedDoor {
            authenticator: self.authenticator,
        });
        let router = match routes {
            Routes::OpenAi => {
                front::router(self.engine, self.executions, door, self.max_body_bytes)
            }
            Routes::Mcp(path) => front::mcp_router(
                self.engine,
                self.executions,
                door,
                &path,
                self.max_body_bytes,
            ),
        };
        let mut router = http_metrics::recorded(
            self.intake.before_front(router),
            &self.metrics,
            &self.refused,
        );
        // Where no page may call, the intake refuses them all.
        if !self.cors.allow_origins.is_empty() {
            router = router.layer(super::cors::layer(self.cors));
        }
        let draining = self.draining;
        // A client that keeps its connection would send its next call into a process that ends.
        let router = router.layer(from_fn(move |request: Request, next: Next| {
            let draining = draining.clone();
            async move {
                let is_http1 = request.version() < Version::HTTP_2;
                let mut response = next.run(request).await;
                if is_http1 && *draining.borrow() {
                    response
                        .headers_mut()
                        .insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                response
            }
        }));
        match certificates.listener(listener) {
            Err(listener) => tasks.spawn(serve(listener, router, stop)),
            Ok(listener) => tasks.spawn(serve(listener, router, stop)),
        };
    }
}

async fn serve<L>(listener: L, router: Router, stop: watch::Receiver<bool>)
where
    L: Listener<Addr: std::fmt::Debug>,
    FrontConnection: for<'a> Connected<IncomingStream<'a, L>>,
{
    let service = router.into_make_service_with_connect_info::<FrontConnection>();
    ended(
        axum::serve(listener, service)
            .with_graceful_shutdown(stopped(stop))
            .await,
    );
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the server is gone, which is a stop as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn ended(how: io::Result<()>) {
    if let Err(error) = how {
        tracing::error!(%error, "the listener of a front ended");
    }
}

// === impl SharedDoor ===

impl Authenticate for SharedDoor {
    fn identify(&self, headers: &HeaderMap, certificate: Option<&[u8]>) -> Option<Principal> {
        let authorization = front::authorization(headers);
        let identity = self
            .authenticator
            .load()
            .recognise(authorization.as_deref(), certificate)
            .ok()?;
        Some(Principal {
            tenant: identity.tenant,
            routes: identity.routes,
        })
    }
}
