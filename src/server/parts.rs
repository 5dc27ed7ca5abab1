//! The parts of a server that all its listeners share, each built once, in the order in which they
//! need each other.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::{sync::watch, task::JoinSet};

use super::{
    ServeError, ServerOptions, Telemetry, executions,
    listen::ListenAddresses,
    refused_callers::RefusedCallers,
    reload,
    telemetry_setup::{read_levels, start_logs, target_names, telemetry_settings},
    tls::Certificates,
};
use crate::{
    config::{Config, Loaded},
    engine::Engine,
    events::EventBus,
    execution::Executions,
    fleet::{self, Replicas},
    grpc::{
        auth::{Authenticator, TokenVerifier},
        drain::DrainState,
        peers::Peers,
        resume_token::TokenKey,
    },
    layers::spans::Spans,
    telemetry::{self, Metrics},
};

/// Parts with which listeners serve, and the tasks that run beside them.
pub(super) struct ServerParts {
    pub(super) engine: Engine,
    pub(super) executions: Executions,
    pub(super) resume_tokens: TokenKey,
    pub(super) callers: KnownCallers,
    pub(super) replicas: Replicas,
    pub(super) peers: Peers,
    pub(super) metrics: Metrics,
    pub(super) telemetry: Telemetry,
    pub(super) signals: Signals,
    pub(super) tasks: JoinSet<()>,
}

/// Callers that are let in, and the certificates that they see; shared by all listeners.
pub(super) struct KnownCallers {
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) certificates: Certificates,
    pub(super) refused: Arc<RefusedCallers>,
}

/// The two steps of a server's end.
#[derive(Debug)]
pub(super) struct Signals {
    pub(super) draining: watch::Sender<bool>,
    pub(super) stop: watch::Sender<bool>,
}

// === impl ServerParts ===

impl ServerParts {
    /// Builds the parts of a server that is reached at `addresses`.
    pub(super) async fn build(
        loaded: &Loaded,
        addresses: &ListenAddresses,
        options: &ServerOptions,
    ) -> Result<Self, ServeError> {
        let config = &loaded.config;
        let mut tasks = JoinSet::new();
        let (engine, metrics, telemetry) = observed_engine(config, options)?;
        let callers = KnownCallers::new(config, &mut tasks);
        if loaded.file.is_some() {
            let reloads = reload::Reloads {
                engine: engine.clone(),
                authenticator: Arc::clone(&callers.authenticator),
                certificates: callers.certificates.clone(),
                metrics: metrics.clone(),
            };
            let bound = addresses.of_callers().collect();
            reload::follow(loaded.clone(), bound, reloads, &mut tasks);
        }
        let (executions, resume_tokens) =
            executions::start(config, options, engine.clone(), &metrics, &mut tasks).await?;
        let owner = &executions.settings().owner;
        let me = fleet::member(config, owner.as_str(), addresses.grpc);
        let replicas = Replicas::join(config, &engine, me.clone(), &mut tasks).await?;
        let peers = Peers::new(config, me, replicas.clone());
        tasks.spawn(peers.clone().greet());
        if let Some(view) = replicas.view() {
            metrics.set_store_up(fleet::STORE, !view.status.probes_alone());
        }
        Ok(Self {
            engine,
            executions,
            resume_tokens,
            callers,
            replicas,
            peers,
            metrics,
            telemetry,
            signals: Signals::default(),
            tasks,
        })
    }

    /// Returns what calls know of the server's end; their levels are among the metrics from now on.
    pub(super) fn drain_state(&self) -> DrainState {
        let drain = DrainState::new(self.signals.draining.subscribe());
        read_levels(
            &self.metrics,
            &self.engine,
            &self.executions,
            (&drain, &self.peers),
        );
        drain
    }
}

/// Returns the engine, with the readers of its events.
fn observed_engine(
    config: &Config,
    options: &ServerOptions,
) -> Result<(Engine, Metrics, Telemetry), ServeError> {
    let events = EventBus::beyond_earlier_processes(config.events.capacity);
    let settings = telemetry_settings(config);
    let (tracer, tracer_guard) = telemetry::build_tracer(&settings)?;
    let spans = if settings.otlp.traces.is_some() {
        Spans::new(tracer)
    } else {
        Spans::ids_alone()
    };
    let spans = spans.capturing_content(config.telemetry.capture_content);
    let engine = Engine::new(config.clone(), spans, events.clone())?;
    let (metrics, metrics_task) = Metrics::start(&events, &settings, target_names(&engine))?;
    let telemetry = Telemetry {
        tracer: Some(tracer_guard),
        metrics: Some(metrics_task),
        logs: options.logs.then(|| start_logs(config, &engine)),
    };
    Ok((engine, metrics, telemetry))
}

// === impl KnownCallers ===

impl KnownCallers {
    fn new(config: &Config, tasks: &mut JoinSet<()>) -> Self {
        let tokens = config.server.jwt.clone();
        let tokens = tokens.map(|jwt| Arc::new(TokenVerifier::new(jwt)));
        let authenticator = Authenticator::new(&config.server, tokens.clone());
        if let Some(tokens) = tokens {
            tasks.spawn(tokens.keep_fresh());
        }
        Self {
            authenticator: Arc::new(ArcSwap::from_pointee(authenticator)),
            certificates: Certificates::new(&config.server),
            refused: Arc::default(),
        }
    }
}

// === impl Signals ===

impl Default for Signals {
    fn default() -> Self {
        Self {
            draining: watch::Sender::new(false),
            stop: watch::Sender::new(false),
        }
    }
}
