//! `POST /v1/chat/completions`: from a request to an invocation, and from its end to a completion.

mod chunks;
mod document;
mod message;
mod own;
pub(super) mod request;

use axum::response::Response;

use self::{chunks::Chunks, request::ChatRequest};
use super::{
    call::{self, RequestedCall, RequestedThread},
    error::{CallError, Protocol},
    incoming::FrontRequest,
    stream,
};
use crate::layers::spans::EntryPoint;

/// Name of the call in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/v1/chat/completions",
};

/// Handles a request. If its client goes away the request is dropped, and the invocation ends
/// unless others follow it.
pub(super) async fn complete(request: FrontRequest) -> Response {
    Box::pin(answer(request))
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

async fn answer(request: FrontRequest) -> Result<Response, CallError> {
    let admitted = request.admit()?;
    let front = &admitted.front;
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
        .begin(
            admitted.caller,
            (admitted.headers, &admitted.resume),
            requested,
        )?
        .await?;
    let created_unix = call::created_unix(&started.id);
    if stream {
        let chunks = Chunks::new(&started.id, created_unix, model, include_usage);
        let numbers = admitted.resume.numbers(&started);
        return stream::respond(
            front,
            (&admitted.fields, &admitted.shown),
            (started, numbers),
            chunks,
        )
        .await;
    }
    let outcome = call::ended(started).await?;
    call::whole(&outcome, |completion| {
        document::completion(&outcome.invocation, created_unix, completion)
    })
}
