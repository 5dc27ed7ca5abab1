//! The admin port: health over gRPC and HTTP, and metrics. Always in plaintext, because native
//! probes are, and served until the process ends, so that a drain can be observed.

use std::sync::{Arc, atomic::AtomicBool};

use axum::{
    Router,
    extract::{ConnectInfo, DefaultBodyLimit, Request},
    http::{HeaderMap, StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
};
use tokio::{sync::watch, task::JoinSet};
use tonic::{Status, server::NamedService as _};
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{
    connection::LimitedListener,
    intake::{self, http::FrontConnection},
};
use crate::telemetry::{Metrics, endpoint};

/// Most bytes of a request here: probes and scrapers send none.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Serves health and metrics until it is stopped.
pub(super) fn serve<H: Health>(
    listener: LimitedListener,
    health: HealthServer<H>,
    metrics: Metrics,
    live: Arc<AtomicBool>,
    draining: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) {
    let (ready, ready_seen) = watch::channel(true);
    let router = router(health, endpoint::router(metrics, ready_seen, live));
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

/// Adds health over gRPC, and words for whoever asks for something else.
fn router<H: Health>(health: HealthServer<H>, endpoint: Router) -> Router {
    let calls = format!("/{}/{{*method}}", HealthServer::<H>::NAME);
    endpoint.route_service(&calls, health).fallback(not_found)
}

/// Responds to what is not served here, over HTTP or gRPC.
async fn not_found(headers: HeaderMap) -> Response {
    let media = headers.get(header::CONTENT_TYPE);
    if media.is_some_and(|media| media.as_bytes().starts_with(b"application/grpc")) {
        // The command line has words of its own for it.
        return Status::unimplemented("").into_http();
    }
    let words =
        "not found: GET /metrics, /livez and /readyz are served here, and health over gRPC\n";
    (StatusCode::NOT_FOUND, words).into_response()
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

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::telemetry::endpoint::tests::unused_metrics;

    #[tokio::test]
    async fn another_path_is_told_which_ones_there_are_and_another_method_is_refused() {
        let (metrics, _task) = unused_metrics();
        let (_ready, seen) = watch::channel(true);
        let endpoint = endpoint::router(metrics, seen, Arc::new(AtomicBool::new(true)));
        let (_health, service) = tonic_health::server::health_reporter();
        let router = router(service, endpoint);
        let send = async |method: &str, path: &str, media: &str| {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(header::CONTENT_TYPE, media)
                .body(Body::empty())
                .unwrap();
            router.clone().oneshot(request).await.unwrap()
        };
        for path in ["/", "/healthz", "/metrics/"] {
            let response = send("GET", path, "").await;
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            for known in ["/metrics", "/livez", "/readyz"] {
                assert!(body.contains(known), "{path}: {body}");
            }
        }
        for (method, path) in [("POST", "/metrics"), ("DELETE", "/livez")] {
            let status = send(method, path, "").await.status();
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
        let grpc = "application/grpc";
        let call = send("POST", "/relight.v1.RecoveryService/GetThread", grpc).await;
        assert_eq!(call.headers()["grpc-status"], "12");
        let call = send("POST", "/grpc.health.v1.Health/Check", grpc).await;
        assert!(
            call.headers()
                .get("grpc-status")
                .is_none_or(|status| status != "12")
        );
    }
}
