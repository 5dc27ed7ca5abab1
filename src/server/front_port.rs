//! The listeners of the HTTP fronts and their authentication: the same callers as the gRPC API.
//!
//! Where TLS is configured, the front is served with TLS only.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;
use axum::{
    Router,
    extract::connect_info::Connected,
    http::HeaderMap,
    serve::{IncomingStream, Listener},
};
use futures_util::future::BoxFuture;
use tokio::{sync::watch, task::JoinSet};

use super::{
    connection::LimitedListener,
    front_layer::{FrontDoor, FrontLayer},
    intake::{Intake, http::FrontConnection},
    parts::ServerParts,
    refused_callers::RefusedCallers,
    tls::Certificates,
};
use crate::{
    call_error::{CallError, table::UNAUTHENTICATED},
    config::{Config, server::CorsConfig},
    domain::ids::RouteName,
    engine::Engine,
    execution::Executions,
    front::{self, Authenticate, LimitHeaders, Principal},
    grpc::auth::{Access, Authenticator, Identity},
    telemetry::Metrics,
};

/// Requirements of a front's listener.
#[derive(Clone)]
pub(super) struct FrontPort {
    engine: Engine,
    executions: Executions,
    authenticator: Arc<ArcSwap<Authenticator>>,
    draining: watch::Receiver<bool>,
    intake: Intake,
    cors: CorsConfig,
    max_body_bytes: usize,
    metrics: Metrics,
    refused: Arc<RefusedCallers>,
}

/// Services that a listener serves.
#[derive(Clone, Copy)]
pub(super) enum FrontRoutes {
    /// The front for the protocols of models.
    OpenAi,
    /// Relight as an MCP server, at this path.
    Mcp(&'static str),
}

/// Authenticates callers as the gRPC API does.
struct SharedDoor {
    authenticator: Arc<ArcSwap<Authenticator>>,
}

// === impl FrontPort ===

impl FrontPort {
    pub(super) fn new(
        parts: &ServerParts,
        config: &Config,
        intake: Intake,
        max_body_bytes: usize,
    ) -> Self {
        Self {
            engine: parts.engine.clone(),
            executions: parts.executions.clone(),
            authenticator: Arc::clone(&parts.callers.authenticator),
            draining: parts.signals.draining.subscribe(),
            intake,
            cors: config.server.cors.clone(),
            max_body_bytes,
            metrics: parts.metrics.clone(),
            refused: Arc::clone(&parts.callers.refused),
        }
    }

    /// Serves until it is stopped.
    pub(super) fn serve(
        self,
        routes: FrontRoutes,
        listener: LimitedListener,
        certificates: &Certificates,
        stop: watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) {
        let authenticate = Arc::new(SharedDoor {
            authenticator: self.authenticator,
        });
        let door = FrontDoor {
            metrics: self.metrics,
            refused: self.refused,
            draining: self.draining.clone(),
            intake: Some(self.intake),
            limits: None,
        };
        let mut router = match routes {
            FrontRoutes::OpenAi => {
                let limits = Some(LimitHeaders::new(self.engine.clone()));
                front::router(
                    self.engine,
                    self.executions,
                    authenticate,
                    self.max_body_bytes,
                )
                .layer(FrontLayer::new(FrontDoor { limits, ..door }))
            }
            FrontRoutes::Mcp(path) => {
                let open = FrontDoor {
                    intake: None,
                    ..door.clone()
                };
                let open =
                    front::token_metadata(self.engine.clone(), path).layer(FrontLayer::new(open));
                let router = front::mcp_router(
                    self.engine.clone(),
                    self.executions,
                    authenticate,
                    path,
                    self.max_body_bytes,
                    self.draining,
                )
                .layer(FrontLayer::new(door));
                front::with_challenge(router.merge(open), self.engine, path)
            }
        };
        // Where no page may call, the intake refuses them all.
        if !self.cors.allow_origins.is_empty() {
            router = router.layer(super::cors::layer(self.cors));
        }
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

    fn withdrawn(
        &self,
        headers: &HeaderMap,
        certificate: Option<&[u8]>,
        route: RouteName,
    ) -> BoxFuture<'static, CallError> {
        let authorization = front::authorization(headers);
        let authorization = authorization.as_deref();
        let in_force = self.authenticator.load_full();
        let Ok(identity) = in_force.recognise(authorization, certificate) else {
            return Box::pin(async { CallError::new(UNAUTHENTICATED) });
        };
        let shown = (authorization, certificate);
        let access = Access::new(&self.authenticator, &in_force, shown, &identity);
        let tenant = identity.tenant;
        Box::pin(async move {
            let allows = |now: &Identity| {
                now.tenant == tenant && now.may_invoke() && now.may_use(&route).is_ok()
            };
            access.withdrawn(allows).await.into()
        })
    }
}
