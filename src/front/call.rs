//! From a request of any protocol to an invocation, and from its end to a document: what all
//! protocols share.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::rejection::BytesRejection,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};

use super::{
    Front, PeerCertificate, Principal,
    error::Refused,
    headers::{RequestHeaders, ResponseHeaders},
    models,
};
use crate::{
    domain::{
        completion::Completion,
        ids::{RequestId, ThreadId},
        invocation::{Call, Outcome, Overrides, RewindMode},
        message::ModelCall,
    },
    engine::{Arrival, InvocationRequest},
    execution::Started,
    layers::spans::EntryPoint,
};

/// A request that was let in and read as far as all protocols have it in common.
pub(super) struct AdmittedRequest {
    /// Who calls.
    pub(super) caller: Principal,
    /// What the headers ask for.
    pub(super) headers: RequestHeaders,
    /// The body.
    pub(super) body: Bytes,
}

/// What a protocol's request comes to.
pub(super) struct RequestedCall {
    /// How the call is named in its span.
    pub(super) entry: EntryPoint,
    /// The model, which is a route here.
    pub(super) model: String,
    /// Whether the answer is streamed.
    pub(super) stream: bool,
    /// What is asked.
    pub(super) call: ModelCall,
    /// The caller's labels.
    pub(super) labels: BTreeMap<String, String>,
    /// The conversation that it goes on with, where the headers name none.
    pub(super) thread: RequestedThread,
}

/// The conversation of a call whose headers name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestedThread {
    /// None is kept.
    NotKept,
    /// One that is kept.
    Kept(ThreadId),
    /// A new one, named after the invocation.
    New,
}

// === impl Front ===

impl Front {
    /// Lets a request in.
    pub(super) fn admit(
        &self,
        shown: &PeerCertificate,
        headers: &HeaderMap,
        body: Result<Bytes, BytesRejection>,
    ) -> Result<AdmittedRequest, Refused> {
        let caller = self.identify(headers, shown)?;
        let body = body
            .map_err(|rejection| Refused::unreadable(rejection.status(), rejection.body_text()))?;
        Ok(AdmittedRequest {
            caller,
            headers: RequestHeaders::read(headers)?,
            body,
        })
    }

    /// Begins the invocation.
    pub(super) async fn begin(
        &self,
        caller: Principal,
        headers: RequestHeaders,
        requested: RequestedCall,
    ) -> Result<Started, Refused> {
        let (route, target) = models::resolve(&self.engine.config(), &caller, &requested.model)?;
        let arrival = Arrival {
            tenant: caller.tenant,
            routes: caller.routes,
            timeout: headers.time_allowed,
            trace: headers.trace,
            entry: requested.entry,
        };
        let overrides = Overrides {
            max_retries: headers.max_retries,
            allowed_targets: Vec::from_iter(target),
            // This wire cannot take back what it sent.
            rewind_mode: requested.stream.then_some(RewindMode::AppendOnly),
            ..Overrides::default()
        };
        let (named, is_new) = match requested.thread {
            RequestedThread::NotKept => (None, false),
            RequestedThread::Kept(thread) => (Some(thread), false),
            RequestedThread::New => (None, true),
        };
        let resolved = self.engine.resolve(InvocationRequest {
            route: Some(route),
            operation: headers.operation,
            request_id: headers.request_id,
            thread: headers.thread.or(named),
            labels: requested.labels,
            overrides,
            ..InvocationRequest::new(arrival, Call::Model(Arc::new(requested.call)))
        });
        let mut incoming = resolved.map_err(Refused::unresolved)?;
        if is_new {
            let invocation = Arc::make_mut(&mut incoming.invocation);
            // The same request once more must not differ by the name that it is kept under.
            let own = invocation
                .request_id
                .as_ref()
                .map_or(invocation.id.as_str(), RequestId::as_str);
            invocation.thread = Some(
                invocation
                    .thread
                    .clone()
                    .unwrap_or_else(|| ThreadId::from(own)),
            );
        }
        self.executions
            .start(incoming)
            .await
            .map_err(Refused::not_started)
    }
}

/// Waits for the end of an invocation.
pub(super) async fn ended(mut started: Started) -> Result<Arc<Outcome>, Refused> {
    started
        .follower
        .outcome()
        .await
        .map_err(|lost| Refused::lost(&lost))
}

/// The response to a request that was passed on: the provider's own document.
pub(super) fn passed_on(outcome: &Outcome) -> Result<Response, Refused> {
    whole(outcome, |completion| {
        completion.message.joined_text().into_owned()
    })
}

/// The response to a request that is not streamed: the document that `write` makes of the whole
/// answer.
pub(super) fn whole<D: Into<Body>>(
    outcome: &Outcome,
    write: impl FnOnce(&Completion) -> D,
) -> Result<Response, Refused> {
    let own_headers = ResponseHeaders::of(outcome);
    let completion = match &outcome.result {
        Ok(completion) => completion,
        Err(failure) => return Err(Refused::outcome(outcome, failure, own_headers)),
    };
    let mut response = Response::new(write(completion).into());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    own_headers.write(headers);
    Ok(response)
}
