//! Where Relight listens, who may call, and what it accepts.
//!
//! Plain data; `check.rs` detects colliding listeners and missing authentication.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::{
    limits::{LimitsConfig, TimeoutsConfig},
    tenant::TenantConfig,
};
use crate::{
    domain::{
        ids::{RouteName, TenantId},
        message::ResponseFormat,
        units,
    },
    policy::tenant_limits::TenantLimits,
};

/// The listeners and what they accept.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address or host name and port of the gRPC API (`127.0.0.1:50051`, `localhost:50051`); port 0
    /// takes a free one.
    #[serde(deserialize_with = "address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Address or host name and port of health and metrics, plaintext and always apart from the
    /// API.
    #[serde(deserialize_with = "address")]
    #[schemars(with = "String")]
    pub admin_listen: SocketAddr,
    /// Largest message taken or sent, decompressed (1KiB to 1GiB); larger ones are refused.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_message_bytes: u64,
    /// Maximum age of a connection, ±10 %, before the client is to reconnect; lets clients
    /// rebalance. 0s: no limit.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_connection_age: Duration,
    /// Time for which calls in flight may continue after SIGTERM; those left are handed over or
    /// cut.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub drain_timeout: Duration,
    /// Authentication of callers. Unset: according to `keys`, `tls.client_ca_file` and `jwt`;
    /// without these callers are not authenticated, which is rejected on an address that others can
    /// reach unless `none` is written here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthMode>,
    /// The callers' keys.
    pub keys: Vec<ApiKeyConfig>,
    /// Signed tokens (JSON Web Tokens) of an identity provider, as `authorization: Bearer`; taken
    /// beside keys and client certificates. Unset: none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwt: Option<JwtConfig>,
    /// A listener of its own for the `AdminService`, which is then served nowhere else; unset: it
    /// is served with the rest of the API, for callers who may administer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_service: Option<AdminServiceConfig>,
    /// TLS of the gRPC API and of the OpenAI-compatible front; unset: plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// The OpenAI-compatible HTTP front; unset: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub openai_front: Option<OpenaiFrontConfig>,
    /// If set, the API describes itself to tools such as grpcurl.
    pub reflection: bool,
    /// If set, the console is served at `/console/` on the same port: a page that shows recoveries,
    /// targets and invocations as they are, and steers circuits with an admin key. It uses
    /// gRPC-Web.
    pub console: bool,
    /// Web pages that may call, by gRPC-Web and through the OpenAI-compatible front.
    pub cors: CorsConfig,
    /// The most that callers may hold at once.
    pub limits: LimitsConfig,
    /// Time that clients may take.
    pub timeouts: TimeoutsConfig,
    /// Tenants by name, whatever identifies their callers; `*` stands for each one that is not
    /// named. Default: none, without limits.
    #[schemars(with = "BTreeMap<String, TenantConfig>")]
    pub tenants: BTreeMap<TenantId, TenantConfig>,
}

/// Pages of other origins that may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CorsConfig {
    /// Their origins (`https://app.example.com`); `*` for all. A request that names another origin
    /// is refused, over gRPC as at the fronts: browsers name it by themselves, other programs do
    /// not. The console calls its own server without being named; if callers need no key, only when
    /// it was reached by an address or as `localhost`. Default: none.
    pub allow_origins: Vec<String>,
}

impl CorsConfig {
    /// Returns whether pages of this origin may call.
    #[must_use]
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.allow_origins
            .iter()
            .any(|allowed| allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin))
    }
}

/// Authentication of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthMode {
    /// No authentication; every caller is the tenant `default` and may do everything.
    None,
    /// A key in the `authorization: Bearer` metadata, found by its hash in `keys`.
    ApiKey,
    /// A client certificate that `tls.client_ca_file` signed. The tenant is the certificate's first
    /// URI name, else its first DNS name, else its first email address, else its common name; a
    /// renewed certificate with the same name is the same tenant, and one without any name is
    /// refused.
    ClientCertificate,
    /// A token that `jwt` accepts, and nothing else.
    Jwt,
}

/// Permissions of a caller.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CallerRole {
    /// See what its tenant does: events, invocations, threads.
    Watcher,
    /// That, and call models, cancel its invocations, delete its threads.
    #[default]
    Caller,
    /// That, the `AdminService`, and seeing what is other tenants'.
    Admin,
}

/// An identity provider whose signed tokens identify callers. RS256 to RS512, PS256 to PS512,
/// ES256, ES384 and `EdDSA` are verified; tokens of a shared secret, and unsigned ones, are never
/// taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JwtConfig {
    /// Required value of `iss`.
    pub issuer: String,
    /// Value that `aud` must be or have.
    pub audience: String,
    /// URL at which the provider publishes its keys, a JSON Web Key Set (`https://…`; `http` on
    /// this host only).
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "super::printable::shown_where_there_is_one"
    )]
    pub jwks_url: Option<String>,
    /// A file with the set, in place of `jwks_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// The claim with the tenant; dots lead into objects (`realm.tenant`). A token without it is
    /// refused.
    pub tenant_claim: String,
    /// The claim with the role: `watcher`, `caller`, `admin`, or a list of words of which the
    /// strongest of these counts. A token without the claim is a caller's; one with none of these
    /// words in it is refused.
    pub role_claim: String,
    /// The claim with the routes that may be named, a list; a token without the claim may name all.
    pub routes_claim: String,
}

/// The listener of the `AdminService`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminServiceConfig {
    /// Address or host name and port. TLS and callers are as on `server.listen`.
    #[serde(deserialize_with = "address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
}

/// A caller's API key, or its certificate by name.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApiKeyConfig {
    /// The tenant of its caller.
    #[schemars(with = "String")]
    pub tenant: TenantId,
    /// The key's SHA-256 as 64 hexadecimal digits; the key itself is not stored. With
    /// `auth: client_certificate`, the SHA-256 of one certificate (DER).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// With `auth: client_certificate`, in place of `sha256`: the name that identifies a
    /// certificate (see `auth`), which stays the same when the certificate is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_name: Option<String>,
    /// If set, it may call the `AdminService`: as `role: admin`.
    pub admin: bool,
    /// Its permissions.
    pub role: CallerRole,
    /// The routes that it may name; empty: all.
    #[schemars(with = "Vec<String>")]
    pub routes: Vec<RouteName>,
    /// Until when it is taken (`2027-01-31T00:00:00Z`); unset: until it is removed here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub expires: Option<Timestamp>,
}

/// Certificates of the gRPC API and of the OpenAI-compatible front. When one of the files changes,
/// new connections are served with the new contents and open ones are kept; files that do not fit
/// together leave the earlier ones in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TlsConfig {
    /// The certificate chain, PEM.
    pub cert_file: PathBuf,
    /// The private key, PEM.
    pub key_file: PathBuf,
    /// The authorities whose client certificates are accepted, PEM; unset: client certificates are
    /// not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca_file: Option<PathBuf>,
    /// Content of the files when the configuration was loaded, ready to serve connections.
    #[serde(skip)]
    pub loaded: Option<Arc<rustls::ServerConfig>>,
}

/// The OpenAI-compatible HTTP front: a model name there is a route here.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenaiFrontConfig {
    /// Address and port.
    #[serde(deserialize_with = "address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Part of a streamed completion that is kept back, because this stream cannot revoke what it sent:
    /// `json` sends text at once, and a completion for which the caller demands JSON only when it is
    /// complete, so that one that is not JSON or does not fit its schema can be requested again
    /// unseen; `off` sends everything at once, and content that turns out not to fit ends with an
    /// error; a size such as `256B` stays that many bytes behind the model, so that a completion which
    /// breaks within them can be started anew with other text; `whole` sends nothing before the
    /// answer is complete. Tool calls are always sent whole.
    #[schemars(with = "String")]
    pub hold_back: HoldBack,
    /// Reaction if a partly sent answer broke, and its new text differs.
    pub on_divergence: OnDivergence,
    /// Length of silence after which a comment is sent, so that no proxy takes the stream for dead
    /// (100ms to 5m). A stream starts with one if its first content takes longer: a failure before
    /// it is a status, a failure after it the protocol's own error event.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub keepalive: Duration,
}

/// Part of a streamed completion that is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldBack {
    /// Everything of a completion for which JSON is demanded, nothing of any other.
    #[default]
    Json,
    /// Nothing.
    Off,
    /// That many bytes of text.
    Bytes(u64),
    /// Everything, until the completion is complete.
    Whole,
}

/// Reaction if no new completion starts with the text that was sent, after all attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDivergence {
    /// A target of the route that supports prefill (`assistant_prefill`) is called to continue the
    /// answer, if only text was sent and no tools were offered; else, and if that target starts
    /// anew, an error event ends the stream.
    #[default]
    Continue,
    /// An error event ends the stream.
    Error,
}

// === impl ServerConfig ===

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 50051)),
            admin_listen: SocketAddr::from(([127, 0, 0, 1], 9464)),
            max_message_bytes: 32 << 20,
            max_connection_age: Duration::from_mins(30),
            drain_timeout: Duration::from_secs(30),
            auth: None,
            keys: Vec::new(),
            jwt: None,
            admin_service: None,
            tls: None,
            openai_front: None,
            reflection: true,
            console: false,
            cors: CorsConfig::default(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
            tenants: BTreeMap::new(),
        }
    }
}

impl ServerConfig {
    /// Returns the limits of tenants.
    #[must_use]
    pub fn tenant_limits(&self) -> BTreeMap<TenantId, TenantLimits> {
        let tenants = self.tenants.iter();
        tenants
            .map(|(name, tenant)| (name.clone(), tenant.limits))
            .collect()
    }

    /// Returns the authentication of callers, derived from keys and certificates if nothing is
    /// written.
    #[must_use]
    pub fn auth_mode(&self) -> AuthMode {
        self.auth.unwrap_or_else(|| {
            if !self.keys.is_empty() {
                AuthMode::ApiKey
            } else if self
                .tls
                .as_ref()
                .is_some_and(|tls| tls.client_ca_file.is_some())
            {
                AuthMode::ClientCertificate
            } else if self.jwt.is_some() {
                AuthMode::Jwt
            } else {
                AuthMode::None
            }
        })
    }
}

// === impl ApiKeyConfig ===

impl Default for ApiKeyConfig {
    fn default() -> Self {
        Self {
            tenant: TenantId::new(""),
            sha256: String::new(),
            certificate_name: None,
            admin: false,
            role: CallerRole::Caller,
            routes: Vec::new(),
            expires: None,
        }
    }
}

// === impl JwtConfig ===

impl Default for JwtConfig {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            audience: String::new(),
            jwks_url: None,
            jwks_file: None,
            tenant_claim: "sub".to_owned(),
            role_claim: "relight_role".to_owned(),
            routes_claim: "relight_routes".to_owned(),
        }
    }
}

// === impl AdminServiceConfig ===

impl Default for AdminServiceConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 50052)),
        }
    }
}

// === impl OpenaiFrontConfig ===

impl Default for OpenaiFrontConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            hold_back: HoldBack::Json,
            on_divergence: OnDivergence::Continue,
            keepalive: Duration::from_secs(10),
        }
    }
}

// === impl HoldBack ===

impl HoldBack {
    /// Returns the same for a completion of this format: all of it, a part or nothing.
    #[must_use]
    pub fn for_format(self, format: &ResponseFormat) -> Self {
        match (self, format) {
            (Self::Json, ResponseFormat::Text) => Self::Off,
            (Self::Json, ResponseFormat::JsonObject | ResponseFormat::JsonSchema { .. }) => {
                Self::Whole
            }
            (Self::Off | Self::Bytes(_) | Self::Whole, _) => self,
        }
    }
}

impl Serialize for HoldBack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json => serializer.serialize_str("json"),
            Self::Off => serializer.serialize_str("off"),
            Self::Bytes(bytes) => serializer.serialize_str(&units::format_bytes(*bytes)),
            Self::Whole => serializer.serialize_str("whole"),
        }
    }
}

impl<'de> Deserialize<'de> for HoldBack {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "json" => Ok(Self::Json),
            "off" => Ok(Self::Off),
            "whole" => Ok(Self::Whole),
            size => units::parse_bytes(size).map(Self::Bytes).map_err(|_| {
                D::Error::custom("is neither `json`, `off` nor `whole`, nor a size such as 256B")
            }),
        }
    }
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    listen_address(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// Returns the address to listen at: an IP address or the name of one, with a port. Of a name with
/// several addresses it is the first of IPv4, else the first.
///
/// # Errors
/// What is wrong with it.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let named = || -> Option<SocketAddr> {
        let found: Vec<SocketAddr> = text.to_socket_addrs().ok()?.collect();
        found
            .iter()
            .find(|address| address.is_ipv4())
            .or(found.first())
            .copied()
    };
    text.parse().ok().or_else(named).ok_or_else(|| {
        "is no IP address or host name of this machine with a port; write it like 127.0.0.1:50051".to_owned()
    })
}
