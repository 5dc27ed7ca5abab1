//! Tools: the servers that have them, the known facts of each, which may stand in for which, and
//! the bounds.
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
    policy::tool_recovery::{
        ToolRecoveryPolicy, chunk::ChunkRule, effects::EffectsPolicy, reported::FailureReading,
    },
};

/// Tool servers and how calls of their tools are recovered.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolsConfig {
    /// The servers, by name. A caller names a tool alone, or as `server/tool` if several servers
    /// have one of its name.
    pub servers: BTreeMap<String, ToolServerConfig>,
    /// Known facts of single tools, by `server/tool`, or by the tool's name for every server that
    /// has one.
    pub tools: BTreeMap<String, ToolPolicyConfig>,
    /// Tools (`server/tool`) that do the same, by a name of the operator's, in the order of
    /// preference. Without a request for it a tool is replaced by one of its group alone, or by one
    /// that was learnt to be right in its place (`learning`); all others are offered in the
    /// explanation of a failure.
    pub groups: BTreeMap<String, Vec<String>>,
    /// Extent of recovery after a tool failed.
    pub recovery: ToolRecoveryPolicy,
    /// Signs by which tools report that they failed in a result that is not marked as an error.
    pub failures: FailureReading,
    /// The longest time for one execution of a tool (100ms to 1h; default 1m). One that takes
    /// longer is cancelled, and may have taken effect.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// If set, callers may state that a tool is safer than is known here. Default false: they may
    /// only add caution.
    pub trust_callers: bool,
    /// Learning from the outcomes of calls.
    pub learning: ToolLearningConfig,
    /// The bounds of what is exchanged with a server.
    pub limits: ToolLimitsConfig,
    /// Endpoint at which MCP clients reach Relight as their one MCP server, which has the tools of
    /// all servers; unset: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_front: Option<McpFrontConfig>,
}

/// Learning from the outcomes of tool calls: which tool was right in place of which, and how often
/// each succeeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLearningConfig {
    /// If set, outcomes are learnt and used. Default true.
    pub enabled: bool,
}

/// The bounds of what is exchanged with a tool server. Arguments of more than 4 MiB are not sent, a
/// server that lists more than 2000 tools cannot be used, and a tool whose schemas are nested
/// deeper than 32 levels is left out of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLimitsConfig {
    /// Longest reply, and longest message of a server (4KiB to 1GiB; default 8MiB); a longer one
    /// fails the call, and ends a child.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_reply_bytes: u64,
}

/// Endpoint at which MCP clients reach Relight, at the path `/mcp`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct McpFrontConfig {
    /// Address and port.
    #[serde(deserialize_with = "address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
}

// === impl ToolsConfig ===

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            servers: BTreeMap::new(),
            tools: BTreeMap::new(),
            groups: BTreeMap::new(),
            recovery: ToolRecoveryPolicy::default(),
            failures: FailureReading::default(),
            timeout: Duration::from_mins(1),
            trust_callers: false,
            learning: ToolLearningConfig::default(),
            limits: ToolLimitsConfig::default(),
            mcp_front: None,
        }
    }
}

impl ToolsConfig {
    /// Returns the known facts of a tool: under `server/tool`, else under its name alone.
    #[must_use]
    pub fn tool(&self, server: &str, tool: &str) -> Option<&ToolPolicyConfig> {
        self.tools
            .get(&format!("{server}/{tool}"))
            .or_else(|| self.tools.get(tool))
    }

    /// Returns the statements about the side effects of a tool.
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

    /// Returns the extent of a tool's recovery.
    #[must_use]
    pub fn recovery(&self, server: &str, tool: &str) -> &ToolRecoveryPolicy {
        self.tool(server, tool)
            .and_then(|known| known.recovery.as_ref())
            .unwrap_or(&self.recovery)
    }

    /// Returns the signs by which a tool reports that it failed in a result that is not marked as
    /// an error.
    #[must_use]
    pub fn failures(&self, server: &str, tool: &str) -> FailureReading {
        let of_server = || self.servers.get(server).and_then(|known| known.failures);
        self.tool(server, tool)
            .and_then(|known| known.failures)
            .or_else(of_server)
            .unwrap_or(self.failures)
    }

    /// Returns the longest time for one execution of a tool.
    #[must_use]
    pub fn timeout(&self, server: &str, tool: &str) -> Duration {
        self.tool(server, tool)
            .and_then(|known| known.timeout)
            .unwrap_or(self.timeout)
    }

    /// Returns the rules by which the calls of a tool may be split; the first that fits the
    /// arguments counts.
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

    /// Returns the arguments of a tool that are not kept, as JSON pointers.
    #[must_use]
    pub fn redact(&self, server: &str, tool: &str) -> &[String] {
        self.tool(server, tool).map_or(&[], |known| &known.redact)
    }

    /// Returns the other tools of the groups of a tool, as `server` and `tool`, in the order of the
    /// groups.
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
        Self { enabled: true }
    }
}

// === impl ToolLimitsConfig ===

impl Default for ToolLimitsConfig {
    fn default() -> Self {
        Self {
            max_reply_bytes: 8 << 20,
        }
    }
}

// === impl McpFrontConfig ===

impl Default for McpFrontConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8092)),
        }
    }
}

#[cfg(test)]
mod tests;
