//! What each request of a front passes before its handler, as one layer: a router copies and boxes
//! each of its layers for each request.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    extract::Request,
    http::{HeaderValue, Version, header},
    response::Response,
};
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tower::{Layer, Service};

use super::{http_metrics::BegunRequest, intake::Intake, refused_callers::RefusedCallers};
use crate::{front::LimitHeaders, telemetry::Metrics};

/// The layer; cheap to clone.
#[derive(Clone)]
pub(super) struct FrontLayer {
    door: Arc<FrontDoor>,
}

/// The steps of a request, outermost first: its report to the metrics, and its intake.
#[derive(Clone)]
pub(super) struct FrontDoor {
    pub(super) metrics: Metrics,
    pub(super) refused: Arc<RefusedCallers>,
    pub(super) draining: watch::Receiver<bool>,
    /// `None` for what those may ask for who are not identified.
    pub(super) intake: Option<Intake>,
    /// The headers of a response that tell what is left of a tenant's limits, if they are sent.
    pub(super) limits: Option<LimitHeaders>,
}

/// A handler behind the layer.
#[derive(Clone)]
pub(super) struct FrontService<S> {
    door: Arc<FrontDoor>,
    inner: S,
}

// === impl FrontLayer ===

impl FrontLayer {
    pub(super) fn new(door: FrontDoor) -> Self {
        Self {
            door: Arc::new(door),
        }
    }
}

impl<S> Layer<S> for FrontLayer {
    type Service = FrontService<S>;

    fn layer(&self, inner: S) -> FrontService<S> {
        FrontService {
            door: Arc::clone(&self.door),
            inner,
        }
    }
}

// === impl FrontService ===

impl<S> Service<Request> for FrontService<S>
where
    S: Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let door = Arc::clone(&self.door);
        // The one that is ready is called, and not its copy.
        let copy = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, copy);
        Box::pin(async move { Ok(door.handle(request, inner).await) })
    }
}

// === impl FrontDoor ===

impl FrontDoor {
    async fn handle<S>(&self, request: Request, mut inner: S) -> Response
    where
        S: Service<Request, Response = Response, Error = Infallible>,
    {
        let is_http1 = request.version() < Version::HTTP_2;
        let begun = BegunRequest::new(&request);
        let response = if let Some(intake) = &self.intake {
            intake.front(request, inner, self.limits.as_ref()).await
        } else {
            let Ok(response) = inner.call(request).await;
            response
        };
        let mut response = begun.reported(response, &self.metrics, &self.refused);
        // A client that keeps its connection would send its next call into a process that ends.
        if is_http1 && *self.draining.borrow() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}
