//! The server: starts a configuration's listeners, returns a running Relight, and shuts it down in
//! order.
//!
//! `start` takes its environment as arguments and reads none itself, so that tests and the demo run
//! the same server as operators do. Shutdown is ordered: not ready, no new invocations, running
//! ones finish, then telemetry is flushed.

mod admin_port;
mod connection;
mod console;
mod cors;
mod executions;
mod front_layer;
mod front_port;
mod http_metrics;
mod intake;
mod listen;
mod recorded_body;
mod refused_callers;
mod reload;
mod rpc_metrics;
mod shutdown;
mod telemetry_setup;
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
    connection::LimitedListener,
    intake::Intake,
    refused_callers::RefusedCallers,
    telemetry_setup::{read_levels, start_logs, target_names, telemetry_settings},
    tls::Certificates,
    watchdog::Watchdog,
};
use crate::{
    config::Loaded,
    engine::{Engine, PartsError},
    events::EventBus,
    execution::Executions,
    fleet::{self, Replicas},
    grpc::{
        admin::Admin,
        auth::{Authenticator, TokenVerifier},
        drain::DrainState,
        peers::Peers,
        recovery::Recovery,
        v1::{
            admin_service_server::AdminServiceServer,
            recovery_service_server::RecoveryServiceServer,
        },
    },
    journal::JournalError,
    layers::spans::Spans,
    telemetry::{self, Metrics, MetricsTask, ReaderTask, TracerGuard},
};

/// Path at which MCP clients reach the front of the tools.
const MCP_PATH: &str = "/mcp";

/// Time for which one task may occupy a worker thread before `/livez` fails: the process is then
/// frozen or close to it, and is better replaced.
const WATCHDOG: Duration = Duration::from_secs(30);

/// Options of a server beside its configuration.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// If set, events are written to standard error as logs.
    pub logs: bool,
    /// If set, the pause before GOAWAY is skipped, as in tests, which have no load balancer.
    pub skip_pause: bool,
    /// The journal's file when the configuration names none; without one, the journal is in memory.
    pub embedded_journal: Option<PathBuf>,
}

/// Error returned if a server cannot start.
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
    #[error("watchdog: no thread can be started: {0}")]
    Watchdog(std::io::Error),
    /// The journal.
    #[error("journal.store cannot be opened")]
    Journal(#[from] JournalError),
    /// The store that replicas share.
    #[error("fleet.store: {0}")]
    Fleet(#[from] relight_fleet::FleetStoreError),
    /// Reflection.
    #[error("reflection cannot be set up: {0}")]
    Reflection(String),
}

/// A running server. Dropping it stops everything at once; `shutdown` ends it in order.
#[derive(Debug)]
pub struct Running {
    /// Address at which gRPC is served.
    pub address: SocketAddr,
    /// Address at which health and metrics are served.
    pub admin_address: SocketAddr,
    /// Address at which the OpenAI-compatible front is served, if it is switched on.
    pub openai_front_address: Option<SocketAddr>,
    /// Address at which the `AdminService` is served, if it has a listener of its own.
    pub admin_service_address: Option<SocketAddr>,
    /// Address at which Relight is served as an MCP server, if that is switched on.
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
    _watchdog: Watchdog,
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
    #[expect(
        clippy::too_many_lines,
        reason = "each part is started once, in this order"
    )]
    pub async fn start(
        loaded: &Loaded,
        listeners: Listeners,
        options: &ServerOptions,
    ) -> Result<Self, ServeError> {
        let config = &loaded.config;
        let events = EventBus::beyond_earlier_processes(config.events.capacity);
        let settings = telemetry_settings(config);
        let (tracer, tracer_guard) = telemetry::build_tracer(&settings)?;
        let exports = settings.otlp.traces.is_some();
        let spans = if exports {
            Spans::new(tracer)
        } else {
            Spans::ids_alone()
        };
        let spans = spans.capturing_content(config.telemetry.capture_content);
        let engine = Engine::new(config.clone(), spans, events.clone())?;
        let (metrics, metrics_task) = Metrics::start(&events, &settings, target_names(&engine))?;
        let logs = options.logs.then(|| start_logs(config, &engine));
        let (draining, draining_seen) = watch::channel(false);
        let (stop, stop_seen) = watch::channel(false);
        let drain = DrainState::new(draining_seen.clone());
        let tokens = config
            .server
            .jwt
            .clone()
            .map(|jwt| Arc::new(TokenVerifier::new(jwt)));
        let authenticator = Arc::new(ArcSwap::from_pointee(Authenticator::new(
            &config.server,
            tokens.clone(),
        )));
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
            let fronts = [&listeners.openai_front, &listeners.mcp_front]
                .into_iter()
                .flatten();
            let bound = fronts
                .filter_map(|front| front.local_addr().ok())
                .chain([address])
                .collect();
            reload::follow(loaded.clone(), bound, reloads, &mut tasks);
        }
        let max_bytes = usize::try_from(config.server.max_message_bytes).unwrap_or(usize::MAX);
        let intake = Intake::new(&config.server, Arc::clone(&authenticator));
        let limited = |name, listener| {
            LimitedListener::new(
                name,
                listener,
                &config.server.limits,
                &config.server.timeouts,
            )
        };
        let refused = Arc::<RefusedCallers>::default();
        let mut openai_front_address = None;
        let mut mcp_front_address = None;
        let (executions, resume_tokens) =
            executions::start(config, options, engine.clone(), &metrics, &mut tasks).await?;
        let me = fleet::member(config, executions.settings().owner.as_str(), address);
        let replicas = Replicas::join(config, &engine, me.clone(), &mut tasks).await?;
        let peers = Peers::new(config, me, replicas.clone());
        tasks.spawn(peers.clone().greet());
        if let Some(view) = replicas.view() {
            metrics.set_store_up(fleet::STORE, view.status.trouble().is_none());
        }
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
            let listener = limited("openai_front", listener);
            let routes = front_port::Routes::OpenAi;
            port.clone().serve(
                routes,
                listener,
                &certificates,
                stop_seen.clone(),
                &mut serving,
            );
        }
        if let Some(listener) = listeners.mcp_front {
            mcp_front_address = Some(listener.local_addr().map_err(BindError::from)?);
            let listener = limited("mcp_front", listener);
            let routes = front_port::Routes::Mcp(MCP_PATH.to_owned());
            port.serve(
                routes,
                listener,
                &certificates,
                stop_seen.clone(),
                &mut serving,
            );
        }
        read_levels(&metrics, &engine, &executions, (&drain, &peers));
        let admin = Admin::new(
            engine.clone(),
            executions.clone(),
            (Arc::clone(&authenticator), drain.clone()),
            (replicas, peers.clone()),
        );
        let recovery = Recovery::new(
            engine.clone(),
            executions.clone(),
            resume_tokens,
            (authenticator, drain),
            peers.clone(),
        );
        let admin = AdminServiceServer::new(admin).max_decoding_message_size(max_bytes);
        let mut routes = Routes::new(health_service.clone())
            .add_service(RecoveryServiceServer::new(recovery).max_decoding_message_size(max_bytes));
        let api = |routes, intake| listen::GrpcApi {
            routes,
            intake,
            metrics: metrics.clone(),
            refused: Arc::clone(&refused),
            cors: cors::layer(config.server.cors.clone()),
        };
        let mut admin_service_address = None;
        if let Some(listener) = listeners.admin_service {
            admin_service_address = Some(listener.local_addr().map_err(BindError::from)?);
            let alone = Routes::new(health_service.clone()).add_service(admin.clone());
            let alone = api(alone, intake.clone());
            listen::serve_grpc(
                &config.server,
                listener,
                alone,
                &certificates,
                stop_seen.clone(),
                &mut serving,
            )?;
        }
        let intake = intake.with_peers(peers.key(), admin_service_address.is_some());
        routes = routes.add_service(admin);
        listen::serve_grpc(
            &config.server,
            listeners.grpc,
            api(routes, intake),
            &certificates,
            stop_seen,
            &mut serving,
        )?;
        let live = Arc::new(AtomicBool::new(true));
        let watchdog = watchdog::start(&Handle::current(), WATCHDOG, Arc::clone(&live))
            .map_err(ServeError::Watchdog)?;
        let admin_listener = limited("admin", listeners.admin);
        admin_port::serve(
            admin_listener,
            health_service,
            metrics.clone(),
            live,
            draining_seen,
            &mut tasks,
        );
        let health_setter = health.clone();
        tasks.spawn(async move {
            set_health(&health_setter, tonic_health::ServingStatus::Serving).await;
            health_setter
                .set_service_status("liveness", tonic_health::ServingStatus::Serving)
                .await;
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
            telemetry: Telemetry {
                tracer: Some(tracer_guard),
                metrics: Some(metrics_task),
                logs,
            },
            metrics,
            skip_pause: options.skip_pause,
            _watchdog: watchdog,
        })
    }

    /// Returns the URL at which the console is served, if it is switched on.
    pub fn console_url(&self) -> Option<String> {
        let config = self.engine.config();
        let scheme = if config.server.tls.is_some() {
            "https"
        } else {
            "http"
        };
        config
            .server
            .console
            .then(|| format!("{scheme}://{}{}", self.address, console::PATH))
    }

    /// Returns the engine behind the server.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Serves until `end`, then ends in order.
    pub async fn run_until(self, end: impl Future<Output = ()>) {
        end.await;
        self.shutdown().await;
    }
}

async fn set_health(
    health: &tonic_health::server::HealthReporter,
    status: tonic_health::ServingStatus,
) {
    for service in ["", "relight.v1.RecoveryService", "relight.v1.AdminService"] {
        health.set_service_status(service, status).await;
    }
}
