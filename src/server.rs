//! The server: a configuration and its listeners in, a running Relight out, and an orderly end.
//!
//! `start` takes its world as arguments and reads no environment, so that tests and the demo run the very server that
//! operators run. It ends in order: not ready, no new invocations, running ones finish, then telemetry is flushed.

mod admin_port;
mod executions;
mod front_port;
mod listen;
mod reload;

use std::{future::Future, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use tokio::{sync::watch, task::JoinSet};
use tonic::service::Routes;

pub use self::listen::{BindError, Listeners};
use crate::{
    config::{Config, Loaded, observe::LogFormat as LogSetting},
    domain::{event::Severity, target::Target},
    engine::{Engine, PartsError},
    events::EventBus,
    execution::Executions,
    grpc::{
        admin::Admin,
        auth::Authenticator,
        presence::Presence,
        recovery::Recovery,
        v1::{admin_service_server::AdminServiceServer, recovery_service_server::RecoveryServiceServer},
    },
    journal::JournalError,
    layers::{spans::Spans, targets::TargetState},
    telemetry::{
        self, Levels, LogFormat, Metrics, MetricsTask, ReaderTask, TargetNames, TelemetrySettings, TracerGuard,
    },
};

/// How long health says "not serving" before connections are told to go, so that load balancers see it.
const NOT_READY_PAUSE: Duration = Duration::from_millis(500);

/// How long telemetry may take to flush.
const FLUSH_BOUND: Duration = Duration::from_secs(3);

/// What a server needs beside its configuration.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether events are written to standard error as logs.
    pub logs: bool,
    /// Whether the pause before connections are told to go is left out: nobody balances load towards a test.
    pub skip_pause: bool,
    /// The file in which the journal is kept when the configuration does not say where; without one, in memory.
    pub embedded_journal: Option<PathBuf>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A part that the configuration names.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// Telemetry.
    #[error("telemetry cannot be set up: {0}")]
    Telemetry(#[from] telemetry::TelemetryError),
    /// A listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The journal.
    #[error("journal.store cannot be opened")]
    Journal(#[from] JournalError),
    /// TLS.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// A running server. Dropping it stops everything at once; `shutdown` ends it in order.
#[derive(Debug)]
pub struct Running {
    /// Where gRPC is served.
    pub address: SocketAddr,
    /// Where health and metrics are served.
    pub admin_address: SocketAddr,
    /// Where the OpenAI-compatible front is served, where it is switched on.
    pub openai_front_address: Option<SocketAddr>,
    engine: Engine,
    executions: Executions,
    draining: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    health: tonic_health::server::HealthReporter,
    tasks: JoinSet<()>,
    telemetry: Telemetry,
    drain_timeout: Duration,
    skip_pause: bool,
}

#[derive(Debug)]
struct Telemetry {
    tracer: Option<TracerGuard>,
    metrics: Option<MetricsTask>,
    logs: Option<ReaderTask>,
}

// === impl Running ===

impl Running {
    /// Starts a server on listeners that are bound already.
    ///
    /// # Errors
    /// When a part of the configuration cannot be built. Must be called within a tokio runtime.
    pub async fn start(loaded: &Loaded, listeners: Listeners, options: &Options) -> Result<Self, StartError> {
        let config = &loaded.config;
        let events = EventBus::beyond_earlier_processes(config.events.capacity);
        let settings = telemetry_settings(config);
        let (tracer, tracer_guard) = telemetry::build_tracer(&settings)?;
        let engine = Engine::new(config.clone(), Spans::new(tracer), events.clone())?;
        let (metrics, metrics_task) = Metrics::start(&events, &settings, target_names(&engine))?;
        let logs = options.logs.then(|| start_logs(config, &events));
        let (draining, draining_seen) = watch::channel(false);
        let (stop, stop_seen) = watch::channel(false);
        let presence = Presence::new(draining_seen.clone());
        let authenticator = Arc::new(ArcSwap::from_pointee(Authenticator::new(&config.server)));
        let (health, health_service) = tonic_health::server::health_reporter();
        let mut tasks = JoinSet::new();
        if loaded.file.is_some() {
            let reloads = reload::Reloads {
                engine: engine.clone(),
                authenticator: Arc::clone(&authenticator),
                metrics: metrics.clone(),
            };
            reload::follow(loaded.clone(), reloads, &mut tasks);
        }
        let admin_address = listeners.admin.local_addr().map_err(BindError::from)?;
        let address = listeners.grpc.local_addr().map_err(BindError::from)?;
        let max_bytes = usize::try_from(config.server.max_message_bytes).unwrap_or(usize::MAX);
        let mut openai_front_address = None;
        if let Some(listener) = listeners.openai_front {
            openai_front_address = Some(listener.local_addr().map_err(BindError::from)?);
            let port = front_port::FrontPort {
                engine: engine.clone(),
                authenticator: Arc::clone(&authenticator),
                presence: presence.clone(),
                max_body_bytes: max_bytes,
            };
            port.serve(&config.server, listener, stop_seen.clone(), &mut tasks)?;
        }
        let (executions, tokens) = executions::start(config, options, engine.clone(), &mut tasks).await?;
        read_levels(&metrics, &engine, &executions, &presence);
        let admin = Admin::new(engine.clone(), executions.clone(), Arc::clone(&authenticator), presence.clone());
        let recovery = Recovery::new(engine.clone(), executions.clone(), tokens, authenticator, presence);
        let routes = Routes::new(health_service.clone())
            .add_service(RecoveryServiceServer::new(recovery).max_decoding_message_size(max_bytes))
            .add_service(AdminServiceServer::new(admin).max_decoding_message_size(max_bytes));
        listen::serve_grpc(&config.server, listeners.grpc, routes, stop_seen.clone(), &mut tasks)?;
        admin_port::serve(listeners.admin, health_service, metrics, draining_seen, stop_seen, &mut tasks);
        let health_setter = health.clone();
        tasks.spawn(async move {
            set_health(&health_setter, tonic_health::ServingStatus::Serving).await;
            health_setter.set_service_status("liveness", tonic_health::ServingStatus::Serving).await;
        });
        Ok(Self {
            address,
            admin_address,
            openai_front_address,
            engine,
            executions,
            draining,
            stop,
            health,
            tasks,
            telemetry: Telemetry { tracer: Some(tracer_guard), metrics: Some(metrics_task), logs },
            drain_timeout: config.server.drain_timeout,
            skip_pause: options.skip_pause,
        })
    }

    /// The engine behind the server.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Serves until `end`, then ends in order.
    pub async fn run_until(self, end: impl Future<Output = ()>) {
        end.await;
        self.shutdown().await;
    }

    /// Ends in order, within the configured drain timeout: what still runs then is cancelled.
    pub async fn shutdown(mut self) {
        set_health(&self.health, tonic_health::ServingStatus::NotServing).await;
        self.draining.send_replace(true);
        if !self.skip_pause {
            tokio::time::sleep(NOT_READY_PAUSE).await;
        }
        self.stop.send_replace(true);
        let drained = async {
            while self.engine.in_flight() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(self.drain_timeout, drained).await.is_err() {
            tracing::warn!(left = self.engine.in_flight(), "the drain timeout is over; what still runs is cancelled");
        }
        // Before connections are cut, so that every stream says how it can be resumed.
        self.executions.hand_over().await;
        self.tasks.shutdown().await;
        if let Some(tracer) = self.telemetry.tracer.take() {
            tracer.shutdown(FLUSH_BOUND).await;
        }
        if let Some(metrics) = self.telemetry.metrics.take() {
            metrics.shutdown(FLUSH_BOUND).await;
        }
        if let Some(logs) = self.telemetry.logs.take() {
            logs.finish(FLUSH_BOUND).await;
        }
    }
}

async fn set_health(health: &tonic_health::server::HealthReporter, status: tonic_health::ServingStatus) {
    for service in ["", "relight.v1.RecoveryService", "relight.v1.AdminService"] {
        health.set_service_status(service, status).await;
    }
}

fn telemetry_settings(config: &Config) -> TelemetrySettings {
    let telemetry = &config.telemetry;
    let headers = telemetry.otlp_headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned().into()));
    TelemetrySettings {
        otlp_endpoint: telemetry.otlp_endpoint.clone(),
        otlp_headers: headers.collect(),
        service_name: telemetry.service_name.clone(),
        resource: telemetry.resource.clone().into_iter().collect(),
        sample_ratio: telemetry.sample_ratio,
        ..TelemetrySettings::default()
    }
}

fn target_names(engine: &Engine) -> TargetNames {
    let states = engine.targets().all();
    let targets: Vec<&Target> = states.iter().map(|state: &Arc<TargetState>| &*state.target).collect();
    TargetNames::of(targets)
}

fn read_levels(metrics: &Metrics, engine: &Engine, executions: &Executions, presence: &Presence) {
    let (engine, executions, presence) = (engine.clone(), executions.clone(), presence.clone());
    metrics.read_levels(move || Levels {
        inflight: i64::from(engine.in_flight()),
        parked: i64::try_from(engine.targets().parked()).unwrap_or(i64::MAX),
        watchers: i64::try_from(presence.watchers()).unwrap_or(i64::MAX),
        budgets: engine.targets().budgets(),
        journal: executions::levels(&executions),
    });
}

fn start_logs(config: &Config, events: &EventBus) -> ReaderTask {
    use std::io::IsTerminal as _;
    let terminal = std::io::stderr().is_terminal();
    let format = match config.telemetry.log.format {
        LogSetting::Text => LogFormat::Human { colour: terminal },
        LogSetting::Auto if terminal => LogFormat::Human { colour: true },
        LogSetting::Json | LogSetting::Auto => LogFormat::Json,
    };
    let least = match config.telemetry.log.level.as_str() {
        "error" => Severity::Error,
        "warn" => Severity::Warning,
        "debug" | "trace" => Severity::Debug,
        _ => Severity::Info,
    };
    // A process has one; a second server in it shares the first one's.
    let _ = telemetry::init_process_logs(format, &config.telemetry.log.level);
    telemetry::start_logs(events, format, least, Box::new(std::io::stderr()))
}
