//! Applies a changed configuration and reports it; an invalid one changes nothing and is reported
//! too.

use std::{net::SocketAddr, sync::Arc};

use arc_swap::ArcSwap;
use tokio::task::JoinSet;

use super::tls::Certificates;
use crate::{
    config::{Config, ConfigWatcher, Loaded, ProcessEnvironment, Reload, Reloadable},
    domain::clock,
    engine::{ChangedSettings, Engine, Rejection},
    grpc::auth::Authenticator,
    telemetry::Metrics,
};

/// Parts to which a new configuration applies.
#[derive(Debug, Clone)]
pub(super) struct Reloads {
    pub(super) engine: Engine,
    pub(super) authenticator: Arc<ArcSwap<Authenticator>>,
    pub(super) certificates: Certificates,
    pub(super) metrics: Metrics,
}

/// Follows the configuration's file as long as the server lives; callers reach the server at
/// `bound`.
pub(super) fn follow(
    loaded: Loaded,
    bound: Vec<SocketAddr>,
    reloads: Reloads,
    tasks: &mut JoinSet<()>,
) {
    let environment = Arc::new(ProcessEnvironment);
    let watcher = ConfigWatcher::start(loaded, bound, environment, reloads);
    tasks.spawn(async move {
        let _watcher = watcher;
        std::future::pending::<()>().await;
    });
}

// === impl Reloads ===

impl Reloadable for Reloads {
    fn apply(&self, config: &Config) -> Result<(), String> {
        self.engine
            .reload(config.clone())
            .map_err(|error| error.to_string())?;
        self.certificates.renew(&config.server);
        self.authenticator
            .store(Arc::new(self.authenticator.load().changed(&config.server)));
        self.metrics
            .targets_changed(super::target_names(&self.engine));
        Ok(())
    }

    fn report(&self, reload: Reload) {
        self.engine.configuration_changed(match reload {
            Reload::Applied {
                changed,
                needs_restart,
            } => {
                for setting in &needs_restart {
                    tracing::warn!(
                        setting,
                        "the setting was changed but is read at the start only; it needs a restart"
                    );
                }
                Ok(ChangedSettings {
                    changed,
                    needs_restart,
                })
            }
            Reload::Rejected(faults) => Err(Rejection {
                reason: faults.to_string(),
                faults: faults.setting_faults(),
                at: clock::wall_now(),
            }),
        });
    }
}
