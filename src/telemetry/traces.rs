//! The tracer and its exporter to an OTLP collector.
//!
//! Without a collector the tracer still creates trace ids and propagates contexts, so that a log
//! line, a response and the caller's own trace share an id. Nothing is registered globally.

use std::time::Duration;

use opentelemetry::{InstrumentationScope, KeyValue, trace::TracerProvider as _};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};

use super::{
    export::{by_grpc, by_http, unusable},
    settings::{TelemetryError, TelemetrySettings},
};
use crate::{config::observe::OtlpProtocol, domain::semconv};

/// Keeps the exporter alive; its owner flushes it on shutdown.
#[derive(Debug)]
pub struct TracerGuard {
    provider: SdkTracerProvider,
}

/// Builds the tracer for all spans.
///
/// Needs a Tokio runtime when an endpoint is configured. No connection is made yet: an unreachable
/// collector costs spans and does not prevent the start.
///
/// # Errors
/// When the endpoint is not a URL, or a header is invalid.
pub fn build_tracer(
    settings: &TelemetrySettings,
) -> Result<(SdkTracer, TracerGuard), TelemetryError> {
    let builder = SdkTracerProvider::builder().with_resource(resource(settings));
    let provider = match &settings.otlp.traces {
        Some(endpoint) => {
            let exporter = match endpoint.protocol {
                OtlpProtocol::Grpc => {
                    by_grpc(SpanExporter::builder().with_tonic(), endpoint, settings)?.build()
                }
                OtlpProtocol::HttpProtobuf => {
                    by_http(SpanExporter::builder().with_http(), endpoint, settings)?.build()
                }
            };
            let exporter = exporter.map_err(unusable(endpoint))?;
            let ratio = Sampler::TraceIdRatioBased(settings.sample_ratio.clamp(0.0, 1.0));
            builder
                .with_sampler(Sampler::ParentBased(Box::new(ratio)))
                .with_batch_exporter(exporter)
                .build()
        }
        // The caller's decision is passed on; of our own accord nothing claims to be recorded.
        None => builder
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOff)))
            .build(),
    };
    let scope = InstrumentationScope::builder(semconv::SCOPE)
        .with_version(env!("CARGO_PKG_VERSION"))
        .with_schema_url(semconv::SCHEMA_URL)
        .build();
    Ok((provider.tracer_with_scope(scope), TracerGuard { provider }))
}

// === impl TracerGuard ===

impl TracerGuard {
    /// Sends what is left and ends the exporter, within `bound`. Spans that could not be sent by
    /// then are lost.
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

/// Returns the resource attributes of every span and metric.
pub(super) fn resource(settings: &TelemetrySettings) -> Resource {
    let more = settings
        .resource
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let instance = settings
        .instance
        .iter()
        .map(|id| KeyValue::new("service.instance.id", id.clone()));
    Resource::builder()
        .with_service_name(settings.service_name.clone())
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(instance.chain(more))
        .build()
}
