//! What the configuration sets for the tools of each server, as recovery needs it.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use super::misspelt::Misspelt;
use crate::{
    config::{Config, tools::ToolServerConfig},
    domain::{clock, target::Target, tool::ToolList},
    layers::{targets::TargetSpec, tools::ToolKnowledge},
    policy::{
        circuit::CircuitPolicy,
        tool_recovery::{
            ToolRecoveryPolicy, arguments::short_hash, chunk::ChunkRule, effects::EffectsPolicy,
            learning::ToolLearning, reported::FailureReading,
        },
    },
};

/// Time in which what was learnt loses half of its weight.
const HALF_LIFE: Duration = Duration::from_hours(24 * 14);
/// Most entries of each kind that are learnt; the weakest go first.
const MAX_ENTRIES: usize = 500;

/// Settings for the tools of all servers.
pub(super) struct ToolSettings {
    config: Config,
    misspelt: Misspelt,
}

// === impl ToolSettings ===

impl ToolSettings {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            misspelt: Misspelt::default(),
        }
    }

    /// Reports settings that name what the list of a server does not have.
    pub(super) fn look_at(&self, server: &str, list: &ToolList) {
        self.misspelt.look_at(&self.config.tools, server, list);
    }

    /// The same of the lists of all servers.
    pub(super) fn look_at_all(&self, lists: &[(Arc<str>, Arc<ToolList>)]) {
        self.misspelt.look_at_all(&self.config.tools, lists);
    }

    /// Nothing learnt yet, within the bounds that are set.
    pub(super) fn fresh_knowledge(&self) -> ToolKnowledge {
        let tools = ToolLearning::new(HALF_LIFE, MAX_ENTRIES);
        ToolKnowledge::new(tools, MAX_ENTRIES, self.config.tools.learning.enabled)
    }

    /// Puts what was learnt under the bounds that are set.
    pub(super) fn bound(&self, knowledge: &ToolKnowledge) {
        let mut learnt = knowledge.learnt();
        learnt.enabled = self.config.tools.learning.enabled;
        let bounded = learnt
            .tools
            .clone()
            .with_bounds(HALF_LIFE, MAX_ENTRIES, clock::wall_now());
        learnt.tools = bounded;
    }

    /// Returns a tool as a target.
    pub(super) fn target(&self, server: &str, tool: &str) -> Target {
        let config = self.config.tools.servers.get(server);
        let endpoint = config
            .and_then(|config| config.url.as_deref())
            .unwrap_or_default();
        Target::of_tool(server, tool, config.map_or("mcp", family), endpoint)
    }

    /// Returns whether a server is the candidate of another one.
    pub(super) fn is_on_trial(&self, server: &str) -> bool {
        self.config
            .releases
            .subjects
            .values()
            .any(|subject| subject.candidate.as_str() == server)
    }

    /// Returns the endpoint of a server, without credentials: its URL, or its name and a hash of
    /// the command that is started for it, because every server has a child of its own; `None` if
    /// the server does not exist.
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

    /// Returns the spec with which the target of a tool is created. Its gates open anew if its
    /// server's settings change.
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
        let circuit = &self.config.circuit;
        // A tool that is still within its time is not slow.
        let timeout = self.timeout(&target.provider, target.tool().unwrap_or_default());
        let circuit = CircuitPolicy {
            first_token_timeout: timeout,
            slow_threshold: circuit.slow_threshold.max(timeout / 2).min(timeout),
            ..circuit.clone()
        };
        TargetSpec {
            target: Arc::clone(target),
            circuit: Arc::new(circuit),
            concurrency: self.config.concurrency.clone(),
            settings: hasher.finish(),
            pool: Vec::new(),
        }
    }

    pub(super) fn effects(&self, server: &str, tool: &str) -> EffectsPolicy {
        self.config.tools.effects(server, tool)
    }

    pub(super) fn failures(&self, server: &str, tool: &str) -> FailureReading {
        self.config.tools.failures(server, tool)
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

    /// Returns the other tools of the groups that this one is declared in, in their order.
    pub(super) fn group_of(&self, server: &str, tool: &str) -> Vec<(String, String)> {
        let others = self.config.tools.alternatives(server, tool);
        others
            .into_iter()
            .map(|(server, tool)| (server.to_owned(), tool.to_owned()))
            .collect()
    }

    /// Returns the arguments that are not kept, as JSON pointers.
    pub(super) fn hidden(&self, server: &str, tool: &str) -> Vec<String> {
        self.config.tools.redact(server, tool).to_vec()
    }
}

/// Returns the family under which its failures are judged, and which its spans state.
fn family(server: &ToolServerConfig) -> &'static str {
    if server.http.is_some() { "http" } else { "mcp" }
}
