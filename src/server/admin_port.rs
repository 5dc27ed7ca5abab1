//! The admin port: health over gRPC and HTTP, and metrics. Always in plaintext, because native probes are.

use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};

use crate::telemetry::{Metrics, endpoint};

pub(super) fn serve(
    listener: TcpListener,
    health: HealthServer<impl Health>,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
    mut stop: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) {
    let (ready, ready_seen) = watch::channel(true);
    let router = endpoint::router(metrics, ready_seen).merge(Routes::new(health).into_axum_router());
    tasks.spawn(async move {
        let mut draining = draining;
        if draining.wait_for(|draining| *draining).await.is_ok() {
            ready.send_replace(false);
            // The endpoint goes on saying so until it is stopped.
            std::future::pending::<()>().await;
        }
    });
    tasks.spawn(async move {
        let stopped = async move {
            // An error means that the server is gone, which is a stop as well.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stopped).await {
            tracing::error!(%error, "the admin listener ended");
        }
    });
}
