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

use super::{
    ClientCertificate, Front, PeerCertificate, call::AdmittedRequest, error::CallError,
    headers::RequestHeaders, resume::ResumeHeaders,
};
use crate::call_error::table::BODY_BROKEN;

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

impl FrontRequest {
    /// Lets the request in.
    pub(super) fn admit(self) -> Result<AdmittedRequest, CallError> {
        let caller = self.front.identify(&self.headers, &self.shown)?;
        let body = self.body?;
        Ok(AdmittedRequest {
            caller,
            headers: RequestHeaders::read(&self.headers)?,
            resume: ResumeHeaders::read(&self.headers)?,
            body,
            front: self.front,
            fields: self.headers,
            shown: self.shown,
        })
    }
}

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
            Err(error) if error.is::<LengthLimitError>() => {
                let max = self.engine.config().server.max_message_bytes;
                Err(CallError::message_too_large(max))
            }
            Err(_) => Err(CallError::new(BODY_BROKEN)),
        }
    }
}
