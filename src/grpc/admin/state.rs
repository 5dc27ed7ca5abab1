//! The state of all replicas, as a health page shows it.

use tokio::time::Instant;
use tonic::Request;

use super::Admin;
use crate::{
    call_error::CallError,
    domain::{circuit::GateKind, ids::TargetId},
    fleet::{self, FleetView},
    grpc::{
        convert::{
            enums::{IntoProto as _, class_field},
            event::setting_faults,
            time::wire_time,
        },
        peers::{PeerCall, Question, get_status},
        v1,
    },
    layers::targets::GateTrouble,
    policy::circuit::CircuitState,
};

const METHOD: &str = "/relight.v1.AdminService/GetStatus";

impl Admin {
    /// Returns the state of this replica, and of all others if none is named.
    pub(super) async fn all_status(
        &self,
        request: Request<v1::GetStatusRequest>,
    ) -> Result<v1::GetStatusResponse, CallError> {
        let identity = self.authorise(&request)?;
        let is_peer = request.extensions().get::<PeerCall>().is_some();
        let name = request.into_inner().replica;
        let question = Question {
            method: METHOD,
            identity: &identity,
        };
        if let Some(member) = self.peers.named(&name)? {
            return self.peers.ask(&member, question, get_status).await;
        }
        if !name.is_empty() || is_peer {
            return Ok(self.own_status());
        }
        let others = self.peers.others();
        let (others, silent) = self.peers.ask_all(others, question, get_status).await;
        Ok(v1::GetStatusResponse {
            others: others.into_iter().map(|(_, status)| status).collect(),
            silent,
            ..self.own_status()
        })
    }

    /// Returns the replicas that cannot be reached from here.
    fn unreached(&self) -> impl Iterator<Item = v1::StatusReason> {
        let reached = self.peers.reached().into_iter();
        reached.filter_map(|(name, last)| {
            Some(v1::StatusReason {
                component: format!("replica:{name}"),
                message: format!("it cannot be reached: {}", last.err()?),
                ..v1::StatusReason::default()
            })
        })
    }

    fn own_status(&self) -> v1::GetStatusResponse {
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
            let troubles = state.gate_troubles().into_iter();
            reasons.extend(troubles.map(|trouble| gate_reason(&state.target.id, &trouble)));
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
        let fleet = self.replicas.view();
        reasons.extend(fleet.iter().flat_map(fleet_reasons));
        reasons.extend(self.unreached());
        let servers = self.engine.unavailable_tool_servers().into_iter();
        reasons.extend(servers.map(|unavailable| v1::StatusReason {
            component: format!("tools:{}", unavailable.server),
            message: format!("its tools cannot be listed: {}", unavailable.reason),
            since: Some(wire_time(unavailable.since)),
            ..v1::StatusReason::default()
        }));
        let state = if self.drain.is_draining() {
            v1::ServiceState::Draining
        } else if reasons.is_empty() {
            v1::ServiceState::Healthy
        } else {
            v1::ServiceState::Degraded
        };
        // Limits are everyday; of a pool it is of use to know which key reached one.
        for state in self.engine.targets().all() {
            let limited = state.limited_keys().into_iter();
            reasons.extend(limited.map(|trouble| gate_reason(&state.target.id, &trouble)));
        }
        v1::GetStatusResponse {
            state: state.into(),
            reasons,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: Some(wire_time(self.started_at)),
            invocations_in_flight: u64::from(self.engine.in_flight()),
            invocations_parked: self.engine.targets().parked() as u64,
            watchers: self.drain.watchers(),
            stores: [v1::StoreStatus {
                kind: v1::StoreKind::Journal.into(),
                engine: self.executions.settings().store.to_owned(),
                reachable: journal.away.is_none(),
                reason: journal.away.unwrap_or_default(),
                since: journal.since.map(wire_time),
            }]
            .into_iter()
            .chain(fleet.map(fleet_store))
            .collect(),
            configuration_generation: configuration.generation,
            configuration_faults: configuration
                .rejected
                .as_ref()
                .map_or_else(Vec::new, |it| setting_faults(&it.faults)),
            replica: self.peers.me().name.clone(),
            others: Vec::new(),
            silent: Vec::new(),
        }
    }
}

/// Returns what is wrong with a gate of a target.
fn gate_reason(target: &TargetId, trouble: &GateTrouble) -> v1::StatusReason {
    let gate = trouble.kind.as_str();
    let class = trouble.class;
    let key = trouble.key.as_deref().map(|key| format!("key {key} of "));
    let of = format!("{}{target}", key.unwrap_or_default());
    let message = if trouble.is_closed {
        format!("the {gate} gate of {of} is closed: {class}")
    } else if trouble.kind == GateKind::Rate {
        format!("the limit of {of} is reached: {class}, and no answer since")
    } else {
        format!("the {gate} of {of} is in doubt: {class}, and no answer since")
    };
    v1::StatusReason {
        component: format!("gate:{target}"),
        message,
        since: Some(wire_time(trouble.since)),
        gate: trouble.kind.into_proto().into(),
        failure_class: class_field(Some(class)),
        forced: false,
        key: trouble.key.as_deref().unwrap_or_default().to_owned(),
    }
}

/// Returns what is wrong with the fleet.
fn fleet_reasons(fleet: &FleetView) -> Vec<v1::StatusReason> {
    let alone = match &fleet.status.away {
        Some(_) => "this replica decides alone",
        None => "this replica probes alone",
    };
    let trouble = fleet.status.trouble();
    let store = trouble.iter().map(|reason| v1::StatusReason {
        component: format!("store:{}", fleet::STORE),
        message: format!("{reason}; {alone}"),
        since: fleet.since.map(wire_time),
        ..v1::StatusReason::default()
    });
    let troubles = fleet.troubles.iter().map(|trouble| v1::StatusReason {
        component: "fleet".to_owned(),
        message: trouble.clone(),
        ..v1::StatusReason::default()
    });
    store.chain(troubles).collect()
}

fn fleet_store(fleet: FleetView) -> v1::StoreStatus {
    v1::StoreStatus {
        kind: v1::StoreKind::Fleet.into(),
        engine: fleet.engine.to_owned(),
        reachable: fleet.status.away.is_none(),
        reason: fleet.status.away.unwrap_or_default(),
        since: fleet.since.map(wire_time),
    }
}
