//! Completes what is not configured: providers from well-known environment variables, a route over
//! all targets, the rest.
//!
//! So Relight works without any file: with the API keys in the environment, or with the scripted
//! provider. What is written in the file is not changed.

use std::collections::BTreeMap;

use super::{
    Config, Secret,
    environment::Environment,
    policy::PolicyConfig,
    provider::{ProviderConfig, TargetConfig},
    route::{OperationConfig, RouteConfig},
};
use crate::domain::{
    ids::{Operation, RouteName, TargetId},
    target::Dialect,
};

/// The name of the route, target and provider that exist when nothing is configured.
const DEFAULT_ROUTE: &str = "default";
const SCRIPTED: &str = "scripted";

/// A provider that is discovered by an environment variable.
pub(super) struct WellKnown {
    /// Its name as provider and as target.
    pub(super) name: &'static str,
    /// The variable that holds its key.
    pub(super) variable: &'static str,
    dialect: Dialect,
    base_url: &'static str,
    model: &'static str,
}

/// In the order in which their targets are preferred.
pub(super) const WELL_KNOWN: [WellKnown; 11] = [
    chat(
        "openai",
        "OPENAI_API_KEY",
        "https://api.openai.com/v1",
        "gpt-5",
    ),
    WellKnown {
        name: "anthropic",
        variable: "ANTHROPIC_API_KEY",
        dialect: Dialect::Anthropic,
        base_url: "https://api.anthropic.com",
        model: "claude-sonnet-4-5",
    },
    WellKnown {
        name: "gemini",
        variable: "GEMINI_API_KEY",
        dialect: Dialect::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        model: "gemini-2.5-flash",
    },
    chat(
        "mistral",
        "MISTRAL_API_KEY",
        "https://api.mistral.ai/v1",
        "mistral-large-latest",
    ),
    chat(
        "groq",
        "GROQ_API_KEY",
        "https://api.groq.com/openai/v1",
        "llama-3.3-70b-versatile",
    ),
    chat(
        "deepseek",
        "DEEPSEEK_API_KEY",
        "https://api.deepseek.com/v1",
        "deepseek-chat",
    ),
    chat("xai", "XAI_API_KEY", "https://api.x.ai/v1", "grok-4"),
    chat(
        "cerebras",
        "CEREBRAS_API_KEY",
        "https://api.cerebras.ai/v1",
        "llama-3.3-70b",
    ),
    chat(
        "together",
        "TOGETHER_API_KEY",
        "https://api.together.xyz/v1",
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    ),
    chat(
        "fireworks",
        "FIREWORKS_API_KEY",
        "https://api.fireworks.ai/inference/v1",
        "accounts/fireworks/models/deepseek-v3",
    ),
    chat(
        "openrouter",
        "OPENROUTER_API_KEY",
        "https://openrouter.ai/api/v1",
        "openrouter/auto",
    ),
];

/// Fills in what is not configured. `order` is the order in which targets are written. Returns the
/// variables by which providers were found.
pub(super) fn complete(
    config: &mut Config,
    environment: &dyn Environment,
    order: &[String],
) -> Vec<&'static str> {
    let mut order: Vec<TargetId> = order
        .iter()
        .map(|name| TargetId::from(name.as_str()))
        .collect();
    let mut found = Vec::new();
    if config.targets.is_empty() && config.providers.is_empty() && order.is_empty() {
        for known in &WELL_KNOWN {
            if let Some(provider) = known.provider(environment) {
                config.providers.insert(known.name.to_owned(), provider);
                config
                    .targets
                    .insert(known.name.into(), known.target(environment));
                order.push(known.name.into());
                found.push(known.variable);
            }
        }
        if found.is_empty() {
            let target = TargetConfig {
                provider: SCRIPTED.to_owned(),
                model: SCRIPTED.to_owned(),
                ..TargetConfig::default()
            };
            config.targets.insert(SCRIPTED.into(), target);
            order.push(SCRIPTED.into());
        }
    }
    let wanted: Vec<String> = config
        .targets
        .values()
        .map(|target| target.provider.clone())
        .collect();
    for name in wanted {
        if config.providers.contains_key(&name) {
            continue;
        }
        if name == SCRIPTED {
            config.providers.insert(
                name,
                ProviderConfig {
                    dialect: Dialect::Scripted,
                    ..ProviderConfig::default()
                },
            );
        } else if let Some(known) = WELL_KNOWN.iter().find(|known| known.name == name)
            && let Some(provider) = known.provider(environment)
        {
            config.providers.insert(name, provider);
            found.push(known.variable);
        }
    }
    if config.routes.is_empty() {
        let targets = order
            .into_iter()
            .filter(|id| config.targets.contains_key(id))
            .collect();
        config.routes.insert(
            DEFAULT_ROUTE.into(),
            RouteConfig {
                targets,
                ..RouteConfig::default()
            },
        );
    }
    if config.default_route.is_none() {
        let default = RouteName::from(DEFAULT_ROUTE);
        let only = config
            .routes
            .keys()
            .next()
            .filter(|_| config.routes.len() == 1);
        config.default_route = if config.routes.contains_key(&default) {
            Some(default)
        } else {
            only.cloned()
        };
    }
    for (name, policy) in PolicyConfig::built_in() {
        config.policies.entry(name).or_insert(policy);
    }
    complete_operations(&mut config.operations);
    if let Some(ratio) = sampled_share(environment) {
        config.telemetry.sample_ratio = config.telemetry.sample_ratio.min(ratio);
    }
    found
}

/// Returns the share of traces that the standard variables of OpenTelemetry have recorded, if they
/// name a sampler that is known. A caller's own decision is checked first in any case, as with the
/// samplers named `parentbased_…`.
fn sampled_share(environment: &dyn Environment) -> Option<f64> {
    let sampler = environment.var("OTEL_TRACES_SAMPLER")?;
    match sampler.trim_start_matches("parentbased_") {
        "always_on" => Some(1.0),
        "always_off" => Some(0.0),
        "traceidratio" => {
            let ratio = environment
                .var("OTEL_TRACES_SAMPLER_ARG")
                .map_or(Ok(1.0), |ratio| ratio.trim().parse());
            ratio.ok().filter(|ratio| (0.0..=1.0).contains(ratio))
        }
        _ => None,
    }
}

/// Planning and judging steps are retried once: they are cheap to redo above, and their callers
/// wait for them.
fn complete_operations(operations: &mut BTreeMap<Operation, OperationConfig>) {
    for name in ["planner", "evaluator", "replanner"] {
        let operation = operations.entry(Operation::from(name)).or_default();
        // An operation that names a policy gets that policy's retries.
        if operation.policy.is_none() && operation.max_retries.is_none() {
            operation.max_retries = Some(1);
        }
    }
}

// === impl WellKnown ===

const fn chat(
    name: &'static str,
    variable: &'static str,
    base_url: &'static str,
    model: &'static str,
) -> WellKnown {
    WellKnown {
        name,
        variable,
        dialect: Dialect::OpenaiChat,
        base_url,
        model,
    }
}

impl WellKnown {
    fn provider(&self, environment: &dyn Environment) -> Option<ProviderConfig> {
        let key = environment
            .var(self.variable)
            .filter(|key| !key.trim().is_empty())?;
        Some(ProviderConfig {
            dialect: self.dialect,
            base_url: Some(
                self.setting(environment, "BASE_URL")
                    .unwrap_or_else(|| self.base_url.to_owned()),
            ),
            api_key: Some(Secret::new(key.trim())),
            ..ProviderConfig::default()
        })
    }

    fn target(&self, environment: &dyn Environment) -> TargetConfig {
        TargetConfig {
            provider: self.name.to_owned(),
            model: self
                .setting(environment, "MODEL")
                .unwrap_or_else(|| self.model.to_owned()),
            ..TargetConfig::default()
        }
    }

    /// Such as `OPENAI_BASE_URL` and `OPENAI_MODEL`, which other tools know as well.
    fn setting(&self, environment: &dyn Environment, suffix: &str) -> Option<String> {
        let name = format!("{}_{suffix}", self.name.to_uppercase());
        environment.var(&name).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GivenEnvironment;

    #[test]
    fn the_sampler_of_the_environment_is_a_share_of_traces() {
        let share = |sampler: &str, argument: &str| {
            let pairs = [
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", argument),
            ];
            let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
            let set: GivenEnvironment = set
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            sampled_share(&set)
        };
        assert_eq!(share("", ""), None);
        assert_eq!(share("always_off", ""), Some(0.0));
        assert_eq!(share("parentbased_always_on", ""), Some(1.0));
        assert_eq!(share("traceidratio", "0.25"), Some(0.25));
        assert_eq!(share("parentbased_traceidratio", " 0.5 "), Some(0.5));
        assert_eq!(
            share("traceidratio", ""),
            Some(1.0),
            "as the specification has it"
        );
        assert_eq!(share("traceidratio", "7"), None);
        assert_eq!(share("jaeger_remote", ""), None);
    }
}
