//! The intake of both fronts: the caller is authenticated before a byte of a body is read, and
//! bodies are read completely, within the limits of `server.limits` and `server.timeouts`, before
//! they are parsed.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::{
    body::{Body, Bytes, HttpBody},
    http::{header, request::Parts},
    response::Response,
};
use http_body_util::BodyExt as _;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::connection::{Activity, RequestGuard};
use crate::{
    call_error::{
        CallError,
        table::{
            BODY_BROKEN, BODY_LATE, HEADERS_TOO_LARGE, NO_ROOM, ORIGIN_NOT_ALLOWED,
            TOO_MANY_ENTRIES,
        },
    },
    config::{
        limits::LimitsConfig,
        server::{CorsConfig, ServerConfig},
    },
    domain::ids::TenantId,
    grpc::{auth::Authenticator, peers::PeerKey},
};

pub(super) mod grpc;
pub(super) mod http;
mod pages;

/// Most bytes of a request's header fields.
pub(super) const MAX_HEADER_BYTES: u32 = 64 << 10;

/// Most fields of a gRPC request, or values of a JSON body, counted through all its nesting. An
/// entry costs some hundred bytes of memory however few it takes on the wire.
const MAX_ENTRIES: usize = 200_000;

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
    /// The key of other replicas; `None` where none asks.
    peers: Option<Arc<PeerKey>>,
    /// Whether operators call elsewhere, so that only other replicas use the `AdminService` here.
    is_admin_apart: bool,
}

/// Room that requests hold.
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

/// Returns the error for a request of too many entries.
fn too_many_entries() -> CallError {
    CallError::new(TOO_MANY_ENTRIES).word("max", MAX_ENTRIES)
}

/// Returns the error for a request for which there is no room now. `limit` is the setting with the
/// bound.
fn no_room(limit: &str) -> CallError {
    CallError::new(NO_ROOM).fact("limit", limit)
}

/// Returns what the fields of a head count, as HTTP/2 counts them.
fn field_bytes(head: &Parts) -> u64 {
    let fields = head.headers.iter();
    let bytes = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    bytes.sum::<usize>() as u64
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
            peers: None,
            is_admin_apart: false,
        }
    }

    /// Takes calls of other replicas, too; they use the `AdminService` also where it is apart.
    pub(super) fn with_peers(self, peers: Arc<PeerKey>, is_admin_apart: bool) -> Self {
        Self {
            peers: Some(peers),
            is_admin_apart,
            ..self
        }
    }

    /// Checks a head as a whole. HTTP/2 limits the fields itself; its requests have no `host` but
    /// for compatibility.
    fn check_head(&self, head: &Parts) -> Result<(), CallError> {
        let max = u64::from(MAX_HEADER_BYTES);
        if field_bytes(head) > max {
            return Err(CallError::new(HEADERS_TOO_LARGE).word("max", max));
        }
        if head.headers.get_all(header::HOST).iter().count() > 1 {
            return Err(CallError::invalid_field("host", "is named more than once"));
        }
        if !self.takes_origin(&head.headers, &head.uri) {
            return Err(CallError::new(ORIGIN_NOT_ALLOWED));
        }
        Ok(())
    }

    /// Counts a request with its head; its body is counted as it is read.
    fn reserve(
        &self,
        tenant: &TenantId,
        connection: Option<&Arc<Activity>>,
        head: &Parts,
    ) -> Result<IntakePermit, CallError> {
        let mut reservation = IntakePermit::new(&self.held, tenant, connection, &self.limits)?;
        let bytes = head.uri.path().len() + head.uri.query().map_or(0, str::len);
        let bytes = REQUEST_BYTES + field_bytes(head) + bytes as u64;
        reservation.grow(bytes, &self.limits)?;
        Ok(reservation)
    }

    /// Reads a body to its end, as far as there is room for it.
    async fn read(
        &self,
        body: Body,
        max: u64,
        reservation: &mut IntakePermit,
    ) -> Result<Bytes, CallError> {
        let too_long = || CallError::message_too_large(self.max_body_bytes);
        if body.size_hint().lower() > max {
            return Err(too_long());
        }
        let mut body = body;
        let end = Instant::now() + self.body_timeout;
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
                .map_err(|_| CallError::new(BODY_LATE))?;
            let Some(frame) = frame else {
                if let Some(activity) = &reservation.connection {
                    activity.read_body();
                }
                return Ok(Bytes::from(whole));
            };
            let frame = frame.map_err(|_| CallError::new(BODY_BROKEN))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            reservation.grow(data.len() as u64, &self.limits)?;
            if reservation.bytes > most {
                return Err(too_long());
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
    /// Returns the place of a request that has no bytes yet.
    fn new(
        held: &Arc<IntakeUse>,
        tenant: &TenantId,
        connection: Option<&Arc<Activity>>,
        limits: &LimitsConfig,
    ) -> Result<Self, CallError> {
        let mut state = held.state();
        if state.in_all.requests >= limits.requests {
            return Err(no_room("server.limits.requests"));
        }
        let of_tenant = state.by_tenant.entry(tenant.clone()).or_default();
        if of_tenant.requests >= limits.requests_per_tenant() {
            return Err(no_room("server.limits.requests"));
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
    fn grow_by_entries(&mut self, entries: usize, limits: &LimitsConfig) -> Result<(), CallError> {
        self.grow(entries as u64 * ENTRY_BYTES, limits)
    }

    fn grow(&mut self, bytes: u64, limits: &LimitsConfig) -> Result<(), CallError> {
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
            return Err(no_room("server.limits.bytes_in_flight"));
        }
        if of_tenant.bytes + bytes > limits.bytes_per_tenant() {
            return Err(no_room("server.limits.bytes_in_flight"));
        }
        if of_connection.unwrap_or_default() + bytes > limits.bytes_per_connection() {
            return Err(no_room("server.limits.bytes_in_flight"));
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
        self.state.lock()
    }
}

impl InUse {
    /// A request ended.
    fn give_back(&mut self, bytes: u64) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// Returns a response that holds what its request held until the last of its bytes is sent.
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

/// Permits and guards that are held for a request.
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

    /// Returns the limit that was reached.
    fn limit_of<T: std::fmt::Debug>(reserved: Result<T, CallError>) -> String {
        let refused = reserved.unwrap_err();
        assert!(refused.is(NO_ROOM), "{refused:?}");
        refused.get("limit").unwrap().to_owned()
    }

    #[test]
    fn bytes_are_counted_for_all_the_tenant_and_the_connection_and_given_back() {
        let limits = LimitsConfig {
            bytes_in_flight: 200 << 20,
            ..LimitsConfig::default()
        };
        let held: Arc<IntakeUse> = Arc::default();
        let reserve = |tenant: &str| {
            IntakePermit::new(&held, &TenantId::from(tenant), None, &limits).unwrap()
        };
        let mut one = reserve("a");
        let mut other = reserve("b");
        for _ in 0..2 {
            assert!(one.grow(64 << 20, &limits).is_ok());
        }
        assert_eq!(
            limit_of(one.grow(1, &limits)),
            "server.limits.bytes_in_flight"
        );
        assert!(other.grow(64 << 20, &limits).is_ok());
        assert_eq!(
            limit_of(other.grow((8 << 20) + 1, &limits)),
            "server.limits.bytes_in_flight"
        );
        assert!(other.grow(8 << 20, &limits).is_ok());
        drop(one);
        assert!(reserve("c").grow(64 << 20, &limits).is_ok());
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
            requests: 8193,
            ..LimitsConfig::default()
        };
        let held: Arc<IntakeUse> = Arc::default();
        let reserve =
            |tenant: &str| IntakePermit::new(&held, &TenantId::from(tenant), None, &limits);
        let mut kept: Vec<_> = (0..8192).map(|_| reserve("a").unwrap()).collect();
        assert_eq!(limit_of(reserve("a")), "server.limits.requests");
        let other = reserve("b").unwrap();
        assert_eq!(limit_of(reserve("c")), "server.limits.requests");
        kept.pop();
        let again = reserve("a");
        assert!(again.is_ok());
        drop((kept, other, again));
        let state = held.state();
        assert!(
            state.in_all == InUse::default() && state.by_tenant.is_empty(),
            "{state:?}"
        );
    }
}
