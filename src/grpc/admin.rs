//! `AdminService`: state and controls for the person on call.

mod state;
mod targets;

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use self::targets::wire_circuit;
use super::{
    auth::{Authenticator, Identity},
    convert::{
        Violations,
        invocation::{MAX_OPERATION_BYTES, check_id, named},
        learning::tool_learning,
        request::MAX_REASON_BYTES,
    },
    drain::DrainState,
    peers::Peers,
    releases,
    v1::{self, admin_service_server::AdminService},
};
use crate::{
    call_error::{CallError, table::TARGET_NOT_FOUND},
    config::fault::nearest,
    domain::{
        clock,
        ids::{MAX_ID_BYTES, TargetId},
    },
    engine::Engine,
    execution::Executions,
    fleet::Replicas,
    layers::targets::TargetState,
    policy::circuit::Forced,
};

/// Serves `relight.v1.AdminService`.
#[derive(Debug, Clone)]
pub struct Admin {
    engine: Engine,
    executions: Executions,
    authenticator: Arc<ArcSwap<Authenticator>>,
    drain: DrainState,
    replicas: Replicas,
    peers: Peers,
    started_at: Timestamp,
}

// === impl Admin ===

impl Admin {
    /// Administers this engine.
    pub fn new(
        engine: Engine,
        executions: Executions,
        (authenticator, drain): (Arc<ArcSwap<Authenticator>>, DrainState),
        (replicas, peers): (Replicas, Peers),
    ) -> Self {
        Self {
            engine,
            executions,
            authenticator,
            drain,
            replicas,
            peers,
            started_at: clock::wall_now(),
        }
    }

    fn authorise<T>(&self, request: &Request<T>) -> Result<Identity, CallError> {
        let identity = self.authenticator.load().identify(request)?;
        identity.may_administer()?;
        Ok(identity)
    }

    /// Returns the administering tenant; `None` if callers are not authenticated.
    fn operator<T>(&self, request: &Request<T>) -> Result<Option<String>, CallError> {
        let authenticator = self.authenticator.load();
        let tenant = authenticator.identify(request)?.tenant.to_string();
        Ok(authenticator.authenticates().then_some(tenant))
    }

    fn target(&self, name: &str) -> Result<Arc<TargetState>, CallError> {
        self.engine
            .targets()
            .state(&TargetId::from(name))
            .ok_or_else(|| {
                let states = self.engine.targets().all();
                let names: Vec<&str> = states
                    .iter()
                    .map(|state| state.target.id.as_str())
                    .collect();
                CallError::not_found(TARGET_NOT_FOUND, name, nearest(name, &names))
            })
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_targets(
        &self,
        request: Request<v1::ListTargetsRequest>,
    ) -> Result<Response<v1::ListTargetsResponse>, Status> {
        let targets = self.all_targets(request).await?;
        Ok(Response::new(targets))
    }

    async fn reset_circuit(
        &self,
        request: Request<v1::ResetCircuitRequest>,
    ) -> Result<Response<v1::ResetCircuitResponse>, Status> {
        self.authorise(&request)?;
        let operator = self.operator(&request)?;
        let state = self.target(&request.into_inner().target)?;
        state.reset();
        self.replicas.reset(&state, operator.as_deref());
        let circuit = Some(wire_circuit(&state, Instant::now()));
        Ok(Response::new(v1::ResetCircuitResponse { circuit }))
    }

    async fn force_circuit(
        &self,
        request: Request<v1::ForceCircuitRequest>,
    ) -> Result<Response<v1::ForceCircuitResponse>, Status> {
        self.authorise(&request)?;
        let operator = self.operator(&request)?;
        let request = request.into_inner();
        let forced = match v1::CircuitForce::try_from(request.force) {
            Ok(v1::CircuitForce::Open) => Forced::Open,
            Ok(v1::CircuitForce::Closed) => Forced::Closed,
            Ok(v1::CircuitForce::Auto) => Forced::Auto,
            Ok(v1::CircuitForce::Unspecified) | Err(_) => {
                let reason = "is not one of OPEN, CLOSED, AUTO";
                return Err(CallError::invalid_field("force", reason).into());
            }
        };
        let mut faults = Violations::default();
        check_id("reason", &request.reason, MAX_REASON_BYTES, &mut faults);
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let state = self.target(&request.target)?;
        tracing::info!(
            target_id = %state.target.id,
            ?forced,
            operator = operator.as_deref().unwrap_or("not identified"),
            reason = request.reason,
            "an operator forced a circuit"
        );
        state.force(forced, operator.as_deref(), &request.reason);
        self.replicas
            .forced(&state, forced, operator.as_deref(), &request.reason);
        let circuit = Some(wire_circuit(&state, Instant::now()));
        Ok(Response::new(v1::ForceCircuitResponse { circuit }))
    }

    async fn list_releases(
        &self,
        request: Request<v1::ListReleasesRequest>,
    ) -> Result<Response<v1::ListReleasesResponse>, Status> {
        self.authorise(&request)?;
        let releases = releases::list(&self.engine, &self.executions, request.get_ref())?;
        Ok(Response::new(releases))
    }

    async fn rollback_release(
        &self,
        request: Request<v1::RollbackReleaseRequest>,
    ) -> Result<Response<v1::RollbackReleaseResponse>, Status> {
        self.authorise(&request)?;
        let request = request.into_inner();
        let changed = releases::roll_back(&self.engine, &self.executions, request).await?;
        Ok(Response::new(changed))
    }

    async fn promote_release(
        &self,
        request: Request<v1::PromoteReleaseRequest>,
    ) -> Result<Response<v1::PromoteReleaseResponse>, Status> {
        self.authorise(&request)?;
        let request = request.into_inner();
        let changed = releases::promote(&self.engine, &self.executions, request).await?;
        Ok(Response::new(changed))
    }

    async fn pin_release(
        &self,
        request: Request<v1::PinReleaseRequest>,
    ) -> Result<Response<v1::PinReleaseResponse>, Status> {
        self.authorise(&request)?;
        let request = request.into_inner();
        let changed = releases::pin(&self.engine, &self.executions, request).await?;
        Ok(Response::new(changed))
    }

    async fn get_tool_learning(
        &self,
        request: Request<v1::GetToolLearningRequest>,
    ) -> Result<Response<v1::GetToolLearningResponse>, Status> {
        self.authorise(&request)?;
        Ok(Response::new(tool_learning(
            &self.engine.tool_knowledge().learnt().tools,
            clock::wall_now(),
        )))
    }

    async fn reset_tool_learning(
        &self,
        request: Request<v1::ResetToolLearningRequest>,
    ) -> Result<Response<v1::ResetToolLearningResponse>, Status> {
        self.authorise(&request)?;
        let v1::ResetToolLearningRequest {
            operation,
            tool,
            tenant,
        } = request.into_inner();
        let mut faults = Violations::default();
        check_id("tenant", &tenant, MAX_ID_BYTES, &mut faults);
        check_id("operation", &operation, MAX_OPERATION_BYTES, &mut faults);
        check_id("tool", &tool, MAX_ID_BYTES, &mut faults);
        if !faults.is_empty() {
            return Err(faults.into());
        }
        let operation = named(operation).map(Into::into);
        let mut learnt = self.engine.tool_knowledge().learnt();
        let forgotten = learnt.reset(named(tenant).map(Into::into), operation, named(tool));
        Ok(Response::new(v1::ResetToolLearningResponse {
            forgotten: u32::try_from(forgotten).unwrap_or(u32::MAX),
        }))
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        let status = self.all_status(request).await?;
        Ok(Response::new(status))
    }
}
