//! A request as the handlers of a front need it: the router's own extractors copy its headers and
//! look for the limit of its body in a layer.

use std::convert::Infallible;

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{ConnectInfo, FromRef, FromRequest, Request},
    http::HeaderMap,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use super::{ClientCertificate, Front, PeerCertificate, error::CallError};
use crate::call_error::table::{BODY_BROKEN, REQUEST_TOO_LARGE};

/// A request whose body was read, or could not be.
pub(super) struct FrontRequest {
    /// The front that it is for.
    pub(super) front: Front,
    /// The certificate that its connection showed.
    pub(super) shown: PeerCertificate,
    /// Its headers.
    pub(super) headers: HeaderMap,
    /// Its body; who is not let in is not told what is wrong with it.
    pub(super) body: Result<Bytes, CallError>,
}

// === impl FrontRequest ===

impl<S> FromRequest<S> for FrontRequest
where
    S: Send + Sync,
    Front: FromRef<S>,
{
    type Rejection = Infallible;

    async fn from_request(request: Request, state: &S) -> Result<Self, Infallible> {
        let front = Front::from_ref(state);
        let (mut parts, body) = request.into_parts();
        let shown = parts.extensions.remove::<ConnectInfo<ClientCertificate>>();
        let body = front.read(body).await;
        Ok(Self {
            front,
            shown: shown.map(Extension),
            headers: parts.headers,
            body,
        })
    }
}

// === impl Front ===

impl Front {
    async fn read(&self, body: Body) -> Result<Bytes, CallError> {
        let read = Limited::new(body, self.max_body_bytes).collect().await;
        match read {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(CallError::new(REQUEST_TOO_LARGE)
                .fact("limit", "server.max_message_bytes")
                .word("max", self.engine.config().server.max_message_bytes)),
            Err(_) => Err(CallError::new(BODY_BROKEN)),
        }
    }
}
