//! Certificates of TLS connections to an upstream.

use std::{fmt, sync::Arc};

use rustls::sign::CertifiedKey;

/// Material that TLS connections to an upstream trust and show. Two are equal if the files that
/// they were made of held the same.
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
