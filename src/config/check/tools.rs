//! What can be wrong with tool servers, with what is known of their tools, and with groups of
//! tools.

use std::{collections::BTreeMap, time::Duration};

use http::header::AUTHORIZATION;

use super::{Checker, upstream::names};
use crate::{
    config::{
        Config,
        tools::{
            ChunkRuleConfig, HttpToolsConfig, ToolPolicyConfig, ToolServerConfig, ToolsConfig,
        },
    },
    policy::tool_recovery::ToolRecoveryPolicy,
    tool::{MAX_SCHEMA_DEPTH, is_within},
};

const KINDS: [&str; 3] = ["url", "command", "http"];

// === impl Checker ===

impl Checker<'_> {
    pub(super) fn tools(&mut self, config: &Config) {
        let tools = &config.tools;
        for (name, server) in &tools.servers {
            self.tool_server(&format!("tools.servers.{name}"), name, server);
        }
        for (name, tool) in &tools.tools {
            self.tool(&format!("tools.tools.{name}"), name, tool, tools);
        }
        for (name, group) in &tools.groups {
            self.group(&format!("tools.groups.{name}"), group, tools);
        }
        self.tool_recovery("tools.recovery", &tools.recovery);
        self.execution_time("tools.timeout", tools.timeout);
        let limits = &tools.limits;
        let at = "tools.limits.max_reply_bytes";
        self.range(
            at,
            &limits.max_reply_bytes,
            &(4 << 10),
            &(1 << 30),
            "from 4KiB to 1GiB",
        );
    }

    fn tool_server(&mut self, path: &str, name: &str, server: &ToolServerConfig) {
        if name.is_empty() || name.contains('/') {
            self.fault(
                path,
                "is no name of a tool server: callers write it before a slash",
            );
        }
        self.kind_of_server(path, server);
        self.without_effect(path, server);
        self.addresses(path, server);
        let api_key = server.api_key.as_ref().map(|_| ("api_key", AUTHORIZATION));
        let keys: Vec<_> = api_key.into_iter().collect();
        self.headers(&format!("{path}.headers"), &server.headers, &keys);
        self.key(&format!("{path}.api_key"), server.api_key.as_ref());
        self.program(path, server);
        self.times_of_server(path, server);
    }

    /// A server is reached in one way.
    fn kind_of_server(&mut self, path: &str, server: &ToolServerConfig) {
        let has = [
            server.url.is_some(),
            server.command.is_some(),
            server.http.is_some(),
        ];
        let written: Vec<&str> = KINDS
            .into_iter()
            .zip(has)
            .filter_map(|(kind, has)| has.then_some(kind))
            .collect();
        match written[..] {
            [] if KINDS
                .iter()
                .all(|kind| !self.is_written(&format!("{path}.{kind}"))) =>
            {
                self.fault(path, "must have one of url, command and http");
            }
            [] | [_] => {}
            [first, second, ..] => {
                self.fault(
                    &format!("{path}.{second}"),
                    format!("is given beside {first}; keep one of them"),
                );
            }
        }
    }

    /// Checks the address of a server that is reached over the network, and the way to it.
    fn addresses(&mut self, path: &str, server: &ToolServerConfig) {
        let plaintext = server.allow_plaintext;
        let private = server.allow_private_addresses;
        if let Some(url) = &server.url {
            self.base_url(&format!("{path}.url"), url, plaintext, private);
        }
        if let Some(http) = &server.http {
            if http.base_url.is_empty() {
                self.required(
                    &format!("{path}.http.base_url"),
                    "is missing; write it like https://crm.example/api",
                );
            } else {
                self.base_url(
                    &format!("{path}.http.base_url"),
                    &http.base_url,
                    plaintext,
                    private,
                );
            }
            self.http_tools(&format!("{path}.http.tools"), http);
        }
        self.connection(path, server.proxy.as_ref(), server.tls.as_ref(), private);
    }

    /// The program of a server that is a process of this one, and its environment.
    fn program(&mut self, path: &str, server: &ToolServerConfig) {
        if server.command.as_deref() == Some("") {
            self.fault(&format!("{path}.command"), "is empty; name a program");
        }
        for (variable, value) in &server.env {
            if variable.is_empty()
                || variable.contains(['=', '\0'])
                || value.expose().contains('\0')
            {
                self.fault(
                    &format!("{path}.env.{variable}"),
                    "is no variable that a process can have",
                );
            }
        }
    }

    fn times_of_server(&mut self, path: &str, server: &ToolServerConfig) {
        let short = Duration::from_millis(100);
        let at = format!("{path}.start_timeout");
        self.range(
            &at,
            &server.start_timeout,
            &short,
            &Duration::from_mins(10),
            "from 100ms to 10m",
        );
        let day = Duration::from_hours(24);
        self.range(
            &format!("{path}.refresh"),
            &server.refresh,
            &Duration::from_secs(1),
            &day,
            "from 1s to 24h",
        );
    }

    /// Settings of another kind of server.
    fn without_effect(&mut self, path: &str, server: &ToolServerConfig) {
        let (settings, kinds): (&[&str], &str) = if server.command.is_some() {
            (
                &[
                    "headers",
                    "api_key",
                    "api_key_file",
                    "proxy",
                    "tls",
                    "allow_plaintext",
                ],
                "url or http",
            )
        } else if server.url.is_some() || server.http.is_some() {
            (&["args", "env", "cwd"], "command")
        } else {
            return;
        };
        for setting in settings {
            let at = format!("{path}.{setting}");
            if self.is_written(&at) {
                self.fault(&at, format!("has no effect without {kinds}"));
            }
        }
    }

    fn http_tools(&mut self, path: &str, http: &HttpToolsConfig) {
        if http.tools.is_empty() {
            self.required(path, "is missing; declare at least one tool");
        }
        for (name, tool) in &http.tools {
            let path = format!("{path}.{name}");
            if !tool.path.starts_with('/') {
                self.fault(
                    &format!("{path}.path"),
                    "is no path; write it like /customers/{id}",
                );
            }
            let Some(schema) = &tool.input_schema else {
                continue;
            };
            let at = format!("{path}.input_schema");
            if !schema.is_object() {
                self.fault(&at, "is no JSON Schema; write a map");
            } else if !is_within(schema, MAX_SCHEMA_DEPTH) {
                self.fault(
                    &at,
                    format!("is nested deeper than {MAX_SCHEMA_DEPTH} levels"),
                );
            } else if let Err(error) = jsonschema::validator_for(schema) {
                self.fault(&at, format!("does not compile: {error}"));
            }
        }
    }

    fn tool(&mut self, path: &str, name: &str, tool: &ToolPolicyConfig, tools: &ToolsConfig) {
        if let Some((server, _)) = name.split_once('/') {
            self.tool_name(path, name, server, tools);
        }
        if tool.read_only == Some(true) && tool.destructive == Some(true) {
            self.fault(
                &format!("{path}.destructive"),
                "contradicts read_only: true",
            );
        }
        for (index, pointer) in tool.redact.iter().enumerate() {
            if !pointer.starts_with('/') {
                self.fault(
                    &format!("{path}.redact[{index}]"),
                    "is no JSON pointer; write it like /user/email",
                );
            }
        }
        if let Some(timeout) = tool.timeout {
            self.execution_time(&format!("{path}.timeout"), timeout);
        }
        if let Some(recovery) = &tool.recovery {
            self.tool_recovery(&format!("{path}.recovery"), recovery);
        }
        for (index, rule) in tool.chunk.iter().enumerate() {
            self.chunk_rule(&format!("{path}.chunk[{index}]"), rule);
        }
    }

    fn chunk_rule(&mut self, path: &str, rule: &ChunkRuleConfig) {
        for missing in rule.missing() {
            self.required(
                &format!("{path}.{missing}"),
                "is missing; name the argument",
            );
        }
        for misplaced in rule.misplaced() {
            self.fault(
                &format!("{path}.{misplaced}"),
                "belongs to another kind of rule than what is written before it",
            );
        }
        let faults = rule.rule().map(|rule| rule.validate()).unwrap_or_default();
        self.policy(path, faults);
    }

    fn group(&mut self, path: &str, group: &[String], tools: &ToolsConfig) {
        if group.len() < 2 {
            self.fault(path, "must name at least two tools, as server/tool");
        }
        for (index, tool) in group.iter().enumerate() {
            let at = format!("{path}[{index}]");
            match tool.split_once('/') {
                Some((server, name)) if !name.is_empty() => {
                    self.tool_name(&at, tool, server, tools);
                }
                Some(_) | None => self.fault(&at, "names no server; write it as server/tool"),
            }
            if group[..index].contains(tool) {
                self.fault(&at, "is named twice");
            }
        }
    }

    /// A tool that is named as `server/tool`: of plain HTTP it must be declared, what MCP servers
    /// list is not known here.
    fn tool_name(&mut self, path: &str, name: &str, server: &str, tools: &ToolsConfig) {
        let Some(known) = tools.servers.get(server) else {
            if !self.is_written(&format!("tools.servers.{server}")) {
                self.unknown(path, server, "tool server", names(&tools.servers));
            }
            return;
        };
        let tool = name
            .strip_prefix(server)
            .and_then(|name| name.strip_prefix('/'))
            .unwrap_or_default();
        let declared: Option<&BTreeMap<_, _>> = known.http.as_ref().map(|http| &http.tools);
        if let Some(declared) = declared.filter(|declared| !declared.contains_key(tool)) {
            self.unknown(path, tool, "tool of its server", names(declared));
        }
    }

    fn execution_time(&mut self, path: &str, timeout: Duration) {
        let min = Duration::from_millis(100);
        let max = Duration::from_hours(1);
        self.range(path, &timeout, &min, &max, "from 100ms to 1h");
    }

    fn tool_recovery(&mut self, path: &str, recovery: &ToolRecoveryPolicy) {
        let path = format!("{path}.max_retries");
        self.range(&path, &recovery.max_retries, &0, &5, "at most 5");
    }
}
