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
pub mod fleet;
pub mod identity;
mod inherit;
pub mod lenient;
pub mod limits;
mod load;
pub mod observe;
mod otlp;
pub mod policy;
pub mod price;
mod printable;
pub mod provider;
mod reference;
mod reload;
mod restart;
mod retired;
pub mod route;
mod secrets;
pub mod server;
mod shown;
pub mod tenant;
pub mod tools;
mod tree;
mod url;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(feature = "lab")]
pub use self::load::read_text;
use self::observe::{EventsConfig, TelemetryConfig};
pub use self::{
    classifier::ClassifierConfig,
    environment::{Environment, GivenEnvironment, ProcessEnvironment},
    fault::{ConfigFaults, Fault},
    fleet::FleetConfig,
    inherit::Preset,
    lenient::OnInvalidSetting,
    load::{GivenAddresses, Loaded, load, load_text},
    policy::PolicyConfig,
    provider::{ProviderConfig, TargetConfig},
    reference::reference,
    reload::{ConfigWatcher, Reload, Reloadable},
    restart::READ_AT_START,
    route::{OperationConfig, RouteConfig},
    server::ServerConfig,
    tools::ToolsConfig,
};
pub use crate::domain::secret::Secret;
use crate::{
    domain::ids::{Operation, RouteName, TargetId},
    journal::JournalConfig,
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
    /// Handling of an invalid recovery setting (`policies`, `operations`, `timers`, `circuit`,
    /// `gates`, `budget`, `admission`, `concurrency`, `texts`, `events`): `refuse` the
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
    /// Routes that callers name; without any, one route `default` over all targets.
    #[schemars(with = "BTreeMap<String, RouteConfig>")]
    pub routes: BTreeMap<RouteName, RouteConfig>,
    /// Route of callers that name none; if unset, `default`, or the only one. If there is none of
    /// these, callers must name a route.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_route: Option<RouteName>,
    /// Differences between operations, on all routes.
    #[schemars(with = "BTreeMap<String, OperationConfig>")]
    pub operations: BTreeMap<Operation, OperationConfig>,
    /// Policies by name; `standard`, `agent`, `patient`, `steady`, `literal` and `none` are built
    /// in, and others are laid over `standard`.
    pub policies: BTreeMap<String, PolicyConfig>,
    /// Budget that pays for attempts after the first, per target.
    pub budget: BudgetPolicy,
    /// Limits on the time for which attempts may be silent.
    pub timers: TimersPolicy,
    /// Conditions under which a target is closed to calls and opened again.
    pub circuit: CircuitPolicy,
    /// Handling of rate limits, spent quotas and rejected keys.
    pub gates: GatePolicy,
    /// Number of calls that are let in.
    pub admission: AdmissionPolicy,
    /// Number of attempts that a target may have at once.
    pub concurrency: ConcurrencyPolicy,
    /// Tool servers, what is known of their tools, and how calls of them are recovered.
    pub tools: ToolsConfig,
    /// Rules by which failures are judged, on top of the built-in ones.
    pub classifier: ClassifierConfig,
    /// Texts that people read about a failure, by its class (`timeout`) or code (`LLM_ERROR`);
    /// Relight words those that are left out.
    pub texts: Texts,
    /// New versions of targets and tool servers on trial, and when they are rolled back.
    pub releases: ReleasePolicy,
    /// The ring of recent events.
    pub events: EventsConfig,
    /// Traces, metrics and logs.
    pub telemetry: TelemetryConfig,
    /// The durable record.
    pub journal: JournalConfig,
    /// Store that replicas share, so that they act as one.
    pub fleet: FleetConfig,
}

// === impl Config ===

impl Default for Config {
    /// Returns a configuration that works without a file and without any key: the scripted provider
    /// behind the route `default`.
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
            fleet: FleetConfig::default(),
        }
    }
}

/// Returns the JSON Schema of the file, for editors and for the chart's values. Settings that are
/// read at the start only have `x-needs-restart: true`; `x-retired` lists those of earlier
/// versions, which are read with a warning.
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    restart::mark(&mut schema);
    if let Some(file) = schema.as_object_mut() {
        file.insert("x-retired".to_owned(), retired::paths().into());
    }
    schema
}

/// Returns the effective configuration as YAML, without its secrets.
#[must_use]
pub fn show(config: &Config) -> String {
    // Plain data always serialises; if it did not, the reason is shown instead.
    serde_saphyr::to_string(config).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
}

#[cfg(test)]
mod tests;
