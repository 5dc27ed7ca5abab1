//! What is served on each listener.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::{net::TcpListener, task::JoinSet};
use tonic::service::Routes;
use tonic_health::server::HealthReporter;

use super::{
    Listeners, ServeError, admin_port,
    connection::LimitedListener,
    cors,
    front_port::{FrontPort, FrontRoutes},
    intake::Intake,
    listen::{GrpcApi, serve_grpc},
    parts::ServerParts,
    set_health,
};
use crate::{
    config::Config,
    grpc::{
        admin::Admin,
        recovery::Recovery,
        v1::{
            admin_service_server::AdminServiceServer,
            recovery_service_server::RecoveryServiceServer,
        },
    },
};

/// Path at which MCP clients reach the front of the tools.
const MCP_PATH: &str = "/mcp";

/// The listeners that serve.
pub(super) struct ServedPorts {
    /// Those of callers; each ends when its connections have.
    pub(super) serving: JoinSet<()>,
    /// The health that clients and load balancers ask for.
    pub(super) health: HealthReporter,
}

// === impl Listeners ===

impl Listeners {
    /// Serves on each of them. `live` is whether the process works at all.
    pub(super) fn serve(
        self,
        config: &Config,
        parts: &mut ServerParts,
        live: Arc<AtomicBool>,
    ) -> Result<ServedPorts, ServeError> {
        let server = &config.server;
        let max_bytes = usize::try_from(server.max_message_bytes).unwrap_or(usize::MAX);
        let limited = |name, listener: TcpListener| {
            LimitedListener::new(name, listener, &server.limits, &server.timeouts)
        };
        let mut serving = JoinSet::new();
        let intake = Intake::new(server, Arc::clone(&parts.callers.authenticator));
        let front = FrontPort::new(parts, config, intake.clone(), max_bytes);
        let fronts = [
            ("openai_front", self.openai_front, FrontRoutes::OpenAi),
            ("mcp_front", self.mcp_front, FrontRoutes::Mcp(MCP_PATH)),
        ];
        for (name, listener, routes) in fronts {
            if let Some(listener) = listener {
                let stop = parts.signals.stop.subscribe();
                let certificates = &parts.callers.certificates;
                let listener = limited(name, listener);
                front
                    .clone()
                    .serve(routes, listener, certificates, stop, &mut serving);
            }
        }
        let drain = parts.drain_state();
        let authenticator = &parts.callers.authenticator;
        let admin = Admin::new(
            parts.engine.clone(),
            parts.executions.clone(),
            (Arc::clone(authenticator), drain.clone()),
            (parts.replicas.clone(), parts.peers.clone()),
        );
        let recovery = Recovery::new(
            parts.engine.clone(),
            parts.executions.clone(),
            parts.resume_tokens.clone(),
            (Arc::clone(authenticator), drain),
            parts.peers.clone(),
        );
        let admin = AdminServiceServer::new(admin).max_decoding_message_size(max_bytes);
        let recovery = RecoveryServiceServer::new(recovery).max_decoding_message_size(max_bytes);
        let (health, health_service) = tonic_health::server::health_reporter();
        let mut serve_api = |listener, routes, intake| {
            let api = GrpcApi {
                routes,
                intake,
                metrics: parts.metrics.clone(),
                refused: Arc::clone(&parts.callers.refused),
                cors: cors::layer(server.cors.clone()),
            };
            let stop = parts.signals.stop.subscribe();
            let certificates = &parts.callers.certificates;
            serve_grpc(server, listener, api, certificates, stop, &mut serving)
        };
        let is_admin_apart = self.admin_service.is_some();
        if let Some(listener) = self.admin_service {
            let alone = Routes::new(health_service.clone()).add_service(admin.clone());
            serve_api(listener, alone, intake.clone())?;
        }
        let routes = Routes::new(health_service.clone())
            .add_service(recovery)
            .add_service(admin);
        let intake = intake.with_peers(parts.peers.key(), is_admin_apart);
        serve_api(self.grpc, routes, intake)?;
        admin_port::serve(
            limited("admin", self.admin),
            health_service,
            parts.metrics.clone(),
            live,
            parts.signals.draining.subscribe(),
            &mut parts.tasks,
        );
        let health_setter = health.clone();
        parts.tasks.spawn(async move {
            set_health(&health_setter, tonic_health::ServingStatus::Serving).await;
            health_setter
                .set_service_status("liveness", tonic_health::ServingStatus::Serving)
                .await;
        });
        Ok(ServedPorts { serving, health })
    }
}
