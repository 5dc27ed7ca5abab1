//! Settings of events in memory and telemetry.
//!
//! Plain data. Content (prompts and completions) is kept out of telemetry unless it is switched on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{domain::secret::Secret, events::DEFAULT_CAPACITY};

/// The ring of recent events in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    /// Number of events that are kept (16 to 16777216); a watcher that falls further behind misses
    /// some and is informed of it.
    pub capacity: usize,
}

/// Traces, metrics and logs. Read at the start: a change requires a restart.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// OTLP collector, such as `http://localhost:4317` by gRPC or `http://localhost:4318` by HTTP,
    /// where `/v1/traces` and `/v1/metrics` are put behind it; unset:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, which are taken as they are; else nothing is sent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "super::printable::shown_where_there_is_one"
    )]
    pub otlp_endpoint: Option<String>,
    /// Protocol by which it is reached; unset: `OTEL_EXPORTER_OTLP_PROTOCOL`
    /// (`OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`, `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL` for one of
    /// them), or `grpc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_protocol: Option<OtlpProtocol>,
    /// Header fields sent to the collector; `OTEL_EXPORTER_OTLP_HEADERS` adds some.
    pub otlp_headers: BTreeMap<String, Secret>,
    /// Resource attributes, beside those of `OTEL_RESOURCE_ATTRIBUTES`. `service.name` is
    /// `OTEL_SERVICE_NAME`, or `relight` if that is unset.
    pub resource: BTreeMap<String, String>,
    /// The share of new traces that is kept, 0 to 1; a caller's sampled trace is always gone on
    /// with. Where `OTEL_TRACES_SAMPLER` (`always_off`, `traceidratio`, with
    /// `OTEL_TRACES_SAMPLER_ARG`) keeps less, that holds.
    pub sample_ratio: f64,
    /// If set, metrics are sent to the OTLP collector, too, every `OTEL_METRIC_EXPORT_INTERVAL`
    /// milliseconds (60000 without that variable). Default false; without a collector it has no
    /// effect.
    pub otlp_metrics: bool,
    /// The log.
    pub log: LogConfig,
    /// If set, prompts and completions are put on the spans of model calls (`gen_ai.input.messages`,
    /// `gen_ai.output.messages`), up to 64 KiB of text each. They may hold personal data and
    /// secrets. Default false.
    pub capture_content: bool,
    /// Destination of traces and metrics, as follows from the settings and the environment.
    #[serde(skip)]
    pub endpoints: OtlpEndpoints,
    /// Values of header fields that the environment adds.
    #[serde(skip)]
    pub header_values: Vec<Secret>,
    /// `service.name`: `OTEL_SERVICE_NAME`, or `relight`.
    #[serde(skip)]
    pub service_name: String,
}

/// Protocol by which a collector is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum OtlpProtocol {
    /// OTLP by gRPC.
    #[default]
    #[serde(rename = "grpc")]
    Grpc,
    /// OTLP by HTTP, as binary Protobuf.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

/// Destination and protocol of one signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// The whole URL.
    pub url: String,
    /// Protocol by which it is reached.
    pub protocol: OtlpProtocol,
}

/// Destination of traces and metrics; unset: nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpEndpoints {
    /// Traces.
    pub traces: Option<OtlpEndpoint>,
    /// Metrics, if they are sent at all.
    pub metrics: Option<OtlpEndpoint>,
}

// === impl OtlpProtocol ===

impl OtlpProtocol {
    /// Returns the protocol of this name, as the standard variables have it.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "grpc" => Some(Self::Grpc),
            "http/protobuf" => Some(Self::HttpProtobuf),
            _ => None,
        }
    }
}

/// The log on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Format in which it is written.
    pub format: LogFormat,
    /// The lowest level, or directives such as `info,relight::provider=debug`.
    pub level: String,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people on a terminal, else JSON.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

// === impl defaults ===

impl Default for EventsConfig {
    fn default() -> Self {
        Self {
            capacity: DEFAULT_CAPACITY,
        }
    }
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_protocol: None,
            endpoints: OtlpEndpoints::default(),
            header_values: Vec::new(),
            service_name: "relight".to_owned(),
            otlp_headers: BTreeMap::new(),
            resource: BTreeMap::new(),
            sample_ratio: 1.0,
            otlp_metrics: false,
            log: LogConfig::default(),
            capture_content: false,
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: LogFormat::Auto,
            level: "info".to_owned(),
        }
    }
}
