//! Reports each request of the HTTP front to the metrics: its route, the status that it ended with, and how long it took.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::{MatchedPath, Request, State},
    http::Method,
    middleware::{self, Next},
    response::Response,
};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::refused_callers::RefusedCallers;
use crate::telemetry::Metrics;

/// Reports a request when its response has ended.
struct HttpRequest {
    metrics: Metrics,
    method: &'static str,
    route: String,
    status: u16,
    began: Instant,
}

/// The body of a response, which ends the request.
struct RecordedResponse {
    body: Body,
    _request: HttpRequest,
}

/// The same routes, with each request reported.
pub(super) fn recorded(router: Router, metrics: &Metrics, refused: &Arc<RefusedCallers>) -> Router {
    router.layer(middleware::from_fn_with_state((metrics.clone(), Arc::clone(refused)), record))
}

async fn record(
    State((metrics, refused)): State<(Metrics, Arc<RefusedCallers>)>,
    request: Request,
    next: Next,
) -> Response {
    // A path that no route has is the caller's, and must not become a label.
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let (method, began) = (known(request.method()), Instant::now());
    let response = next.run(request).await;
    let status = response.status().as_u16();
    if (400..405).contains(&status) {
        refused.note("http", &status.to_string());
    }
    let request = HttpRequest { metrics, method, route, status, began };
    response.map(|body| Body::new(RecordedResponse { body, _request: request }))
}

/// The method as a label: one that HTTP does not define is the caller's.
fn known(method: &Method) -> &'static str {
    let methods = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

// === impl HttpRequest ===

impl Drop for HttpRequest {
    fn drop(&mut self) {
        let route = std::mem::take(&mut self.route);
        self.metrics.http_finished(self.method, route, self.status, self.began.elapsed());
    }
}

// === impl RecordedResponse ===

impl HttpBody for RecordedResponse {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
