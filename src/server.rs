//! The server: starts a configuration's listeners, returns a running Relight, and shuts it down in order.
//!
//! `start` takes its environment as arguments and reads none itself, so that tests and the demo run the same server as
//! operators do. Shutdown is ordered: not ready, no new invocations, running ones finish, then telemetry is flushed.

mod admin_port;
mod connection;
mod console;
mod cors;
mod executions;
mod front_port;
mod http_metrics;
mod intake;
mod listen;
mod recorded_body;
mod refused_callers;
mod reload;
mod rpc_metrics;
mod timed_journal;
mod tls;
mod watchdog;

use std::{
    future::Future,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{runtime::Handle, sync::watch, task::JoinSet};
use tonic::service::Routes;

pub use self::listen::{BindError, Listeners};
use self::{
    connection::LimitedListener, intake::Intake, refused_callers::RefusedCallers, tls::Certificates, watchdog::Watchdog,
};
use crate::{
    config::{Config, Loaded, observe::LogFormat as LogSetting},
    domain::{
        circuit::CircuitState,
        event::Severity,
        ids::{TargetId, TenantId},
        target::Target,
    },
    engine::{Engine, PartsError},
    events::EventBus,
    execution::Executions,
    grpc::{
        admin::Admin,
        auth::{Authenticator, TokenVerifier},
        drain::DrainState,
        recovery::Recovery,
        v1::{admin_service_server::AdminServiceServer, recovery_service_server::RecoveryServiceServer},
    },
    journal::JournalError,
    layers::{spans::Spans, targets::TargetState},
    telemetry::{
        self, GaugeLevels, LineFormat, Metrics, MetricsTask, ReaderTask, TargetNames, TelemetrySettings, TracerGuard,
    },
};

/// How long health reports "not serving" before connections receive GOAWAY, so that load balancers notice.
const NOT_READY_PAUSE: Duration = Duration::from_millis(500);

/// How long leases may take to be released at a second signal.
const GIVE_UP_BOUND: Duration = Duration::from_secs(1);

/// How long no invocation must have run before the drain ends: connections received GOAWAY by then, and what clients
/// sent before they saw it has arrived.
const QUIET: Duration = Duration::from_millis(500);

/// How long the last statuses and events may take to be sent.
const LAST_SENDS: Duration = Duration::from_secs(1);

/// How long telemetry may take to flush.
const FLUSH_BOUND: Duration = Duration::from_secs(3);

/// Options of a server beside its configuration.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Whether events are written to standard error as logs.
    pub logs: bool,
    /// Whether the pause before GOAWAY is skipped, as in tests, which have no load balancer.
    pub skip_pause: bool,
    /// The journal's file when the configuration names none; without one, the journal is in memory.
    pub embedded_journal: Option<PathBuf>,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A part that the configuration names.
    #[error(transparent)]
    Parts(#[from] PartsError),
    /// Telemetry.
    #[error("telemetry cannot be set up: {0}")]
    Telemetry(#[from] telemetry::TelemetryError),
    /// A listener.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The watchdog.
    #[error("server.watchdog: no thread can be started: {0}")]
    Watchdog(std::io::Error),
    /// The journal.
    #[error("journal.store cannot be opened")]
    Journal(#[from] JournalError),
    /// Reflection.
    #[error("reflection cannot be set up: {0}")]
    Reflection(String),
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
    /// Where the `AdminService` is served, where it has a listener of its own.
    pub admin_service_address: Option<SocketAddr>,
    /// Where Relight is served as an MCP server, where that is switched on.
    pub mcp_front_address: Option<SocketAddr>,
    engine: Engine,
    executions: Executions,
    draining: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    health: tonic_health::server::HealthReporter,
    /// The listeners of callers; each ends when its connections have.
    serving: JoinSet<()>,
    tasks: JoinSet<()>,
    telemetry: Telemetry,
    metrics: Metrics,
    skip_pause: bool,
    _watchdog: Option<Watchdog>,
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
    #[expect(clippy::too_many_lines, reason = "each part is started once, in this order")]
    pub async fn start(loaded: &Loaded, listeners: Listeners, options: &ServerOptions) -> Result<Self, ServeError> {
        let config = &loaded.config;
        let events = EventBus::beyond_earlier_processes(config.events.capacity);
        let settings = telemetry_settings(config);
        let (tracer, tracer_guard) = telemetry::build_tracer(&settings)?;
        let exports = settings.otlp.traces.is_some();
        let spans = if exports { Spans::new(tracer) } else { Spans::ids_alone() };
        let spans = spans.capturing_content(config.telemetry.capture_content);
        let engine = Engine::new(config.clone(), spans, events.clone())?;
        let (metrics, metrics_task) = Metrics::start(&events, &settings, target_names(&engine))?;
        let logs = options.logs.then(|| start_logs(config, &events));
        let (draining, draining_seen) = watch::channel(false);
        let (stop, stop_seen) = watch::channel(false);
        let drain = DrainState::new(draining_seen.clone());
        let tokens = config.server.jwt.clone().map(|jwt| Arc::new(TokenVerifier::new(jwt)));
        let authenticator = Arc::new(ArcSwap::from_pointee(Authenticator::new(&config.server, tokens.clone())));
        let (health, health_service) = tonic_health::server::health_reporter();
        let certificates = Certificates::new(&config.server);
        let mut tasks = JoinSet::new();
        if let Some(tokens) = tokens {
            tasks.spawn(tokens.keep_fresh());
        }
        let admin_address = listeners.admin.local_addr().map_err(BindError::from)?;
        let address = listeners.grpc.local_addr().map_err(BindError::from)?;
        if loaded.file.is_some() {
            let reloads = reload::Reloads {
                engine: engine.clone(),
                authenticator: Arc::clone(&authenticator),
                certificates: certificates.clone(),
                metrics: metrics.clone(),
            };
            let fronts = [&listeners.openai_front, &listeners.mcp_front].into_iter().flatten();
            let bound = fronts.filter_map(|front| front.local_addr().ok()).chain([address]).collect();
            reload::follow(loaded.clone(), bound, reloads, &mut tasks);
        }
        let max_bytes = usize::try_from(config.server.max_message_bytes).unwrap_or(usize::MAX);
        let intake = Intake::new(&config.server, Arc::clone(&authenticator));
        let limited =
            |name, listener| LimitedListener::new(name, listener, &config.server.limits, &config.server.timeouts);
        let refused = Arc::<RefusedCallers>::default();
        let (mut openai_front_address, mut mcp_front_address) = (None, None);
        let (executions, resume_tokens) =
            executions::start(config, options, engine.clone(), &metrics, &mut tasks).await?;
        let mut serving = JoinSet::new();
        let port = front_port::FrontPort {
            engine: engine.clone(),
            intake: intake.clone(),
            cors: config.server.cors.clone(),
            executions: executions.clone(),
            authenticator: Arc::clone(&authenticator),
            draining: draining_seen.clone(),
            max_body_bytes: max_bytes,
            metrics: metrics.clone(),
            refused: Arc::clone(&refused),
        };
        if let Some(listener) = listeners.openai_front {
            openai_front_address = Some(listener.local_addr().map_err(BindError::from)?);
            let (listener, routes) = (limited("openai_front", listener), front_port::Routes::OpenAi);
            port.clone().serve(routes, listener, &certificates, stop_seen.clone(), &mut serving);
        }
        if let Some((listener, front)) = listeners.mcp_front.zip(config.tools.mcp_front.as_ref()) {
            mcp_front_address = Some(listener.local_addr().map_err(BindError::from)?);
            let (listener, routes) = (limited("mcp_front", listener), front_port::Routes::Mcp(front.path.clone()));
            port.serve(routes, listener, &certificates, stop_seen.clone(), &mut serving);
        }
        read_levels(&metrics, &engine, &executions, &drain);
        let admin = Admin::new(engine.clone(), executions.clone(), Arc::clone(&authenticator), drain.clone());
        let recovery = Recovery::new(engine.clone(), executions.clone(), resume_tokens, authenticator, drain);
        let admin = AdminServiceServer::new(admin).max_decoding_message_size(max_bytes);
        let mut routes = Routes::new(health_service.clone())
            .add_service(RecoveryServiceServer::new(recovery).max_decoding_message_size(max_bytes));
        let api = |routes| listen::GrpcApi {
            routes,
            intake: intake.clone(),
            metrics: metrics.clone(),
            refused: Arc::clone(&refused),
            cors: cors::layer(config.server.cors.clone()),
        };
        let mut admin_service_address = None;
        if let Some(listener) = listeners.admin_service {
            admin_service_address = Some(listener.local_addr().map_err(BindError::from)?);
            let alone = api(Routes::new(health_service.clone()).add_service(admin));
            listen::serve_grpc(&config.server, listener, alone, &certificates, stop_seen.clone(), &mut serving)?;
        } else {
            routes = routes.add_service(admin);
        }
        listen::serve_grpc(&config.server, listeners.grpc, api(routes), &certificates, stop_seen, &mut serving)?;
        let scraped = config.telemetry.prometheus.then(|| metrics.clone());
        let live = Arc::new(AtomicBool::new(true));
        let watchdog = (!config.server.watchdog.is_zero())
            .then(|| watchdog::start(&Handle::current(), config.server.watchdog, Arc::clone(&live)))
            .transpose()
            .map_err(ServeError::Watchdog)?;
        let admin_listener = limited("admin", listeners.admin);
        admin_port::serve(admin_listener, health_service, scraped, live, draining_seen, &mut tasks);
        let health_setter = health.clone();
        tasks.spawn(async move {
            set_health(&health_setter, tonic_health::ServingStatus::Serving).await;
            health_setter.set_service_status("liveness", tonic_health::ServingStatus::Serving).await;
        });
        Ok(Self {
            address,
            admin_address,
            openai_front_address,
            admin_service_address,
            mcp_front_address,
            engine,
            executions,
            draining,
            stop,
            health,
            serving,
            tasks,
            telemetry: Telemetry { tracer: Some(tracer_guard), metrics: Some(metrics_task), logs },
            metrics,
            skip_pause: options.skip_pause,
            _watchdog: watchdog,
        })
    }

    /// Where the console is served, where it is switched on.
    pub fn console_url(&self) -> Option<String> {
        let config = self.engine.config();
        let scheme = if config.server.tls.is_some() { "https" } else { "http" };
        config.server.console.then(|| format!("{scheme}://{}{}", self.address, console::PATH))
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

    /// Abandons, within a second, what an orderly shutdown would wait for: other replicas may then take the invocations
    /// over at once.
    pub fn give_up(&self) -> impl Future<Output = ()> + use<> {
        let executions = self.executions.clone();
        async move {
            let _ = tokio::time::timeout(GIVE_UP_BOUND, executions.hand_over()).await;
        }
    }

    /// Shuts down in order, within the configured drain timeout. Calls are accepted until their connections received
    /// GOAWAY, and those that are sent meanwhile; what still runs at the end is handed over to another replica.
    pub async fn shutdown(mut self) {
        set_health(&self.health, tonic_health::ServingStatus::NotServing).await;
        self.metrics.set_draining(true);
        self.draining.send_replace(true);
        // As it is now: a changed configuration may have brought another one.
        let drain_timeout = self.engine.config().server.drain_timeout;
        tracing::info!(
            running = self.executions.running(),
            drain_timeout_ms = millis(drain_timeout),
            "draining: health is NOT_SERVING, and calls in flight are finished"
        );
        if !self.skip_pause {
            tokio::time::sleep(NOT_READY_PAUSE).await;
        }
        self.stop.send_replace(true);
        if tokio::time::timeout(drain_timeout, self.drained()).await.is_err() {
            let left = self.executions.running();
            tracing::warn!(left, "the drain timeout is over; what still runs is handed over, or ends");
        }
        // Before connections are cut, so that every caller receives instructions for its retry.
        self.executions.hand_over().await;
        let _ = tokio::time::timeout(LAST_SENDS, async { while self.serving.join_next().await.is_some() {} }).await;
        tracing::info!("stopped: no call is left");
        self.serving.shutdown().await;
        self.tasks.shutdown().await;
        self.engine.close_tools().await;
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

// === impl Running: the drain ===

impl Running {
    /// Returns when no invocation runs, and none is to be expected.
    async fn drained(&mut self) {
        let quiet = if self.skip_pause { Duration::ZERO } else { QUIET };
        let mut quiet_since = None;
        loop {
            while self.serving.try_join_next().is_some() {}
            if self.engine.in_flight() > 0 || self.executions.running() > 0 {
                quiet_since = None;
            } else if self.serving.is_empty()
                || quiet_since.get_or_insert_with(tokio::time::Instant::now).elapsed() >= quiet
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

async fn set_health(health: &tonic_health::server::HealthReporter, status: tonic_health::ServingStatus) {
    for service in ["", "relight.v1.RecoveryService", "relight.v1.AdminService"] {
        health.set_service_status(service, status).await;
    }
}

fn telemetry_settings(config: &Config) -> TelemetrySettings {
    let telemetry = &config.telemetry;
    let headers = telemetry.otlp_headers.iter().map(|(name, value)| (name.clone(), value.expose().to_owned().into()));
    let mut otlp = telemetry.endpoints.clone();
    otlp.metrics = otlp.metrics.filter(|_| telemetry.otlp_metrics);
    TelemetrySettings {
        otlp,
        otlp_headers: headers.collect(),
        service_name: telemetry.service_name.clone().unwrap_or_else(|| "relight".to_owned()),
        resource: telemetry.resource.clone().into_iter().collect(),
        sample_ratio: telemetry.sample_ratio,
        ..TelemetrySettings::default()
    }
}

fn target_names(engine: &Engine) -> TargetNames {
    let states = engine.targets().all();
    let targets: Vec<&Target> = states.iter().map(|state: &Arc<TargetState>| &*state.target).collect();
    let config = engine.config();
    let tenants = config.server.keys.iter().map(|key| TenantId::from(key.tenant.as_str()));
    let prices = config.targets.iter().filter_map(|(id, target)| Some((id.clone(), target.price?)));
    TargetNames::of(targets)
        .with_routes(config.routes.keys().cloned())
        .with_tenants(tenants)
        .with_prices(&config.currency, prices)
}

fn circuits(engine: &Engine) -> Vec<(TargetId, CircuitState)> {
    let state = |target: &Arc<TargetState>| (target.target.id.clone(), target.circuit().state());
    engine.targets().all().iter().map(state).collect()
}

fn read_levels(metrics: &Metrics, engine: &Engine, executions: &Executions, drain: &DrainState) {
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

fn start_logs(config: &Config, events: &EventBus) -> ReaderTask {
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
