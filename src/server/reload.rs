//! Puts a changed configuration in force, and says so; one that is wrong changes nothing, and that is said too.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use tokio::task::JoinSet;

use super::tls::Certificates;
use crate::{
    config::{ConfigWatcher, Loaded, ProcessEnvironment, Reload},
    domain::{clock, event::SettingFault},
    engine::{ChangedSettings, Engine, Rejection},
    grpc::auth::Authenticator,
    telemetry::Metrics,
};

/// What a new configuration reaches.
#[derive(Debug, Clone)]
pub(super) struct Reloads {
    pub(super) engine: Engine,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) certificates: Certificates,
    pub(super) metrics: Metrics,
}

/// Follows the configuration's file as long as the server lives; `bound` is where callers reach it.
pub(super) fn follow(loaded: Loaded, bound: Vec<SocketAddr>, reloads: Reloads, tasks: &mut JoinSet<()>) {
    let environment = Arc::new(ProcessEnvironment);
    let watcher = ConfigWatcher::start(loaded, bound, environment, move |reload| reloads.take(&reload));
    tasks.spawn(async move {
        let _watcher = watcher;
        std::future::pending::<()>().await;
    });
}

// === impl Reloads ===

impl Reloads {
    fn take(&self, reload: &Reload) {
        match reload {
            Reload::Applied { config, needs_restart, changed } => {
                if let Err(error) = self.engine.reload(config.as_ref().clone()) {
                    let reason = error.to_string();
                    let fault = SettingFault { path: String::new(), reason: reason.clone(), nearest: None };
                    self.rejected(reason, vec![fault]);
                    return;
                }
                self.certificates.renew(&config.server);
                self.authenticator.store(Arc::new(Authenticator::new(&config.server)));
                self.metrics.targets_changed(super::target_names(&self.engine));
                for setting in needs_restart {
                    tracing::warn!(
                        setting,
                        "the setting was changed but is read at the start only; it needs a restart"
                    );
                }
                let (changed, needs_restart) = (changed.clone(), needs_restart.clone());
                self.engine.configuration_changed(Ok(ChangedSettings { changed, needs_restart }));
            }
            Reload::Rejected(faults) => self.rejected(faults.to_string(), faults.told()),
        }
    }

    fn rejected(&self, reason: String, faults: Vec<SettingFault>) {
        self.engine.configuration_changed(Err(Rejection { reason, faults, at: clock::wall_now() }));
    }
}
