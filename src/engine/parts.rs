//! Builds the parts that a configuration names: providers, targets, the classifier.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use secrecy::SecretString;

use super::{tool_settings::ToolSettings, tool_specs, tools::ToolsInForce};
use crate::{
    config::{
        Config, ProviderConfig, Secret, TargetConfig, connection::ProxyConfig,
        identity::IdentityConfig, provider as settings,
    },
    domain::{
        ids::TargetId,
        target::{Dialect, Target},
    },
    layers::targets::{KeySpec, SharedPolicies, TargetSpec},
    policy::{
        circuit::CircuitPolicy,
        classify::{Classifier, RuleFault},
    },
    provider::{
        BuildError, ChatOptions, HttpSettings, ProviderSpec, Providers, StreamMode,
        known::{self, ModelRef},
    },
    tool::{ToolServers, ToolServersError},
};

/// Everything that is built from a configuration.
pub(super) struct Parts {
    pub(super) providers: Providers,
    pub(super) targets: Vec<TargetSpec>,
    pub(super) shared: SharedPolicies,
    pub(super) classifier: Classifier,
    pub(super) tools: ToolsInForce,
}

/// Error of building a part.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// A provider.
    #[error(transparent)]
    Provider(#[from] BuildError),
    /// A tool server.
    #[error(transparent)]
    Tools(#[from] ToolServersError),
    /// The classifier's user rules.
    #[error("classifier.rules: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Rules(Vec<RuleFault>),
    /// A script.
    #[error("providers.{provider}.script: {reason}")]
    Script {
        /// The provider's name.
        provider: String,
        /// Description of the fault.
        reason: String,
    },
}

pub(super) fn build(config: &Config) -> Result<Parts, PartsError> {
    rebuild(config, &ToolServers::default())
}

/// Returns the policies that all targets share.
pub(super) fn shared(config: &Config) -> SharedPolicies {
    SharedPolicies {
        budget: config.budget.clone(),
        gates: Arc::new(config.gates.clone()),
    }
}

/// Builds everything anew but the tool servers whose settings stay: their connections and children
/// are kept.
pub(super) fn rebuild(config: &Config, running: &ToolServers) -> Result<Parts, PartsError> {
    let settings = ToolSettings::new(config);
    let specs: Vec<ProviderSpec> = config
        .providers
        .iter()
        .map(|(name, provider)| provider_spec(name, provider))
        .collect::<Result<_, _>>()?;
    let targets = config.targets.iter().filter_map(|(id, target)| {
        let provider = config.providers.get(&target.provider)?;
        Some(TargetSpec {
            target: Arc::new(make_target(id, target, provider)),
            circuit: Arc::new(circuit(config, id, target)),
            concurrency: config.concurrency_for(target).clone(),
            settings: settings_of(provider, target.credential()),
            pool: pool_of(provider, target),
        })
    });
    Ok(Parts {
        providers: Providers::build(&specs)?,
        targets: targets.collect(),
        shared: shared(config),
        tools: ToolsInForce {
            servers: running.rebuild(&tool_specs::configured(&config.tools))?,
            settings,
        },
        classifier: Classifier::with_rules(&config.classifier.rules).map_err(PartsError::Rules)?,
    })
}

/// Returns the circuit policy of a target. A response that the timers still allow is not overdue,
/// so the circuit waits as long as they do.
fn circuit(config: &Config, id: &TargetId, target: &TargetConfig) -> CircuitPolicy {
    let mut policy = config.circuit_for(target).clone();
    if let Some(longest) = config.longest_first_token(id) {
        policy.first_token_timeout = longest;
        policy.slow_threshold = policy.slow_threshold.min(longest);
    }
    policy
}

fn make_target(id: &TargetId, target: &TargetConfig, provider: &ProviderConfig) -> Target {
    let known = known::capabilities(&place(&target.provider, provider, &target.model));
    let mut able = target.capabilities.apply(known);
    able.documents = provider.chat.stream == StreamMode::Auto
        // A key of Bedrock may be allowed one of the two methods and not the other.
        && provider.dialect != Dialect::Bedrock
        // What is generated in the background is read on after a cut.
        && !able.background;
    Target {
        id: id.clone(),
        provider: target.provider.as_str().into(),
        family: provider.family(&target.provider).into(),
        dialect: provider.dialect,
        model: target.model.as_str().into(),
        credential: target.credential().into(),
        endpoint: provider.endpoint().into(),
        capabilities: able,
        system_prompt: target.system_prompt.as_deref().map(Into::into),
    }
}

/// A fingerprint of what decides whether a provider takes the credential.
fn settings_of(provider: &ProviderConfig, credential: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let pool = provider.pool().map(|(_, key)| key);
    let own = provider.key(credential);
    let is_pool = own.is_none() && credential == settings::DEFAULT_CREDENTIAL;
    let keys = own.into_iter().chain(pool.filter(|_| is_pool));
    keys.map(Secret::expose)
        .for_each(|key| key.hash(&mut hasher));
    (
        provider.endpoint(),
        &provider.region,
        provider.api_key_header,
    )
        .hash(&mut hasher);
    provider
        .tls
        .as_ref()
        .and_then(|tls| tls.loaded.as_ref())
        .map(|tls| tls.fingerprint)
        .hash(&mut hasher);
    if let Some(identity) = &provider.identity {
        (identity.cloud, &identity.scope).hash(&mut hasher);
    }
    for (name, value) in &provider.headers {
        (name, value.expose()).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the keys of a target whose credential is the pool of its provider.
fn pool_of(provider: &ProviderConfig, target: &TargetConfig) -> Vec<KeySpec> {
    let is_pool = target.credential() == settings::DEFAULT_CREDENTIAL;
    let pool = provider.pool().filter(|_| is_pool);
    pool.map(|(label, _)| KeySpec {
        settings: settings_of(provider, &label),
        label: label.into(),
    })
    .collect()
}

fn place<'a>(name: &'a str, provider: &'a ProviderConfig, model: &'a str) -> ModelRef<'a> {
    ModelRef {
        dialect: provider.dialect,
        family: provider.family(name),
        endpoint: provider.endpoint(),
        model,
    }
}

fn provider_spec(name: &str, provider: &ProviderConfig) -> Result<ProviderSpec, PartsError> {
    let script = provider
        .script
        .clone()
        .map(serde_json::from_value)
        .transpose();
    let scripted = script.map_err(|error| PartsError::Script {
        provider: name.to_owned(),
        reason: error.to_string(),
    })?;
    let names = provider
        .credentials
        .keys()
        .cloned()
        .chain([settings::DEFAULT_CREDENTIAL.to_owned()])
        .chain(provider.pool().map(|(label, _)| label));
    let credentials: BTreeMap<String, SecretString> = names
        .filter_map(|name| {
            let key = provider.key(&name)?.expose().to_owned();
            Some((name, SecretString::from(key)))
        })
        .collect();
    let http = &provider.http;
    let chat = &provider.chat;
    let manners = known::manners(&place(name, provider, ""));
    Ok(ProviderSpec {
        family: provider.family(name).into(),
        credentials,
        identity: provider.identity.as_ref().map(IdentityConfig::spec),
        api_key_header: provider.key_header(name),
        extra_headers: provider
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect(),
        http: HttpSettings {
            connect_timeout: http.connect_timeout,
            max_body_bytes: http.max_body_bytes,
            max_line_bytes: usize::try_from(http.max_line_bytes()).unwrap_or(usize::MAX),
            http2_prior_knowledge: http.http2_prior_knowledge,
            allow_http: provider.allow_plaintext,
            allow_private: provider.allow_private_addresses,
            proxy: provider.proxy.as_ref().and_then(ProxyConfig::proxy),
            tls: provider.tls.as_ref().and_then(|tls| tls.loaded.clone()),
            ..HttpSettings::default()
        },
        chat: ChatOptions {
            stream: chat.stream,
            reasoning_field: chat
                .reasoning_field
                .clone()
                .or_else(|| manners.reasoning_field.clone()),
            path: chat.path.clone(),
        },
        propagate_trace: provider.propagate_trace,
        region: provider.region.clone(),
        scripted,
        ..ProviderSpec::new(name, provider.dialect, provider.endpoint())
    })
}
