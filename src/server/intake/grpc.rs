//! The gRPC side of the intake: refusals are statuses with `ErrorInfo`, whatever the reason.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use http_body_util::Limited;
use tokio::time::{Instant, timeout_at};
use tonic::{
    Code, Status, metadata::MetadataMap, service::Routes, transport::server::TlsConnectInfo,
};

use super::{Intake, MAX_ENTRIES, holding, too_many_entries};
use crate::{
    call_error::{
        CallError,
        table::{DEADLINE_EXCEEDED, UNAUTHENTICATED, UNDECODABLE_REQUEST},
    },
    domain::{clock::wall_now, ids::TenantId},
    grpc::{
        auth::{Access, Authenticator, Identity, Unrecognised},
        convert::metadata::grpc_timeout,
        entries::{self, Entries},
        peers::{PEER_CLOCK_HEADER, PEER_HEADER, PeerCall},
    },
    server::{connection::Connection, refused_callers},
};

/// The bytes before each message: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;

/// Most bytes of a call of health or reflection, for which no key is needed; reserved for as long
/// as it lasts.
const OPEN_BYTES: u64 = 32 << 10;

/// Time by which a deadline ends a call here earlier than the transport does, so that the status
/// names the deadline.
const BEFORE_TRANSPORT: std::time::Duration = std::time::Duration::from_millis(1);

/// Begin of the paths of the service for operators.
const ADMIN_SERVICE: &str = "/relight.v1.AdminService/";

/// Methods whose calls last: they end when their caller's access does.
const LASTING: [&str; 2] = ["/StreamWithRecovery", "/WatchRecovery"];

impl Intake {
    /// Wraps these services in the intake.
    pub(in crate::server) fn before(&self, routes: Routes) -> Routes {
        let router: Router = routes.into_axum_router();
        router.layer(from_fn_with_state(self.clone(), admit)).into()
    }
}

async fn admit(State(intake): State<Intake>, request: Request, next: Next) -> Response {
    match intake.handle(request, next).await {
        Ok(response) => response,
        Err(error) => Status::from(error).into_http(),
    }
}

impl Intake {
    async fn handle(&self, request: Request, next: Next) -> Result<Response, CallError> {
        let (mut parts, body) = request.into_parts();
        let (connection, certificate) = connection(&parts.extensions);
        let guard = connection
            .as_ref()
            .map(|connection| connection.activity.begin(&body));
        let activity = connection.as_ref().map(|connection| &connection.activity);
        self.check_head(&parts)?;
        if !parts.uri.path().starts_with("/relight.") {
            let mut reservation = self.reserve(&TenantId::from(""), activity, &parts)?;
            reservation.grow(OPEN_BYTES, &self.limits)?;
            let body = Body::new(Limited::new(
                body,
                usize::try_from(OPEN_BYTES).unwrap_or(usize::MAX),
            ));
            let response = next.run(Request::from_parts(parts, body)).await;
            return Ok(holding(response, guard, Some(reservation)));
        }
        let authorization = credential(&parts.headers);
        let authenticator = self.authenticator.load_full();
        let peer = parts.headers.get(PEER_HEADER);
        let recognised = if let Some(token) = peer {
            self.recognise_peer(token, &parts, &authenticator)
        } else {
            let recognising = authenticator.recognise_fresh(authorization, certificate.as_deref());
            recognising.await
        };
        let is_peer = peer.is_some();
        let identity = match recognised {
            Ok(identity) => identity,
            Err(reason) => {
                let mut refusal = Status::from(CallError::new(UNAUTHENTICATED)).into_http();
                if let (Unrecognised::PeerTooLate, Some(token)) = (reason, peer) {
                    self.tell_clock(token, &mut refusal);
                }
                return Ok(refused_callers::unrecognised(refusal, reason));
            }
        };
        if let Some(activity) = activity {
            activity.identified();
        }
        let is_proven = is_peer && self.peers.as_ref().is_some_and(|peers| peers.is_set());
        if self.is_admin_apart && !is_proven && parts.uri.path().starts_with(ADMIN_SERVICE) {
            return Ok(Status::unimplemented("").into_http());
        }
        if is_peer {
            parts.extensions.insert(PeerCall);
        }
        identity.may_call(parts.uri.path())?;
        let mut reservation = self.reserve(&identity.tenant, activity, &parts)?;
        let end = deadline(&parts.headers);
        let reading = self.read(
            body,
            self.max_body_bytes.saturating_add(FRAME_HEAD as u64),
            &mut reservation,
        );
        let bytes = within(end, reading).await??;
        // What is compressed is refused by the service itself.
        if let Some((head, message)) = bytes.split_at_checked(FRAME_HEAD)
            && head[0] == 0
        {
            let entries = entries::count(parts.uri.path(), message, MAX_ENTRIES).map_err(
                |fault| match fault {
                    Entries::TooMany => too_many_entries(),
                    Entries::Undecodable => CallError::new(UNDECODABLE_REQUEST),
                },
            )?;
            reservation.grow_by_entries(entries, &self.limits)?;
        }
        // Another replica ends what its own caller may not watch any longer.
        if !is_peer
            && LASTING
                .iter()
                .any(|method| parts.uri.path().ends_with(method))
        {
            let shown = (credential(&parts.headers), certificate.as_deref());
            let access = Access::new(&self.authenticator, &authenticator, shown, &identity);
            parts.extensions.insert(access);
        }
        parts.extensions.insert(identity);
        let response = within(end, next.run(Request::from_parts(parts, Body::from(bytes)))).await?;
        Ok(holding(self.explained(response), guard, Some(reservation)))
    }

    /// Returns the caller for whom another replica calls.
    fn recognise_peer(
        &self,
        token: &HeaderValue,
        parts: &Parts,
        authenticator: &Authenticator,
    ) -> Result<Identity, Unrecognised> {
        let peers = self.peers.as_ref().ok_or(Unrecognised::NotAPeer)?;
        let token = token.to_str().map_err(|_| Unrecognised::NotAPeer)?;
        let is_open = !authenticator.authenticates();
        peers.identify(token, parts.uri.path(), is_open, wall_now())
    }

    /// Adds what the clock here shows, for the replica that wrote a token of another time.
    fn tell_clock(&self, token: &HeaderValue, refusal: &mut Response) {
        let clock = self.peers.as_ref().zip(token.to_str().ok());
        let clock = clock.map(|(peers, token)| peers.write_clock(token, wall_now()));
        if let Some(clock) = clock.and_then(|clock| HeaderValue::try_from(clock).ok()) {
            refusal.headers_mut().insert(PEER_CLOCK_HEADER, clock);
        }
    }

    /// Adds a code for the responsible side, and a reason for programs, to the codec's refusal.
    fn explained(&self, response: Response) -> Response {
        let bare = Status::from_header_map(response.headers())
            .filter(|status| status.details().is_empty());
        let error = match bare {
            Some(bare) if bare.code() == Code::Internal && bare.message().contains("decode") => {
                CallError::new(UNDECODABLE_REQUEST)
            }
            Some(bare) if bare.code() == Code::OutOfRange => {
                CallError::message_too_large(self.max_body_bytes)
            }
            Some(_) | None => return response,
        };
        Status::from(error).into_http()
    }
}

/// Returns the credential that a request shows.
fn credential(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()
}

/// Returns the connection of a request, and the certificate that it showed (DER).
fn connection(extensions: &axum::http::Extensions) -> (Option<Connection>, Option<Vec<u8>>) {
    if let Some(connection) = extensions.get::<Connection>() {
        return (Some(connection.clone()), None);
    }
    let Some(secured) = extensions.get::<TlsConnectInfo<Connection>>() else {
        return (None, None);
    };
    let certificates = secured.peer_certs();
    let first = certificates
        .as_ref()
        .and_then(|all| all.first())
        .map(|first| first.as_ref().to_vec());
    (Some(secured.get_ref().clone()), first)
}

/// Returns the time at which the caller stops waiting.
fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let timeout = grpc_timeout(&MetadataMap::from_headers(headers.clone()))
        .ok()
        .flatten()?;
    Instant::now().checked_add(timeout.saturating_sub(BEFORE_TRANSPORT))
}

async fn within<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Result<T, CallError> {
    match end {
        Some(end) => timeout_at(end, work)
            .await
            .map_err(|_| CallError::new(DEADLINE_EXCEEDED)),
        None => Ok(work.await),
    }
}
