//! The admin port's plain HTTP: metrics for a scraper, liveness and readiness for a probe.
//!
//! It says nothing of any invocation and takes nothing in. Liveness never fails because a provider is down, and an
//! open circuit unreadies nobody: readiness is only about this process (started, and not draining).

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::sync::watch;

use super::metrics::Metrics;

/// `GET /metrics`, `/livez` and `/readyz`; ready is what `ready` says at that moment.
pub fn router(metrics: Metrics, ready: watch::Receiver<bool>) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .with_state(metrics)
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readiness).with_state(ready))
}

async fn scrape(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics.render())
}

async fn readiness(State(ready): State<watch::Receiver<bool>>) -> impl IntoResponse {
    if *ready.borrow() { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        events::EventBus,
        telemetry::{TargetNames, TelemetrySettings},
    };

    async fn asked(router: &Router, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_follows_the_process_and_liveness_does_not() {
        let (metrics, _task) =
            Metrics::start(&EventBus::new(4), &TelemetrySettings::default(), TargetNames::default()).unwrap();
        let (ready, seen) = watch::channel(false);
        let router = router(metrics, seen);
        assert_eq!(asked(&router, "/readyz").await.0, StatusCode::SERVICE_UNAVAILABLE);
        ready.send_replace(true);
        assert_eq!(asked(&router, "/readyz").await.0, StatusCode::OK);
        ready.send_replace(false);
        assert_eq!(asked(&router, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn metrics_are_plain_text_for_a_scraper() {
        let (metrics, _task) =
            Metrics::start(&EventBus::new(4), &TelemetrySettings::default(), TargetNames::default()).unwrap();
        let (_ready, seen) = watch::channel(true);
        let (status, body) = asked(&router(metrics, seen), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(body.lines().any(|line| line == "relight_inflight 0"), "{body}");
    }
}
