//! The configuration in force and what is built from it, each replaced by itself at a reload.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;

use super::resolve::Resolver;
use crate::{
    config::Config,
    domain::{
        clock,
        event::{EventBody, SettingFault},
        failure::{Failure, ProviderError},
    },
    policy::{classify::Classifier, secrets::Secrets},
    provider::Providers,
};

/// The configuration in force and what is built from it; cheap to clone.
#[derive(Clone)]
pub(super) struct InForce {
    pub(super) config: Arc<ArcSwap<Config>>,
    pub(super) resolver: Arc<ArcSwap<Resolver>>,
    pub(super) providers: Arc<ArcSwap<Providers>>,
    pub(super) classifier: Arc<ArcSwap<Classifier>>,
    /// Configured secrets, which belong into no log.
    pub(super) secrets: Arc<ArcSwap<Secrets>>,
    status: Arc<ArcSwap<Configuration>>,
}

/// The configuration in force, and whether a newer one was rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// 1 for the one at the start; grows with every one that took its place.
    pub generation: u64,
    /// Rejection of a newer configuration, if it was refused.
    pub rejected: Option<Rejection>,
}

/// The settings that a new configuration changed, by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangedSettings {
    /// The settings that are others than before.
    pub changed: Vec<String>,
    /// Those among them that are read at the start only.
    pub needs_restart: Vec<String>,
}

/// A rejected configuration and the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// In one text.
    pub reason: String,
    /// One by one.
    pub faults: Vec<SettingFault>,
    /// Time of the rejection.
    pub at: Timestamp,
}

// === impl InForce ===

impl InForce {
    /// Puts a first configuration in force, with what was built from it.
    pub(super) fn new(
        config: Config,
        resolver: Resolver,
        providers: Providers,
        classifier: Classifier,
    ) -> Self {
        let secrets = Secrets::new(config.secret_values());
        Self {
            config: Arc::new(ArcSwap::from_pointee(config)),
            resolver: Arc::new(ArcSwap::from_pointee(resolver)),
            providers: Arc::new(ArcSwap::from_pointee(providers)),
            classifier: Arc::new(ArcSwap::from_pointee(classifier)),
            secrets: Arc::new(ArcSwap::from_pointee(secrets)),
            status: Arc::new(ArcSwap::from_pointee(Configuration {
                generation: 1,
                rejected: None,
            })),
        }
    }

    /// Judges bare facts as an attempt's would be.
    pub(super) fn classify(&self, facts: &ProviderError) -> Failure {
        let facts = self.secrets.load().take_out_of(facts.clone());
        self.classifier.load().classify(&facts, clock::wall_now())
    }

    /// Returns the generation in force, and whether a newer one was rejected.
    pub(super) fn status(&self) -> Arc<Configuration> {
        self.status.load_full()
    }

    /// Records the result of the last configuration change; returns its event.
    pub(super) fn changed(&self, changed: Result<ChangedSettings, Rejection>) -> EventBody {
        let configuration = self.status();
        let (configuration, body) = match changed {
            Ok(ChangedSettings {
                changed,
                needs_restart,
            }) => {
                let generation = configuration.generation + 1;
                let body = EventBody::ConfigurationReloaded {
                    generation,
                    changed,
                    needs_restart,
                };
                (
                    Configuration {
                        generation,
                        rejected: None,
                    },
                    body,
                )
            }
            Err(rejection) => {
                let Rejection {
                    reason,
                    faults,
                    at: _,
                } = rejection.clone();
                let body = EventBody::ConfigurationRejected { reason, faults };
                (
                    Configuration {
                        rejected: Some(rejection),
                        ..Configuration::clone(&configuration)
                    },
                    body,
                )
            }
        };
        self.status.store(Arc::new(configuration));
        body
    }
}
