//! `AdminService`: state and controls for the person on call.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{
    auth::Authenticator,
    convert::{
        Violations,
        enums::class_field,
        event::{circuit_evidence, setting_faults},
        invocation::{MAX_OPERATION_BYTES, check_id, named},
        learning::tool_learning,
        request::MAX_REASON_BYTES,
        time::{millis, wait_millis, wire_time},
    },
    drain::DrainState,
    releases, status,
    v1::{self, admin_service_server::AdminService},
};
use crate::{
    domain::{
        circuit::GateKind,
        clock,
        ids::{MAX_ID_BYTES, RouteName, TargetId},
    },
    engine::Engine,
    execution::Executions,
    layers::targets::TargetState,
    policy::circuit::{CircuitState, Forced, opened_words},
};

/// Serves `relight.v1.AdminService`.
#[derive(Debug, Clone)]
pub struct Admin {
    engine: Engine,
    executions: Executions,
    authenticator: Arc<ArcSwap<Authenticator>>,
    drain: DrainState,
    started_at: Timestamp,
}

// === impl Admin ===

impl Admin {
    /// Administers this engine.
    pub fn new(
        engine: Engine,
        executions: Executions,
        authenticator: Arc<ArcSwap<Authenticator>>,
        drain: DrainState,
    ) -> Self {
        Self {
            engine,
            executions,
            authenticator,
            drain,
            started_at: clock::wall_now(),
        }
    }

    fn authorise<T>(&self, request: &Request<T>) -> Result<(), Status> {
        self.authenticator
            .load()
            .identify(request)?
            .may_administer()
    }

    /// The administering tenant; `None` where callers are not authenticated.
    fn operator<T>(&self, request: &Request<T>) -> Result<Option<String>, Status> {
        let authenticator = self.authenticator.load();
        let tenant = authenticator.identify(request)?.tenant.to_string();
        Ok(authenticator.authenticates().then_some(tenant))
    }

    fn target(&self, name: &str) -> Result<Arc<TargetState>, Status> {
        self.engine
            .targets()
            .state(&TargetId::from(name))
            .ok_or_else(|| {
                let states = self.engine.targets().all();
                let names: Vec<&str> = states
                    .iter()
                    .map(|state| state.target.id.as_str())
                    .collect();
                status::not_found("target", name, crate::config::fault::nearest(name, &names))
            })
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_targets(
        &self,
        request: Request<v1::ListTargetsRequest>,
    ) -> Result<Response<v1::ListTargetsResponse>, Status> {
        self.authorise(&request)?;
        let v1::ListTargetsRequest { route, targets } = request.into_inner();
        let config = self.engine.config();
        let on_route = match config.routes.get(&RouteName::from(route.as_str())) {
            Some(found) => Some(&found.targets),
            None if route.is_empty() => None,
            None => {
                let names: Vec<&str> = config.routes.keys().map(RouteName::as_str).collect();
                return Err(status::route_not_found(
                    &route,
                    crate::config::fault::nearest(&route, &names),
                ));
            }
        };
        for name in &targets {
            self.target(name)?;
        }
        let wanted = |state: &&Arc<TargetState>| {
            let id = &state.target.id;
            (targets.is_empty() || targets.iter().any(|name| name == id.as_str()))
                && on_route.is_none_or(|on_route| on_route.contains(id))
        };
        let now = Instant::now();
        let monitors = self.executions.releases().all();
        let listed = self.engine.targets().all();
        let listed = listed.iter().filter(wanted).map(|state| {
            let routes = config
                .routes
                .iter()
                .filter(|(_, route)| route.targets.contains(&state.target.id));
            let id = state.target.id.as_str();
            let release = monitors
                .iter()
                .find_map(|monitor| monitor.mostly_served_by(id))
                .unwrap_or_default();
            wire_target(
                state,
                now,
                routes.map(|(name, _)| name.to_string()).collect(),
                release,
            )
        });
        Ok(Response::new(v1::ListTargetsResponse {
            targets: listed.collect(),
        }))
    }

    async fn reset_circuit(
        &self,
        request: Request<v1::ResetCircuitRequest>,
    ) -> Result<Response<v1::ResetCircuitResponse>, Status> {
        self.authorise(&request)?;
        let state = self.target(&request.into_inner().target)?;
        state.reset();
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
                return Err(status::invalid_field(
                    "force",
                    "is not one of OPEN, CLOSED, AUTO",
                ));
            }
        };
        let mut faults = Violations::default();
        check_id("reason", &request.reason, MAX_REASON_BYTES, &mut faults);
        if !faults.is_empty() {
            return Err(status::invalid_argument(&faults));
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
        let circuit = Some(wire_circuit(&state, Instant::now()));
        Ok(Response::new(v1::ForceCircuitResponse { circuit }))
    }

    async fn list_releases(
        &self,
        request: Request<v1::ListReleasesRequest>,
    ) -> Result<Response<v1::ListReleasesResponse>, Status> {
        self.authorise(&request)?;
        releases::list(&self.engine, &self.executions, request.get_ref()).map(Response::new)
    }

    async fn rollback_release(
        &self,
        request: Request<v1::RollbackReleaseRequest>,
    ) -> Result<Response<v1::RollbackReleaseResponse>, Status> {
        self.authorise(&request)?;
        releases::roll_back(&self.engine, &self.executions, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn promote_release(
        &self,
        request: Request<v1::PromoteReleaseRequest>,
    ) -> Result<Response<v1::PromoteReleaseResponse>, Status> {
        self.authorise(&request)?;
        releases::promote(&self.engine, &self.executions, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn pin_release(
        &self,
        request: Request<v1::PinReleaseRequest>,
    ) -> Result<Response<v1::PinReleaseResponse>, Status> {
        self.authorise(&request)?;
        releases::pin(&self.engine, &self.executions, request.into_inner())
            .await
            .map(Response::new)
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
        let v1::ResetToolLearningRequest { operation, tool } = request.into_inner();
        let mut faults = Violations::default();
        check_id("operation", &operation, MAX_OPERATION_BYTES, &mut faults);
        check_id("tool", &tool, MAX_ID_BYTES, &mut faults);
        if !faults.is_empty() {
            return Err(status::invalid_argument(&faults));
        }
        let (operation, tool) = (named(operation).map(Into::into), named(tool));
        let forgotten = self.engine.tool_knowledge().learnt().reset(operation, tool);
        Ok(Response::new(v1::ResetToolLearningResponse {
            forgotten: u32::try_from(forgotten).unwrap_or(u32::MAX),
        }))
    }

    async fn get_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        self.authorise(&request)?;
        let now = Instant::now();
        let mut reasons: Vec<v1::StatusReason> = Vec::new();
        for state in self.engine.targets().all() {
            let snapshot = state.circuit().snapshot(now);
            let trouble = match snapshot.state {
                CircuitState::ForcedOpen => {
                    Some(format!("the circuit is {}", state.forced_by_words()))
                }
                _ => snapshot.trouble(),
            };
            reasons.extend(trouble.map(|message| v1::StatusReason {
                component: format!("circuit:{}", state.target.id),
                message,
                since: Some(wire_time(state.circuit_since())),
                failure_class: class_field(state.circuit_cause()),
                forced: snapshot.state == CircuitState::ForcedOpen,
                ..v1::StatusReason::default()
            }));
            reasons.extend(
                state
                    .closed_gate()
                    .map(|(gate, class, since)| v1::StatusReason {
                        component: format!("gate:{}", state.target.id),
                        message: format!(
                            "the {} gate of {} is closed: {class}",
                            gate.as_str(),
                            state.target.id
                        ),
                        since: Some(wire_time(since)),
                        gate: v1::GateKind::from(gate).into(),
                        failure_class: class_field(Some(class)),
                        forced: false,
                    }),
            );
        }
        let configuration = self.engine.configuration();
        if let Some(rejected) = &configuration.rejected {
            reasons.push(v1::StatusReason {
                component: "configuration".to_owned(),
                message: rejected.reason.clone(),
                since: Some(wire_time(rejected.at)),
                ..v1::StatusReason::default()
            });
        }
        let journal = self.executions.journal_standing();
        if let Some(reason) = &journal.away {
            reasons.push(v1::StatusReason {
                component: "store:journal".to_owned(),
                message: reason.clone(),
                since: journal.since.map(wire_time),
                ..v1::StatusReason::default()
            });
        }
        let state = if self.drain.is_draining() {
            v1::ServiceState::Draining
        } else if reasons.is_empty() {
            v1::ServiceState::Healthy
        } else {
            v1::ServiceState::Degraded
        };
        Ok(Response::new(v1::GetStatusResponse {
            state: state.into(),
            reasons,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(wire_time(self.started_at)),
            invocations_in_flight: u64::from(self.engine.in_flight()),
            invocations_parked: self.engine.targets().parked() as u64,
            watchers: self.drain.watchers(),
            stores: vec![v1::StoreStatus {
                kind: v1::StoreKind::Journal.into(),
                engine: self.executions.settings().store.to_owned(),
                reachable: journal.away.is_none(),
                reason: journal.away.unwrap_or_default(),
                since: journal.since.map(wire_time),
            }],
            configuration_generation: configuration.generation,
            configuration_faults: configuration
                .rejected
                .as_ref()
                .map_or_else(Vec::new, |it| setting_faults(&it.faults)),
            replica: self.executions.settings().owner.as_str().to_owned(),
        }))
    }
}

fn wire_target(
    state: &TargetState,
    now: Instant,
    routes: Vec<String>,
    release: String,
) -> v1::Target {
    let target = &state.target;
    let latency = {
        let latency = state.latency();
        v1::TargetLatency {
            p50_first_token_ms: latency.p50(now).map(millis),
            p95_first_token_ms: latency.p95(now).map(millis),
            samples: latency.samples(now) as u64,
        }
    };
    let gate = |kind: GateKind| {
        let gate = state.gate(kind);
        let reopens_in = gate.peek(now).err();
        // A credential or configuration gate whose probe is due is not open yet.
        let closed = reopens_in.is_some() || gate.closed_since().is_some();
        v1::Gate {
            kind: v1::GateKind::from(kind).into(),
            closed,
            reopens_in_ms: reopens_in.map(wait_millis),
            cause: class_field(gate.class().filter(|_| closed)),
        }
    };
    v1::Target {
        id: target.id.to_string(),
        provider: target.provider.to_string(),
        model: target.model.to_string(),
        tool: String::new(),
        endpoint: crate::config::shown_url(&target.endpoint),
        routes,
        circuit: Some(wire_circuit(state, now)),
        gates: [
            GateKind::Rate,
            GateKind::Credential,
            GateKind::Configuration,
        ]
        .map(gate)
        .into(),
        latency: Some(latency),
        budget: Some(v1::RetryBudget {
            level: state.budget_left(now),
            capacity: state.budget_capacity(),
        }),
        concurrency: Some(v1::Concurrency {
            in_flight: state.slots.in_flight(),
            limit: state.slots.limit(),
        }),
        release,
    }
}

fn wire_circuit(state: &TargetState, now: Instant) -> v1::Circuit {
    let snapshot = state.circuit().snapshot(now);
    // Outcomes since it opened are none, or a probe: the evidence of the opening is more useful.
    let opened = snapshot.opened.filter(|_| snapshot.state.is_open());
    let judged_by = opened.map_or(snapshot.evidence, |(evidence, _)| evidence);
    let opened_by = match snapshot.opened {
        _ if snapshot.state == CircuitState::ForcedOpen => state.forced_by_words(),
        Some((evidence, reason)) => opened_words(&evidence, reason),
        None => String::new(),
    };
    v1::Circuit {
        state: v1::CircuitState::from(snapshot.state).into(),
        generation: snapshot.generation,
        retry_in_ms: snapshot.retry_in.map(wait_millis),
        degraded: snapshot.degraded,
        evidence: Some(circuit_evidence(&judged_by)),
        streak: snapshot.times_opened(),
        since: Some(wire_time(state.circuit_since())),
        cause: class_field(state.circuit_cause()),
        opened_by,
    }
}
