//! `POST /v1/responses` and `GET /v1/responses/{id}`: `OpenAI`'s Responses API.
//!
//! A response that is stored is one turn of a thread, which the first response of a conversation
//! begins and `previous_response_id` continues: of a conversation, only its newest response can be
//! continued. Its `instructions` hold for one response and are not kept. What is stored by default
//! is stored where the journal can; a request that says `store: false` needs no journal. Reasoning
//! goes to the client in `encrypted_content` and comes back in it, whatever family the model is of
//! (`carried.rs`).

mod document;
mod events;
mod input;
mod items;
pub(super) mod request;
mod stored;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, RawQuery, State, rejection::BytesRejection},
    http::HeaderMap,
    response::{IntoResponse as _, Response},
};

use self::{document::ResponseDocument, events::ResponseEvents, request::ResponsesRequest};
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
    route: "/v1/responses",
};

/// Answers a request. When its client goes away it is dropped, and the invocation ends unless
/// others follow it.
pub(super) async fn create(
    State(front): State<Front>,
    shown: PeerCertificate,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    answer(front, &shown, &headers, body)
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

/// A response that was made before.
pub(super) async fn one(
    State(front): State<Front>,
    shown: PeerCertificate,
    Path(response): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let caller = front.identify(&headers, &shown)?;
        refuse_stream(query.as_deref().unwrap_or_default())?;
        stored::document(&front, &caller, &response).await
    };
    match found.await {
        Ok(document) => Json(document).into_response(),
        Err(refused) => refused.respond(Protocol::Openai),
    }
}

/// Refuses to stream a response that was made before.
fn refuse_stream(query: &str) -> Result<(), Refused> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    if pairs.any(|(name, value)| name == "stream" && !value.eq_ignore_ascii_case("false")) {
        let message = "`stream` is not available here: a stored response is returned as a document; the same request with \
                       its `Idempotency-Key` streams it once more";
        return Err(Refused::unsupported("stream", message));
    }
    Ok(())
}

async fn answer(
    front: Front,
    shown: &PeerCertificate,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let admitted = front.admit(shown, headers, body)?;
    let mut request = ResponsesRequest::read(&admitted.body)?;
    drop(admitted.body);
    stored::put_in_place(&front, &admitted.caller, &mut request.input).await?;
    let messages = request.messages()?;
    let thread = match (&request.previous, &admitted.headers.thread) {
        (Some(_), Some(_)) => {
            let message = "`previous_response_id` names a conversation, and so does the header x-relight-thread";
            return Err(Refused::invalid("previous_response_id", message));
        }
        (Some(previous), None) => {
            let key = admitted.headers.request_id.as_ref();
            RequestedThread::Kept(
                stored::conversation(&front, &admitted.caller, previous, key).await?,
            )
        }
        (None, None) if request.store.unwrap_or_else(|| stored::can(&front)) => {
            RequestedThread::New
        }
        (None, _) => RequestedThread::NotKept,
    };
    let is_stored = thread != RequestedThread::NotKept || admitted.headers.thread.is_some();
    let ResponsesRequest {
        model,
        stream,
        mut call,
        labels,
        echo,
        ..
    } = request;
    call.messages = messages;
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
    let document =
        ResponseDocument::new(&started.id, clock::wall_now().as_second(), echo, is_stored);
    if stream {
        return stream::respond(&front, started, ResponseEvents::new(document, model)).await;
    }
    let outcome = call::ended(started).await?;
    call::whole(&outcome, |completion| {
        let parts = completion.message.parts.iter().cloned();
        let output = document.items(parts);
        document.ended(completion, &output).to_string()
    })
}
