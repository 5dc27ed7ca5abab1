//! Settings of events in memory, telemetry and the journal.
//!
//! Plain data. Content (prompts and answers) is kept out of telemetry unless it is switched on.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::Secret;
use crate::{domain::units, events::DEFAULT_CAPACITY};

/// The ring of recent events in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventsConfig {
    /// How many events are kept (16 to 16777216); a watcher that falls further behind misses some
    /// and is informed of it.
    pub capacity: usize,
}

/// Traces, metrics and logs. Read at the start: a change requires a restart.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetryConfig {
    /// The OTLP collector, such as `http://localhost:4317` by gRPC or `http://localhost:4318` by
    /// HTTP, where `/v1/traces` and `/v1/metrics` are put behind it; unset:
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` and
    /// `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`, which are taken as they are; else nothing is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_endpoint: Option<String>,
    /// How it is reached; unset: `OTEL_EXPORTER_OTLP_PROTOCOL`
    /// (`OTEL_EXPORTER_OTLP_TRACES_PROTOCOL`, `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL` for one of
    /// them), or `grpc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp_protocol: Option<OtlpProtocol>,
    /// Header fields sent to the collector; `OTEL_EXPORTER_OTLP_HEADERS` adds some.
    pub otlp_headers: BTreeMap<String, Secret>,
    /// `service.name`; unset: `OTEL_SERVICE_NAME`, or `relight`. `OTEL_RESOURCE_ATTRIBUTES` adds
    /// attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// More resource attributes.
    pub resource: BTreeMap<String, String>,
    /// The share of new traces that is kept, 0 to 1; a caller's sampled trace is always gone on
    /// with. Where `OTEL_TRACES_SAMPLER` (`always_off`, `traceidratio`, with
    /// `OTEL_TRACES_SAMPLER_ARG`) keeps less, that holds.
    pub sample_ratio: f64,
    /// Whether metrics are sent to the OTLP collector, too, every `OTEL_METRIC_EXPORT_INTERVAL`
    /// milliseconds (60000 without that variable). Default false; without a collector it has no
    /// effect.
    pub otlp_metrics: bool,
    /// Whether metrics are served for Prometheus on the admin port, at `/metrics`. Default true.
    pub prometheus: bool,
    /// The log.
    pub log: LogConfig,
    /// Whether prompts and answers are put on the spans of model calls (`gen_ai.input.messages`,
    /// `gen_ai.output.messages`), up to 64 KiB of text each. They may hold personal data and
    /// secrets. Default false.
    pub capture_content: bool,
    /// Where traces and metrics are sent, as follows from the settings and the environment.
    #[serde(skip)]
    pub endpoints: OtlpEndpoints,
}

/// How a collector is reached.
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

/// Where one signal is sent, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// The whole URL.
    pub url: String,
    /// How it is reached.
    pub protocol: OtlpProtocol,
}

/// Where traces and metrics are sent; unset: nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtlpEndpoints {
    /// Traces.
    pub traces: Option<OtlpEndpoint>,
    /// Metrics, where they are sent at all.
    pub metrics: Option<OtlpEndpoint>,
}

// === impl OtlpProtocol ===

impl OtlpProtocol {
    /// The protocol of this name, as the standard variables have it.
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
    /// How it is written.
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

/// The durable record of events, outcomes and threads.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JournalConfig {
    /// Where it is: `memory`, `sqlite:relight.db` or `postgres://user:password@host/database`.
    /// Default `embedded`: a `SQLite` file of `relight serve` in the user's state directory, one
    /// for each port; in memory where there is none.
    #[schemars(with = "String")]
    pub store: JournalStore,
    /// Whether an answer waits for its record.
    pub mode: JournalMode,
    /// How long finished invocations and their events are kept (at least 1m).
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub retention: Duration,
    /// Invocations kept at most, oldest finished first to go (at least 1).
    pub max_invocations: u64,
    /// Steps of all invocations that may wait to be written at once (at least 1). Beyond it,
    /// `strict` waits, and `fast` abandons the record of the invocation with the excess step: the
    /// invocation continues, is counted, and cannot be resumed elsewhere.
    pub queue: usize,
    /// Bytes of the newest steps that a running invocation keeps in memory for its readers (4KiB to
    /// 64MiB). A reader that is further behind reads the journal.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub tail_bytes: u64,
    /// Bytes kept in total (at least 1MiB; default 256MiB), prompts, steps, answers and threads: in
    /// memory at any time, in a database after each compaction (once a minute). Beyond it the
    /// oldest finished invocations are removed first: in a database their steps, then their
    /// records, then the threads that were unused for longest. In memory, calls without thread and
    /// request id then run without a record, and others are refused.
    #[serde(with = "units::bytes")]
    #[schemars(with = "String")]
    pub max_bytes: u64,
    /// How long an unused thread is kept (at least 1m; default 30d). Then it is deleted with its
    /// messages.
    #[serde(with = "units::duration")]
    #[schemars(with = "String")]
    pub thread_retention: Duration,
    /// Invocations that may wait, on one replica, for a thread on which another one runs (0 to 64);
    /// 0 refuses them at once. They wait in order, until their deadline at most.
    pub thread_queue: usize,
    /// Keys with which inputs and answers are encrypted in a database, each of at least 32
    /// characters: the first one encrypts, all of them decrypt. None: nothing is encrypted. What
    /// was written before without a key stays readable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub encryption_keys: Vec<Secret>,
    /// Whether inputs and answers are kept, which idempotency, resumption and threads need.
    pub payloads: Payloads,
}

/// Where the journal is kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Secret", into = "String")]
pub enum JournalStore {
    /// By default, `relight serve` keeps an `SQLite` file of its own where it can, anything else
    /// keeps it in memory.
    #[default]
    Embedded,
    /// In memory; gone with the process.
    Memory,
    /// A `SQLite` file.
    Sqlite(PathBuf),
    /// `PostgreSQL`, by URL.
    Postgres(Secret),
}

/// Whether an answer waits for its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JournalMode {
    /// Written behind; the last moments may be lost with the process.
    #[default]
    Fast,
    /// An outcome is durable before it is sent.
    Strict,
}

/// What the journal keeps of inputs and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Payloads {
    /// All of them.
    #[default]
    Full,
    /// Nothing.
    None,
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
            otlp_headers: BTreeMap::new(),
            service_name: None,
            resource: BTreeMap::new(),
            sample_ratio: 1.0,
            otlp_metrics: false,
            prometheus: true,
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

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            store: JournalStore::Embedded,
            mode: JournalMode::Fast,
            retention: Duration::from_hours(24),
            max_invocations: 100_000,
            queue: 8192,
            tail_bytes: 256 << 10,
            max_bytes: 256 << 20,
            thread_retention: Duration::from_hours(30 * 24),
            thread_queue: 0,
            encryption_keys: Vec::new(),
            payloads: Payloads::Full,
        }
    }
}

// === impl JournalStore ===

impl TryFrom<Secret> for JournalStore {
    type Error = String;

    fn try_from(text: Secret) -> Result<Self, Self::Error> {
        let url = text.expose();
        if url == "embedded" {
            Ok(Self::Embedded)
        } else if url == "memory" {
            Ok(Self::Memory)
        } else if let Some(path) = url.strip_prefix("sqlite:").filter(|path| !path.is_empty()) {
            Ok(Self::Sqlite(PathBuf::from(path)))
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Ok(Self::Postgres(text))
        } else {
            Err(
                "is no store; write memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE"
                    .to_owned(),
            )
        }
    }
}

impl From<JournalStore> for String {
    fn from(store: JournalStore) -> Self {
        match store {
            JournalStore::Embedded => "embedded".to_owned(),
            JournalStore::Memory => "memory".to_owned(),
            JournalStore::Sqlite(path) => format!("sqlite:{}", path.display()),
            JournalStore::Postgres(_) => format!("postgres://{}", super::secret::REDACTED),
        }
    }
}
