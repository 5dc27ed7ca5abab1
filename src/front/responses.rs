//! `POST /v1/responses`, and what is asked of a response by its id: `OpenAI`'s Responses API.
//!
//! A response that is stored is one turn of a thread, which the first response of a conversation
//! starts and `previous_response_id` continues: of a conversation, only its newest response can be
//! continued. Its `instructions` hold for one response and are not kept. What is stored by default
//! is stored if the journal can; a request that says `store: false` needs no journal. The stream of
//! a response can be had once more, from any event on (`restream.rs`). Reasoning
//! goes to the client in `encrypted_content` and comes back in it, whatever family the model is of
//! (`carried.rs`).

mod document;
mod events;
mod input;
mod input_list;
mod items;
pub(super) mod request;
mod restream;
mod stored;

use axum::{
    Json,
    extract::{Path, RawQuery, State},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};

use serde_json::Value;

use self::{
    document::ResponseDocument, events::ResponseEvents, request::ResponsesRequest,
    restream::StreamQuery,
};
use super::{
    Front, PeerCertificate,
    call::{self, RequestedCall, RequestedThread},
    error::{CallError, Protocol},
    incoming::FrontRequest,
    stream,
};
use crate::{call_error::table::NOT_DELETABLE, domain::ids::ThreadId, layers::spans::EntryPoint};

/// Name of the call in its span.
const ENTRY: EntryPoint = EntryPoint::Http {
    method: "POST",
    route: "/v1/responses",
};

/// Handles a request. If its client goes away the request is dropped, and the invocation ends
/// unless others follow it.
pub(super) async fn create(request: FrontRequest) -> Response {
    Box::pin(answer(request))
        .await
        .unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

/// Returns a response that was made before, or its stream.
pub(super) async fn one(
    State(front): State<Front>,
    shown: PeerCertificate,
    Path(response): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let caller = front.identify(&headers, &shown)?;
        if let Some(wanted) = StreamQuery::read(query.as_deref().unwrap_or_default())? {
            wanted
                .of(&front, (&headers, &shown), &caller, &response)
                .await
        } else {
            let document = stored::document(&front, &caller, &response).await?;
            Ok(Json(document).into_response())
        }
    };
    let found: Result<Response, CallError> = found.await;
    found.unwrap_or_else(|refused| refused.respond(Protocol::Openai))
}

/// Ends a response that is being made; one that ended is returned as it is. A body says nothing.
pub(super) async fn cancel(
    State(front): State<Front>,
    shown: PeerCertificate,
    Path(response): Path<String>,
    headers: HeaderMap,
) -> Response {
    let ended = async {
        let caller = front.identify(&headers, &shown)?;
        stored::cancel(&front, &caller, &response).await
    };
    document_or_refusal(ended.await)
}

/// Returns what the model was asked for a response, as items.
pub(super) async fn input_items(
    State(front): State<Front>,
    shown: PeerCertificate,
    Path(response): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let found = async {
        let caller = front.identify(&headers, &shown)?;
        let page = input_list::PageQuery::read(query.as_deref().unwrap_or_default())?;
        Ok(page.of(stored::input(&front, &caller, &response).await?))
    };
    document_or_refusal(found.await)
}

/// Refuses to delete a response before its time.
pub(super) async fn delete(
    State(front): State<Front>,
    shown: PeerCertificate,
    Path(response): Path<String>,
    headers: HeaderMap,
) -> Response {
    let refused = async {
        let caller = front.identify(&headers, &shown)?;
        stored::document(&front, &caller, &response).await?;
        Err(CallError::new(NOT_DELETABLE).fact("name", response))
    };
    let mut response = document_or_refusal(refused.await);
    let allowed = HeaderValue::from_static("GET, HEAD");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

fn document_or_refusal(result: Result<Value, CallError>) -> Response {
    match result {
        Ok(document) => Json(document).into_response(),
        Err(refused) => refused.respond(Protocol::Openai),
    }
}

async fn answer(request: FrontRequest) -> Result<Response, CallError> {
    let admitted = request.admit()?;
    let front = &admitted.front;
    let mut request = ResponsesRequest::read(&admitted.body)?;
    drop(admitted.body);
    stored::put_in_place(front, &admitted.caller, &mut request.input).await?;
    let messages = request.messages()?;
    let thread = match (&request.previous, &admitted.headers.thread) {
        (Some(_), Some(_)) => {
            let message = "`previous_response_id` names a conversation, and so does the header x-relight-thread";
            return Err(CallError::invalid("previous_response_id", message));
        }
        // Its thread is that of its first request.
        (Some(previous), None) if admitted.resume.after.is_some() => {
            RequestedThread::Kept(ThreadId::from(previous.as_str()))
        }
        (Some(previous), None) => {
            let key = admitted.headers.request_id.as_ref();
            RequestedThread::Kept(
                stored::conversation(front, &admitted.caller, previous, key).await?,
            )
        }
        (None, None) if request.store.unwrap_or_else(|| stored::can(front)) => RequestedThread::New,
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
    if admitted.resume.is_resumable() {
        call.repeated.clone_from(&echo);
    }
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
    let document = ResponseDocument::new(&started.id, created_unix, echo, is_stored);
    if stream {
        let events = ResponseEvents::new(document, model);
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
        let parts = completion.message.parts.iter().cloned();
        let output = document.items(parts);
        document.ended(completion, &output).to_string()
    })
}
