//! The console: one static page on the port of gRPC, which watches and steers this server by
//! gRPC-Web.
//!
//! The page holds nothing of this server, so that everybody may load it; what it shows, it is sent
//! as any other client, with the key that its reader types in. Its policy lets it run its own
//! script only and talk to this server only.

mod schema;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll},
};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header},
};
use futures_util::future::Either;
use http_body_util::Full;
use tonic::body::Body;
use tower::{Layer, Service};

/// Path of the page, with its parts beside it.
pub(super) const PATH: &str = "/console/";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// The parts of the page: its name below `PATH`, its media type, itself.
const PARTS: [(&str, &str, &str); 10] = [
    ("", HTML, include_str!("console/page.html")),
    ("console.css", CSS, include_str!("console/console.css")),
    ("console.js", SCRIPT, include_str!("console/console.js")),
    ("calls.js", SCRIPT, include_str!("console/calls.js")),
    ("codec.js", SCRIPT, include_str!("console/codec.js")),
    ("elements.js", SCRIPT, include_str!("console/elements.js")),
    ("live.js", SCRIPT, include_str!("console/live.js")),
    ("targets.js", SCRIPT, include_str!("console/targets.js")),
    (
        "invocations.js",
        SCRIPT,
        include_str!("console/invocations.js"),
    ),
    ("waterfall.js", SCRIPT, include_str!("console/waterfall.js")),
];

/// The part of the page that is made of the contract.
const SCHEMA: &str = "schema.json";

/// Headers with which each part is sent: its own scripts and styles, calls to this server, and
/// nothing else at all.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-cache"),
];

/// Serves the page before the services, if it is switched on.
#[derive(Clone)]
pub(super) struct ConsoleLayer {
    /// Contract as the page reads it; none if the page is switched off.
    schema: Option<Bytes>,
}

/// A service with the page before it.
#[derive(Clone)]
pub(super) struct Console<S> {
    inner: S,
    schema: Option<Bytes>,
}

// === impl ConsoleLayer ===

impl ConsoleLayer {
    /// With the page, or without it.
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            schema: is_on.then(|| Bytes::from(schema::schema().to_string())),
        }
    }
}

impl<S> Layer<S> for ConsoleLayer {
    type Service = Console<S>;

    fn layer(&self, inner: S) -> Console<S> {
        Console {
            inner,
            schema: self.schema.clone(),
        }
    }
}

// === impl Console ===

impl<S, B> Service<Request<B>> for Console<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Ready<Result<Response<Body>, Infallible>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let page = self
            .schema
            .as_ref()
            .and_then(|schema| respond(schema, request.method(), request.uri().path()));
        match page {
            Some(page) => Either::Left(ready(Ok(page))),
            None => Either::Right(self.inner.call(request)),
        }
    }
}

/// Returns a part of the page, for a request that is for the page at all.
fn respond(schema: &Bytes, method: &Method, path: &str) -> Option<Response<Body>> {
    if path == PATH.trim_end_matches('/') {
        let place = HeaderMap::from_iter([(header::LOCATION, HeaderValue::from_static(PATH))]);
        return Some(response(
            StatusCode::PERMANENT_REDIRECT,
            place,
            Bytes::new(),
        ));
    }
    let name = path.strip_prefix(PATH)?;
    if method != Method::GET && method != Method::HEAD {
        let allowed =
            HeaderMap::from_iter([(header::ALLOW, HeaderValue::from_static("GET, HEAD"))]);
        return Some(response(
            StatusCode::METHOD_NOT_ALLOWED,
            allowed,
            Bytes::new(),
        ));
    }
    let part = PARTS.iter().find(|(part, ..)| *part == name);
    let part = part.map(|(_, kind, text)| (*kind, Bytes::from_static(text.as_bytes())));
    let Some((kind, body)) = part.or_else(|| (name == SCHEMA).then(|| (JSON, schema.clone())))
    else {
        return Some(response(
            StatusCode::NOT_FOUND,
            HeaderMap::new(),
            Bytes::new(),
        ));
    };
    let kind = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
    Some(response(StatusCode::OK, kind, body))
}

fn response(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
        .headers_mut()
        .extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}
