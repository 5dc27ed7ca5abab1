//! An authority that signs certificates for tests.

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;

/// An authority, and what it signed.
pub(crate) struct Authority {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

// === impl Authority ===

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Self {
            certificate: der,
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    pub(crate) fn sign(&self, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        self.sign_for("localhost", usage)
    }

    /// A new certificate of this name, and its key.
    pub(crate) fn sign_for(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}
