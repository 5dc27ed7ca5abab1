//! How traces and metrics reach their collector: by gRPC, or by HTTP over the same kind of
//! connections as all other requests that leave this process.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, WithExportConfig, WithHttpConfig, WithTonicConfig,
    tonic_types::{
        metadata::MetadataMap,
        transport::{Certificate, ClientTlsConfig},
    },
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use secrecy::ExposeSecret as _;
use tokio::{runtime::Handle, task::JoinSet};

use super::settings::{TelemetryError, TelemetrySettings};
use crate::{
    config::observe::OtlpEndpoint,
    outbound::{self, ClientTls, ConnectionSettings, HttpConnections},
};

/// Longest response of a collector, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Sends exports by HTTP. Exporters run on threads of their own, so each request runs on the
/// server's runtime.
#[derive(Debug)]
struct CollectorClient {
    connections: HttpConnections,
    headers: HeaderMap,
    timeout: Duration,
    runtime: Handle,
}

/// Sets a gRPC exporter's endpoint, headers and authorities.
pub(super) fn by_grpc<B>(
    builder: B,
    endpoint: &OtlpEndpoint,
    settings: &TelemetrySettings,
) -> Result<B, TelemetryError>
where
    B: WithExportConfig + WithTonicConfig,
{
    let builder = builder
        .with_endpoint(endpoint.url.clone())
        .with_timeout(settings.export_timeout)
        .with_metadata(MetadataMap::from_headers(headers(settings)?));
    if !endpoint.url.starts_with("https://") {
        return Ok(builder);
    }
    let tls = ClientTlsConfig::new();
    Ok(builder.with_tls_config(match &settings.otlp_ca {
        Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
        None => tls.with_webpki_roots(),
    }))
}

/// Sets an HTTP exporter's endpoint, headers and authorities. Needs a Tokio runtime.
pub(super) fn by_http<B>(
    builder: B,
    endpoint: &OtlpEndpoint,
    settings: &TelemetrySettings,
) -> Result<B, TelemetryError>
where
    B: WithExportConfig + WithHttpConfig,
{
    // A collector is where the operator says it is, and mostly within the cluster.
    let connection = ConnectionSettings {
        allow_private: true,
        tls: authorities(settings)?,
        ..ConnectionSettings::default()
    };
    let client = CollectorClient {
        connections: outbound::connections(&connection)?,
        headers: headers(settings)?,
        timeout: settings.export_timeout,
        runtime: Handle::current(),
    };
    Ok(builder
        .with_endpoint(endpoint.url.clone())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(settings.export_timeout)
        .with_http_client(client))
}

/// Returns the error of an exporter that cannot be built.
pub(super) fn unusable(endpoint: &OtlpEndpoint) -> impl Fn(ExporterBuildError) -> TelemetryError {
    let endpoint = endpoint.url.clone();
    move |source| TelemetryError::Endpoint {
        endpoint: endpoint.clone(),
        source,
    }
}

/// Returns the headers of the OTLP endpoint.
fn headers(settings: &TelemetrySettings) -> Result<HeaderMap, TelemetryError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.otlp_headers {
        let fault = || TelemetryError::Header { name: name.clone() };
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| fault())?;
        let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| fault())?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(headers)
}

fn authorities(settings: &TelemetrySettings) -> Result<Option<ClientTls>, TelemetryError> {
    let Some(pem) = &settings.otlp_ca else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem).flatten() {
        roots.add(certificate)?;
    }
    Ok(Some(ClientTls {
        authorities: Some(Arc::new(roots)),
        identity: None,
        fingerprint: [0; 32],
    }))
}

// === impl CollectorClient ===

impl HttpClient for CollectorClient {
    fn send_bytes<'a, 'future>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'future>>
    where
        'a: 'future,
        Self: 'future,
    {
        let mut request = request.map(Full::new);
        request.headers_mut().extend(self.headers.clone());
        let connections = self.connections.clone();
        let timeout = self.timeout;
        let mut sending = JoinSet::new();
        let exchange = async move {
            let (head, body) = connections.request(request).await?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES)
                .collect()
                .await?
                .to_bytes();
            Ok(Response::from_parts(head, body))
        };
        // The time limit is made on the runtime as well: it needs its clock.
        sending.spawn_on(
            async move { tokio::time::timeout(timeout, exchange).await },
            &self.runtime,
        );
        Box::pin(async move {
            match sending.join_next().await {
                Some(Ok(Ok(exchanged))) => exchanged,
                Some(Ok(Err(elapsed))) => Err(elapsed.into()),
                Some(Err(error)) => Err(error.into()),
                None => Err("the export was not sent".into()),
            }
        })
    }
}
