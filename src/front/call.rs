//! From a request of any protocol to an invocation, and from its end to a document: what all
//! protocols share.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};

use super::{
    Front, PeerCertificate, Principal,
    error::CallError,
    headers::{RequestHeaders, ResponseHeaders},
    models,
    resume::{EventId, ResumeHeaders},
};
use crate::{
    call_error::table::EVENT_OF_OTHER_REQUEST,
    domain::{
        clock,
        completion::Completion,
        ids::{InvocationId, RequestId, ThreadId},
        invocation::{Call, Outcome, Overrides, RewindMode},
        message::ModelCall,
    },
    engine::{Arrival, ConversationNames, InvocationRequest},
    execution::Started,
    layers::{invocation::InvocationContext, spans::EntryPoint},
};

/// A request that was let in and read as far as all protocols have it in common.
pub(super) struct AdmittedRequest {
    /// Caller of the request.
    pub(super) caller: Principal,
    /// Settings that the headers ask for.
    pub(super) headers: RequestHeaders,
    /// The client's wish to resume, or its last event.
    pub(super) resume: ResumeHeaders,
    /// The body.
    pub(super) body: Bytes,
    /// The front that it is for.
    pub(super) front: Front,
    /// Its headers as they came.
    pub(super) fields: HeaderMap,
    /// The certificate that its connection showed.
    pub(super) shown: PeerCertificate,
}

/// Call that a protocol's request becomes.
pub(super) struct RequestedCall {
    /// Name of the call in its span.
    pub(super) entry: EntryPoint,
    /// The model, which is a route here.
    pub(super) model: String,
    /// If set, the completion is streamed.
    pub(super) stream: bool,
    /// Call that is requested.
    pub(super) call: ModelCall,
    /// The caller's labels.
    pub(super) labels: BTreeMap<String, String>,
    /// Conversation that it continues, if the headers name none.
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
    /// Begins the invocation, or finds the one whose stream the client resumes.
    pub(super) fn begin(
        &self,
        caller: Principal,
        (headers, resume): (RequestHeaders, &ResumeHeaders),
        requested: RequestedCall,
    ) -> Result<impl Future<Output = Result<Started, CallError>>, CallError> {
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
            targets: headers.targets,
            // This wire cannot take back what it sent.
            rewind_mode: requested.stream.then_some(RewindMode::AppendOnly),
            ..Overrides::default()
        };
        let (named, is_new) = match requested.thread {
            RequestedThread::NotKept => (None, false),
            RequestedThread::Kept(thread) => (Some(thread), false),
            RequestedThread::New => (None, true),
        };
        let mut request = InvocationRequest {
            route: Some(route),
            operation: headers.operation,
            request_id: headers.request_id,
            thread: headers.thread.or(named),
            names: ConversationNames {
                affinity: headers.affinity,
                session: headers.session,
            },
            labels: requested.labels,
            overrides,
            ..InvocationRequest::new(arrival, Call::Model(Arc::new(requested.call)))
        };
        let is_kept = !self.executions.settings().events_kept.is_zero();
        resume.apply(&mut request, (requested.stream, is_kept))?;
        let mut incoming = self.engine.resolve(request)?;
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
        // What was read is not kept while the call begins.
        let last = resume.after.clone();
        Ok(async move {
            match last {
                None => self.executions.start(incoming).await,
                // Boxed, so that no other call carries its room.
                Some(last) => Box::pin(self.rejoin(incoming, &last)).await,
            }
        })
    }
}

impl Front {
    /// Returns the invocation that this request began, behind the client's last event.
    async fn rejoin(
        &self,
        incoming: InvocationContext,
        last: &EventId,
    ) -> Result<Started, CallError> {
        let id = &last.invocation;
        let found = self.executions.rejoin(incoming, id, last.step()).await;
        found?.ok_or_else(|| CallError::new(EVENT_OF_OTHER_REQUEST).fact("invocationId", id))
    }
}

/// Returns the second at which an invocation was created, which the documents of all its streams
/// state.
pub(super) fn created_unix(id: &InvocationId) -> i64 {
    id.minted_at().unwrap_or_else(clock::wall_now).as_second()
}

/// Waits for the end of an invocation.
pub(super) async fn ended(mut started: Started) -> Result<Arc<Outcome>, CallError> {
    let outcome = started.follower.outcome().await;
    outcome.map_err(|lost| lost.of_call(&started.id, false))
}

/// Returns the response to a request that was passed on: the provider's own document.
pub(super) fn passed_on(outcome: &Outcome) -> Result<Response, CallError> {
    whole(outcome, |completion| {
        completion.message.joined_text().into_owned()
    })
}

/// Returns the response to a request that is not streamed: the document that `write` makes of the
/// whole completion.
pub(super) fn whole<D: Into<Body>>(
    outcome: &Outcome,
    write: impl FnOnce(&Completion) -> D,
) -> Result<Response, CallError> {
    let completion = match &outcome.result {
        Ok(completion) => completion,
        Err(failure) => return Err(CallError::of_outcome(outcome, failure)),
    };
    let mut response = Response::new(write(completion).into());
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    ResponseHeaders::of(outcome).write(headers);
    Ok(response)
}
