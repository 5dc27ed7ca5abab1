//! The admin port's plain HTTP: metrics for a scraper, liveness and readiness for a probe.
//!
//! It reports nothing about single invocations and accepts no input. Liveness fails only if this
//! process's workers do not return from a task, not because a provider is down, and an open circuit
//! makes no replica unready: readiness concerns this process alone (started, and not draining).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::sync::watch;

use super::metrics::Metrics;

/// Builds the router: `GET /metrics`, `/livez` and `/readyz`, which report
/// the current values of `live` and `ready`.
pub fn router(metrics: Metrics, ready: watch::Receiver<bool>, live: Arc<AtomicBool>) -> Router {
    Router::new()
        .route("/metrics", get(scrape).with_state(metrics))
        .route("/livez", get(liveness).with_state(live))
        .route("/readyz", get(readiness).with_state(ready))
}

async fn scrape(State(metrics): State<Metrics>) -> impl IntoResponse {
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        metrics.render(),
    )
}

async fn liveness(State(live): State<Arc<AtomicBool>>) -> impl IntoResponse {
    if live.load(Ordering::Relaxed) {
        (StatusCode::OK, "alive\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "workers do not come back from their tasks\n",
        )
    }
}

async fn readiness(State(ready): State<watch::Receiver<bool>>) -> impl IntoResponse {
    if *ready.borrow() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        events::EventBus,
        telemetry::{MetricsTask, TargetNames, TelemetrySettings},
    };

    /// Returns the metrics of a process that has done nothing yet.
    pub(crate) fn unused_metrics() -> (Metrics, MetricsTask) {
        Metrics::start(
            &EventBus::new(4),
            &TelemetrySettings::default(),
            TargetNames::default(),
        )
        .unwrap()
    }

    async fn get(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_follows_the_process_and_liveness_does_not() {
        let (metrics, _task) = unused_metrics();
        let (ready, seen) = watch::channel(false);
        let live = Arc::new(AtomicBool::new(true));
        let router = router(metrics, seen, Arc::clone(&live));
        assert_eq!(
            get(&router, "/readyz").await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        ready.send_replace(true);
        assert_eq!(get(&router, "/readyz").await.0, StatusCode::OK);
        ready.send_replace(false);
        assert_eq!(get(&router, "/livez").await.0, StatusCode::OK);
        live.store(false, Ordering::Relaxed);
        assert_eq!(
            get(&router, "/livez").await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
    }

    #[tokio::test]
    async fn metrics_are_plain_text_for_a_scraper() {
        let (metrics, _task) = unused_metrics();
        let (_ready, seen) = watch::channel(true);
        let router = router(metrics, seen, Arc::new(AtomicBool::new(true)));
        let (status, body) = get(&router, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            body.lines().any(|line| line == "relight_inflight 0"),
            "{body}"
        );
    }
}
