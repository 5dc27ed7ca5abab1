//! The gRPC side of the intake: refusals are statuses with `ErrorInfo`, whatever the reason.

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use http_body_util::Limited;
use tokio::time::{Instant, timeout_at};
use tonic::{
    Code, Status, metadata::MetadataMap, service::Routes, transport::server::TlsConnectInfo,
};

use super::{BodyFault, Intake, holding};
use crate::{
    domain::ids::TenantId,
    grpc::{
        convert::metadata::grpc_timeout,
        entries::{self, Entries},
        status,
    },
    server::{connection::Connection, refused_callers},
};

/// The bytes before each message: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;

/// Most bytes of a call of health or reflection, for which no key is needed; reserved for as long
/// as it lasts.
const OPEN_BYTES: u64 = 32 << 10;

/// How much earlier than the transport a deadline ends a call here, so that the status names the
/// deadline.
const BEFORE_TRANSPORT: std::time::Duration = std::time::Duration::from_millis(1);

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
        Err(status) => status.into_http(),
    }
}

impl Intake {
    async fn handle(&self, request: Request, next: Next) -> Result<Response, Status> {
        let (mut parts, body) = request.into_parts();
        let (connection, certificate) = connection(&parts.extensions);
        let guard = connection
            .as_ref()
            .map(|connection| connection.activity.begin(&body));
        let activity = connection.as_ref().map(|connection| &connection.activity);
        if !parts.uri.path().starts_with("/relight.") {
            let reserved = self
                .reserve(&TenantId::from(""), activity, &parts)
                .and_then(|mut reservation| {
                    reservation.grow(OPEN_BYTES, &self.limits)?;
                    Ok(reservation)
                });
            let reservation = reserved.map_err(|fault| refusal(fault, self.max_body_bytes))?;
            let body = Body::new(Limited::new(
                body,
                usize::try_from(OPEN_BYTES).unwrap_or(usize::MAX),
            ));
            let response = next.run(Request::from_parts(parts, body)).await;
            return Ok(holding(response, guard, Some(reservation)));
        }
        let authorization = parts
            .headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        let authenticator = self.authenticator.load_full();
        let identity = match authenticator
            .recognise_fresh(authorization, certificate.as_deref())
            .await
        {
            Ok(identity) => identity,
            Err(reason) => {
                return Ok(refused_callers::unrecognised(
                    status::unauthenticated().into_http(),
                    reason,
                ));
            }
        };
        if let Some(activity) = activity {
            activity.identified();
        }
        identity.may_call(parts.uri.path())?;
        let refused = |fault| refusal(fault, self.max_body_bytes);
        let mut reservation = self
            .reserve(&identity.tenant, activity, &parts)
            .map_err(refused)?;
        let end = deadline(&parts.headers);
        let reading = self.read(
            body,
            self.max_body_bytes.saturating_add(FRAME_HEAD as u64),
            &mut reservation,
        );
        let bytes = within(end, reading).await?.map_err(refused)?;
        // What is compressed is refused by the service itself.
        if let Some((head, message)) = bytes.split_at_checked(FRAME_HEAD)
            && head[0] == 0
        {
            let entries = entries::count(parts.uri.path(), message, self.limits.entries).map_err(
                |fault| match fault {
                    Entries::TooMany => {
                        status::too_large("server.limits.entries", self.limits.entries as u64)
                    }
                    Entries::Undecodable => status::undecodable(),
                },
            )?;
            reservation
                .grow_by_entries(entries, &self.limits)
                .map_err(refused)?;
        }
        parts.extensions.insert(identity);
        let response = within(end, next.run(Request::from_parts(parts, Body::from(bytes)))).await?;
        Ok(holding(explained(response), guard, Some(reservation)))
    }
}

/// The connection of a request, and the certificate that it showed (DER).
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

/// When the caller stops waiting.
fn deadline(headers: &HeaderMap) -> Option<Instant> {
    let timeout = grpc_timeout(&MetadataMap::from_headers(headers.clone()))
        .ok()
        .flatten()?;
    Instant::now().checked_add(timeout.saturating_sub(BEFORE_TRANSPORT))
}

async fn within<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Status> {
    match end {
        Some(end) => timeout_at(end, work)
            .await
            .map_err(|_| status::deadline_exceeded(None)),
        None => Ok(work.await),
    }
}

fn refusal(fault: BodyFault, max: u64) -> Status {
    match fault {
        BodyFault::TooLong => status::too_large("server.max_message_bytes", max),
        BodyFault::NoRoom(limit) => status::no_room(limit),
        BodyFault::Late => status::deadline_exceeded(None),
        BodyFault::Broken => status::cancelled("the request broke off"),
    }
}

/// Adds a code for the responsible side, and a reason for programs, to the codec's refusal.
fn explained(response: Response) -> Response {
    let bare =
        Status::from_header_map(response.headers()).filter(|status| status.details().is_empty());
    match bare {
        Some(bare) if bare.code() == Code::Internal && bare.message().contains("decode") => {
            status::undecodable().into_http()
        }
        Some(bare) if bare.code() == Code::OutOfRange => {
            status::too_large("server.max_message_bytes", 0).into_http()
        }
        Some(_) | None => response,
    }
}
