//! Reports each request of the HTTP front to the metrics: its route, the status that it ended with,
//! and how long it took.

use std::sync::Arc;

use axum::{
    extract::{MatchedPath, Request},
    http::Method,
    response::Response,
};
use tokio::time::Instant;

use super::{
    recorded_body::{RecordedCall, recorded_by},
    refused_callers::RefusedCallers,
};
use crate::telemetry::Metrics;

/// A request that has no response yet. It is reported only if it gets one.
pub(super) struct BegunRequest {
    method: &'static str,
    route: Arc<str>,
    began: Instant,
}

/// A request that is reported when its response has ended.
struct HttpRequest {
    request: BegunRequest,
    metrics: Metrics,
    status: u16,
}

/// Returns the method as a label: one that HTTP does not define is the caller's.
fn known(method: &Method) -> &'static str {
    let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    methods
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("_OTHER")
}

// === impl BegunRequest ===

impl BegunRequest {
    pub(super) fn new(request: &Request) -> Self {
        // A path that no route has is the caller's, and must not become a label.
        let route = request.extensions().get::<MatchedPath>();
        Self {
            method: known(request.method()),
            route: route.map_or("", MatchedPath::as_str).into(),
            began: Instant::now(),
        }
    }

    /// Returns the response, at whose end the request is reported.
    pub(super) fn reported(
        self,
        response: Response,
        metrics: &Metrics,
        refused: &RefusedCallers,
    ) -> Response {
        let status = response.status().as_u16();
        // A response that belongs to an invocation has the status of its failure: a provider refused
        // then, and not Relight.
        let is_of_invocation = response.headers().contains_key("x-relight-invocation");
        // What does not exist may be looked up, as over gRPC.
        if matches!(status, 400 | 401 | 403) && !is_of_invocation {
            refused.note("http", &status.to_string(), &response);
        }
        let request = HttpRequest {
            request: self,
            metrics: metrics.clone(),
            status,
        };
        recorded_by(response, request)
    }
}

// === impl HttpRequest ===

impl Drop for HttpRequest {
    fn drop(&mut self) {
        let BegunRequest {
            method,
            route,
            began,
        } = &self.request;
        self.metrics
            .http_finished(method, Arc::clone(route), self.status, began.elapsed());
    }
}

impl RecordedCall for HttpRequest {}
