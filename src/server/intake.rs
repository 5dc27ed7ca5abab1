//! What stands before both fronts' handlers: who calls is known before a byte of a body is read, and bodies are read whole,
//! within the limits of `server.limits` and `server.timeouts`, before anything is made of them.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::{
    body::{Body, Bytes, HttpBody},
    response::Response,
};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use super::connection::{Activity, RequestGuard};
use crate::{
    config::{
        limits::LimitsConfig,
        server::{CorsConfig, ServerConfig},
    },
    domain::ids::TenantId,
    grpc::auth::Authenticator,
};

pub(super) mod grpc;
pub(super) mod http;

/// What is in force for requests that come in; cheap to clone.
#[derive(Clone)]
pub(super) struct Intake {
    authenticator: Arc<ArcSwap<Authenticator>>,
    limits: Arc<LimitsConfig>,
    max_body_bytes: u64,
    body_timeout: Duration,
    cors: Arc<CorsConfig>,
    held: Arc<HeldBytes>,
}

/// The bytes that requests hold.
#[derive(Debug, Default)]
struct HeldBytes {
    in_all: AtomicU64,
    by_tenant: Mutex<HashMap<TenantId, u64>>,
}

/// Bytes that one request holds until this is dropped.
#[derive(Debug)]
pub(super) struct ByteReservation {
    held: Arc<HeldBytes>,
    tenant: TenantId,
    connection: Option<Arc<Activity>>,
    bytes: u64,
}

/// Why a body is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyFault {
    /// It is longer than one may be.
    TooLong,
    /// There is no room for it now; whose limit was reached.
    NoRoom(&'static str),
    /// It did not come in time.
    Late,
    /// The client broke off.
    Broken,
}

// === impl Intake ===

impl Intake {
    pub(super) fn new(server: &ServerConfig, authenticator: Arc<ArcSwap<Authenticator>>) -> Self {
        Self {
            authenticator,
            limits: Arc::new(server.limits.clone()),
            max_body_bytes: server.max_message_bytes,
            body_timeout: server.timeouts.body,
            cors: Arc::new(server.cors.clone()),
            held: Arc::default(),
        }
    }

    fn reserve(&self, tenant: &TenantId, connection: Option<&Arc<Activity>>) -> ByteReservation {
        let (held, tenant) = (Arc::clone(&self.held), tenant.clone());
        ByteReservation { held, tenant, connection: connection.cloned(), bytes: 0 }
    }

    /// Reads a body to its end, as far as there is room for it.
    async fn read(&self, body: Body, max: u64, reservation: &mut ByteReservation) -> Result<Bytes, BodyFault> {
        if body.size_hint().lower() > max {
            return Err(BodyFault::TooLong);
        }
        let (mut body, end) = (body, Instant::now() + self.body_timeout);
        let mut whole = Vec::new();
        loop {
            let frame = timeout_at(end, body.frame()).await.map_err(|_| BodyFault::Late)?;
            let Some(frame) = frame else { return Ok(Bytes::from(whole)) };
            let Ok(data) = frame.map_err(|_| BodyFault::Broken)?.into_data() else { continue };
            reservation.grow(data.len() as u64, &self.limits)?;
            if reservation.bytes > max {
                return Err(BodyFault::TooLong);
            }
            whole.extend_from_slice(&data);
        }
    }
}

// === impl ByteReservation ===

impl ByteReservation {
    fn grow(&mut self, bytes: u64, limits: &LimitsConfig) -> Result<(), BodyFault> {
        let mut by_tenant = self.held.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = by_tenant.get(&self.tenant).copied().unwrap_or_default();
        let of_connection = self.connection.as_ref().map(|activity| activity.bytes.load(Ordering::Relaxed));
        if self.held.in_all.load(Ordering::Relaxed) + bytes > limits.bytes_in_flight {
            return Err(BodyFault::NoRoom("server.limits.bytes_in_flight"));
        }
        if of_tenant + bytes > limits.bytes_in_flight_per_tenant {
            return Err(BodyFault::NoRoom("server.limits.bytes_in_flight_per_tenant"));
        }
        if of_connection.unwrap_or_default() + bytes > limits.bytes_in_flight_per_connection {
            return Err(BodyFault::NoRoom("server.limits.bytes_in_flight_per_connection"));
        }
        // The lock orders all changes; the numbers are atomic so that they can be shared.
        self.held.in_all.fetch_add(bytes, Ordering::Relaxed);
        by_tenant.insert(self.tenant.clone(), of_tenant + bytes);
        if let Some(activity) = &self.connection {
            activity.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        let mut by_tenant = self.held.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        self.held.in_all.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(activity) = &self.connection {
            activity.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        if let Some(of_tenant) = by_tenant.get_mut(&self.tenant) {
            *of_tenant -= self.bytes.min(*of_tenant);
            if *of_tenant == 0 {
                by_tenant.remove(&self.tenant);
            }
        }
    }
}

/// A response that holds what its request held until its body ends.
pub(super) fn holding(
    response: Response,
    request: Option<RequestGuard>,
    reservation: Option<ByteReservation>,
) -> Response {
    response.map(|body| Body::new(Holding { body, _request: request, _reservation: reservation }))
}

/// A body as it is, and what is held as long as it lasts.
struct Holding {
    body: Body,
    _request: Option<RequestGuard>,
    _reservation: Option<ByteReservation>,
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_for_all_the_tenant_and_the_connection_and_given_back() {
        let limits = LimitsConfig {
            bytes_in_flight: 100,
            bytes_in_flight_per_tenant: 60,
            bytes_in_flight_per_connection: 1000,
            ..LimitsConfig::default()
        };
        let held: Arc<HeldBytes> = Arc::default();
        let reserve = |tenant: &str| ByteReservation {
            held: Arc::clone(&held),
            tenant: TenantId::from(tenant),
            connection: None,
            bytes: 0,
        };
        let (mut one, mut other) = (reserve("a"), reserve("b"));
        assert_eq!(one.grow(60, &limits), Ok(()));
        assert_eq!(one.grow(1, &limits), Err(BodyFault::NoRoom("server.limits.bytes_in_flight_per_tenant")));
        assert_eq!(other.grow(41, &limits), Err(BodyFault::NoRoom("server.limits.bytes_in_flight")));
        assert_eq!(other.grow(40, &limits), Ok(()));
        drop(one);
        assert_eq!(reserve("c").grow(60, &limits), Ok(()));
        drop(other);
        assert_eq!(held.in_all.load(Ordering::Relaxed), 0);
        assert!(held.by_tenant.lock().unwrap().is_empty());
    }
}
