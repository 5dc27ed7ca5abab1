//! `POST /v1/chat/completions`: from a request to an invocation, and from its end to an answer.

use super::{
    Front, PeerCertificate, document,
    error::Refused,
    headers::{RequestHeaders, ResponseHeaders},
    models,
    request::ChatRequest,
    stream,
};
use crate::{
    domain::{
        clock,
        invocation::{Call, Outcome, Overrides, RewindMode},
    },
    engine::{Arrival, InvocationRequest},
    layers::spans::EntryPoint,
};
use axum::{
    body::{Body, Bytes},
    extract::{State, rejection::BytesRejection},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse as _, Response},
};

/// How the call is named in its span.
const ENTRY: EntryPoint = EntryPoint::Http { method: "POST", route: "/v1/chat/completions" };

/// Answers a request. When its client goes away it is dropped, and the invocation ends unless others follow it.
pub(super) async fn complete(
    State(front): State<Front>,
    shown: PeerCertificate,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    match answer(front, &shown, &headers, body).await {
        Ok(response) => response,
        Err(refused) => refused.into_response(),
    }
}

async fn answer(
    front: Front,
    shown: &PeerCertificate,
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Refused> {
    let caller = front.identify(headers, shown)?;
    let body = body.map_err(|rejection| Refused::unreadable(rejection.status(), rejection.body_text()))?;
    let by_headers = RequestHeaders::read(headers)?;
    let request = ChatRequest::read(&body)?;
    let (route, target) = models::resolve(&front.engine.config(), &caller, &request.model)?;
    let arrival = Arrival {
        tenant: caller.tenant,
        routes: caller.routes,
        timeout: by_headers.time_allowed,
        trace: by_headers.trace,
        entry: ENTRY,
    };
    let overrides = Overrides {
        max_retries: by_headers.max_retries,
        allowed_targets: Vec::from_iter(target),
        // This wire cannot take back what it sent.
        rewind_mode: request.stream.then_some(RewindMode::AppendOnly),
        ..Overrides::default()
    };
    let resolved = front.engine.resolve(InvocationRequest {
        route: Some(route),
        operation: by_headers.operation,
        request_id: by_headers.request_id,
        thread: by_headers.thread,
        labels: request.labels,
        overrides,
        ..InvocationRequest::new(arrival, Call::Model(request.call))
    });
    let incoming = resolved.map_err(Refused::unresolved)?;
    let mut started = front.executions.start(incoming).await.map_err(Refused::not_started)?;
    if request.stream {
        return stream::respond(&front, started, request.model, request.include_usage).await;
    }
    let outcome = started.follower.outcome().await.map_err(|lost| Refused::lost(&lost))?;
    whole(&outcome)
}

/// The answer to a request that is not streamed.
fn whole(outcome: &Outcome) -> Result<Response, Refused> {
    let told = ResponseHeaders::of(outcome);
    let completion = match &outcome.result {
        Ok(completion) => completion,
        Err(failure) => return Err(Refused::outcome(outcome, failure, told)),
    };
    let document = document::completion(&outcome.invocation, clock::wall_now().as_second(), completion);
    let mut response = Response::new(Body::from(document.to_string()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    told.write(headers);
    Ok(response)
}
