//! `POST /v1/embeddings`: passed on to a target that speaks a dialect of `OpenAI`, with Relight's
//! retries and fallbacks.
//!
//! Nothing of the request is read but its model, and nothing of the document. Fall back only
//! between targets of the same embedding model: vectors of different models cannot be compared.

use std::collections::BTreeMap;

use axum::response::Response;

use super::{
    call::{self, RequestedCall, RequestedThread},
    error::{CallError, Protocol},
    fields::RequestFields,
    incoming::FrontRequest,
};
use crate::{
    domain::message::{Endpoint, ModelCall},
    layers::spans::EntryPoint,
};

/// Name of the call in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/v1/embeddings",
};

/// Passes a request on.
pub(super) async fn create(request: FrontRequest) -> Response {
    pass_on(request)
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

async fn pass_on(request: FrontRequest) -> Result<Response, CallError> {
    let admitted = request.admit()?;
    let front = &admitted.front;
    let mut fields = RequestFields::read(&admitted.body)?;
    let model = fields.model()?;
    if !fields
        .all()
        .get("input")
        .is_some_and(|input| input.get().starts_with(['"', '[']))
    {
        return Err(CallError::invalid(
            "input",
            "`input` must be a string or an array",
        ));
    }
    let call = ModelCall {
        extra: fields.rest()?,
        endpoint: Endpoint::Embeddings,
        ..ModelCall::default()
    };
    drop(admitted.body);
    let thread = RequestedThread::NotKept;
    let requested = RequestedCall {
        entry: ENTRY,
        model,
        stream: false,
        call,
        labels: BTreeMap::new(),
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
