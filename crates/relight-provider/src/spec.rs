//! The specification of a provider client: plain values that the configuration maps to.
//!
//! Nothing here is read from files or from the environment, and credentials are not printed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{identity_spec::IdentitySpec, scripted::Script};
use crate::{
    domain::{
        target::Dialect,
        wire::{CompletionForm, ProviderRequest},
    },
    outbound::{ClientTls, Proxy},
};

/// Way in which a key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyHeader {
    /// `authorization: Bearer <key>`.
    #[default]
    Bearer,
    /// `api-key: <key>`, as Azure takes it.
    ApiKey,
    /// No key is sent.
    None,
}

/// A provider: its endpoint, dialect and keys.
#[derive(Debug, Clone)]
pub struct ProviderSpec {
    /// Its name, which targets refer to.
    pub name: Arc<str>,
    /// Family (`openai`, `azure`, `deepseek`, …), lower case; used if no target names another.
    pub family: Arc<str>,
    /// Its wire protocol.
    pub dialect: Dialect,
    /// The URL that the dialect's path is appended to, such as `https://api.openai.com/v1`. A query
    /// is kept behind the path; `{model}` is replaced by the target's model. Unused by scripted
    /// providers.
    pub base_url: String,
    /// Keys by the name under which targets refer to them.
    pub credentials: BTreeMap<String, SecretString>,
    /// Identity that a cloud gives, in the place of keys.
    pub identity: Option<IdentitySpec>,
    /// Way in which a key is sent.
    pub api_key_header: KeyHeader,
    /// Headers of every request; they replace Relight's own of the same name.
    pub extra_headers: BTreeMap<String, String>,
    /// Connections and bounds.
    pub http: HttpSettings,
    /// Differences between servers of the chat completions dialect.
    pub chat: ChatOptions,
    /// If set, W3C trace context and baggage are sent with each request.
    pub propagate_trace: bool,
    /// The cloud's region, for Bedrock; unset: read from the base URL. With it, an empty base URL
    /// is composed.
    pub region: Option<String>,
    /// Script that a scripted provider plays; unset plays the default script.
    pub scripted: Option<Script>,
}

/// Connections and bounds of a provider's HTTP client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent setting"
)]
pub struct HttpSettings {
    /// Longest time for name, connection and TLS handshake together; too short makes far providers
    /// unreachable.
    pub connect_timeout: Duration,
    /// Time for which an idle connection is kept; one longer than the provider keeps it loses
    /// attempts to closed connections.
    pub pool_idle_timeout: Duration,
    /// Idle connections kept per host; 0 makes each attempt pay for a new one.
    pub pool_max_idle_per_host: usize,
    /// Longest response, in bytes; a longer one fails the attempt.
    pub max_body_bytes: u64,
    /// Longest line of an event stream, in bytes; a longer one fails the attempt.
    pub max_line_bytes: usize,
    /// If set, HTTP/2 is used without negotiation, on plaintext connections too; HTTP/1.1-only
    /// servers then fail.
    pub http2_prior_knowledge: bool,
    /// If set, `http://` is allowed beyond this host: keys and prompts then cross the network in
    /// the clear.
    pub allow_http: bool,
    /// If set, names may lead to private addresses.
    pub allow_private: bool,
    /// If set, small packets are sent at once.
    pub tcp_nodelay: bool,
    /// The proxy through which all connections are made; unset: none.
    pub proxy: Option<Proxy>,
    /// Authorities and client certificate; unset: the well-known authorities, and no certificate.
    pub tls: Option<ClientTls>,
}

/// Way in which completions are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamMode {
    /// As a stream, or as a document if a stream would show nothing sooner: for the first attempt of
    /// a call that asks for no stream, has no request id and is not resumable, if 99 of 100 of the
    /// target's last completions (20 at least, of 5 minutes) were whole within half of the shortest
    /// of three times: its first-token limit, the silence after which another target is called
    /// beside it, and the `slow_threshold` of its circuit. Bedrock, targets that respond in the
    /// background and routes with `hedge` always have streams.
    #[default]
    Auto,
    /// As a stream.
    #[serde(alias = "true")]
    Always,
    /// As a document, for servers without streams: a stall, a cut and a late first token are seen
    /// only when all is over.
    #[serde(alias = "false")]
    Never,
}

/// Differences between servers of the chat completions dialect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatOptions {
    /// Way in which completions are requested, in every dialect.
    pub stream: StreamMode,
    /// The field in which reasoning is sent back (`reasoning_content` for `DeepSeek`); unset sends
    /// none back.
    pub reasoning_field: Option<String>,
    /// The path behind the base URL.
    pub path: String,
}

// === impl ProviderSpec ===

impl ProviderSpec {
    /// A provider with defaults for everything that is not named; no keys.
    pub fn new(name: impl Into<Arc<str>>, dialect: Dialect, base_url: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            family: Arc::clone(&name),
            name,
            dialect,
            base_url: base_url.into(),
            credentials: BTreeMap::new(),
            identity: None,
            api_key_header: KeyHeader::default(),
            extra_headers: BTreeMap::new(),
            http: HttpSettings::default(),
            chat: ChatOptions::default(),
            propagate_trace: false,
            region: None,
            scripted: None,
        }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            pool_idle_timeout: Duration::from_secs(50),
            pool_max_idle_per_host: 64,
            max_body_bytes: 32 << 20,
            max_line_bytes: 1 << 20,
            http2_prior_knowledge: false,
            allow_http: false,
            allow_private: false,
            tcp_nodelay: true,
            proxy: None,
            tls: None,
        }
    }
}

impl StreamMode {
    /// Returns whether this call's completion is requested as a stream.
    #[must_use]
    pub fn streams(self, call: &ProviderRequest) -> bool {
        match self {
            Self::Auto => call.form != CompletionForm::Document,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            stream: StreamMode::default(),
            reasoning_field: None,
            path: "/chat/completions".to_owned(),
        }
    }
}
