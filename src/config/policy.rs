//! Named policies: how calls are retried and whether the model is told, as one word that routes refer to.
//!
//! Six are built in; a policy of the same name in the file is laid over it, any other over `standard`. Which policy is
//! in force for a call is answered here, from what route, operation and caller say; it decides nothing else.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Config,
    provider::TargetConfig,
    route::{OperationConfig, RouteConfig},
};
use crate::{
    domain::{ids::Operation, invocation::InjectionMode},
    policy::{
        circuit::CircuitPolicy,
        concurrency::ConcurrencyPolicy,
        inject::{ErrorWords, InjectionPolicy},
        retry::RetryPolicy,
        timers::TimersPolicy,
    },
};

/// The policy of routes that name none.
pub const STANDARD: &str = "standard";

/// One policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Whether, how often and after which waits a call is tried again.
    pub retry: RetryPolicy,
    /// Whether and how the model is told of its failure.
    pub injection: InjectionPolicy,
}

// === impl PolicyConfig ===

impl PolicyConfig {
    /// The policies that are always there: those of `RetryPolicy::PRESETS`.
    #[must_use]
    pub fn built_in() -> BTreeMap<String, Self> {
        RetryPolicy::PRESETS.iter().map(|name| ((*name).to_owned(), Self::built_in_or_standard(name))).collect()
    }

    /// What a policy of that name is laid over.
    pub(super) fn built_in_or_standard(name: &str) -> Self {
        let retry = RetryPolicy::preset(name).unwrap_or_default();
        // Without another attempt there is nobody to tell.
        let mode = if retry.enabled { InjectionMode::default() } else { InjectionMode::Never };
        let (mode, error) = match name {
            "literal" => (InjectionMode::Always, ErrorWords::Message),
            _ => (mode, ErrorWords::Phrase),
        };
        Self { retry, injection: InjectionPolicy { mode, error, ..InjectionPolicy::default() } }
    }
}

// === impl Config ===

impl Config {
    /// The policy that is in force for an operation on a route; `preset` is the one that the caller names.
    ///
    /// The caller's preset goes before everything but an operation that is not `enabled`; then come the route's own
    /// operation, the operation on all routes, the route's policy, and `standard`. A name that does not exist stands
    /// for `standard`; `load` lets none through.
    #[must_use]
    pub fn policy_for(&self, route: &RouteConfig, operation: &Operation, preset: Option<&str>) -> PolicyConfig {
        let said: Vec<&OperationConfig> =
            [route.operations.get(operation), self.operations.get(operation)].into_iter().flatten().collect();
        let named = preset
            .or_else(|| said.iter().find_map(|said| said.policy.as_deref()))
            .or(route.policy.as_deref())
            .unwrap_or(STANDARD);
        let mut policy = self.policies.get(named).cloned().unwrap_or_default();
        if preset.is_none() {
            // A policy that is named closer to the call than a number of retries brings its own number.
            let closest = said.iter().find(|said| said.max_retries.is_some() || said.policy.is_some());
            if let Some(max_retries) = closest.and_then(|said| said.max_retries) {
                policy.retry = policy.retry.with_max_retries(max_retries);
            }
            if let Some(mode) = said.iter().find_map(|said| said.injection) {
                policy.injection.mode = mode;
            }
        }
        if said.iter().find_map(|said| said.enabled) == Some(false) {
            policy.retry.enabled = false;
        }
        policy
    }

    /// The timers of a route.
    #[must_use]
    pub fn timers_for<'a>(&'a self, route: &'a RouteConfig) -> &'a TimersPolicy {
        route.timers.as_ref().unwrap_or(&self.timers)
    }

    /// The circuit of a target.
    #[must_use]
    pub fn circuit_for<'a>(&'a self, target: &'a TargetConfig) -> &'a CircuitPolicy {
        target.circuit.as_ref().unwrap_or(&self.circuit)
    }

    /// How many attempts a target may have at once.
    #[must_use]
    pub fn concurrency_for<'a>(&'a self, target: &'a TargetConfig) -> &'a ConcurrencyPolicy {
        target.concurrency.as_ref().unwrap_or(&self.concurrency)
    }
}
