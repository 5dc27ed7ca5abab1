//! How a provider or tool server is reached: by which proxy, and with which certificates.
//!
//! Files are read when the configuration is loaded; what they hold is ready to use from then on.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    domain::secret::Secret,
    outbound::{ClientTls, Proxy},
};

/// An egress proxy: every connection is a tunnel (HTTP `CONNECT`) through it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// The proxy, such as `http://proxy.example:3128`. It resolves the names of upstreams, so that
    /// what they lead to is for the proxy to judge: `allow_private_addresses` then is about the
    /// address of the proxy itself, and about an upstream that is written as an address.
    #[serde(serialize_with = "super::printable::shown")]
    pub url: String,
    /// `user:password` for a proxy that requires them (basic authentication); they are sent to it
    /// in the clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Secret>,
    /// A file that holds them, as Kubernetes mounts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
}

/// The certificates of TLS connections to an upstream. When one of the files changes, new
/// connections are made with the new contents.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientTlsConfig {
    /// The authorities that may have signed the upstream's certificate, PEM, in place of the
    /// well-known ones; unset: the well-known ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The certificate chain that is shown to an upstream that requests one, PEM; unset: none is
    /// shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The private key of `cert_file`, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// Contents of the files when the configuration was loaded.
    #[serde(skip)]
    pub loaded: Option<ClientTls>,
}

// === impl ProxyConfig ===

impl ProxyConfig {
    /// Returns the proxy; `None` if its URL names no host, which no configuration in force does.
    #[must_use]
    pub fn proxy(&self) -> Option<Proxy> {
        Proxy::new(&self.url, self.credentials.as_ref())
    }
}
