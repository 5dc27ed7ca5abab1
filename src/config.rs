//! What an operator says: plain data, read from one YAML file and the environment, and from nothing else.
//!
//! This is the only module that reads files and the environment, so that everything above is told its world as
//! values. Defaults work without any file. It never decides anything about a call; policy values are passed on.

mod decode;
pub mod environment;
pub mod fault;
pub mod observe;
pub mod provider;
pub mod route;
pub mod secret;
pub mod server;
mod tree;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    observe::{EventsConfig, JournalConfig, TelemetryConfig},
    provider::{ProviderConfig, TargetConfig},
    route::{OperationConfig, RouteConfig},
    server::ServerConfig,
};
use crate::domain::ids::{Operation, RouteName, TargetId};

/// Everything that can be configured.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The listeners and what they accept.
    pub server: ServerConfig,
    /// Who answers, by name; without any, they are found from well-known environment variables.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The models that can be asked, by name.
    #[schemars(with = "BTreeMap<String, TargetConfig>")]
    pub targets: BTreeMap<TargetId, TargetConfig>,
    /// What callers name; without any, one route `default` over all targets.
    #[schemars(with = "BTreeMap<String, RouteConfig>")]
    pub routes: BTreeMap<RouteName, RouteConfig>,
    /// The route of callers that name none; unset: `default`, or the only one.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_route: Option<RouteName>,
    /// How operations differ, on all routes.
    #[schemars(with = "BTreeMap<String, OperationConfig>")]
    pub operations: BTreeMap<Operation, OperationConfig>,
    /// The ring of recent events.
    pub events: EventsConfig,
    /// Traces, metrics and logs.
    pub telemetry: TelemetryConfig,
    /// The durable record.
    pub journal: JournalConfig,
    /// The seed of all dice; the same seed replays the same waits.
    pub seed: u64,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            server: ServerConfig::default(),
            providers: BTreeMap::new(),
            targets: BTreeMap::new(),
            routes: BTreeMap::new(),
            default_route: None,
            operations: BTreeMap::new(),
            events: EventsConfig::default(),
            telemetry: TelemetryConfig::default(),
            journal: JournalConfig::default(),
            seed: 0,
        }
    }
}
