//! Reports each request of the HTTP front to the metrics: its route, the status that it ended with,
//! and how long it took.

use std::sync::Arc;

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::{self, Next},
    response::Response,
};
use tokio::time::Instant;

use super::{
    recorded_body::{RecordedCall, recorded_by},
    refused_callers::RefusedCallers,
};
use crate::telemetry::Metrics;

/// A request that is reported when its response has ended.
struct HttpRequest {
    metrics: Metrics,
    method: &'static str,
    route: Arc<str>,
    status: u16,
    began: Instant,
}

/// Returns the same routes, with each request reported.
pub(super) fn recorded(router: Router, metrics: &Metrics, refused: &Arc<RefusedCallers>) -> Router {
    router.layer(middleware::from_fn_with_state(
        (metrics.clone(), Arc::clone(refused)),
        record,
    ))
}

async fn record(
    State((metrics, refused)): State<(Metrics, Arc<RefusedCallers>)>,
    request: Request,
    next: Next,
) -> Response {
    // A path that no route has is the caller's, and must not become a label.
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("", MatchedPath::as_str)
        .into();
    let method = known(request.method());
    let began = Instant::now();
    let response = next.run(request).await;
    let status = response.status().as_u16();
    // A response that belongs to an invocation has the status of its failure: a provider refused
    // then, and not Relight.
    let is_of_invocation = response.headers().contains_key("x-relight-invocation");
    // What does not exist may be looked up, as over gRPC.
    if matches!(status, 400 | 401 | 403) && !is_of_invocation {
        refused.note("http", &status.to_string(), &response);
    }
    let request = HttpRequest {
        metrics,
        method,
        route,
        status,
        began,
    };
    recorded_by(response, request)
}

/// Returns the method as a label: one that HTTP does not define is the caller's.
fn known(method: &Method) -> &'static str {
    let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    methods
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("_OTHER")
}

// === impl HttpRequest ===

impl Drop for HttpRequest {
    fn drop(&mut self) {
        let route = Arc::clone(&self.route);
        self.metrics
            .http_finished(self.method, route, self.status, self.began.elapsed());
    }
}

impl RecordedCall for HttpRequest {}
