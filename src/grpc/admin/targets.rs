//! Lists the targets of all replicas, each with the state that it has there.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, transport::Channel};

use super::Admin;
use crate::{
    call_error::{CallError, table::ROUTE_NOT_FOUND},
    config::fault::nearest,
    domain::{circuit::GateKind, ids::RouteName},
    grpc::{
        convert::{
            enums::{IntoProto as _, class_field},
            event::circuit_evidence,
            time::{millis, wait_millis, wire_time},
        },
        peers::{Asking, MAX_RESPONSE_BYTES, PeerCall, Question},
        v1::{self, admin_service_client::AdminServiceClient},
    },
    layers::targets::{KeyState, TargetState},
    policy::circuit::{CircuitState, opened_words},
};

const METHOD: &str = "/relight.v1.AdminService/ListTargets";

impl Admin {
    /// Returns the targets of this replica, and of all others if none is named.
    pub(super) async fn all_targets(
        &self,
        request: Request<v1::ListTargetsRequest>,
    ) -> Result<v1::ListTargetsResponse, CallError> {
        let identity = self.authorise(&request)?;
        let is_peer = request.extensions().get::<PeerCall>().is_some();
        let mut request = request.into_inner();
        let name = std::mem::take(&mut request.replica);
        let question = Question {
            method: METHOD,
            identity: &identity,
        };
        let wanted = request.clone();
        let ask = move |channel: Channel, call: Request<()>| -> Asking<_> {
            let call = call.map(|()| wanted.clone());
            let client = AdminServiceClient::new(channel);
            let mut client = client.max_decoding_message_size(MAX_RESPONSE_BYTES);
            Box::pin(async move { client.list_targets(call).await })
        };
        if let Some(member) = self.peers.named(&name)? {
            return self.peers.ask(&member, question, ask).await;
        }
        let mut own = self.own_targets(request)?;
        if name.is_empty() && !is_peer {
            let (others, silent) = self.peers.ask_all(self.peers.others(), question, ask).await;
            let others = others
                .into_iter()
                .map(|(member, listed)| v1::ReplicaTargets {
                    replica: member.name,
                    targets: listed.targets,
                });
            own.others = others.collect();
            own.silent = silent;
        }
        Ok(own)
    }

    fn own_targets(
        &self,
        request: v1::ListTargetsRequest,
    ) -> Result<v1::ListTargetsResponse, CallError> {
        let v1::ListTargetsRequest { route, targets, .. } = request;
        let config = self.engine.config();
        let on_route = match config.routes.get(&RouteName::from(route.as_str())) {
            Some(found) => Some(&found.targets),
            None if route.is_empty() => None,
            None => {
                let names: Vec<&str> = config.routes.keys().map(RouteName::as_str).collect();
                let nearest = nearest(&route, &names);
                return Err(CallError::not_found(ROUTE_NOT_FOUND, &route, nearest));
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
        Ok(v1::ListTargetsResponse {
            targets: listed.collect(),
            replica: self.peers.me().name.clone(),
            ..v1::ListTargetsResponse::default()
        })
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
        let latency = state.observed.latency();
        v1::TargetLatency {
            p50_first_token_ms: latency.p50(now).map(millis),
            p95_first_token_ms: latency.p95(now).map(millis),
            samples: latency.samples(now) as u64,
        }
    };
    let gate = |key: &KeyState, kind: GateKind| {
        let gate = key.gate(kind);
        let reopens_in = gate.reopens_in(now);
        // A gate whose probe is due is not open yet.
        let closed = gate.closed_since().is_some();
        v1::Gate {
            kind: kind.into_proto().into(),
            closed,
            reopens_in_ms: reopens_in.map(wait_millis),
            cause: class_field(gate.class().filter(|_| closed)),
            key: key.label.as_deref().unwrap_or_default().to_owned(),
        }
    };
    let keys = state.keys();
    let gates = keys
        .iter()
        .flat_map(|key| GateKind::ALL.map(|kind| gate(key, kind)));
    v1::Target {
        id: target.id.to_string(),
        provider: target.provider.to_string(),
        model: target.model.to_string(),
        tool: String::new(),
        endpoint: crate::policy::shown_url::shown_url(&target.endpoint),
        routes,
        circuit: Some(wire_circuit(state, now)),
        gates: gates.collect(),
        latency: Some(latency),
        budget: Some(v1::RetryBudget {
            level: state.extra.budget_left(now),
            capacity: state.extra.budget_capacity(),
        }),
        concurrency: Some(v1::Concurrency {
            in_flight: state.slots.in_flight(),
            limit: state.slots.limit(),
        }),
        release,
    }
}

pub(super) fn wire_circuit(state: &TargetState, now: Instant) -> v1::Circuit {
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
        state: snapshot.state.into_proto().into(),
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
