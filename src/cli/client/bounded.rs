//! A connection on which each call gets its first response in time, or an error that says what is
//! wrong.
//!
//! Only the head of a response is bounded: what a stream sends, and how long it lasts, is up to the
//! server.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tonic::{Status, body::Body, transport::Channel};
use tower::Service;

use super::unreachable::{Unreachable, broken};

/// Time that a call may take until its first response; journals that are slow respond within it as
/// well.
pub(in crate::cli) const RESPONSE_LIMIT: Duration = Duration::from_secs(10);

/// Time that one call may take until its first response, if that is not [`RESPONSE_LIMIT`]; an
/// extension of its request. `None` leaves it to the server.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct ResponseLimit(pub(in crate::cli) Option<Duration>);

/// A connection to a server, with the address for its errors.
#[derive(Debug, Clone)]
pub(in crate::cli) struct BoundedChannel {
    channel: Channel,
    address: Arc<str>,
}

// === impl BoundedChannel ===

impl BoundedChannel {
    /// Bounds the calls on a connection to this address.
    pub(super) fn new(channel: Channel, address: &str) -> Self {
        Self {
            channel,
            address: address.into(),
        }
    }
}

impl Service<http::Request<Body>> for BoundedChannel {
    type Response = http::Response<Body>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel
            .poll_ready(context)
            .map_err(|error| Status::from_error(error.into()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let limit = request
            .extensions()
            .get()
            .map_or(Some(RESPONSE_LIMIT), |limit: &ResponseLimit| limit.0);
        let responding = self.channel.call(request);
        let address = Arc::clone(&self.address);
        Box::pin(async move {
            let response = match limit {
                None => responding.await,
                Some(limit) => match tokio::time::timeout(limit, responding).await {
                    Ok(response) => response,
                    Err(_) => return Err(Status::from(Unreachable::silent(&address, limit))),
                },
            };
            match response {
                Ok(response) => Ok(response),
                Err(error) => Err(Status::from(broken(&address, error).await)),
            }
        })
    }
}
