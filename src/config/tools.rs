//! Tools: the servers that have them, what is known of each, which may stand in for which, and the
//! bounds.
//!
//! Plain data. A server is one of three kinds, by which of `url`, `command` and `http` it has.

mod policy;
mod server;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    policy::{ChunkRuleConfig, ToolPolicyConfig},
    server::{HttpMethod, HttpToolConfig, HttpToolsConfig, ToolServerConfig, ToolServerKind},
};
use super::{Environment, server::address};
use crate::{
    domain::units,
    policy::tool_recovery::{ToolRecoveryPolicy, chunk::ChunkRule, effects::EffectsPolicy},
};

/// Tool servers and how calls of their tools are recovered.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// The servers, by name. A caller names a tool alone, or as `server/tool` where several servers
    /// have one of its name.
    pub servers: BTreeMap<String, ToolServerConfig>,
    /// What is known of single tools, by `server/tool`, or by the tool's name for every server that
    /// has one.
    pub tools: BTreeMap<String, ToolPolicyConfig>,
    /// Tools (`server/tool`) that do the same, by a name of the operator's, in the order of
    /// preference. Only the tools of a group replace each other without a request for it; all
    /// others are offered in the explanation of a failure.
    pub groups: BTreeMap<String, Vec<String>>,
    /// How far recovery goes after a tool failed.
    pub recovery: ToolRecoveryPolicy,
    /// The longest time for one execution of a tool (100ms to 1h; default 1m). One that takes
    /// longer is cancelled, and may have taken effect.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Whether callers may state that a tool is safer than is known here. Default false: they may
    /// only add caution.
    pub trust_callers: bool,
    /// What is learnt from the outcomes of calls.
    pub learning: ToolLearningConfig,
    /// The bounds of what is exchanged with a server.
    pub limits: ToolLimitsConfig,
    /// Where MCP clients reach Relight as their one MCP server, which has the tools of all servers;
    /// unset: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_front: Option<McpFrontConfig>,
}

/// What is learnt from the outcomes of tool calls: which tool was right in place of which, and how
/// often each succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLearningConfig {
    /// Whether anything is learnt and used. Default true.
    pub enabled: bool,
    /// The time in which what was learnt loses half of its weight (1h to 8760h; default 336h).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub half_life: Duration,
    /// Most entries of each kind (1 to 100000; default 500); the weakest go first.
    pub max_entries: usize,
}

/// The bounds of what is exchanged with a tool server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(
    clippy::struct_field_names,
    reason = "each is a maximum, as its name in the file says"
)]
pub struct ToolLimitsConfig {
    /// Longest arguments of a call (1KiB to 64MiB; default 4MiB); longer ones are not sent.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_arguments_bytes: u64,
    /// Longest reply, and longest message of a server (4KiB to 1GiB; default 8MiB); a longer one
    /// fails the call, and ends a child.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_reply_bytes: u64,
    /// Most tools of one server (1 to 100000; default 2000); a server that lists more cannot be
    /// used.
    pub max_tools: usize,
    /// Deepest nesting of a tool's schemas (4 to 100; default 32); a tool with a deeper one is left
    /// out of the list.
    pub max_schema_depth: usize,
}

/// Where MCP clients reach Relight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpFrontConfig {
    /// Address and port.
    #[serde(deserialize_with = "address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The path of the endpoint; default `/mcp`.
    pub path: String,
}

// === impl ToolsConfig ===

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            servers: BTreeMap::new(),
            tools: BTreeMap::new(),
            groups: BTreeMap::new(),
            recovery: ToolRecoveryPolicy::default(),
            timeout: Duration::from_mins(1),
            trust_callers: false,
            learning: ToolLearningConfig::default(),
            limits: ToolLimitsConfig::default(),
            mcp_front: None,
        }
    }
}

impl ToolsConfig {
    /// What is known of a tool: under `server/tool`, else under its name alone.
    #[must_use]
    pub fn tool(&self, server: &str, tool: &str) -> Option<&ToolPolicyConfig> {
        self.tools
            .get(&format!("{server}/{tool}"))
            .or_else(|| self.tools.get(tool))
    }

    /// What is stated about the side effects of a tool.
    #[must_use]
    pub fn effects(&self, server: &str, tool: &str) -> EffectsPolicy {
        let known = self.tool(server, tool);
        EffectsPolicy {
            read_only: known.and_then(|known| known.read_only),
            idempotent: known.and_then(|known| known.idempotent),
            destructive: known.and_then(|known| known.destructive),
            open_world: known.and_then(|known| known.open_world),
            idempotency_key: known.and_then(|known| known.idempotency_key.clone()),
            trust_annotations: self
                .servers
                .get(server)
                .is_some_and(|server| server.trust_annotations),
            trust_callers: self.trust_callers,
        }
    }

    /// How far the recovery of a tool goes.
    #[must_use]
    pub fn recovery(&self, server: &str, tool: &str) -> &ToolRecoveryPolicy {
        self.tool(server, tool)
            .and_then(|known| known.recovery.as_ref())
            .unwrap_or(&self.recovery)
    }

    /// The longest time for one execution of a tool.
    #[must_use]
    pub fn timeout(&self, server: &str, tool: &str) -> Duration {
        self.tool(server, tool)
            .and_then(|known| known.timeout)
            .unwrap_or(self.timeout)
    }

    /// How the calls of a tool may be split; the first rule that fits the arguments counts.
    #[must_use]
    pub fn chunk_rules(&self, server: &str, tool: &str) -> Vec<ChunkRule> {
        let known = self.tool(server, tool);
        known
            .map(|known| {
                known
                    .chunk
                    .iter()
                    .filter_map(ChunkRuleConfig::rule)
                    .collect()
            })
            .unwrap_or_default()
    }

    /// The arguments of a tool that are not kept, as JSON pointers.
    #[must_use]
    pub fn redact(&self, server: &str, tool: &str) -> &[String] {
        self.tool(server, tool).map_or(&[], |known| &known.redact)
    }

    /// The other tools of the groups of a tool, as `server` and `tool`, in the order of the groups.
    #[must_use]
    pub fn alternatives(&self, server: &str, tool: &str) -> Vec<(&str, &str)> {
        let own = format!("{server}/{tool}");
        let groups = self.groups.values().filter(|group| group.contains(&own));
        let mut others: Vec<(&str, &str)> = Vec::new();
        for other in groups
            .flatten()
            .filter(|other| **other != own)
            .filter_map(|other| other.split_once('/'))
        {
            if !others.contains(&other) {
                others.push(other);
            }
        }
        others
    }

    /// Takes what children inherit from the environment of this process.
    pub(super) fn inherit(&mut self, environment: &dyn Environment) {
        for server in self
            .servers
            .values_mut()
            .filter(|server| server.command.is_some())
        {
            server.inherited = server::INHERITED
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), environment.var(name)?)))
                .collect();
        }
    }
}

// === impl ToolLearningConfig ===

impl Default for ToolLearningConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            half_life: Duration::from_hours(24 * 14),
            max_entries: 500,
        }
    }
}

// === impl ToolLimitsConfig ===

impl Default for ToolLimitsConfig {
    fn default() -> Self {
        Self {
            max_arguments_bytes: 4 << 20,
            max_reply_bytes: 8 << 20,
            max_tools: 2000,
            max_schema_depth: 32,
        }
    }
}

// === impl McpFrontConfig ===

impl Default for McpFrontConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8092)),
            path: "/mcp".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
