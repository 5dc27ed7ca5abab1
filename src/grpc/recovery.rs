//! `RecoveryService`: the calls of agents. It converts, asks the engine, and converts back.
//!
//! A provider that failed for good is an OK answer that holds a failure; statuses speak of Relight alone.

use std::{pin::Pin, sync::Arc};

use arc_swap::ArcSwap;
use futures_util::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::{
    auth::{Authenticator, Identity},
    convert::{
        Violations,
        facts::failure_facts,
        invocation::Requested,
        metadata::{grpc_timeout, trace_context},
        outcome::{Asked as Told, response},
        request::{invoke_request, watch_request},
    },
    presence::Presence,
    status,
    v1::{self, recovery_service_server::RecoveryService},
};
use crate::{
    domain::{
        failure::{Failure, FailureClass},
        fold::Progress,
        invocation::Outcome,
    },
    engine::{Asked, Engine, Refusal},
    layers::{observe::Incoming, spans::Entry},
};

/// Serves `relight.v1.RecoveryService`.
#[derive(Debug, Clone)]
pub struct Recovery {
    pub(super) engine: Engine,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) presence: Presence,
}

type Streaming<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

// === impl Recovery ===

impl Recovery {
    /// Serves this engine.
    pub fn new(engine: Engine, authenticator: Arc<ArcSwap<Authenticator>>, presence: Presence) -> Self {
        Self { engine, authenticator, presence }
    }

    /// Who calls.
    pub(super) fn identify<T>(&self, request: &Request<T>) -> Result<Identity, Status> {
        self.authenticator.load().identify(request)
    }

    /// Finds the plan for what is asked, for one who may ask it.
    pub(super) fn resolve(
        &self,
        requested: Requested,
        identity: Identity,
        metadata: &tonic::metadata::MetadataMap,
        rpc: &'static str,
    ) -> Result<Incoming, Status> {
        let timeout = grpc_timeout(metadata).map_err(|faults| status::invalid_argument(&faults))?;
        let time_allowed = requested.time_allowed(timeout);
        let asked = Asked {
            tenant: identity.tenant.clone(),
            route: requested.route,
            operation: requested.operation,
            call: requested.call,
            request_id: requested.request_id,
            thread: requested.thread,
            labels: requested.labels,
            overrides: requested.overrides,
            time_allowed,
            trace: trace_context(metadata),
            entry: Entry::Grpc(rpc),
        };
        let incoming = self.engine.resolve(asked).map_err(|refusal| match refusal {
            Refusal::RouteNotFound { route, nearest } => {
                status::route_not_found(route.as_str(), nearest.as_ref().map(|name| name.as_str()))
            }
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

    /// Runs an invocation to its end.
    async fn outcome(&self, incoming: Incoming) -> Result<Outcome, Status> {
        let mut steps = self.engine.run(incoming).await.map_err(|refused| refusal(&refused))?;
        while let Some(step) = steps.next().await {
            if let Progress::Terminal(outcome) = step {
                return Ok(*outcome);
            }
        }
        Err(status::internal("the invocation ended without an outcome"))
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
        self.presence.still_serving()?;
        let (metadata, _, request) = request.into_parts();
        let requested = invoke_request(request).map_err(|faults| status::invalid_argument(&faults))?;
        if requested.call.is_tool() {
            return Err(status::unimplemented("tool calls"));
        }
        let told = Told {
            operation: requested.operation.clone(),
            thread: requested.thread.clone(),
            disposition: v1::RequestDisposition::New,
        };
        let incoming = self.resolve(requested, identity, &metadata, "relight.v1.RecoveryService/InvokeWithRecovery")?;
        let outcome = self.outcome(incoming).await?;
        Ok(Response::new(response(&outcome, &told)))
    }

    async fn stream_with_recovery(
        &self,
        _: Request<v1::StreamWithRecoveryRequest>,
    ) -> Result<Response<Self::StreamWithRecoveryStream>, Status> {
        Err(status::unimplemented("StreamWithRecovery"))
    }

    async fn watch_recovery(
        &self,
        request: Request<v1::WatchRecoveryRequest>,
    ) -> Result<Response<Self::WatchRecoveryStream>, Status> {
        let identity = self.identify(&request)?;
        let (filter, start) =
            watch_request(request.into_inner()).map_err(|faults| status::invalid_argument(&faults))?;
        Ok(Response::new(super::watch::stream(self, identity, filter, start)))
    }

    async fn get_invocation(
        &self,
        _: Request<v1::GetInvocationRequest>,
    ) -> Result<Response<v1::GetInvocationResponse>, Status> {
        Err(status::unimplemented("GetInvocation"))
    }

    async fn cancel_invocation(
        &self,
        _: Request<v1::CancelInvocationRequest>,
    ) -> Result<Response<v1::CancelInvocationResponse>, Status> {
        Err(status::unimplemented("CancelInvocation"))
    }

    async fn classify_failure(
        &self,
        request: Request<v1::ClassifyFailureRequest>,
    ) -> Result<Response<v1::ClassifyFailureResponse>, Status> {
        self.identify(&request)?;
        let facts = failure_facts(request.into_inner()).map_err(|faults| status::invalid_argument(&faults))?;
        super::dry_run::classify(&self.engine, &facts).map(Response::new)
    }

    async fn get_thread(&self, _: Request<v1::GetThreadRequest>) -> Result<Response<v1::GetThreadResponse>, Status> {
        Err(status::unimplemented("GetThread"))
    }

    async fn delete_thread(
        &self,
        _: Request<v1::DeleteThreadRequest>,
    ) -> Result<Response<v1::DeleteThreadResponse>, Status> {
        Err(status::unimplemented("DeleteThread"))
    }
}
