//! Providers with their credentials and transport, and the targets that are their models.
//!
//! A credential is inline (by `${ENV}` reference) or in a file; after loading it is in `api_key` or
//! `api_keys` either way, so that no other module reads a file for it.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Secret,
    connection::{ClientTlsConfig, ProxyConfig},
    identity::IdentityConfig,
    price::PriceConfig,
};
use crate::{
    domain::{target::Dialect, units},
    policy::{circuit::CircuitPolicy, concurrency::ConcurrencyPolicy},
    provider::{
        CapabilityOverrides, KeyHeader, StreamMode,
        known::{self, ModelRef},
    },
};

/// The name of the credential that a provider's own `api_key` is.
pub const DEFAULT_CREDENTIAL: &str = "default";

/// Characters of a key by which people know it.
const SHOWN_CHARS: usize = 4;

/// Characters of a key that stay unknown, at least.
const HIDDEN_CHARS: usize = 12;

/// The most keys that a pool has.
pub const MAX_POOL: usize = 100;

/// A model provider: its endpoint, dialect and credentials.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// The wire protocol of the provider.
    #[schemars(with = "DialectName")]
    pub dialect: Dialect,
    /// Address at which its API starts, such as `https://api.openai.com/v1`; unset: the dialect's
    /// own place.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "super::printable::shown_where_there_is_one"
    )]
    pub base_url: Option<String>,
    /// The key of the credential `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// A file that holds that key, as Kubernetes mounts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Several keys in place of `api_key` (at most 100): a pool. A call goes to one of those that are
    /// good, and to the next one at once if that is refused, used up or limited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_keys: Vec<Secret>,
    /// A file that holds those keys, one on each line; lines that begin with `#` are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_keys_file: Option<PathBuf>,
    /// The family for the classifier and for telemetry (`openai`, `anthropic`, …); unset: the
    /// provider's name here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// Header fields sent with each request; their values are treated as secrets.
    pub headers: BTreeMap<String, Secret>,
    /// More credentials, by name.
    pub credentials: BTreeMap<String, CredentialConfig>,
    /// Identity that a cloud gives, in the place of keys; unset: keys are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityConfig>,
    /// Way in which keys are sent; unset: as is known of the provider (`api-key` for Azure), else
    /// as a bearer token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_header: Option<KeyHeader>,
    /// Differences between servers of the chat completions dialect.
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
    /// If set, `base_url` may be plain `http` to another host; a key sent so can be read on the
    /// way.
    pub allow_plaintext: bool,
    /// If set, `base_url` may lead to a private address (10/8, 192.168/16, …); loopback always may.
    /// A name is judged at each connection, by the addresses that it has then; with `proxy`, the
    /// proxy's name is judged.
    pub allow_private_addresses: bool,
    /// If set, W3C trace context (`traceparent`, `tracestate`) is sent to the provider. Default
    /// false: the provider receives no trace ids.
    pub propagate_trace: bool,
    /// Region, if the dialect's own place depends on one (`bedrock`), such as `eu-central-1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Script that the scripted provider plays; only for the dialect `scripted`.
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

/// Differences between servers of the chat completions dialect; other dialects read `stream` alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChatConfig {
    /// Way in which completions are requested, in every dialect. `true` and `false` are older names
    /// of `always` and `never`.
    pub stream: StreamMode,
    /// The field in which reasoning is sent back; unset: as is known of the provider
    /// (`reasoning_content` for `DeepSeek`), else none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_field: Option<String>,
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
    /// Largest response, decompressed (64KiB to 1GiB); a larger one fails the attempt, and so does
    /// a line of an event stream that is longer than a thirty-second of this and than 1MiB.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_body_bytes: u64,
    /// If set, HTTP/2 is used without negotiation, on plaintext connections too; HTTP/1.1-only
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
    /// Price of its tokens; unset: what calls of it cost is not shown as money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceConfig>,
    /// Capabilities of the model, if they differ from what is known of it.
    pub capabilities: CapabilityOverrides,
    /// Conditions under which it is closed to calls, if they differ from `circuit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit: Option<CircuitPolicy>,
    /// Number of attempts that it may have at once, if it differs from `concurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyPolicy>,
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

// === impl ProviderConfig ===

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            dialect: Dialect::OpenaiChat,
            base_url: None,
            api_key: None,
            api_key_file: None,
            api_keys: Vec::new(),
            api_keys_file: None,
            family: None,
            headers: BTreeMap::new(),
            credentials: BTreeMap::new(),
            identity: None,
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
    /// Returns the URL at which the API starts, without a slash at the end.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        let own = match self.dialect {
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "https://api.openai.com/v1",
            Dialect::Anthropic => "https://api.anthropic.com",
            Dialect::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            // The regional host is composed by the provider; a tool server is not a host.
            Dialect::Bedrock | Dialect::Tool => "",
            Dialect::Scripted => "script:",
        };
        self.base_url
            .as_deref()
            .unwrap_or(own)
            .trim_end_matches('/')
    }

    /// Returns the family for the classifier and for telemetry; `name` is the provider's name in
    /// the configuration.
    #[must_use]
    pub fn family<'a>(&'a self, name: &'a str) -> &'a str {
        self.family.as_deref().unwrap_or(name)
    }

    /// Returns the way in which keys are sent; `name` is the provider's name in the configuration.
    #[must_use]
    pub fn key_header(&self, name: &str) -> KeyHeader {
        let place = ModelRef {
            dialect: self.dialect,
            family: self.family(name),
            endpoint: self.endpoint(),
            model: "",
        };
        self.api_key_header
            .or_else(|| known::manners(&place).api_key_header)
            .unwrap_or_default()
    }

    /// Returns the key of a credential; `None` if the credential does not exist or has no key.
    #[must_use]
    pub fn key(&self, credential: &str) -> Option<&Secret> {
        match self.credentials.get(credential) {
            Some(found) => found.api_key.as_ref(),
            None if credential == DEFAULT_CREDENTIAL => self.api_key.as_ref(),
            None => self.pool_key(credential),
        }
    }

    /// Returns the keys of the pool by their labels; empty if there is none.
    pub fn pool(&self) -> impl Iterator<Item = (String, &Secret)> {
        let keys = self.api_keys.iter().enumerate();
        keys.map(|(index, key)| (self.label(index, key), key))
    }

    /// Returns whether a credential is a key of the pool.
    #[must_use]
    pub fn has_pool_key(&self, credential: &str) -> bool {
        self.pool_key(credential).is_some()
    }

    fn pool_key(&self, label: &str) -> Option<&Secret> {
        self.pool()
            .find(|(known, _)| known == label)
            .map(|(_, key)| key)
    }

    /// Returns what people know a key of the pool by: its last four characters if that leaves most of
    /// it unknown, else its place; both if two keys end alike.
    fn label(&self, index: usize, key: &Secret) -> String {
        let tail = |key: &Secret| {
            let key: Vec<char> = key.expose().chars().collect();
            let hidden = key.len().checked_sub(SHOWN_CHARS)?;
            (hidden >= HIDDEN_CHARS).then(|| key[hidden..].iter().collect::<String>())
        };
        let place = index + 1;
        let Some(own) = tail(key) else {
            return format!("#{place}");
        };
        let alike = self
            .api_keys
            .iter()
            .filter(|one| tail(one).as_ref() == Some(&own));
        if alike.count() > 1 {
            format!("…{own}#{place}")
        } else {
            format!("…{own}")
        }
    }
}

// === impl ChatConfig ===

impl Default for ChatConfig {
    fn default() -> Self {
        Self {
            stream: StreamMode::default(),
            reasoning_field: None,
            path: "/chat/completions".to_owned(),
        }
    }
}

// === impl HttpConfig ===

impl HttpConfig {
    /// Longest line of an event stream: a thirty-second of a response, and 1 MiB if a response may
    /// be that long.
    #[must_use]
    pub fn max_line_bytes(&self) -> u64 {
        (self.max_body_bytes / 32)
            .max(1 << 20)
            .min(self.max_body_bytes)
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            max_body_bytes: 32 << 20,
            http2_prior_knowledge: false,
        }
    }
}

// === impl TargetConfig ===

impl TargetConfig {
    /// Returns the name of its credential.
    #[must_use]
    pub fn credential(&self) -> &str {
        self.credential.as_deref().unwrap_or(DEFAULT_CREDENTIAL)
    }
}
