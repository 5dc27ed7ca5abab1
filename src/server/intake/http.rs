//! The HTTP side of the intake: refusals have the error object of the protocol that is spoken at
//! the path.

use std::convert::Infallible;

use axum::{
    body::{Body, HttpBody as _},
    extract::{ConnectInfo, Request, connect_info::Connected},
    http::{HeaderMap, Method, header},
    response::Response,
    serve::IncomingStream,
};
use rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;
use tower::Service;

use super::{Intake, MAX_ENTRIES, holding, too_many_entries};
use crate::{
    call_error::{
        CallError,
        table::{
            ROLE_NOT_ALLOWED, UNAUTHENTICATED, UNSUPPORTED_CONTENT_ENCODING, UNSUPPORTED_MEDIA_TYPE,
        },
    },
    front::{self, ClientCertificate, LimitHeaders, Protocol, entries},
    server::{
        connection::{Activity, LimitedListener, LimitedStream, RequestGuard},
        refused_callers,
        tls::TlsListener,
    },
};

/// A connection of the front as its requests see it.
#[derive(Debug, Clone)]
pub(in crate::server) struct FrontConnection {
    activity: std::sync::Arc<Activity>,
    certificate: ClientCertificate,
}

impl FrontConnection {
    /// Starts a request with this body on it.
    pub(in crate::server) fn begin(&self, body: &Body) -> RequestGuard {
        self.activity.begin(body)
    }
}

impl Intake {
    /// Lets a request in, if it may, and returns the handler's response with these headers.
    pub(in crate::server) async fn front<S>(
        &self,
        request: Request,
        handler: S,
        limits: Option<&LimitHeaders>,
    ) -> Response
    where
        S: Service<Request, Response = Response, Error = Infallible>,
    {
        let protocol = Protocol::of(request.uri().path(), request.headers());
        let response = self.handle_http(request, handler, protocol, limits).await;
        response.unwrap_or_else(|refusal| refusal.respond(protocol))
    }

    async fn handle_http<S>(
        &self,
        request: Request,
        mut handler: S,
        protocol: Protocol,
        limits: Option<&LimitHeaders>,
    ) -> Result<Response, CallError>
    where
        S: Service<Request, Response = Response, Error = Infallible>,
    {
        let (mut parts, body) = request.into_parts();
        let connection = parts
            .extensions
            .remove::<ConnectInfo<FrontConnection>>()
            .map(|ConnectInfo(it)| it);
        let guard = connection
            .as_ref()
            .map(|connection| connection.begin(&body));
        let activity = connection.as_ref().map(|connection| &connection.activity);
        let certificate = connection
            .as_ref()
            .and_then(|connection| connection.certificate.0.as_deref());
        self.check_head(&parts)?;
        let authorization = front::authorization(&parts.headers);
        let authenticator = self.authenticator.load_full();
        let identity = match authenticator
            .recognise_fresh(authorization.as_deref(), certificate)
            .await
        {
            Ok(identity) => identity,
            Err(reason) => {
                let refused = CallError::new(UNAUTHENTICATED).respond(protocol);
                return Ok(refused_callers::unrecognised(refused, reason));
            }
        };
        if parts.method == Method::POST && !identity.may_invoke() {
            return Err(CallError::new(ROLE_NOT_ALLOWED));
        }
        let has_no_body = body.is_end_stream() && !parts.headers.contains_key(header::CONTENT_TYPE);
        if parts.method == Method::POST && !has_no_body && !is_json(&parts.headers) {
            return Err(CallError::new(UNSUPPORTED_MEDIA_TYPE));
        }
        if parts.method == Method::POST && is_encoded(&parts.headers) {
            return Err(CallError::new(UNSUPPORTED_CONTENT_ENCODING));
        }
        if let Some(activity) = activity {
            activity.identified();
        }
        let mut reservation = self.reserve(&identity.tenant, activity, &parts)?;
        let bytes = self
            .read(body, self.max_body_bytes, &mut reservation)
            .await?;
        let entries = entries::at_most(MAX_ENTRIES, &bytes).ok_or_else(too_many_entries)?;
        reservation.grow_by_entries(entries, &self.limits)?;
        if let Some(connection) = &connection {
            parts
                .extensions
                .insert(ConnectInfo(connection.certificate.clone()));
        }
        let request = Request::from_parts(parts, Body::from(bytes));
        let Ok(mut response) = handler.call(request).await;
        if let Some(limits) = limits {
            limits.add(&identity.tenant, protocol, response.headers_mut());
        }
        Ok(holding(response, guard, Some(reservation)))
    }
}

/// Returns whether the body is declared as JSON: a page may send anything else to another origin
/// without a preflight.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let json = types
        .next()
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
                || (kind.len() > 5
                    && kind.is_ascii()
                    && kind[kind.len() - 5..].eq_ignore_ascii_case("+json"))
        });
    json && types.next().is_none()
}

/// Returns whether the body is declared as anything but itself, such as compressed.
fn is_encoded(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::CONTENT_ENCODING).iter();
    let mut codings = lists
        .flat_map(|list| list.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii);
    codings.any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity"))
}

impl Connected<IncomingStream<'_, LimitedListener>> for FrontConnection {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        of_connection(stream.io(), None)
    }
}

impl Connected<IncomingStream<'_, TlsListener>> for FrontConnection {
    fn connect_info(stream: IncomingStream<'_, TlsListener>) -> Self {
        let connection: &TlsStream<LimitedStream> = stream.io();
        let (stream, session) = connection.get_ref();
        of_connection(
            stream,
            session
                .peer_certificates()
                .and_then(<[CertificateDer<'_>]>::first),
        )
    }
}

fn of_connection(
    stream: &LimitedStream,
    certificate: Option<&CertificateDer<'_>>,
) -> FrontConnection {
    let certificate = ClientCertificate(certificate.map(|certificate| certificate.as_ref().into()));
    FrontConnection {
        activity: std::sync::Arc::clone(stream.activity()),
        certificate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_only_where_its_one_content_type_declares_it() {
        for (kind, taken) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/vnd.api+json", true),
            ("text/plain", false),
            ("text/plain; application/json", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind.parse().unwrap())]);
            assert_eq!(is_json(&headers), taken, "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn a_body_is_itself_unless_a_coding_is_declared() {
        for (coding, encoded) in [
            ("identity", false),
            ("Identity, identity", false),
            ("", false),
            ("gzip", true),
            ("identity, gzip", true),
            ("zstd,br", true),
        ] {
            let headers =
                HeaderMap::from_iter([(header::CONTENT_ENCODING, coding.parse().unwrap())]);
            assert_eq!(is_encoded(&headers), encoded, "{coding}");
        }
        assert!(!is_encoded(&HeaderMap::new()));
    }
}
