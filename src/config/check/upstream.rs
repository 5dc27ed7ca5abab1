//! Checks providers, targets, routes and the policies that they name.

use std::{collections::BTreeMap, time::Duration};

use super::{Checker, keys::keys_of};
use crate::{
    config::{
        Config,
        discover::WELL_KNOWN,
        price::PriceConfig,
        provider::{DEFAULT_CREDENTIAL, ProviderConfig},
        route::{OperationConfig, RouteConfig},
    },
    domain::{
        ids::{Operation, RouteName, TargetId},
        target::Dialect,
        units,
    },
    policy::{circuit::CircuitPolicy, classify::Classifier, retry::MAX_RETRIES},
};

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn providers(&mut self, config: &Config) {
        for (name, provider) in &config.providers {
            let path = format!("providers.{name}");
            if let Some(url) = &provider.base_url {
                let (plaintext, private) =
                    (provider.allow_plaintext, provider.allow_private_addresses);
                self.base_url(&format!("{path}.base_url"), url, plaintext, private);
            }
            let proxy = provider.proxy.as_ref();
            let tls = provider.tls.as_ref();
            self.connection(&path, proxy, tls, provider.allow_private_addresses);
            if provider.script.is_some() && provider.dialect != Dialect::Scripted {
                self.fault(
                    &format!("{path}.script"),
                    "is only for the dialect scripted",
                );
            }
            self.identity(&path, provider);
            self.place(&path, provider);
            let keys = keys_of(name, provider);
            self.headers(&format!("{path}.headers"), &provider.headers, &keys);
            self.key(&format!("{path}.api_key"), provider.api_key.as_ref());
            self.pool(&path, provider);
            for (credential, keys) in &provider.credentials {
                let at = format!("{path}.credentials.{credential}");
                if credential == DEFAULT_CREDENTIAL && provider.api_key.is_some() {
                    self.fault(
                        &at,
                        "is what api_key beside it means already; keep one of them",
                    );
                }
                if keys.api_key.is_none() && keys.api_key_file.is_none() {
                    self.required(
                        &format!("{at}.api_key"),
                        "is missing; a credential is a key",
                    );
                }
                self.key(&format!("{at}.api_key"), keys.api_key.as_ref());
            }
            let http = &provider.http;
            let min = Duration::from_millis(100);
            let max = Duration::from_mins(1);
            self.range(
                &format!("{path}.http.connect_timeout"),
                &http.connect_timeout,
                &min,
                &max,
                "from 100ms to 1m",
            );
            let at = format!("{path}.http.max_body_bytes");
            self.range(
                &at,
                &http.max_body_bytes,
                &(64 << 10),
                &(1 << 30),
                "from 64KiB to 1GiB",
            );
        }
    }

    pub(super) fn targets(&mut self, config: &Config) {
        if config.targets.is_empty() && !self.is_written("targets") {
            self.fault(
                "targets",
                "are missing; name at least one model of a provider",
            );
        }
        if config.currency.len() != 3
            || !config
                .currency
                .bytes()
                .all(|letter| letter.is_ascii_uppercase())
        {
            self.fault(
                "currency",
                "is no currency; write its three letters, such as USD",
            );
        }
        let shared_circuit = config.circuit.validate();
        let shared = config.concurrency.validate();
        for (name, target) in &config.targets {
            let path = format!("targets.{name}");
            if name.is_empty() {
                self.fault(&path, "has no name");
            }
            if let Some(circuit) = &target.circuit {
                self.inheriting(
                    &format!("{path}.circuit"),
                    circuit.validate(),
                    &shared_circuit,
                );
            }
            if let Some(concurrency) = &target.concurrency {
                self.inheriting(
                    &format!("{path}.concurrency"),
                    concurrency.validate(),
                    &shared,
                );
            }
            if target.circuit.is_some() {
                self.slow_threshold(
                    &format!("{path}.circuit"),
                    config.longest_first_token(name),
                    config.circuit_for(target),
                    "the target waits for no longer",
                );
            }
            for (price, value) in target.price.iter().flat_map(PriceConfig::named) {
                if value.is_some_and(|value| !(0.0..=1_000_000.0).contains(&value)) {
                    self.fault(
                        &format!("{path}.price.{price}"),
                        "must be from 0 to 1000000",
                    );
                }
            }
            if target.model.is_empty() {
                self.required(
                    &format!("{path}.model"),
                    "is missing; write the model as the provider names it",
                );
            }
            let at = format!("{path}.provider");
            if target.provider.is_empty() {
                self.required(&at, "is missing; name one of providers");
            } else if let Some(provider) = config.providers.get(&target.provider) {
                self.credential(
                    &format!("{path}.credential"),
                    target.credential.as_deref(),
                    provider,
                );
                if target.capabilities.background == Some(true)
                    && provider.dialect != Dialect::OpenaiResponses
                {
                    self.fault(
                        &format!("{path}.capabilities.background"),
                        "is only for the dialect openai_responses",
                    );
                }
            } else if let Some(known) = WELL_KNOWN
                .iter()
                .find(|known| known.name == target.provider)
            {
                if !self.is_written(&format!("providers.{}", target.provider)) {
                    self.fault(
                        &at,
                        format!("is not configured, and {} is not set", known.variable),
                    );
                }
            } else if !self.is_written(&format!("providers.{}", target.provider)) {
                let known = WELL_KNOWN.iter().map(|known| known.name);
                let known = known.filter(|name| !config.providers.contains_key(*name));
                self.unknown(
                    &at,
                    &target.provider,
                    "provider",
                    names(&config.providers).chain(known),
                );
            }
        }
    }

    fn credential(&mut self, path: &str, name: Option<&str>, provider: &ProviderConfig) {
        let Some(name) = name else { return };
        let has_own = provider.api_key.is_some() || !provider.api_keys.is_empty();
        let own = has_own.then_some(DEFAULT_CREDENTIAL);
        if name != DEFAULT_CREDENTIAL && !provider.credentials.contains_key(name) {
            self.unknown(
                path,
                name,
                "credential of its provider",
                own.into_iter().chain(names(&provider.credentials)),
            );
        }
    }

    pub(super) fn routes(&mut self, config: &Config) {
        let timers = config.timers.validate();
        for (name, route) in &config.routes {
            let path = format!("routes.{name}");
            if name.is_empty() {
                self.fault(&path, "has no name");
            }
            self.route_targets(&path, route, config);
            if route.deadline.is_zero() {
                self.fault(&format!("{path}.deadline"), "must be above 0s");
            }
            if route.deadline > route.max_deadline {
                let written = if self.is_written(&format!("{path}.deadline")) {
                    "deadline"
                } else {
                    "max_deadline"
                };
                self.fault(
                    &format!("{path}.{written}"),
                    "does not fit: deadline must be at most max_deadline",
                );
            }
            self.policy_name(&format!("{path}.policy"), route.policy.as_deref(), config);
            self.operations(&format!("{path}.operations"), &route.operations, config);
            if let Some(own) = &route.timers {
                self.inheriting(&format!("{path}.timers"), own.validate(), &timers);
            }
            self.policy(&format!("{path}.hedge"), route.hedge.validate());
            let chosen = route.select.validate(&route.targets);
            self.policy(&format!("{path}.select"), chosen);
            let at = format!("{path}.allow_overrides.max_retries");
            self.range(
                &at,
                &route.allow_overrides.max_retries,
                &0,
                &MAX_RETRIES,
                "at most 5",
            );
        }
        match &config.default_route {
            Some(route) if config.routes.contains_key(route) => {}
            Some(route) if self.is_written(&format!("routes.{route}")) => {}
            Some(route) => {
                self.unknown(
                    "default_route",
                    route.as_str(),
                    "route",
                    config.routes.keys().map(RouteName::as_str),
                );
            }
            // Callers that name no route receive an error that says so.
            None => {}
        }
    }

    fn route_targets(&mut self, path: &str, route: &RouteConfig, config: &Config) {
        if route.targets.is_empty()
            && !self.is_written(&format!("{path}.targets[0]"))
            && !config.targets.is_empty()
        {
            self.fault(&format!("{path}.targets"), "must name at least one target");
        }
        for (index, target) in route.targets.iter().enumerate() {
            let at = format!("{path}.targets[{index}]");
            if !config.targets.contains_key(target)
                && !self.is_written(&format!("targets.{target}"))
            {
                self.unknown(
                    &at,
                    target.as_str(),
                    "target",
                    config.targets.keys().map(TargetId::as_str),
                );
            } else if route.targets[..index].contains(target) {
                self.fault(&at, "is named twice");
            }
        }
    }

    pub(super) fn policies(&mut self, config: &Config) {
        for (name, policy) in &config.policies {
            self.policy(&format!("policies.{name}.retry"), policy.retry.validate());
            self.policy(
                &format!("policies.{name}.injection"),
                policy.injection.validate(),
            );
        }
        for fault in Classifier::with_rules(&config.classifier.rules)
            .err()
            .unwrap_or_default()
        {
            self.fault(
                &format!("classifier.rules[{}].{}", fault.index, fault.field),
                fault.reason,
            );
        }
        self.operations("operations", &config.operations, config);
        self.policy("texts", config.texts.validate());
        self.policy("budget", config.budget.validate());
        self.policy("timers", config.timers.validate());
        self.policy("circuit", config.circuit.validate());
        self.shared_slow_threshold(config);
        self.policy("admission", config.admission.validate());
        self.policy("concurrency", config.concurrency.validate());
    }

    /// A threshold that is written is reached by a first token of some target or tool.
    fn shared_slow_threshold(&mut self, config: &Config) {
        let sharing = config.targets.iter();
        let sharing = sharing.filter(|(_, target)| target.circuit.is_none());
        let targets = sharing.filter_map(|(name, _)| config.longest_first_token(name));
        let tools = &config.tools;
        let own = tools.tools.values().filter_map(|tool| tool.timeout);
        let timeouts = own
            .chain([tools.timeout])
            .filter(|_| !tools.servers.is_empty());
        let longest = targets.chain(timeouts).max();
        self.slow_threshold(
            "circuit",
            longest,
            &config.circuit,
            "no target waits for longer",
        );
    }

    fn slow_threshold(
        &mut self,
        path: &str,
        longest: Option<Duration>,
        circuit: &CircuitPolicy,
        who: &str,
    ) {
        let at = format!("{path}.slow_threshold");
        if let Some(longest) = longest
            && circuit.slow_threshold > longest
            && self.is_written(&at)
        {
            let longest = units::format_duration(longest);
            self.fault(
                &at,
                format!("never acts: {who} than {longest} for a first token"),
            );
        }
    }

    fn operations(
        &mut self,
        path: &str,
        operations: &BTreeMap<Operation, OperationConfig>,
        config: &Config,
    ) {
        for (name, operation) in operations {
            let path = format!("{path}.{name}");
            self.policy_name(
                &format!("{path}.policy"),
                operation.policy.as_deref(),
                config,
            );
            let max_retries = operation.max_retries.unwrap_or_default();
            self.range(
                &format!("{path}.max_retries"),
                &max_retries,
                &0,
                &MAX_RETRIES,
                "at most 5",
            );
        }
    }

    fn policy_name(&mut self, path: &str, name: Option<&str>, config: &Config) {
        let Some(name) = name else { return };
        if !config.policies.contains_key(name) && !self.is_written(&format!("policies.{name}")) {
            self.unknown(path, name, "policy", names(&config.policies));
        }
    }
}

pub(super) fn names<T>(map: &BTreeMap<String, T>) -> impl Iterator<Item = &str> {
    map.keys().map(String::as_str)
}
