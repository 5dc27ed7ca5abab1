//! One tool server: an MCP server behind a URL, an MCP server that is a child process, or plain
//! HTTP tools.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{
        Secret,
        connection::{ClientTlsConfig, ProxyConfig},
    },
    domain::units,
    policy::tool_recovery::reported::FailureReading,
};

/// The variables that a child gets from Relight's own environment.
pub(super) const INHERITED: [&str; 2] = ["PATH", "HOME"];

/// One tool server; it has exactly one of `url`, `command` and `http`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolServerConfig {
    /// The URL of an MCP server (streamable HTTP), such as `https://tools.example/mcp`.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::config::printable::shown_where_there_is_one"
    )]
    pub url: Option<String>,
    /// The program of an MCP server (stdio), by its path or by its name in `PATH`; it runs as a
    /// child of Relight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Plain HTTP tools, declared one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpToolsConfig>,
    /// Header fields sent with each request to `url` or `http`; their values are treated as
    /// secrets.
    pub headers: BTreeMap<String, Secret>,
    /// A key that is sent to `url` or `http` as `authorization: Bearer <key>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// A file that holds that key, as Kubernetes mounts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Arguments of `command`.
    pub args: Vec<String>,
    /// Environment of `command`, beside PATH and HOME of Relight's own; the values are treated as
    /// secrets.
    pub env: BTreeMap<String, Secret>,
    /// Working directory of `command`; unset: Relight's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Time for starting and initializing (100ms to 10m; default 30s); too short makes servers that
    /// are installed at their start (`npx`, `uvx`) unusable.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub start_timeout: Duration,
    /// Time for which its list of tools is used before it is fetched anew (1s to 24h; default 5m);
    /// a server may report changes before.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub refresh: Duration,
    /// If set, the server's statements about the side effects of its tools are believed. Default
    /// false: a tool of which nothing is known may do anything, and is executed at most once.
    pub trust_annotations: bool,
    /// Signs by which its tools report that they failed in a result that is not marked as an error,
    /// if they differ from `tools.failures`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailureReading>,
    /// The egress proxy through which `url` or `http` is reached; unset: it is connected to
    /// directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// The certificates of connections to `url` or `http`; unset: the well-known authorities are
    /// trusted, and no certificate is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTlsConfig>,
    /// If set, its URL may be plain `http` to another host; keys and data sent so can be read on
    /// the way.
    pub allow_plaintext: bool,
    /// If set, its URL may lead to a private address (10/8, 192.168/16, …); loopback always may.
    pub allow_private_addresses: bool,
    /// Variables that a child gets from Relight's own environment; not a setting.
    #[serde(skip)]
    pub inherited: BTreeMap<String, String>,
}

/// Plain HTTP tools of one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpToolsConfig {
    /// URL at which the paths start, such as `https://crm.example/api`.
    #[serde(serialize_with = "crate::config::printable::shown")]
    pub base_url: String,
    /// The tools, by name.
    pub tools: BTreeMap<String, HttpToolConfig>,
}

/// A plain HTTP tool. A response of 2xx is its result: JSON, a text or a file; any other is its
/// failure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpToolConfig {
    /// Purpose of the tool, as a model reads it.
    pub description: String,
    /// JSON Schema of its arguments, an object; unset: any object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<serde_json::Value>,
    /// The method; default POST. Arguments go into the body as JSON, with GET and DELETE into the
    /// query.
    pub method: HttpMethod,
    /// The path behind `base_url`, such as `/customers/{id}`: `{id}` is replaced by the argument
    /// `id`, which is then sent nowhere else.
    #[serde(serialize_with = "crate::config::printable::shown")]
    pub path: String,
}

/// The method of a plain HTTP tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// `GET`
    Get,
    /// `POST`
    #[default]
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

/// Kind of a tool server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ToolServerKind<'a> {
    /// An MCP server behind this URL.
    Url(&'a str),
    /// An MCP server that is this program.
    Command(&'a str),
    /// Plain HTTP tools.
    Http(&'a HttpToolsConfig),
}

// === impl ToolServerConfig ===

impl Default for ToolServerConfig {
    fn default() -> Self {
        Self {
            url: None,
            command: None,
            http: None,
            headers: BTreeMap::new(),
            api_key: None,
            api_key_file: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            start_timeout: Duration::from_secs(30),
            refresh: Duration::from_mins(5),
            trust_annotations: false,
            failures: None,
            proxy: None,
            tls: None,
            allow_plaintext: false,
            allow_private_addresses: false,
            inherited: BTreeMap::new(),
        }
    }
}

impl ToolServerConfig {
    /// Returns its kind; `None` if it states nothing or several things, which no configuration in
    /// force does.
    #[must_use]
    pub fn kind(&self) -> Option<ToolServerKind<'_>> {
        match (&self.url, &self.command, &self.http) {
            (Some(url), None, None) => Some(ToolServerKind::Url(url)),
            (None, Some(command), None) => Some(ToolServerKind::Command(command)),
            (None, None, Some(http)) => Some(ToolServerKind::Http(http)),
            _ => None,
        }
    }

    /// Returns the header fields of every request, with its key.
    #[must_use]
    pub fn all_headers(&self) -> BTreeMap<String, String> {
        let key = self.api_key.as_ref().map(|key| {
            (
                "authorization".to_owned(),
                format!("Bearer {}", key.expose()),
            )
        });
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| (name.to_lowercase(), value.expose().to_owned()));
        key.into_iter().chain(headers).collect()
    }

    /// Returns the whole environment of its child.
    #[must_use]
    pub fn whole_env(&self) -> BTreeMap<String, String> {
        let inherited = self
            .inherited
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        inherited
            .chain(
                self.env
                    .iter()
                    .map(|(name, value)| (name.clone(), value.expose().to_owned())),
            )
            .collect()
    }
}

// === impl HttpMethod ===

impl HttpMethod {
    /// Returns its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}
