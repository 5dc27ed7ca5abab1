//! What a tool server is built from: plain values that the configuration is mapped to.
//!
//! Nothing here is read from files or from the environment, and a secret is never printed. Two
//! specifications that are equal, secrets included, are one server: a reload keeps its connection
//! or child.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::outbound::{ClientTls, Proxy};

/// One tool server: its address, its protocol, and its bounds.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolServerSpec {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Address and protocol of the server.
    pub place: ToolServerPlace,
    /// The longest time for connecting and initializing, or for starting the child.
    pub start_timeout: Duration,
    /// Time for which its list of tools is used before it is fetched anew.
    pub refresh: Duration,
    /// Its bounds.
    pub limits: ToolLimits,
}

/// Address and protocol of a tool server.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolServerPlace {
    /// An MCP server behind a URL (streamable HTTP).
    McpHttp(HttpPlace),
    /// An MCP server that is a child process (stdio).
    McpChild(ChildSpec),
    /// Plain HTTP with JSON, declared tool by tool.
    PlainHttp {
        /// Address at which the paths of its tools start, and the headers to send.
        at: HttpPlace,
        /// Its tools, in the order of their names.
        tools: Vec<HttpToolSpec>,
    },
}

/// A URL and how it is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpPlace {
    /// The URL.
    pub url: String,
    /// Headers of every request.
    pub headers: SecretMap,
    /// If set, `http://` is allowed beyond this host.
    pub allow_http: bool,
    /// If set, its name may lead to a private address.
    pub allow_private: bool,
    /// The longest time for name, connection and TLS handshake together.
    pub connect_timeout: Duration,
    /// The proxy through which all connections are made; unset: none.
    pub proxy: Option<Proxy>,
    /// Authorities and client certificate; unset: the well-known authorities, and no certificate.
    pub tls: Option<ClientTls>,
}

/// A child process.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildSpec {
    /// The program, by its path or by its name in `PATH`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: SecretMap,
    /// Its working directory; unset: Relight's own.
    pub cwd: Option<PathBuf>,
    /// The wait before a child that ended is started again; doubles while it keeps failing.
    pub restart_initial: Duration,
    /// The longest such wait.
    pub restart_max: Duration,
    /// Time that a child may take to end by itself, and again after `SIGTERM`, before it is killed.
    pub stop_grace: Duration,
}

/// A plain HTTP tool.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpToolSpec {
    /// Its name.
    pub name: String,
    /// Description of what it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Arc<Value>,
    /// The method of its request.
    pub method: http::Method,
    /// The path behind the URL; `{argument}` is replaced by that argument.
    pub path: String,
}

/// Deepest nesting of a tool's schema.
pub const MAX_SCHEMA_DEPTH: usize = 32;

/// The bounds of a tool server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolLimits {
    /// Longest arguments of a call, in bytes.
    pub max_arguments_bytes: usize,
    /// Longest reply, in bytes: a line of a child, a body, an event. It bounds a page of a list of
    /// tools, too.
    pub max_reply_bytes: usize,
    /// Most tools of a server.
    pub max_tools: usize,
    /// Deepest nesting of a tool's schema; a tool with a deeper one is left out of the list.
    pub max_schema_depth: usize,
}

/// Values by name that are never printed.
#[derive(Clone, Default)]
pub struct SecretMap(BTreeMap<String, SecretString>);

// === impl ToolServerSpec ===

impl ToolServerSpec {
    /// A server with defaults for everything that is not named.
    #[must_use]
    pub fn new(name: &str, place: ToolServerPlace) -> Self {
        Self {
            name: name.into(),
            place,
            start_timeout: Duration::from_secs(30),
            refresh: Duration::from_mins(5),
            limits: ToolLimits::default(),
        }
    }
}

// === impl HttpPlace ===

impl HttpPlace {
    /// A URL with defaults for everything else.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: SecretMap::default(),
            allow_http: false,
            allow_private: false,
            connect_timeout: Duration::from_secs(2),
            proxy: None,
            tls: None,
        }
    }
}

// === impl ChildSpec ===

impl ChildSpec {
    /// A program with defaults for everything else, and an empty environment.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: SecretMap::default(),
            cwd: None,
            restart_initial: Duration::from_millis(500),
            restart_max: Duration::from_secs(30),
            stop_grace: Duration::from_secs(2),
        }
    }
}

// === impl ToolLimits ===

impl Default for ToolLimits {
    fn default() -> Self {
        Self {
            max_arguments_bytes: 4 << 20,
            max_reply_bytes: 8 << 20,
            max_tools: 2000,
            max_schema_depth: MAX_SCHEMA_DEPTH,
        }
    }
}

// === impl SecretMap ===

impl SecretMap {
    /// Returns every name with its secret.
    pub(super) fn exposed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose_secret()))
    }
}

impl FromIterator<(String, String)> for SecretMap {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(values: I) -> Self {
        Self(
            values
                .into_iter()
                .map(|(name, value)| (name, SecretString::from(value)))
                .collect(),
        )
    }
}

impl PartialEq for SecretMap {
    fn eq(&self, other: &Self) -> bool {
        self.exposed().eq(other.exposed())
    }
}

impl std::fmt::Debug for SecretMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_token(token: &str) -> ToolServerSpec {
        let headers = [("authorization".to_owned(), format!("Bearer {token}"))]
            .into_iter()
            .collect();
        let place = HttpPlace {
            headers,
            ..HttpPlace::new("https://tools.example/mcp")
        };
        ToolServerSpec::new("strava", ToolServerPlace::McpHttp(place))
    }

    #[test]
    fn a_changed_secret_makes_another_server_and_is_never_printed() {
        assert_eq!(with_token("one-token"), with_token("one-token"));
        assert_ne!(with_token("one-token"), with_token("two-token"));
        let printed = format!("{:?}", with_token("one-token"));
        assert!(
            printed.contains("authorization") && !printed.contains("one-token"),
            "{printed}"
        );
    }
}
