//! What the configuration sets for the tools of each server, as recovery needs it.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use crate::{
    config::{Config, tools::ToolServerConfig},
    domain::{clock, target::Target},
    layers::{targets::TargetSpec, tools::ToolKnowledge},
    policy::{
        circuit::CircuitPolicy,
        tool_recovery::{
            ToolRecoveryPolicy, arguments::short_hash, chunk::ChunkRule, effects::EffectsPolicy,
            learning::ToolLearning,
        },
    },
};

/// What is set for the tools of all servers.
pub(super) struct ToolSettings {
    config: Config,
}

// === impl ToolSettings ===

impl ToolSettings {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
        }
    }

    /// Nothing learnt yet, within the bounds that are set.
    pub(super) fn fresh_knowledge(&self) -> ToolKnowledge {
        let learning = &self.config.tools.learning;
        let tools = ToolLearning::new(learning.half_life, learning.max_entries);
        ToolKnowledge::new(tools, learning.max_entries, learning.enabled)
    }

    /// Puts what was learnt under the bounds that are set.
    pub(super) fn bound(&self, knowledge: &ToolKnowledge) {
        let learning = &self.config.tools.learning;
        let mut learnt = knowledge.learnt();
        learnt.enabled = learning.enabled;
        let bounded = learnt.tools.clone().with_bounds(
            learning.half_life,
            learning.max_entries,
            clock::wall_now(),
        );
        learnt.tools = bounded;
    }

    /// A tool as a target.
    pub(super) fn target(&self, server: &str, tool: &str) -> Target {
        let config = self.config.tools.servers.get(server);
        let endpoint = config
            .and_then(|config| config.url.as_deref())
            .unwrap_or_default();
        Target::of_tool(server, tool, config.map_or("mcp", family), endpoint)
    }

    /// Whether a server is the candidate of another one.
    pub(super) fn is_on_trial(&self, server: &str) -> bool {
        self.config
            .releases
            .subjects
            .values()
            .any(|subject| subject.candidate.as_str() == server)
    }

    /// Where a server is reached, without credentials: its URL, or its name and a hash of what is
    /// started for it, because every server has a child of its own; `None` where there is no such
    /// server.
    pub(super) fn endpoint(&self, server: &str) -> Option<String> {
        let config = self.config.tools.servers.get(server)?;
        let started = || {
            let parts = config
                .command
                .iter()
                .chain(&config.args)
                .map(String::as_str);
            format!("{server}:{}", short_hash(parts))
        };
        let http = config.http.as_ref().map(|plain| plain.base_url.clone());
        Some(config.url.clone().or(http).unwrap_or_else(started))
    }

    /// What the target of a tool is created with. Its gates open anew where its server's settings
    /// change.
    pub(super) fn target_spec(&self, target: &Arc<Target>) -> TargetSpec {
        let server = self.config.tools.servers.get(&*target.provider);
        let mut hasher = DefaultHasher::new();
        if let Some(server) = server {
            for (name, value) in server.headers.iter().chain(&server.env) {
                (name, value.expose()).hash(&mut hasher);
            }
            server
                .api_key
                .as_ref()
                .map(|key| key.expose().to_owned())
                .hash(&mut hasher);
            (&server.url, &server.command, &server.args).hash(&mut hasher);
        }
        let circuit = server
            .and_then(|server| server.circuit.as_ref())
            .unwrap_or(&self.config.circuit);
        // A tool that is still within its time is not slow.
        let timeout = self.timeout(&target.provider, target.tool().unwrap_or_default());
        let circuit = CircuitPolicy {
            first_token_timeout: timeout,
            slow_threshold: circuit.slow_threshold.max(timeout / 2).min(timeout),
            ..circuit.clone()
        };
        let concurrency = server
            .and_then(|server| server.concurrency.as_ref())
            .unwrap_or(&self.config.concurrency);
        TargetSpec {
            target: Arc::clone(target),
            circuit: Arc::new(circuit),
            concurrency: concurrency.clone(),
            settings: hasher.finish(),
        }
    }

    pub(super) fn effects(&self, server: &str, tool: &str) -> EffectsPolicy {
        self.config.tools.effects(server, tool)
    }

    pub(super) fn timeout(&self, server: &str, tool: &str) -> Duration {
        self.config.tools.timeout(server, tool)
    }

    pub(super) fn chunk_rules(&self, server: &str, tool: &str) -> Arc<[ChunkRule]> {
        self.config.tools.chunk_rules(server, tool).into()
    }

    pub(super) fn recovery(&self, server: &str, tool: &str) -> Arc<ToolRecoveryPolicy> {
        Arc::new(self.config.tools.recovery(server, tool).clone())
    }

    /// The other tools of the groups that this one is declared in, in their order.
    pub(super) fn group_of(&self, server: &str, tool: &str) -> Vec<(String, String)> {
        let others = self.config.tools.alternatives(server, tool);
        others
            .into_iter()
            .map(|(server, tool)| (server.to_owned(), tool.to_owned()))
            .collect()
    }

    /// The arguments that are not kept, as JSON pointers.
    pub(super) fn hidden(&self, server: &str, tool: &str) -> Vec<String> {
        self.config.tools.redact(server, tool).to_vec()
    }
}

/// What its failures are judged as, and what its spans say.
fn family(server: &ToolServerConfig) -> &'static str {
    if server.http.is_some() { "http" } else { "mcp" }
}
