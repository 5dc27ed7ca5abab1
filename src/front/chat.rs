//! `POST /v1/chat/completions`: from a request to an invocation, and from its end to an answer.

mod chunks;
mod document;
mod message;
pub(super) mod request;

use axum::{
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::HeaderMap,
    response::Response,
};

use self::{chunks::Chunks, request::ChatRequest};
use super::{
    Front, PeerCertificate,
    call::{self, RequestedCall, RequestedThread},
    error::{Protocol, Refused},
    stream,
};
use crate::{domain::clock, layers::spans::EntryPoint};

/// How the call is named in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/v1/chat/completions",
};

/// Answers a request. When its client goes away it is dropped, and the invocation ends unless
/// others follow it.
pub(super) async fn complete(
    State(front): State<Front>,
    shown: PeerCertificate,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    answer(front, &shown, &headers, body)
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

async fn answer(
    front: Front,
    shown: &PeerCertificate,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let admitted = front.admit(shown, headers, body)?;
    let ChatRequest {
        model,
        stream,
        include_usage,
        call,
        labels,
    } = ChatRequest::read(&admitted.body)?;
    drop(admitted.body);
    let thread = RequestedThread::NotKept;
    let requested = RequestedCall {
        entry: ENTRY,
        model: model.clone(),
        stream,
        call,
        labels,
        thread,
    };
    let started = front
        .begin(admitted.caller, admitted.headers, requested)
        .await?;
    let created_unix = clock::wall_now().as_second();
    if stream {
        let chunks = Chunks::new(&started.id, created_unix, model, include_usage);
        return stream::respond(&front, started, chunks).await;
    }
    let outcome = call::ended(started).await?;
    call::whole(&outcome, |completion| {
        document::completion(&outcome.invocation, created_unix, completion)
    })
}
