//! Connection of commands to a server: its address, the caller's key, and one clear error if no
//! server responds.

mod bounded;
mod unreachable;

use std::{path::PathBuf, time::Duration};

use crate::grpc::v1::{
    admin_service_client::AdminServiceClient, recovery_service_client::RecoveryServiceClient,
};
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, ClientTlsConfig, Endpoint},
};

pub(super) use self::{
    bounded::{BoundedChannel, RESPONSE_LIMIT, ResponseLimit},
    unreachable::Unreachable,
};

use self::unreachable::innermost;

/// Time that a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that a TLS handshake may take if a lost connection is made anew; the first one is to
/// respond earlier.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(12);

/// Largest response that is read, in bytes; the same as the server's default limit for a request.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// The server's address and the caller's key.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct ServerArguments {
    /// Address of the server; `https://` for TLS.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "RELIGHT_ADDRESS",
        default_value = "http://127.0.0.1:50051"
    )]
    address: String,
    /// Caller's key, if the server requires one.
    #[arg(
        long,
        global = true,
        value_name = "KEY",
        env = "RELIGHT_API_KEY",
        hide_env_values = true
    )]
    api_key: Option<String>,
    /// The authority that signed the server's certificate, PEM; needed for `https://`.
    #[arg(long, global = true, value_name = "FILE", env = "RELIGHT_CA_FILE")]
    ca_file: Option<PathBuf>,
}

/// Adds the caller's key to each call.
#[derive(Debug, Clone)]
pub(super) struct WithKey(Option<MetadataValue<Ascii>>);

pub(super) type RecoveryClient = RecoveryServiceClient<InterceptedService<BoundedChannel, WithKey>>;
pub(super) type AdminClient = AdminServiceClient<InterceptedService<BoundedChannel, WithKey>>;

// === impl ServerArguments ===

impl ServerArguments {
    /// Returns a client of the `RecoveryService`.
    pub(super) async fn recovery(&self) -> anyhow::Result<RecoveryClient> {
        let client = RecoveryServiceClient::with_interceptor(self.channel().await?, self.key()?);
        Ok(client.max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    /// Returns a client of the `AdminService`.
    pub(super) async fn admin(&self) -> anyhow::Result<AdminClient> {
        let client = AdminServiceClient::with_interceptor(self.channel().await?, self.key()?);
        Ok(client.max_decoding_message_size(MAX_ANSWER_BYTES))
    }

    fn key(&self) -> anyhow::Result<WithKey> {
        let Some(key) = &self.api_key else {
            return Ok(WithKey(None));
        };
        // The reason is not shown: it could repeat the key.
        let mut value = MetadataValue::try_from(format!("Bearer {}", key.trim()))
            .map_err(|_| anyhow!("the API key holds characters that no key has"))?;
        value.set_sensitive(true);
        Ok(WithKey(Some(value)))
    }

    /// Returns a connection to the server, whose calls get their first responses in time.
    pub(super) async fn channel(&self) -> anyhow::Result<BoundedChannel> {
        let address = url(&self.address);
        let mut endpoint = Endpoint::from_shared(address.clone())
            .map_err(|_| {
                anyhow!("--address: `{address}` is no URL; write it like http://127.0.0.1:50051")
            })?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(Duration::from_secs(30));
        if address.starts_with("https://") {
            let Some(file) = &self.ca_file else {
                bail!(
                    "{address}: name the authority that signed the server's certificate with --ca-file"
                );
            };
            let authority =
                std::fs::read(file).with_context(|| format!("--ca-file {}", file.display()))?;
            let tls = ClientTlsConfig::new()
                .ca_certificate(Certificate::from_pem(authority))
                .timeout(HANDSHAKE_TIMEOUT);
            endpoint = endpoint
                .tls_config(tls)
                .map_err(|error| anyhow!("--ca-file: {}", innermost(&error)))?;
        }
        match tokio::time::timeout(RESPONSE_LIMIT, endpoint.connect()).await {
            Ok(Ok(channel)) => Ok(BoundedChannel::new(channel, &address)),
            Ok(Err(error)) => Err(Unreachable::unconnected(&address, &error).into()),
            Err(_) => Err(Unreachable::silent(&address, RESPONSE_LIMIT).into()),
        }
    }
}

// === impl WithKey ===

impl Interceptor for WithKey {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("authorization", key.clone());
        }
        Ok(request)
    }
}

/// Returns the address with its scheme; `host:port` is plain HTTP/2.
fn url(address: &str) -> String {
    if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_plain() {
        assert_eq!(url("localhost:50051"), "http://localhost:50051");
        assert_eq!(url("https://relight.internal"), "https://relight.internal");
    }

    #[test]
    fn a_key_that_no_header_can_hold_is_refused_without_being_shown() {
        let arguments = ServerArguments {
            address: String::new(),
            api_key: Some("se\ncret".to_owned()),
            ca_file: None,
        };
        let refused = arguments.key().map(|_| ()).unwrap_err().to_string();
        assert!(!refused.contains("cret"), "{refused}");
    }
}
