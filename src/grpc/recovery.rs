//! `RecoveryService`: the calls of agents. It converts, asks the engine, and converts back.
//!
//! A provider that failed for good is an OK answer that holds a failure; statuses speak of Relight alone.

use std::{pin::Pin, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::Stream;
use tonic::{Request, Response, Status};

use super::{
    auth::{Authenticator, Identity},
    convert::{
        Violations,
        facts::failure_facts,
        metadata::{grpc_timeout, trace_context},
        outcome::{ResponseContext, response},
        request::{StreamStart, cancel_request, get_request, invoke_request, stream_request, thread_id, watch_request},
    },
    drain::DrainState,
    resume_token::TokenKey,
    status,
    v1::{self, recovery_service_server::RecoveryService},
};
use crate::{
    domain::failure::{Failure, FailureClass},
    engine::{Arrival, Engine, InvocationRequest, Refusal},
    execution::{Executions, StartError, Started},
    layers::{invocation::InvocationContext, spans::EntryPoint},
};

/// When a client whose call came too late for this replica may try again: another one is ready.
const TRY_ELSEWHERE_IN: Duration = Duration::from_millis(100);

/// Serves `relight.v1.RecoveryService`.
#[derive(Debug, Clone)]
pub struct Recovery {
    pub(super) engine: Engine,
    pub(super) executions: Executions,
    pub(super) tokens: Arc<TokenKey>,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) drain: DrainState,
}

pub(super) type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

// === impl Recovery ===

impl Recovery {
    /// Serves this engine, whose invocations run there; resume tokens are signed with this key.
    pub fn new(
        engine: Engine,
        executions: Executions,
        tokens: TokenKey,
        authenticator: Arc<ArcSwap<Authenticator>>,
        drain: DrainState,
    ) -> Self {
        Self { engine, executions, tokens: Arc::new(tokens), authenticator, drain }
    }

    /// Who calls.
    pub(super) fn identify<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        self.authenticator.load().identify(request)
    }

    /// How a request arrived.
    pub(super) fn arrival(
        identity: &Identity,
        metadata: &tonic::metadata::MetadataMap,
        rpc: &'static str,
    ) -> Result<Arrival, Status> {
        let timeout = grpc_timeout(metadata).map_err(|faults| status::invalid_argument(&faults))?;
        Ok(Arrival {
            tenant: identity.tenant.clone(),
            routes: identity.routes.clone(),
            timeout,
            trace: trace_context(metadata),
            entry: EntryPoint::Grpc(rpc),
        })
    }

    /// Resolves a request, for a caller that may use its route.
    pub(super) fn resolve(&self, request: InvocationRequest, identity: &Identity) -> Result<InvocationContext, Status> {
        let incoming = self.engine.resolve(request).map_err(|refusal| match refusal {
            Refusal::RouteNotFound { route, nearest } => status::route_not_found(
                route.as_str(),
                nearest.as_ref().map(super::super::domain::ids::RouteName::as_str),
            ),
            Refusal::Overrides(faults) => {
                let mut violations = Violations::default();
                for (field, reason) in faults {
                    violations.add(field, reason);
                }
                status::invalid_argument(&violations)
            }
        })?;
        identity.may_use(&incoming.plan.route)?;
        Ok(incoming)
    }

    /// Begins an invocation, or joins the one that it repeats.
    pub(super) async fn start(&self, incoming: InvocationContext) -> Result<Started, Status> {
        let (request, thread) = (incoming.invocation.request_id.clone(), incoming.invocation.thread.clone());
        self.executions.start(incoming).await.map_err(|error| match error {
            StartError::Refused(refused) => refusal(&refused),
            StartError::Closing => status::draining(TRY_ELSEWHERE_IN),
            StartError::Conflict(earlier) => {
                status::request_id_reused(&request.unwrap_or_else(|| "".into()), Some(&earlier))
            }
            StartError::ResultNotRetained(earlier) => status::failed_precondition(
                "ANSWER_NOT_KEPT",
                "the same request is finished, but the journal keeps no answers",
                vec![("invocationId", earlier.as_str().to_owned())],
            ),
            StartError::ThreadBusy(running) => status::thread_busy(&thread.unwrap_or_else(|| "".into()), &running),
            StartError::ThreadOfOtherRoute => status::thread_of_other_route(),
            StartError::Journal(error) => super::stream::journal_failed(&error),
        })
    }
}

/// What a caller is told whose invocation was refused before any attempt.
pub(super) fn refusal(refused: &Failure) -> Status {
    let retry_in = refused.retry_after.map(|wait| wait.duration).unwrap_or_default();
    if refused.class == FailureClass::Shed {
        status::shed("invocations", &refused.message, retry_in)
    } else {
        status::internal(&refused.message)
    }
}

#[tonic::async_trait]
impl RecoveryService for Recovery {
    type StreamWithRecoveryStream = Streaming<v1::StreamWithRecoveryResponse>;
    type WatchRecoveryStream = Streaming<v1::WatchRecoveryResponse>;

    async fn invoke_with_recovery(
        &self,
        request: Request<v1::InvokeWithRecoveryRequest>,
    ) -> Result<Response<v1::InvokeWithRecoveryResponse>, Status> {
        let identity = self.identify(&request)?;
        let (metadata, _, request) = request.into_parts();
        let arrival = Self::arrival(&identity, &metadata, "relight.v1.RecoveryService/InvokeWithRecovery")?;
        let request = invoke_request(request, arrival).map_err(|faults| status::invalid_argument(&faults))?;
        if request.call.is_tool() {
            return Err(status::unimplemented("tool calls"));
        }
        let (operation, thread) = (request.operation.clone(), request.thread.clone());
        let incoming = self.resolve(request, &identity)?;
        let Started { id, disposition, mut follower, .. } = self.start(incoming).await?;
        // When the caller goes, this future is dropped, and with it the follower.
        let outcome = follower.outcome().await.map_err(|lost| super::stream::lost(&id, &lost))?;
        let told = ResponseContext { operation, thread, disposition: super::stream::wire_disposition(disposition) };
        Ok(Response::new(response(&outcome, &told)))
    }

    async fn stream_with_recovery(
        &self,
        request: Request<v1::StreamWithRecoveryRequest>,
    ) -> Result<Response<Self::StreamWithRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let (metadata, _, request) = request.into_parts();
        let arrival = Self::arrival(&identity, &metadata, "relight.v1.RecoveryService/StreamWithRecovery")?;
        let start = stream_request(request, arrival).map_err(|faults| status::invalid_argument(&faults))?;
        let stream = match start {
            StreamStart::New(request) => self.stream_new(*request, &identity).await?,
            StreamStart::Resume(resume) => self.stream_resumed(resume, &identity).await?,
        };
        Ok(Response::new(stream))
    }

    async fn watch_recovery(
        &self,
        request: Request<v1::WatchRecoveryRequest>,
    ) -> Result<Response<Self::WatchRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let (filter, start) =
            watch_request(request.into_inner()).map_err(|faults| status::invalid_argument(&faults))?;
        super::watch::check_names(&self.engine, &identity, &filter)?;
        Ok(Response::new(super::watch::stream(self, identity, filter, start)))
    }

    async fn get_invocation(
        &self,
        request: Request<v1::GetInvocationRequest>,
    ) -> Result<Response<v1::GetInvocationResponse>, Status> {
        let identity = self.identify(&request)?;
        let name = get_request(request.into_inner()).map_err(|faults| status::invalid_argument(&faults))?;
        self.explain(&identity, name).await.map(Response::new)
    }

    async fn cancel_invocation(
        &self,
        request: Request<v1::CancelInvocationRequest>,
    ) -> Result<Response<v1::CancelInvocationResponse>, Status> {
        let identity = self.identify(&request)?;
        let (name, reason) =
            cancel_request(request.into_inner()).map_err(|faults| status::invalid_argument(&faults))?;
        self.cancel(&identity, name, &reason).await.map(Response::new)
    }

    async fn classify_failure(
        &self,
        request: Request<v1::ClassifyFailureRequest>,
    ) -> Result<Response<v1::ClassifyFailureResponse>, Status> {
        self.identify(&request)?;
        let facts = failure_facts(request.into_inner()).map_err(|faults| status::invalid_argument(&faults))?;
        super::dry_run::classify(&self.engine, &facts).map(Response::new)
    }

    async fn get_thread(
        &self,
        request: Request<v1::GetThreadRequest>,
    ) -> Result<Response<v1::GetThreadResponse>, Status> {
        let identity = self.identify(&request)?;
        let id = thread_id(request.into_inner().thread_id).map_err(|faults| status::invalid_argument(&faults))?;
        self.thread(&identity, id).await.map(Response::new)
    }

    async fn delete_thread(
        &self,
        request: Request<v1::DeleteThreadRequest>,
    ) -> Result<Response<v1::DeleteThreadResponse>, Status> {
        let identity = self.identify(&request)?;
        let v1::DeleteThreadRequest { thread_id: id, version } = request.into_inner();
        let id = thread_id(id).map_err(|faults| status::invalid_argument(&faults))?;
        self.forget_thread(&identity, id, version).await.map(Response::new)
    }
}
