//! The configuration: plain data, read from one YAML file and the environment, and from nothing
//! else.
//!
//! This is the only module that reads files and the environment, so that everything above receives
//! its settings as values. Defaults work without any file. Nothing about a call is decided here;
//! policy values are passed on.

mod certificates;
mod changes;
mod check;
pub mod classifier;
pub mod connection;
mod decode;
mod discover;
pub mod environment;
pub mod fault;
mod inherit;
pub mod lenient;
pub mod limits;
mod load;
pub mod observe;
mod otlp;
pub mod policy;
pub mod price;
pub mod provider;
mod reference;
mod reload;
mod restart;
mod retired;
pub mod route;
pub mod secret;
mod secrets;
pub mod server;
pub mod tools;
mod tree;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::observe::{EventsConfig, JournalConfig, TelemetryConfig};
pub use self::{
    classifier::ClassifierConfig,
    environment::{Environment, GivenEnvironment, ProcessEnvironment},
    fault::{ConfigFaults, Fault},
    inherit::Preset,
    lenient::OnInvalidSetting,
    load::{GivenAddresses, Loaded, load, load_text, read_text},
    policy::PolicyConfig,
    provider::{ProviderConfig, TargetConfig},
    reference::reference,
    reload::{ConfigWatcher, Reload, Reloadable},
    restart::READ_AT_START,
    route::{OperationConfig, RouteConfig},
    secret::Secret,
    secrets::shown_url,
    server::ServerConfig,
    tools::ToolsConfig,
};
use crate::{
    domain::ids::{Operation, RouteName, TargetId},
    policy::{
        admission::AdmissionPolicy, circuit::CircuitPolicy, concurrency::ConcurrencyPolicy,
        gates::GatePolicy, release::ReleasePolicy, retry_budget::BudgetPolicy, texts::Texts,
        timers::TimersPolicy,
    },
};

/// Everything that can be configured.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default = "Config::bare")]
pub struct Config {
    /// The settings that the file overrides: `standard`, the defaults, or `literal`, the exact
    /// values of the documents that specified Relight (see docs/literal.md). Default `standard`.
    pub preset: Preset,
    /// What is done about an invalid setting of recovery (`policies`, `operations`, `timers`,
    /// `circuit`, `gates`, `budget`, `admission`, `concurrency`, `texts`, `events`): `refuse` the
    /// configuration, or leave the setting out so that its `default` is in force, with a warning.
    /// Default `refuse`.
    pub on_invalid_setting: OnInvalidSetting,
    /// The listeners and what they accept.
    pub server: ServerConfig,
    /// The model providers, by name; without any, they are discovered from well-known environment
    /// variables.
    pub providers: BTreeMap<String, ProviderConfig>,
    /// The models that can be called, by name.
    #[schemars(with = "BTreeMap<String, TargetConfig>")]
    pub targets: BTreeMap<TargetId, TargetConfig>,
    /// The currency of all prices (`targets.*.price`), three letters as ISO 4217 has them. Default
    /// `USD`.
    pub currency: String,
    /// What callers name; without any, one route `default` over all targets.
    #[schemars(with = "BTreeMap<String, RouteConfig>")]
    pub routes: BTreeMap<RouteName, RouteConfig>,
    /// The route of callers that name none; unset: `default`, or the only one. Where there is none
    /// of these, callers have to name a route.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_route: Option<RouteName>,
    /// How operations differ, on all routes.
    #[schemars(with = "BTreeMap<String, OperationConfig>")]
    pub operations: BTreeMap<Operation, OperationConfig>,
    /// Policies by name; `standard`, `agent`, `patient`, `steady`, `literal` and `none` are built
    /// in, and others are laid over `standard`.
    pub policies: BTreeMap<String, PolicyConfig>,
    /// What pays for attempts after the first, per target.
    pub budget: BudgetPolicy,
    /// How long attempts may be silent.
    pub timers: TimersPolicy,
    /// When a target is closed to calls, and when it is opened again.
    pub circuit: CircuitPolicy,
    /// What is done about rate limits, spent quotas and rejected keys.
    pub gates: GatePolicy,
    /// How many calls are let in.
    pub admission: AdmissionPolicy,
    /// How many attempts a target may have at once.
    pub concurrency: ConcurrencyPolicy,
    /// Tool servers, what is known of their tools, and how calls of them are recovered.
    pub tools: ToolsConfig,
    /// How failures are judged, above what is built in.
    pub classifier: ClassifierConfig,
    /// What people read of a failure, by its class (`timeout`) or code (`LLM_ERROR`); what is left
    /// out is worded by Relight.
    pub texts: Texts,
    /// New versions of targets and tool servers on trial, and when they are rolled back.
    pub releases: ReleasePolicy,
    /// The ring of recent events.
    pub events: EventsConfig,
    /// Traces, metrics and logs.
    pub telemetry: TelemetryConfig,
    /// The durable record.
    pub journal: JournalConfig,
}

// === impl Config ===

impl Default for Config {
    /// What works without a file and without any key: the scripted provider behind the route
    /// `default`.
    fn default() -> Self {
        let mut config = Self::bare();
        discover::complete(&mut config, &GivenEnvironment::new(), &[]);
        config
    }
}

impl Config {
    /// The configuration before completion: no targets, no routes.
    fn bare() -> Self {
        Self {
            preset: Preset::default(),
            on_invalid_setting: OnInvalidSetting::default(),
            server: ServerConfig::default(),
            providers: BTreeMap::new(),
            targets: BTreeMap::new(),
            currency: "USD".to_owned(),
            routes: BTreeMap::new(),
            default_route: None,
            operations: BTreeMap::new(),
            policies: BTreeMap::new(),
            budget: BudgetPolicy::default(),
            timers: TimersPolicy::default(),
            circuit: CircuitPolicy::default(),
            gates: GatePolicy::default(),
            admission: AdmissionPolicy::default(),
            concurrency: ConcurrencyPolicy::default(),
            tools: ToolsConfig::default(),
            classifier: ClassifierConfig::default(),
            texts: Texts::default(),
            releases: ReleasePolicy::default(),
            events: EventsConfig::default(),
            telemetry: TelemetryConfig::default(),
            journal: JournalConfig::default(),
        }
    }
}

/// The JSON Schema of the file, for editors and for the chart's values. Settings that are read at
/// the start only have `x-needs-restart: true`.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    restart::mark(&mut schema);
    schema
}

/// The effective configuration as YAML, without its secrets.
#[must_use]
pub fn show(config: &Config) -> String {
    // Plain data always serialises; if it did not, the reason is shown instead.
    serde_saphyr::to_string(config).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

#[cfg(test)]
mod tests;
