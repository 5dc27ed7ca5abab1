//! Providers with their credentials and transport, and the targets that are their models.
//!
//! A credential is inline (by `${ENV}` reference) or in a file; after loading it is in `api_key`
//! either way, so that no other module reads a file for it.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    connection::{ClientTlsConfig, ProxyConfig},
    price::PriceConfig,
    secret::Secret,
};
use crate::{
    domain::{
        adaptation::OutputLimitField,
        target::{Capabilities, Dialect, PrefillMark},
        units,
    },
    policy::{circuit::CircuitPolicy, concurrency::ConcurrencyPolicy},
};

/// The name of the credential that a provider's own `api_key` is.
pub const DEFAULT_CREDENTIAL: &str = "default";

/// A model provider: its endpoint, dialect and credentials.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// The wire protocol of the provider.
    #[schemars(with = "DialectName")]
    pub dialect: Dialect,
    /// Where its API begins, such as `https://api.openai.com/v1`; unset: the dialect's own place.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "without_secrets"
    )]
    pub base_url: Option<String>,
    /// The key of the credential `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// A file that holds that key, as Kubernetes mounts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// The family for the classifier and for telemetry (`openai`, `anthropic`, …); unset: the
    /// provider's name here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Header fields sent with each request; their values are treated as secrets.
    pub headers: BTreeMap<String, Secret>,
    /// More credentials, by name.
    pub credentials: BTreeMap<String, CredentialConfig>,
    /// How keys are sent; unset: as is known of the provider (`api-key` for Azure), else as a
    /// bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_header: Option<KeyHeader>,
    /// What servers of the chat completions dialect differ in.
    pub chat: ChatConfig,
    /// The HTTP client.
    pub http: HttpConfig,
    /// The egress proxy through which it is reached; unset: it is connected to directly. Variables
    /// such as `HTTPS_PROXY` are not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// The certificates of connections to it; unset: the well-known authorities are trusted, and no
    /// certificate is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTlsConfig>,
    /// Whether `base_url` may be plain `http` to another host; a key sent so can be read on the
    /// way.
    pub allow_plaintext: bool,
    /// Whether `base_url` may lead to a private address (10/8, 192.168/16, …); loopback always may.
    /// Of a name it is judged at each connection, by the addresses that the name has then; with
    /// `proxy` it is the proxy's name that is judged.
    pub allow_private_addresses: bool,
    /// Whether W3C trace context (`traceparent`, `tracestate`) is sent to the provider. Default
    /// false: the provider receives no trace ids.
    pub propagate_trace: bool,
    /// The region, where the dialect's own place depends on one (`bedrock`), such as
    /// `eu-central-1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What the scripted provider plays; only for the dialect `scripted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<serde_json::Value>,
}

/// One credential.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CredentialConfig {
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// A file that holds the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
}

/// How a key is sent.
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

/// How servers of the chat completions dialect differ; other dialects read `stream` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatConfig {
    /// Whether responses are requested as a stream, in every dialect; without it a response comes
    /// complete, as a stream of one.
    pub stream: bool,
    /// Whether a stream is requested to end with its usage; some old servers reject the option.
    pub include_usage: bool,
    /// The field of the output limit, for all targets; unset: as is known of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<OutputLimitField>,
    /// The field in which reasoning is sent back; unset: as is known of the provider
    /// (`reasoning_content` for `DeepSeek`), else none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_field: Option<String>,
    /// Whether developer messages are sent as such, else as system messages, for all targets;
    /// unset: as is known of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_role: Option<bool>,
    /// The path behind `base_url`.
    pub path: String,
}

/// The HTTP client of one provider. First-token and idle times are in `timers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpConfig {
    /// Time for name, connection and TLS together (100ms to 60s); too short makes far providers
    /// unreachable.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub connect_timeout: Duration,
    /// How long an idle connection is kept; longer than the provider keeps it loses attempts to
    /// closed connections.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub pool_idle_timeout: Duration,
    /// Idle connections kept per host; 0 makes each attempt pay for a new one.
    pub pool_max_idle_per_host: usize,
    /// Largest response, decompressed (64KiB to 1GiB); a larger one fails the attempt.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_body_bytes: u64,
    /// Longest line of an event stream (4KiB to `max_body_bytes`); a longer one fails the attempt.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_line_bytes: u64,
    /// Whether HTTP/2 is used without negotiation, on plaintext connections too; HTTP/1.1-only
    /// servers then fail.
    pub http2_prior_knowledge: bool,
}

/// A target: a model of a provider, with a credential.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TargetConfig {
    /// The provider, by its name in `providers`.
    pub provider: String,
    /// The model, as the provider names it.
    pub model: String,
    /// The credential, by its name at the provider; unset: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// A system message that is put before each conversation it gets, of at most 64 KiB; unset:
    /// none. Callers do not see it, and another text is another release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// What its tokens cost; unset: what calls of it cost is not shown as money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceConfig>,
    /// What the model can do, where it differs from what is known of it.
    pub capabilities: CapabilityOverrides,
    /// When it is closed to calls, where that differs from `circuit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitPolicy>,
    /// How many attempts it may have at once, where it differs from `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyPolicy>,
}

/// The capabilities of a model, where they differ from what is known; unset: as known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CapabilityOverrides {
    /// Accepts a system or developer message at the tail of the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_system_message: Option<bool>,
    /// Accepts a user message right after tool results.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_after_tool: Option<bool>,
    /// Continues an assistant message that the request begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_prefill: Option<bool>,
    /// How a request marks that assistant message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefill_mark: Option<PrefillMark>,
    /// Supports developer messages; other targets get the operator's instructions as system
    /// messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub developer_role: Option<bool>,
    /// What it calls the output limit, in the dialect `openai_chat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit_field: Option<OutputLimitField>,
    /// Supports tools; a call with tools goes to targets that do, where the route has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<bool>,
    /// Accepts a limit on the number of parallel tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tools: Option<bool>,
    /// Accepts images; a call with images goes to targets that do, where the route has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<bool>,
    /// Refuses tool calls of the current turn without the signatures that it gave them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_calls: Option<bool>,
    /// Whether responses are generated in the background, in streams of the dialect
    /// `openai_responses` alone (default: no). One that is cut off or falls silent is then resumed
    /// from where it was, instead of requested and paid for again; so is, once and from its
    /// beginning, one whose replica died or was stopped, where the journal is a file or a database
    /// that keeps payloads. One without a reader is cancelled, once its id came. The provider keeps
    /// such responses (`store`), which contracts without data retention forbid, and takes longer to
    /// begin them; the rest of one that was cut off may come without encrypted reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub background: Option<bool>,
    /// Largest prompt plus answer, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window_tokens: Option<u64>,
}

/// The dialects by name, for the schema.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case", inline)]
#[expect(
    dead_code,
    reason = "only its schema is used; a test keeps it equal to Dialect"
)]
enum DialectName {
    /// Chat completions as `OpenAI` defined them.
    OpenaiChat,
    /// The `OpenAI` Responses API.
    OpenaiResponses,
    /// The Anthropic Messages API.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// AWS Bedrock Converse.
    Bedrock,
    /// The embedded provider that plays a script.
    Scripted,
}

/// A URL without its user, password and query.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
fn without_secrets<S: serde::Serializer>(
    url: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    url.as_deref().map(super::shown_url).serialize(serializer)
}

// === impl ProviderConfig ===

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            dialect: Dialect::OpenaiChat,
            base_url: None,
            api_key: None,
            api_key_file: None,
            family: None,
            headers: BTreeMap::new(),
            credentials: BTreeMap::new(),
            api_key_header: None,
            chat: ChatConfig::default(),
            http: HttpConfig::default(),
            proxy: None,
            tls: None,
            allow_plaintext: false,
            allow_private_addresses: false,
            propagate_trace: false,
            region: None,
            script: None,
        }
    }
}

impl ProviderConfig {
    /// Where the API begins, without a slash at the end.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        let own = match self.dialect {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "https://api.openai.com/v1",
            Dialect::Anthropic => "https://api.anthropic.com",
            Dialect::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            // The regional host is composed by the provider; a tool server is none.
            Dialect::Bedrock | Dialect::Tool => "",
            Dialect::Scripted => "script:",
        };
        self.base_url
            .as_deref()
            .unwrap_or(own)
            .trim_end_matches('/')
    }

    /// The family for the classifier and for telemetry; `name` is the provider's name in the
    /// configuration.
    #[must_use]
    pub fn family<'a>(&'a self, name: &'a str) -> &'a str {
        self.family.as_deref().unwrap_or(name)
    }

    /// The key of a credential; `None` where there is no such credential or it has no key.
    #[must_use]
    pub fn key(&self, credential: &str) -> Option<&Secret> {
        match self.credentials.get(credential) {
            Some(found) => found.api_key.as_ref(),
            None if credential == DEFAULT_CREDENTIAL => self.api_key.as_ref(),
            None => None,
        }
    }
}

// === impl ChatConfig ===

impl Default for ChatConfig {
    fn default() -> Self {
        Self {
            stream: true,
            include_usage: true,
            max_tokens_field: None,
            reasoning_field: None,
            developer_role: None,
            path: "/chat/completions".to_owned(),
        }
    }
}

// === impl HttpConfig ===

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            pool_idle_timeout: Duration::from_secs(50),
            pool_max_idle_per_host: 64,
            max_body_bytes: 32 << 20,
            max_line_bytes: 1 << 20,
            http2_prior_knowledge: false,
        }
    }
}

// === impl TargetConfig ===

impl TargetConfig {
    /// The name of its credential.
    #[must_use]
    pub fn credential(&self) -> &str {
        self.credential.as_deref().unwrap_or(DEFAULT_CREDENTIAL)
    }
}

// === impl CapabilityOverrides ===

impl CapabilityOverrides {
    /// What is known, with the overrides on top.
    #[must_use]
    pub fn apply(&self, mut known: Capabilities) -> Capabilities {
        for (known, configured) in [
            (&mut known.tail_system_message, self.tail_system_message),
            (&mut known.user_after_tool, self.user_after_tool),
            (&mut known.assistant_prefill, self.assistant_prefill),
            (&mut known.developer_role, self.developer_role),
            (&mut known.tools, self.tools),
            (&mut known.parallel_tools, self.parallel_tools),
            (&mut known.images, self.images),
            (&mut known.signed_calls, self.signed_calls),
            (&mut known.background, self.background),
        ] {
            *known = configured.unwrap_or(*known);
        }
        known.prefill_mark = self.prefill_mark.unwrap_or(known.prefill_mark);
        known.output_limit_field = self.output_limit_field.unwrap_or(known.output_limit_field);
        known.context_window_tokens = self.context_window_tokens.or(known.context_window_tokens);
        known
    }
}

/// Whether an address belongs to a private, link-local or unspecified range.
#[must_use]
pub fn is_private_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}
