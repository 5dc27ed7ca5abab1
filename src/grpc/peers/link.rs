//! Connections to other replicas: plain, or by TLS as their callers connect.

use std::{path::PathBuf, time::Duration};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity as ClientIdentity};

use crate::{config::Config, grpc::auth::dns_name};

/// Silence after which a connection is probed, and time that the other side may take to respond.
const PROBE: Duration = Duration::from_secs(3);

/// Bytes that one connection may hold unread; what is not read waits at the other replica, which
/// counts what it has to drop.
const WINDOW: u32 = 256 << 10;

/// The certificates of connections to other replicas, which have the same as this one.
#[derive(Debug, Clone)]
pub(super) struct PeerTls {
    chain: PathBuf,
    key: PathBuf,
    authority: PathBuf,
}

// === impl PeerTls ===

impl PeerTls {
    /// The configured files; `None` without TLS.
    pub(super) fn new(config: &Config) -> Option<Self> {
        let tls = config.server.tls.as_ref()?;
        let authority = config.fleet.ca_file.as_ref().unwrap_or(&tls.cert_file);
        Some(Self {
            chain: tls.cert_file.clone(),
            key: tls.key_file.clone(),
            authority: authority.clone(),
        })
    }

    /// Reads the files, which may have been renewed.
    async fn settings(&self) -> Result<ClientTlsConfig, String> {
        let read = async |file: &PathBuf| {
            let text = tokio::fs::read(file).await;
            text.map_err(|error| format!("{}: {error}", file.display()))
        };
        let chain = read(&self.chain).await?;
        let identity = ClientIdentity::from_pem(&chain, read(&self.key).await?);
        let settings = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(read(&self.authority).await?))
            .identity(identity);
        Ok(match dns_name(&chain) {
            Some(name) => settings.domain_name(name),
            None => settings,
        })
    }
}

/// Returns the way to a replica.
///
/// # Errors
/// Returns the reason, in words, for which there is none.
pub(super) async fn endpoint(
    url: &str,
    tls: Option<&PeerTls>,
    patience: Duration,
) -> Result<Endpoint, String> {
    let is_secured = url.starts_with("https://");
    if !is_secured && !url.starts_with("http://") {
        return Err("it says no address for other replicas: set fleet.advertise there".to_owned());
    }
    let endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|_| format!("its address {url} is no URL"))?
        .connect_timeout(patience)
        .http2_keep_alive_interval(PROBE)
        .keep_alive_timeout(PROBE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    match (is_secured, tls) {
        (false, _) => Ok(endpoint),
        (true, None) => Err("it is reached by TLS, which this replica has not".to_owned()),
        (true, Some(tls)) => endpoint
            .tls_config(tls.settings().await?)
            .map_err(|error| format!("TLS: {error}")),
    }
}
