//! Named policies: how calls are retried and whether the model is informed of a failure, under
//! names that routes refer to.
//!
//! Six are built in; a policy of the same name in the file is laid over it, any other over
//! `standard`. The policy in force for a call is looked up here, from route, operation and caller;
//! nothing else is decided.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Config,
    provider::TargetConfig,
    route::{OperationConfig, RouteConfig},
};
use crate::{
    domain::{
        ids::{Operation, TargetId},
        invocation::InjectionMode,
    },
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

/// A named recovery policy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Policy of retries: if, how often and after which waits a call is tried again.
    pub retry: RetryPolicy,
    /// Policy of notes: if and how the model is informed of its failure.
    pub injection: InjectionPolicy,
}

// === impl PolicyConfig ===

impl PolicyConfig {
    /// Returns the policies that are always there: those of `RetryPolicy::PRESETS`.
    #[must_use]
    pub fn built_in() -> BTreeMap<String, Self> {
        RetryPolicy::PRESETS
            .iter()
            .map(|name| ((*name).to_owned(), Self::built_in_or_standard(name)))
            .collect()
    }

    /// Returns the base over which a policy of that name is laid.
    pub(super) fn built_in_or_standard(name: &str) -> Self {
        let retry = RetryPolicy::preset(name).unwrap_or_default();
        // Without another attempt a note has no reader.
        let mode = if retry.enabled {
            InjectionMode::default()
        } else {
            InjectionMode::Never
        };
        let (mode, error) = match name {
            "literal" => (InjectionMode::Always, ErrorWords::Message),
            _ => (mode, ErrorWords::Phrase),
        };
        Self {
            retry,
            injection: InjectionPolicy {
                mode,
                error,
                ..InjectionPolicy::default()
            },
        }
    }
}

// === impl Config ===

impl Config {
    /// Returns the policy in force for an operation on a route (`None` for one without settings);
    /// `preset` is the one that the caller names.
    ///
    /// The caller's preset precedes everything but an operation that is not `enabled`; then come
    /// the route's own operation, the operation on all routes, the route's policy, and `standard`.
    /// A name that does not exist means `standard`; `load` lets none through.
    #[must_use]
    pub fn policy_for(
        &self,
        route: &RouteConfig,
        operation: Option<&Operation>,
        preset: Option<&str>,
    ) -> PolicyConfig {
        let configured: Vec<&OperationConfig> = [
            operation.and_then(|operation| route.operations.get(operation)),
            operation.and_then(|operation| self.operations.get(operation)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let named = preset
            .or_else(|| {
                configured
                    .iter()
                    .find_map(|configured| configured.policy.as_deref())
            })
            .or(route.policy.as_deref())
            .unwrap_or(STANDARD);
        let mut policy = self.policies.get(named).cloned().unwrap_or_default();
        if preset.is_none() {
            // A policy that is named closer to the call than a number of retries brings its own
            // number.
            let closest = configured
                .iter()
                .find(|configured| configured.max_retries.is_some() || configured.policy.is_some());
            if let Some(max_retries) = closest.and_then(|configured| configured.max_retries) {
                policy.retry = policy.retry.with_max_retries(max_retries);
            }
            if let Some(mode) = configured
                .iter()
                .find_map(|configured| configured.injection)
            {
                policy.injection.mode = mode;
            }
        }
        if configured.iter().find_map(|configured| configured.enabled) == Some(false) {
            policy.retry.enabled = false;
        }
        policy
    }

    /// Returns the timers of a route.
    #[must_use]
    pub fn timers_for<'a>(&'a self, route: &'a RouteConfig) -> &'a TimersPolicy {
        route.timers.as_ref().unwrap_or(&self.timers)
    }

    /// Returns the longest first-token timer of a target's routes; `None` if it has none.
    #[must_use]
    pub fn longest_first_token(&self, target: &TargetId) -> Option<Duration> {
        let routes = self
            .routes
            .values()
            .filter(|route| route.targets.contains(target));
        let timers = routes.map(|route| {
            let timers = self.timers_for(route);
            if route.targets.len() > 1 {
                timers.first_token
            } else {
                timers.first_token_alone
            }
        });
        timers.max()
    }

    /// Returns the circuit of a target.
    #[must_use]
    pub fn circuit_for<'a>(&'a self, target: &'a TargetConfig) -> &'a CircuitPolicy {
        target.circuit.as_ref().unwrap_or(&self.circuit)
    }

    /// Returns the number of attempts that a target may have at once.
    #[must_use]
    pub fn concurrency_for<'a>(&'a self, target: &'a TargetConfig) -> &'a ConcurrencyPolicy {
        target.concurrency.as_ref().unwrap_or(&self.concurrency)
    }
}
