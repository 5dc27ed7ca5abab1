//! What is seen of a server: its telemetry by the configuration, the levels that its metrics read,
//! its log.

use std::sync::Arc;

use super::executions;
use crate::{
    config::{Config, observe::LogFormat as LogSetting},
    domain::{
        circuit::CircuitState,
        event::Severity,
        ids::{TargetId, TenantId},
        target::Target,
    },
    engine::Engine,
    events::EventBus,
    execution::Executions,
    grpc::drain::DrainState,
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
        service_name: telemetry
            .service_name
            .clone()
            .unwrap_or_else(|| "relight".to_owned()),
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

pub(super) fn read_levels(
    metrics: &Metrics,
    engine: &Engine,
    executions: &Executions,
    drain: &DrainState,
) {
    let (engine, executions, drain) = (engine.clone(), executions.clone(), drain.clone());
    metrics.read_levels(move || GaugeLevels {
        inflight: i64::from(engine.in_flight()),
        parked: i64::try_from(engine.targets().parked()).unwrap_or(i64::MAX),
        watchers: i64::try_from(drain.watchers()).unwrap_or(i64::MAX),
        watchers_missed: drain.missed(),
        circuits: circuits(&engine),
        budgets: engine.targets().budgets(),
        journal: executions::levels(&executions),
    });
}

pub(super) fn start_logs(config: &Config, events: &EventBus) -> ReaderTask {
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
    let _ = telemetry::init_process_logs(format, &config.telemetry.log.level);
    telemetry::start_logs(events, format, min, Box::new(std::io::stderr()))
}
