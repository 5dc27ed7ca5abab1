//! One tool server: an MCP server behind a URL, an MCP server that is a child process, or plain
//! HTTP tools.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    config::{
        connection::{ClientTlsConfig, ProxyConfig},
        secret::Secret,
    },
    domain::units,
    policy::{circuit::CircuitPolicy, concurrency::ConcurrencyPolicy},
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
        serialize_with = "without_secrets"
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
    /// When `command` is started again after it ended.
    pub restart: RestartConfig,
    /// How long `command` may take to end by itself, and again after SIGTERM, before it is killed
    /// (0s to 1m; default 2s).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub stop_grace: Duration,
    /// Time for starting and initializing (100ms to 10m; default 30s); too short makes servers that
    /// are installed at their start (`npx`, `uvx`) unusable.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub start_timeout: Duration,
    /// Time for name, connection and TLS together (100ms to 1m; default 2s); too short makes far
    /// servers unreachable.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// How long its list of tools is used before it is fetched anew (1s to 24h; default 5m); a
    /// server may report changes before.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub refresh: Duration,
    /// Whether what it states about the side effects of its tools is believed. Default false: a
    /// tool of which nothing is known may do anything, and is executed at most once.
    pub trust_annotations: bool,
    /// The egress proxy through which `url` or `http` is reached; unset: it is connected to
    /// directly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// The certificates of connections to `url` or `http`; unset: the well-known authorities are
    /// trusted, and no certificate is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTlsConfig>,
    /// Whether its URL may be plain `http` to another host; keys and data sent so can be read on
    /// the way.
    pub allow_plaintext: bool,
    /// Whether its URL may lead to a private address (10/8, 192.168/16, …); loopback always may.
    pub allow_private_addresses: bool,
    /// When its tools are no longer called, where that differs from `circuit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitPolicy>,
    /// How many calls each of its tools may have at once, where it differs from `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyPolicy>,
    /// What a child gets from Relight's own environment; no setting.
    #[serde(skip)]
    pub inherited: BTreeMap<String, String>,
}

/// When a child is started again after it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestartConfig {
    /// The wait from its start to the next one, the first time (0s to `max`; default 500ms);
    /// doubles while it keeps ending within a minute. A child that is not called is not started.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub initial: Duration,
    /// The longest such wait (at most 1h; default 30s). Calls before its end fail at once, saying
    /// when to come back.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max: Duration,
}

/// Plain HTTP tools of one place.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpToolsConfig {
    /// Where the paths begin, such as `https://crm.example/api`.
    #[serde(serialize_with = "shown")]
    pub base_url: String,
    /// The tools, by name.
    pub tools: BTreeMap<String, HttpToolConfig>,
}

/// A plain HTTP tool. A response of 2xx is its result: JSON, a text or a file; any other is its
/// failure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpToolConfig {
    /// What it does, as a model reads it.
    pub description: String,
    /// JSON Schema of its arguments, an object; unset: any object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<serde_json::Value>,
    /// The method; default POST. Arguments go into the body as JSON, with GET and DELETE into the
    /// query.
    pub method: HttpMethod,
    /// The path behind `base_url`, such as `/customers/{id}`: `{id}` is replaced by the argument
    /// `id`, which is then sent nowhere else.
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

/// What a tool server is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ToolServerKind<'a> {
    /// An MCP server behind this URL.
    Url(&'a str),
    /// An MCP server that is this program.
    Command(&'a str),
    /// Plain HTTP tools.
    Http(&'a HttpToolsConfig),
}

/// A URL is shown without its user, password and query.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
fn without_secrets<S: serde::Serializer>(
    url: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    url.as_deref()
        .map(crate::config::shown_url)
        .serialize(serializer)
}

fn shown<S: serde::Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    crate::config::shown_url(url).serialize(serializer)
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
            restart: RestartConfig::default(),
            stop_grace: Duration::from_secs(2),
            start_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(2),
            refresh: Duration::from_mins(5),
            trust_annotations: false,
            proxy: None,
            tls: None,
            allow_plaintext: false,
            allow_private_addresses: false,
            circuit: None,
            concurrency: None,
            inherited: BTreeMap::new(),
        }
    }
}

impl ToolServerConfig {
    /// What it is; `None` where it says nothing or several things, which no configuration in force
    /// does.
    #[must_use]
    pub fn kind(&self) -> Option<ToolServerKind<'_>> {
        match (&self.url, &self.command, &self.http) {
            (Some(url), None, None) => Some(ToolServerKind::Url(url)),
            (None, Some(command), None) => Some(ToolServerKind::Command(command)),
            (None, None, Some(http)) => Some(ToolServerKind::Http(http)),
            _ => None,
        }
    }

    /// The header fields of every request, with its key.
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

    /// The whole environment of its child.
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

// === impl RestartConfig ===

impl Default for RestartConfig {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(500),
            max: Duration::from_secs(30),
        }
    }
}

// === impl HttpMethod ===

impl HttpMethod {
    /// Its name.
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
