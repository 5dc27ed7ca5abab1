//! How a provider or tool server is reached: by which proxy, and with which certificates.
//!
//! Files are read when the configuration is loaded; what they hold is ready to use from then on.

use std::{fmt, path::PathBuf, sync::Arc};

use rustls::sign::CertifiedKey;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::Secret;

/// An egress proxy: every connection is a tunnel (HTTP `CONNECT`) through it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyConfig {
    /// The proxy, such as `http://proxy.example:3128`. It resolves the names of upstreams, so that
    /// what they lead to is for the proxy to judge: `allow_private_addresses` then is about the
    /// address of the proxy itself, and about an upstream that is written as an address.
    #[serde(serialize_with = "shown")]
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
    /// What the files held when the configuration was loaded.
    #[serde(skip)]
    pub loaded: Option<ClientTls>,
}

/// What TLS connections to an upstream trust and show. Two are equal when the files that they were
/// made of held the same.
#[derive(Clone)]
pub struct ClientTls {
    /// The authorities that are trusted; unset: the well-known ones.
    pub authorities: Option<Arc<rustls::RootCertStore>>,
    /// The certificate chain that is shown on request, with its key.
    pub identity: Option<Arc<CertifiedKey>>,
    /// The SHA-256 of what the files held.
    pub fingerprint: [u8; 32],
}

// === impl ClientTls ===

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

impl Eq for ClientTls {}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").finish_non_exhaustive()
    }
}

fn shown<S: serde::Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    super::shown_url(url).serialize(serializer)
}
