//! TLS settings of the listeners, built from the PEM texts of a certificate chain, its key and the clients'
//! authorities.

use std::{fmt::Display, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
};

pub(super) const CERT_FILE: &str = "server.tls.cert_file";
pub(super) const KEY_FILE: &str = "server.tls.key_file";
pub(super) const CLIENT_CA_FILE: &str = "server.tls.client_ca_file";

/// What a setting is and why its file cannot be used.
type FileFault = (&'static str, String);

/// The settings with which connections are accepted.
///
/// # Errors
/// The setting whose file cannot be used, and why.
pub(super) fn server_settings(chain: &str, key: &str, authorities: Option<&str>) -> Result<ServerConfig, FileFault> {
    let chain = certificates(CERT_FILE, chain)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(unusable(KEY_FILE, "holds no private key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable(CERT_FILE, "cannot be served"))?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(CLIENT_CA_FILE, authorities)? {
                roots.add(authority).map_err(unusable(CLIENT_CA_FILE, "holds a certificate that is no authority"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(unusable(CLIENT_CA_FILE, "cannot be used"))?)
        }
    };
    let mut settings = builder.with_single_cert(chain, key).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => (KEY_FILE, format!("is not the key of {CERT_FILE}")),
        error => (CERT_FILE, format!("cannot be served: {error}")),
    })?;
    settings.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(settings)
}

fn certificates(setting: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = read.map_err(unusable(setting, "is no PEM file"))?;
    if found.is_empty() { Err((setting, "holds no certificate".to_owned())) } else { Ok(found) }
}

fn unusable<E: Display>(setting: &'static str, what: &'static str) -> impl Fn(E) -> FileFault {
    move |error| (setting, format!("{what}: {error}"))
}
