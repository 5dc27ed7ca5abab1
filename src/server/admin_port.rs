//! The admin port: health over gRPC and HTTP, and metrics. Always in plaintext, because native
//! probes are, and served until the process ends, so that a drain can be observed.

use std::sync::{Arc, atomic::AtomicBool};

use axum::{
    extract::{ConnectInfo, DefaultBodyLimit, Request},
    middleware::{Next, from_fn},
    response::Response,
};
use tokio::{sync::watch, task::JoinSet};
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{
    connection::LimitedListener,
    intake::{self, http::FrontConnection},
};
use crate::telemetry::{Metrics, endpoint};

/// Most bytes of a request here: probes and scrapers send none.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Serves health and metrics until it is stopped.
pub(super) fn serve(
    listener: LimitedListener,
    health: HealthServer<impl Health>,
    metrics: Metrics,
    live: Arc<AtomicBool>,
    draining: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) {
    let (ready, ready_seen) = watch::channel(true);
    let router =
        endpoint::router(metrics, ready_seen, live).merge(Routes::new(health).into_axum_router());
    tasks.spawn(async move {
        let mut draining = draining;
        if draining.wait_for(|draining| *draining).await.is_ok() {
            ready.send_replace(false);
            // The endpoint reports this until it is stopped.
            std::future::pending::<()>().await;
        }
    });
    tasks.spawn(async move {
        let service = router
            .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
            .layer(from_fn(counted));
        let service = service.into_make_service_with_connect_info::<FrontConnection>();
        if let Err(error) = axum::serve(listener, service).await {
            tracing::error!(%error, "the admin listener ended");
        }
    });
}

/// Keeps the connection of a request open as long as the request lasts.
async fn counted(
    ConnectInfo(connection): ConnectInfo<FrontConnection>,
    request: Request,
    next: Next,
) -> Response {
    let guard = connection.begin(request.body());
    intake::holding(next.run(request).await, Some(guard), None)
}
