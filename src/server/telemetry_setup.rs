//! What is seen of a server: its telemetry by the configuration, the levels that its metrics read,
//! its log.

use std::sync::Arc;

use super::executions;
use crate::{
    config::{Config, observe::LogFormat as LogSetting},
    domain::{
        circuit::{CircuitState, GateKind},
        event::Severity,
        ids::{TargetId, TenantId},
        target::Target,
    },
    engine::Engine,
    execution::Executions,
    grpc::{drain::DrainState, peers::Peers},
    layers::targets::TargetState,
    telemetry::{
        self, GaugeLevels, LineFormat, Metrics, ReaderTask, TargetNames, TelemetrySettings,
    },
};

pub(super) fn telemetry_settings(config: &Config) -> TelemetrySettings {
    let telemetry = &config.telemetry;
    let headers = telemetry
        .otlp_headers
        .iter()
        .map(|(name, value)| (name.clone(), value.expose().to_owned().into()));
    let mut otlp = telemetry.endpoints.clone();
    otlp.metrics = otlp.metrics.filter(|_| telemetry.otlp_metrics);
    TelemetrySettings {
        otlp,
        otlp_headers: headers.collect(),
        service_name: telemetry.service_name.clone(),
        resource: telemetry.resource.clone().into_iter().collect(),
        sample_ratio: telemetry.sample_ratio,
        ..TelemetrySettings::default()
    }
}

pub(super) fn target_names(engine: &Engine) -> TargetNames {
    let states = engine.targets().all();
    let targets: Vec<&Target> = states
        .iter()
        .map(|state: &Arc<TargetState>| &*state.target)
        .collect();
    let config = engine.config();
    let tenants = config
        .server
        .keys
        .iter()
        .map(|key| TenantId::from(key.tenant.as_str()));
    let prices = config
        .targets
        .iter()
        .filter_map(|(id, target)| Some((id.clone(), target.price?)));
    TargetNames::of(targets)
        .with_routes(config.routes.keys().cloned())
        .with_tenants(tenants)
        .with_prices(&config.currency, prices)
}

fn circuits(engine: &Engine) -> Vec<(TargetId, CircuitState)> {
    let state = |target: &Arc<TargetState>| (target.target.id.clone(), target.circuit().state());
    engine.targets().all().iter().map(state).collect()
}

/// Returns the gates of the keys of pools.
fn keys(engine: &Engine) -> Vec<(TargetId, Arc<str>, GateKind, bool)> {
    let mut gates = Vec::new();
    for state in engine.targets().all() {
        for key in state.keys().iter() {
            let Some(label) = &key.label else { continue };
            for kind in [GateKind::Rate, GateKind::Credential] {
                let is_closed = key.gate(kind).class().is_some();
                gates.push((state.target.id.clone(), Arc::clone(label), kind, is_closed));
            }
        }
    }
    gates
}

fn limited(engine: &Engine) -> Vec<(TenantId, &'static str, u64)> {
    let counts = engine.limited().into_iter();
    counts
        .map(|(tenant, limit, count)| (tenant, limit.as_str(), count))
        .collect()
}

fn reached(peers: &Peers) -> Vec<(String, bool)> {
    let reached = peers.reached().into_iter();
    reached.map(|(name, last)| (name, last.is_ok())).collect()
}

pub(super) fn read_levels(
    metrics: &Metrics,
    engine: &Engine,
    executions: &Executions,
    (drain, peers): (&DrainState, &Peers),
) {
    let engine = engine.clone();
    let executions = executions.clone();
    let drain = drain.clone();
    let peers = peers.clone();
    metrics.read_levels(move || GaugeLevels {
        inflight: i64::from(engine.in_flight()),
        parked: i64::try_from(engine.targets().parked()).unwrap_or(i64::MAX),
        watchers: i64::try_from(drain.watchers()).unwrap_or(i64::MAX),
        watchers_missed: drain.missed(),
        circuits: circuits(&engine),
        keys: keys(&engine),
        budgets: engine.targets().budgets(),
        journal: executions::levels(&executions),
        tool_servers: engine.tool_servers_up(),
        limited: limited(&engine),
        replicas: peers.live(),
        peers: reached(&peers),
    });
}

pub(super) fn start_logs(config: &Config, engine: &Engine) -> ReaderTask {
    use std::io::IsTerminal as _;
    let terminal = std::io::stderr().is_terminal();
    let format = match config.telemetry.log.format {
        LogSetting::Text => LineFormat::Human { colour: terminal },
        LogSetting::Auto if terminal => LineFormat::Human { colour: true },
        LogSetting::Json | LogSetting::Auto => LineFormat::Json,
    };
    let min = match config.telemetry.log.level.as_str() {
        "error" => Severity::Error,
        "warn" => Severity::Warning,
        "debug" | "trace" => Severity::Debug,
        _ => Severity::Info,
    };
    // A process has one; a second server in it shares the first one's.
    let _ = telemetry::init_process_logs(format, &config.telemetry.log.level, engine.secrets());
    telemetry::start_logs(engine.events(), format, min, Box::new(std::io::stderr()))
}
