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
mod parts;
mod ports;
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

use tokio::{runtime::Handle, task::JoinSet};

pub use self::listen::{BindError, Listeners};
use self::{
    parts::{ServerParts, Signals},
    ports::ServedPorts,
    telemetry_setup::target_names,
    watchdog::Watchdog,
};
use crate::{
    config::Loaded,
    engine::{Engine, PartsError},
    execution::Executions,
    journal::JournalError,
    telemetry::{self, Metrics, MetricsTask, ReaderTask, TracerGuard},
};

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
    #[error("telemetry cannot be set up")]
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
    #[error("fleet.store")]
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
    signals: Signals,
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
    pub async fn start(
        loaded: &Loaded,
        listeners: Listeners,
        options: &ServerOptions,
    ) -> Result<Self, ServeError> {
        let addresses = listeners.addresses()?;
        let mut parts = ServerParts::build(loaded, &addresses, options).await?;
        let live = Arc::new(AtomicBool::new(true));
        let ServedPorts { serving, health } =
            listeners.serve(&loaded.config, &mut parts, Arc::clone(&live))?;
        let watchdog =
            watchdog::start(&Handle::current(), WATCHDOG, live).map_err(ServeError::Watchdog)?;
        Ok(Self {
            address: addresses.grpc,
            admin_address: addresses.admin,
            openai_front_address: addresses.openai_front,
            admin_service_address: addresses.admin_service,
            mcp_front_address: addresses.mcp_front,
            engine: parts.engine,
            executions: parts.executions,
            signals: parts.signals,
            health,
            serving,
            tasks: parts.tasks,
            telemetry: parts.telemetry,
            metrics: parts.metrics,
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
