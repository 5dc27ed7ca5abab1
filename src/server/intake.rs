//! The intake of both fronts: the caller is authenticated before a byte of a body is read, and
//! bodies are read completely, within the limits of `server.limits` and `server.timeouts`, before
//! they are parsed.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::{
    body::{Body, Bytes, HttpBody},
    http::request::Parts,
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

/// Bytes that a request is counted with beside its head and its body: its task, its buffers.
const REQUEST_BYTES: u64 = 8 << 10;

/// Bytes that a field of a head is counted with beside its name and value, as HTTP/2 does.
const FIELD_BYTES: usize = 32;

/// Bytes that an entry of a body is counted with beside what it takes on the wire.
const ENTRY_BYTES: u64 = 100;

/// The limits and timeouts in force for incoming requests; cheap to clone.
#[derive(Clone)]
pub(super) struct Intake {
    authenticator: Arc<ArcSwap<Authenticator>>,
    limits: Arc<LimitsConfig>,
    max_body_bytes: u64,
    body_timeout: Duration,
    cors: Arc<CorsConfig>,
    held: Arc<IntakeUse>,
}

/// What requests hold.
#[derive(Debug, Default)]
struct IntakeUse {
    state: Mutex<IntakeState>,
}

#[derive(Debug, Default)]
struct IntakeState {
    in_all: InUse,
    by_tenant: HashMap<TenantId, InUse>,
}

/// Requests, and the bytes that they are counted with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct InUse {
    requests: usize,
    bytes: u64,
}

/// The count of one request and its bytes, held until this is dropped.
#[derive(Debug)]
pub(super) struct IntakePermit {
    held: Arc<IntakeUse>,
    tenant: TenantId,
    connection: Option<Arc<Activity>>,
    bytes: u64,
}

/// Why a body is rejected.
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

    /// Counts a request with its head; its body is counted as it is read.
    fn reserve(
        &self,
        tenant: &TenantId,
        connection: Option<&Arc<Activity>>,
        head: &Parts,
    ) -> Result<IntakePermit, BodyFault> {
        let mut reservation = IntakePermit::new(&self.held, tenant, connection, &self.limits)?;
        let fields = head
            .headers
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
        let bytes =
            fields.sum::<usize>() + head.uri.path().len() + head.uri.query().map_or(0, str::len);
        reservation.grow(REQUEST_BYTES + bytes as u64, &self.limits)?;
        Ok(reservation)
    }

    /// Reads a body to its end, as far as there is room for it.
    async fn read(
        &self,
        body: Body,
        max: u64,
        reservation: &mut IntakePermit,
    ) -> Result<Bytes, BodyFault> {
        if body.size_hint().lower() > max {
            return Err(BodyFault::TooLong);
        }
        let (mut body, end) = (body, Instant::now() + self.body_timeout);
        let most = reservation.bytes.saturating_add(max);
        let announced = body
            .size_hint()
            .exact()
            .and_then(|bytes| usize::try_from(bytes).ok())
            .unwrap_or(usize::MAX);
        let mut whole = Vec::new();
        loop {
            let frame = timeout_at(end, body.frame())
                .await
                .map_err(|_| BodyFault::Late)?;
            let Some(frame) = frame else {
                if let Some(activity) = &reservation.connection {
                    activity.read_body();
                }
                return Ok(Bytes::from(whole));
            };
            let Ok(data) = frame.map_err(|_| BodyFault::Broken)?.into_data() else {
                continue;
            };
            reservation.grow(data.len() as u64, &self.limits)?;
            if reservation.bytes > most {
                return Err(BodyFault::TooLong);
            }
            let needed = whole.len() + data.len();
            if needed > whole.capacity() {
                // A long body is copied a few times only, and room follows the bytes that came, not
                // those announced.
                whole.reserve_exact(announced.min(4 * needed).max(needed) - whole.len());
            }
            whole.extend_from_slice(&data);
        }
    }
}

// === impl IntakePermit ===

impl IntakePermit {
    /// The place of a request that has no bytes yet.
    fn new(
        held: &Arc<IntakeUse>,
        tenant: &TenantId,
        connection: Option<&Arc<Activity>>,
        limits: &LimitsConfig,
    ) -> Result<Self, BodyFault> {
        let mut state = held.state();
        if state.in_all.requests >= limits.requests {
            return Err(BodyFault::NoRoom("server.limits.requests"));
        }
        let of_tenant = state.by_tenant.entry(tenant.clone()).or_default();
        if of_tenant.requests >= limits.requests_per_tenant {
            return Err(BodyFault::NoRoom("server.limits.requests_per_tenant"));
        }
        of_tenant.requests += 1;
        state.in_all.requests += 1;
        drop(state);
        Ok(Self {
            held: Arc::clone(held),
            tenant: tenant.clone(),
            connection: connection.cloned(),
            bytes: 0,
        })
    }

    /// Makes room for what the entries of a body take beside its bytes.
    fn grow_by_entries(&mut self, entries: usize, limits: &LimitsConfig) -> Result<(), BodyFault> {
        self.grow(entries as u64 * ENTRY_BYTES, limits)
    }

    fn grow(&mut self, bytes: u64, limits: &LimitsConfig) -> Result<(), BodyFault> {
        let mut state = self.held.state();
        let of_tenant = state
            .by_tenant
            .get(&self.tenant)
            .copied()
            .unwrap_or_default();
        let of_connection = self
            .connection
            .as_ref()
            .map(|activity| activity.bytes.load(Ordering::Relaxed));
        if state.in_all.bytes + bytes > limits.bytes_in_flight {
            return Err(BodyFault::NoRoom("server.limits.bytes_in_flight"));
        }
        if of_tenant.bytes + bytes > limits.bytes_in_flight_per_tenant {
            return Err(BodyFault::NoRoom(
                "server.limits.bytes_in_flight_per_tenant",
            ));
        }
        if of_connection.unwrap_or_default() + bytes > limits.bytes_in_flight_per_connection {
            return Err(BodyFault::NoRoom(
                "server.limits.bytes_in_flight_per_connection",
            ));
        }
        state.in_all.bytes += bytes;
        state
            .by_tenant
            .entry(self.tenant.clone())
            .or_default()
            .bytes += bytes;
        // The lock orders all changes of it, too.
        if let Some(activity) = &self.connection {
            activity.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        drop(state);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for IntakePermit {
    fn drop(&mut self) {
        let mut state = self.held.state();
        state.in_all.give_back(self.bytes);
        if let Some(activity) = &self.connection {
            activity.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        if let Some(of_tenant) = state.by_tenant.get_mut(&self.tenant) {
            of_tenant.give_back(self.bytes);
            if of_tenant.requests == 0 {
                state.by_tenant.remove(&self.tenant);
            }
        }
    }
}

// === impl IntakeUse ===

impl IntakeUse {
    fn state(&self) -> MutexGuard<'_, IntakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InUse {
    /// A request ended.
    fn give_back(&mut self, bytes: u64) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A response that holds what its request held until the last of its bytes is sent.
pub(super) fn holding(
    response: Response,
    request: Option<RequestGuard>,
    reservation: Option<IntakePermit>,
) -> Response {
    response.map(|body| {
        Body::new(Holding {
            body,
            held: Arc::new((request, reservation)),
        })
    })
}

/// What is held for a request.
type HeldForRequest = Arc<(Option<RequestGuard>, Option<IntakePermit>)>;

/// A body and what is held as long as it lasts.
struct Holding {
    body: Body,
    held: HeldForRequest,
}

/// Bytes of a body, which HTTP/2 keeps for a client that does not read them, also after the body
/// ended.
struct HoldingBytes {
    bytes: Bytes,
    _held: HeldForRequest,
}

impl AsRef<[u8]> for HoldingBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        let held = || Arc::clone(&this.held);
        let holding = |bytes| {
            Bytes::from_owner(HoldingBytes {
                bytes,
                _held: held(),
            })
        };
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(holding))))
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
        let held: Arc<IntakeUse> = Arc::default();
        let reserve = |tenant: &str| {
            IntakePermit::new(&held, &TenantId::from(tenant), None, &limits).unwrap()
        };
        let (mut one, mut other) = (reserve("a"), reserve("b"));
        assert_eq!(one.grow(60, &limits), Ok(()));
        assert_eq!(
            one.grow(1, &limits),
            Err(BodyFault::NoRoom(
                "server.limits.bytes_in_flight_per_tenant"
            ))
        );
        assert_eq!(
            other.grow(41, &limits),
            Err(BodyFault::NoRoom("server.limits.bytes_in_flight"))
        );
        assert_eq!(other.grow(40, &limits), Ok(()));
        drop(one);
        assert_eq!(reserve("c").grow(60, &limits), Ok(()));
        drop(other);
        let state = held.state();
        assert!(
            state.in_all == InUse::default() && state.by_tenant.is_empty(),
            "{state:?}"
        );
    }

    #[test]
    fn requests_are_counted_for_all_and_the_tenant_and_given_back() {
        let limits = LimitsConfig {
            requests: 3,
            requests_per_tenant: 2,
            ..LimitsConfig::default()
        };
        let held: Arc<IntakeUse> = Arc::default();
        let reserve =
            |tenant: &str| IntakePermit::new(&held, &TenantId::from(tenant), None, &limits);
        let kept = (reserve("a").unwrap(), reserve("a").unwrap());
        assert_eq!(
            reserve("a").unwrap_err(),
            BodyFault::NoRoom("server.limits.requests_per_tenant")
        );
        let other = reserve("b").unwrap();
        assert_eq!(
            reserve("c").unwrap_err(),
            BodyFault::NoRoom("server.limits.requests")
        );
        drop(kept.0);
        let again = reserve("a");
        assert!(again.is_ok());
        drop((kept.1, other, again));
        let state = held.state();
        assert!(
            state.in_all == InUse::default() && state.by_tenant.is_empty(),
            "{state:?}"
        );
    }
}
