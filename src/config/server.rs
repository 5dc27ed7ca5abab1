//! Where Relight listens, who may call, and what it accepts.
//!
//! Plain data; `check.rs` detects colliding listeners and missing authentication.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::limits::{LimitsConfig, TimeoutsConfig};
use crate::domain::{
    ids::{RouteName, TenantId},
    units,
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
    /// Largest sum of a request's header fields (1KiB to 1MiB).
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_header_bytes: u64,
    /// Calls at once on one connection (at least 1); more wait in the client.
    pub max_concurrent_streams: u32,
    /// Maximum age of a connection, ±10 %, before the client is to reconnect; lets clients
    /// rebalance. 0s: no limit.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub max_connection_age: Duration,
    /// How long calls in flight may continue after SIGTERM; those left are handed over or cut.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub drain_timeout: Duration,
    /// How callers are authenticated. Unset: according to `keys`, `tls.client_ca_file` and `jwt`;
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
    /// Whether the API describes itself to tools such as grpcurl.
    pub reflection: bool,
    /// Whether browsers may call with gRPC-Web on the same port; `cors` says from which pages.
    pub grpc_web: bool,
    /// Whether the console is served at `/console/` on the same port: a page that shows recoveries,
    /// targets and invocations as they are, and steers circuits with an admin key. It uses
    /// gRPC-Web.
    pub console: bool,
    /// How long one task may occupy a worker thread before `/livez` fails (1s to 1h; 0s: never).
    /// The process is then frozen or close to it, and is better replaced.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub watchdog: Duration,
    /// Which web pages may call, by gRPC-Web and through the OpenAI-compatible front.
    pub cors: CorsConfig,
    /// The most that callers may hold at once.
    pub limits: LimitsConfig,
    /// How long clients may take.
    pub timeouts: TimeoutsConfig,
}

/// Which pages of other origins may call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CorsConfig {
    /// Their origins (`https://app.example.com`); `*` for all. A request to the front that names
    /// another origin is refused: browsers name it by themselves, other programs name none.
    /// Default: none.
    pub allow_origins: Vec<String>,
}

impl CorsConfig {
    /// Whether pages of this origin may call.
    #[must_use]
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.allow_origins
            .iter()
            .any(|allowed| allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin))
    }
}

/// How callers are authenticated.
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

/// What a caller may do.
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
    /// What `iss` must be.
    pub issuer: String,
    /// What `aud` must be or have.
    pub audience: String,
    /// Where the provider publishes its keys, a JSON Web Key Set (`https://…`; `http` on this host
    /// only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_url: Option<String>,
    /// A file with the set, in place of `jwks_url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_file: Option<PathBuf>,
    /// How often the keys are fetched again (10s to 1d). A token that names an unknown key has them
    /// fetched at once, every 10 s at most; keys that cannot be fetched stay in force.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub refresh: Duration,
    /// How far the clocks may be apart when `exp` and `nbf` are judged (0s to 10m).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub clock_skew: Duration,
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
    /// Whether it may call the `AdminService`: as `role: admin`.
    pub admin: bool,
    /// What it may do.
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
    /// What the files held when the configuration was loaded, ready to serve connections.
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
    /// How much of a streamed answer is kept back, because this stream cannot revoke what it sent:
    /// `off` sends everything at once; a size such as `256B` stays that many bytes behind the
    /// model, so that an answer which breaks within them can be begun anew with other text; `whole`
    /// sends nothing before the answer is complete.
    #[schemars(with = "String")]
    pub hold_back: HoldBack,
    /// What happens when a partly sent answer broke, and its new text differs.
    pub on_divergence: OnDivergence,
    /// After how much silence a comment is sent, so that no proxy takes the stream for dead (100ms
    /// to 5m). A stream begins with one where its first content takes longer: what fails before is
    /// a status, what fails after it the protocol's own error event.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub keepalive: Duration,
}

/// How much of a streamed answer is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HoldBack {
    /// Nothing.
    #[default]
    Off,
    /// That many bytes of text.
    Bytes(u64),
    /// Everything, until the answer is complete.
    Whole,
}

/// What happens when no new answer begins with the text that was sent, after all attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDivergence {
    /// A target of the route that supports prefill (`assistant_prefill`) is called to continue the
    /// answer, where only text was sent and no tools were offered; else, and where that target
    /// begins anew, an error event ends the stream.
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
            max_header_bytes: 64 << 10,
            max_concurrent_streams: 1024,
            max_connection_age: Duration::from_mins(30),
            drain_timeout: Duration::from_secs(30),
            auth: None,
            keys: Vec::new(),
            jwt: None,
            admin_service: None,
            tls: None,
            openai_front: None,
            reflection: true,
            grpc_web: true,
            console: false,
            watchdog: Duration::from_secs(30),
            cors: CorsConfig::default(),
            limits: LimitsConfig::default(),
            timeouts: TimeoutsConfig::default(),
        }
    }
}

impl ServerConfig {
    /// How callers are authenticated, with what follows from keys and certificates where nothing is
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
            refresh: Duration::from_mins(5),
            clock_skew: Duration::from_mins(1),
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
            hold_back: HoldBack::Off,
            on_divergence: OnDivergence::Continue,
            keepalive: Duration::from_secs(10),
        }
    }
}

// === impl HoldBack ===

impl Serialize for HoldBack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Bytes(bytes) => serializer.serialize_str(&units::format_bytes(*bytes)),
            Self::Whole => serializer.serialize_str("whole"),
        }
    }
}

impl<'de> Deserialize<'de> for HoldBack {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "off" => Ok(Self::Off),
            "whole" => Ok(Self::Whole),
            size => units::parse_bytes(size).map(Self::Bytes).map_err(|_| {
                D::Error::custom("is neither `off` nor `whole` nor a size such as 256B")
            }),
        }
    }
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    listen_address(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

/// The address to listen at: an IP address or the name of one, with a port. Of a name with several
/// addresses it is the first of IPv4, else the first.
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
