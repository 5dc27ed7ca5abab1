//! `POST /v1/messages` and `/v1/messages/count_tokens`: Anthropic's Messages API.
//!
//! What the model thought goes to the client with its signature and comes back with it. Whatever a
//! provider of another family needs back is in the same fields, in an envelope (`carried.rs`).

mod content;
mod document;
mod events;
pub(super) mod request;

use axum::response::Response;

use self::{events::MessageEvents, request::MessagesRequest};
use super::{
    call::{self, RequestedCall, RequestedThread},
    error::{CallError, Protocol},
    headers::betas,
    incoming::FrontRequest,
    stream,
};
use crate::{
    domain::message::{Endpoint, ModelCall},
    layers::spans::EntryPoint,
};

/// Name of the call in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/v1/messages",
};
/// Name of the count in its span.
const COUNT_ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/v1/messages/count_tokens",
};

/// Handles a request. If its client goes away the request is dropped, and the invocation ends
/// unless others follow it.
pub(super) async fn create(request: FrontRequest) -> Response {
    Box::pin(answer(request))
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Anthropic))
}

/// Passes a request to count tokens on to a target that can.
pub(super) async fn count_tokens(request: FrontRequest) -> Response {
    count(request)
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Anthropic))
}

async fn answer(request: FrontRequest) -> Result<Response, CallError> {
    let admitted = request.admit()?;
    let front = &admitted.front;
    let MessagesRequest {
        model,
        stream,
        call,
        labels,
    } = MessagesRequest::read(&admitted.body)?;
    drop(admitted.body);
    let call = ModelCall {
        betas: betas(&admitted.fields)?,
        ..call
    };
    if call.max_output_tokens.is_none() {
        return Err(CallError::invalid("max_tokens", "`max_tokens` is missing"));
    }
    let only_stop = call.stop.first().filter(|_| call.stop.len() == 1).cloned();
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
    if stream {
        let events = MessageEvents::new(&started.id, model, only_stop);
        let numbers = admitted.resume.numbers(&started);
        return stream::respond(
            front,
            (&admitted.fields, &admitted.shown),
            (started, numbers),
            events,
        )
        .await;
    }
    let outcome = call::ended(started).await?;
    call::whole(&outcome, |completion| {
        document::message(&outcome.invocation, completion, only_stop.as_deref()).to_string()
    })
}

async fn count(request: FrontRequest) -> Result<Response, CallError> {
    let admitted = request.admit()?;
    let front = &admitted.front;
    let MessagesRequest {
        model,
        call,
        labels,
        ..
    } = MessagesRequest::read(&admitted.body)?;
    drop(admitted.body);
    let call = ModelCall {
        endpoint: Endpoint::CountTokens,
        betas: betas(&admitted.fields)?,
        ..call
    };
    let thread = RequestedThread::NotKept;
    let requested = RequestedCall {
        entry: COUNT_ENTRY,
        model,
        stream: false,
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
    call::passed_on(call::ended(started).await?.as_ref())
}
