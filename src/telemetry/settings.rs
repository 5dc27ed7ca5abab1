//! The settings of telemetry, as plain data.
//!
//! The configuration maps to this; nothing here reads files or the environment.

use std::{collections::BTreeMap, time::Duration};

use secrecy::SecretString;

use crate::{config::observe::OtlpEndpoints, policy::shown_url::shown_url};

/// Destination of telemetry, and its amount.
#[derive(Debug, Clone)]
pub struct TelemetrySettings {
    /// Endpoint to which traces and metrics are sent; without an endpoint nothing is exported, but
    /// trace ids exist.
    pub otlp: OtlpEndpoints,
    /// Headers for the OTLP endpoint, lower-case names.
    pub otlp_headers: BTreeMap<String, SecretString>,
    /// Certificates (PEM) that vouch for an `https` endpoint; without them the well-known
    /// authorities do.
    pub otlp_ca: Option<Vec<u8>>,
    /// Time between two exports of metrics; unset: `OTEL_METRIC_EXPORT_INTERVAL`, or one minute.
    pub metrics_interval: Option<Duration>,
    /// Longest time for one export.
    pub export_timeout: Duration,
    /// `service.name` of the resource.
    pub service_name: String,
    /// `service.instance.id` of the resource, such as the pod's name.
    pub instance: Option<String>,
    /// Further attributes of the resource.
    pub resource: BTreeMap<String, String>,
    /// Share of traces that is recorded when the caller did not decide, 0 to 1.
    pub sample_ratio: f64,
    /// Most distinct values of a label that callers or configurations choose; the rest is folded
    /// into `other`.
    pub max_label_values: usize,
}

/// Error returned if telemetry cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The OTLP endpoint cannot be used.
    #[error("the OTLP endpoint `{}` cannot be used", shown_url(.endpoint))]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// The exporter's error.
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// A header of the OTLP endpoint is not valid.
    #[error("`{name}` is no valid OTLP header name, or its value no valid header value")]
    Header {
        /// Its name.
        name: String,
    },
    /// TLS for the OTLP endpoint cannot be set up.
    #[error("TLS for the OTLP endpoint cannot be set up")]
    Tls(#[from] rustls::Error),
    /// The registry of metrics cannot be set up.
    #[error("metrics cannot be set up")]
    Metrics(#[from] opentelemetry_sdk::error::OTelSdkError),
    /// The metrics of the process cannot be registered.
    #[error("the metrics of the process cannot be set up")]
    Process(#[from] prometheus::Error),
    /// Another subscriber for the logs of libraries is in force.
    #[error("logs of libraries cannot be set up: {0}")]
    Logs(String),
}

// === impl TelemetrySettings ===

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            otlp: OtlpEndpoints::default(),
            otlp_headers: BTreeMap::new(),
            otlp_ca: None,
            metrics_interval: None,
            export_timeout: Duration::from_secs(10),
            service_name: "relight".to_owned(),
            instance: None,
            resource: BTreeMap::new(),
            sample_ratio: 1.0,
            max_label_values: 64,
        }
    }
}
