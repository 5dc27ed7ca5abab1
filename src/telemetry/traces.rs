//! The tracer and its exporter to an OTLP collector.
//!
//! Without a collector the tracer still creates trace ids and propagates contexts, so that a log line, a response and
//! the caller's own trace share an id. Nothing is registered globally.

use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::{
    SpanExporter, WithExportConfig, WithTonicConfig,
    tonic_types::{
        metadata::MetadataMap,
        transport::{Certificate, ClientTlsConfig},
    },
};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};
use secrecy::ExposeSecret as _;

use super::settings::{TelemetryError, TelemetrySettings};
use crate::domain::semconv;

/// Keeps the exporter alive; its owner flushes it on shutdown.
#[derive(Debug)]
pub struct TracerGuard {
    provider: SdkTracerProvider,
}

/// Builds the tracer for all spans.
///
/// Needs a Tokio runtime when an endpoint is configured. No connection is made yet: an unreachable collector costs
/// spans and does not prevent the start.
///
/// # Errors
/// When the endpoint is not a URL, or a header is invalid.
pub fn build_tracer(settings: &TelemetrySettings) -> Result<(SdkTracer, TracerGuard), TelemetryError> {
    let builder = SdkTracerProvider::builder().with_resource(resource(settings));
    let provider = match &settings.otlp_endpoint {
        Some(endpoint) => {
            let exporter = reaching(SpanExporter::builder().with_tonic(), endpoint, settings)?
                .build()
                .map_err(|source| TelemetryError::Endpoint { endpoint: endpoint.clone(), source })?;
            let ratio = Sampler::TraceIdRatioBased(settings.sample_ratio.clamp(0.0, 1.0));
            builder.with_sampler(Sampler::ParentBased(Box::new(ratio))).with_batch_exporter(exporter).build()
        }
        // The caller's decision is passed on; of our own accord nothing claims to be recorded.
        None => builder.with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff))).build(),
    };
    let scope = InstrumentationScope::builder(semconv::SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(semconv::SCHEMA_URL)
        .build();
    Ok((provider.tracer_with_scope(scope), TracerGuard { provider }))
}

// === impl TracerGuard ===

impl TracerGuard {
    /// Sends what is left and ends the exporter, within `bound`. Spans that could not be sent by then are lost.
    pub async fn shutdown(self, bound: Duration) {
        let provider = self.provider;
        // The exporter blocks its caller while it needs a running runtime.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(bound));
        match tokio::time::timeout(bound, ended).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last spans may be lost"),
            Ok(Err(error)) => tracing::warn!(%error, "the last spans may be lost"),
            Err(_) => tracing::warn!("the last spans may be lost: the collector does not answer"),
        }
    }
}

/// The resource attributes of every span and metric.
pub(super) fn resource(settings: &TelemetrySettings) -> Resource {
    let more = settings.resource.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let instance = settings.instance.iter().map(|id| KeyValue::new("service.instance.id", id.clone()));
    Resource::builder()
        .with_service_name(settings.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(instance.chain(more))
        .build()
}

/// Sets an exporter's endpoint, headers and authorities.
pub(super) fn reaching<B>(builder: B, endpoint: &str, settings: &TelemetrySettings) -> Result<B, TelemetryError>
where
    B: WithExportConfig + WithTonicConfig,
{
    let builder = builder
        .with_endpoint(endpoint.to_owned())
        .with_timeout(settings.export_timeout)
        .with_metadata(metadata(settings)?);
    if !endpoint.starts_with("https://") {
        return Ok(builder);
    }
    let tls = ClientTlsConfig::new();
    Ok(builder.with_tls_config(match &settings.otlp_ca {
        Some(pem) => tls.ca_certificate(Certificate::from_pem(pem)),
        None => tls.with_webpki_roots(),
    }))
}

/// The headers of the OTLP endpoint.
fn metadata(settings: &TelemetrySettings) -> Result<MetadataMap, TelemetryError> {
    let mut headers = http::HeaderMap::new();
    for (name, value) in &settings.otlp_headers {
        let fault = || TelemetryError::Header { name: name.clone() };
        let parsed = http::HeaderName::try_from(name.as_str()).map_err(|_| fault())?;
        let mut value = http::HeaderValue::try_from(value.expose_secret()).map_err(|_| fault())?;
        value.set_sensitive(true);
        headers.insert(parsed, value);
    }
    Ok(MetadataMap::from_headers(headers))
}
