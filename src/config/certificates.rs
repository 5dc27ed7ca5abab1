//! TLS settings of the listeners and of connections to upstreams, built from the PEM texts of
//! certificate chains, their keys and authorities.

use std::{fmt::Display, sync::Arc};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
    sign::CertifiedKey,
};
use sha2::{Digest as _, Sha256};

use crate::outbound::ClientTls;

pub(super) const CERT_FILE: &str = "server.tls.cert_file";
pub(super) const KEY_FILE: &str = "server.tls.key_file";
pub(super) const CLIENT_CA_FILE: &str = "server.tls.client_ca_file";

/// Kind of a setting, and the reason for which its file cannot be used.
pub(super) type FileFault = (&'static str, String);

/// Returns the settings with which connections are accepted.
///
/// # Errors
/// The setting whose file cannot be used, and why.
pub(super) fn server_settings(
    chain: &str,
    key: &str,
    authorities: Option<&str>,
) -> Result<ServerConfig, FileFault> {
    let chain = certificates(CERT_FILE, chain)?;
    let key = private_key(KEY_FILE, key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unusable(CERT_FILE, "cannot be served"))?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let roots = roots(CLIENT_CA_FILE, authorities)?;
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(
                verifier.map_err(unusable(CLIENT_CA_FILE, "cannot be used"))?,
            )
        }
    };
    let mut settings = builder
        .with_single_cert(chain, key)
        .map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                (KEY_FILE, format!("is not the key of {CERT_FILE}"))
            }
            error => (CERT_FILE, format!("cannot be served: {error}")),
        })?;
    settings.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(settings)
}

/// Returns what connections to an upstream trust and show. Settings are named within their
/// section here.
///
/// # Errors
/// Returns the setting whose file cannot be used, and the reason.
pub(super) fn client_tls(
    authorities: Option<&str>,
    identity: Option<(&str, &str)>,
) -> Result<ClientTls, FileFault> {
    let mut contents = Sha256::new();
    for (name, text) in [
        ("ca", authorities),
        ("cert", identity.map(|it| it.0)),
        ("key", identity.map(|it| it.1)),
    ] {
        contents.update(Sha256::digest(format!("{name} {text:?}")));
    }
    let identity = match identity {
        None => None,
        Some((chain, key)) => {
            let chain = certificates("cert_file", chain)?;
            let key = private_key("key_file", key)?;
            let made =
                CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider());
            Some(Arc::new(made.map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    ("key_file", "is not the key of cert_file".to_owned())
                }
                error => ("cert_file", format!("cannot be used: {error}")),
            })?))
        }
    };
    let authorities = authorities
        .map(|authorities| roots("ca_file", authorities))
        .transpose()?
        .map(Arc::new);
    Ok(ClientTls {
        authorities,
        identity,
        fingerprint: contents.finalize().into(),
    })
}

fn roots(setting: &'static str, authorities: &str) -> Result<RootCertStore, FileFault> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(setting, authorities)? {
        roots.add(authority).map_err(unusable(
            setting,
            "holds a certificate that is no authority",
        ))?;
    }
    Ok(roots)
}

fn private_key(setting: &'static str, pem: &str) -> Result<PrivateKeyDer<'static>, FileFault> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(unusable(setting, "holds no private key"))
}

fn certificates(
    setting: &'static str,
    pem: &str,
) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = read.map_err(unusable(setting, "is no PEM file"))?;
    if found.is_empty() {
        Err((setting, "holds no certificate".to_owned()))
    } else {
        Ok(found)
    }
}

fn unusable<E: Display>(setting: &'static str, what: &'static str) -> impl Fn(E) -> FileFault {
    move |error| (setting, format!("{what}: {error}"))
}
