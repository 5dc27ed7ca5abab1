//! Metrics: a reader of the bus that counts, and a few gauges that their owners set.
//!
//! The same instruments are scraped as Prometheus text and, if configured, pushed to an OTLP
//! collector. Each value has its own registry, so that several servers in one process do not mix.
//! Every label is bounded.

mod bound;
mod gauges;
mod instruments;
mod labels;
mod recorder;
mod series;
mod zero_series;

#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use arc_swap::ArcSwap;
use opentelemetry::{InstrumentationScope, KeyValue, StringValue, metrics::MeterProvider as _};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use prometheus::{Registry, TextEncoder, process_collector::ProcessCollector};

use self::{
    gauges::Gauges, instruments::Instruments, labels::LabelValues, recorder::MetricsRecorder,
};
pub use self::{
    gauges::{GaugeLevels, JournalLevels},
    labels::TargetNames,
};
use super::{
    export::{by_grpc, by_http, unusable},
    reader::ReaderTask,
    settings::{TelemetryError, TelemetrySettings},
    traces,
};
use crate::{
    config::observe::OtlpProtocol,
    domain::{
        ids::TargetId,
        semconv::{self, attr, label},
    },
    events::EventBus,
};

/// Instruments for readers of metrics and for owners of facts that are not events; cheap to clone.
#[derive(Debug, Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

/// The owner of the counting task and of the exporter.
#[derive(Debug)]
pub struct MetricsTask {
    reader: ReaderTask,
    provider: SdkMeterProvider,
}

#[derive(Debug)]
struct Inner {
    registry: Registry,
    instruments: Instruments,
    gauges: Arc<Gauges>,
    labels: LabelValues,
    names: ArcSwap<TargetNames>,
}

// === impl Metrics ===

impl Metrics {
    /// Counts everything that happens on the bus from now on. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When the registry cannot be set up, or the OTLP endpoint cannot be used.
    pub fn start(
        bus: &EventBus,
        settings: &TelemetrySettings,
        targets: TargetNames,
    ) -> Result<(Self, MetricsTask), TelemetryError> {
        let registry = Registry::new();
        // What the operating system knows of the process, in the names that all exporters use.
        registry.register(Box::new(ProcessCollector::for_self()))?;
        let provider = provider(&registry, settings)?;
        let scope = InstrumentationScope::builder(semconv::SCOPE)
            .with_version(env!("CARGO_PKG_VERSION"))
            .with_schema_url(semconv::SCHEMA_URL)
            .build();
        let meter = provider.meter_with_scope(scope);
        let gauges = Arc::new(Gauges::default());
        gauges.observed_by(&meter);
        let inner = Arc::new(Inner {
            registry,
            instruments: Instruments::new(&meter),
            gauges,
            labels: LabelValues::new(settings.max_label_values),
            names: ArcSwap::default(),
        });
        let metrics = Self {
            inner: Arc::clone(&inner),
        };
        metrics.targets_changed(targets);
        let reader = ReaderTask::start(bus.live(), MetricsRecorder::new(inner));
        Ok((metrics, MetricsTask { reader, provider }))
    }

    /// Everything as Prometheus text, version 0.0.4.
    #[must_use]
    pub fn render(&self) -> String {
        TextEncoder::new()
            .encode_to_string(&self.inner.registry.gather())
            .unwrap_or_else(|error| {
                tracing::warn!(%error, "metrics cannot be rendered");
                String::new()
            })
    }

    /// Sets the current targets; series of gauges of all others end.
    pub fn targets_changed(&self, targets: TargetNames) {
        self.inner.gauges.targets_changed(targets.clone());
        self.inner.names.store(Arc::new(targets));
        self.inner.begin_series();
    }

    /// Reads gauge levels from `source` at each scrape, added to those set by the methods below.
    /// Called once at start-up; `source` must be quick and must not call back into this value.
    pub fn read_levels(&self, source: impl Fn() -> GaugeLevels + Send + Sync + 'static) {
        self.inner.gauges.read_from(Box::new(source));
    }

    /// Adds to the invocations in flight.
    pub fn inflight_changed(&self, by: i64) {
        self.inner.gauges.inflight.fetch_add(by, Relaxed);
    }

    /// Adds to the invocations that wait for a circuit or gate.
    pub fn parked_changed(&self, by: i64) {
        self.inner.gauges.parked.fetch_add(by, Relaxed);
    }

    /// Adds to the open watch streams.
    pub fn watchers_changed(&self, by: i64) {
        self.inner.gauges.watchers.fetch_add(by, Relaxed);
    }

    /// Sets whether the process drains.
    pub fn set_draining(&self, draining: bool) {
        self.inner.gauges.draining.store(draining, Relaxed);
    }

    /// Sets what is left in a target's retry budget, in tokens.
    pub fn set_budget_level(&self, target: &TargetId, level: f64) {
        self.inner.gauges.budget_is(target, level);
    }

    /// Sets whether a store is reachable; events report only changes.
    pub fn set_store_up(&self, store: &str, up: bool) {
        self.inner.gauges.store_is(store, up);
    }

    /// Records the end of a gRPC call: its method, its status by name (`OK`, `UNAVAILABLE`), and
    /// how long it took.
    pub fn rpc_finished(&self, method: Arc<str>, status: &'static str, took: Duration) {
        let series = &self.inner.instruments.requests.rpc;
        series.record((method, status), took, |(method, status)| {
            vec![
                KeyValue::new(attr::RPC_METHOD, StringValue::from(Arc::clone(method))),
                KeyValue::new(attr::RPC_STATUS, *status),
            ]
        });
    }

    /// Records the end of a request of the HTTP front: its method, its route (empty if no route has
    /// its path), its status, and the time that it took.
    pub fn http_finished(
        &self,
        method: &'static str,
        route: Arc<str>,
        status: u16,
        took: Duration,
    ) {
        let series = &self.inner.instruments.requests.http;
        series.record((method, route, status), took, |(method, route, status)| {
            let mut labels = vec![
                KeyValue::new(attr::HTTP_METHOD, *method),
                KeyValue::new(attr::HTTP_STATUS, i64::from(*status)),
            ];
            if !route.is_empty() {
                labels.push(KeyValue::new(
                    attr::HTTP_ROUTE,
                    StringValue::from(Arc::clone(route)),
                ));
            }
            labels
        });
    }

    /// Records how long a journal operation took.
    pub fn journal_took(&self, operation: &'static str, took: Duration) {
        let series = &self.inner.instruments.requests.journal;
        series.record(operation, took, |operation| {
            vec![KeyValue::new(label::OPERATION, *operation)]
        });
    }
}

// === impl MetricsTask ===

impl MetricsTask {
    /// Counts what has happened up to now, exports it, and ends, within twice `bound`.
    pub async fn shutdown(self, bound: Duration) {
        if !self.reader.finish(bound).await {
            tracing::warn!("the last events were not counted");
        }
        let provider = self.provider;
        // The exporter blocks its caller while it needs a running runtime.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(bound));
        match tokio::time::timeout(bound, ended).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::warn!(%error, "the last metrics may be lost"),
            Ok(Err(error)) => tracing::warn!(%error, "the last metrics may be lost"),
            Err(_) => tracing::warn!("the last metrics may be lost: the collector does not answer"),
        }
    }
}

// === impl Inner ===

impl Inner {
    fn names(&self) -> Arc<TargetNames> {
        self.names.load_full()
    }
}

fn provider(
    registry: &Registry,
    settings: &TelemetrySettings,
) -> Result<SdkMeterProvider, TelemetryError> {
    let scraped = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .scope_info_enabled(false)
        .build()?;
    let mut builder = SdkMeterProvider::builder()
        .with_resource(traces::resource(settings))
        .with_reader(scraped);
    if let Some(endpoint) = &settings.otlp.metrics {
        let exporter = match endpoint.protocol {
            OtlpProtocol::Grpc => {
                by_grpc(MetricExporter::builder().with_tonic(), endpoint, settings)?.build()
            }
            OtlpProtocol::HttpProtobuf => {
                by_http(MetricExporter::builder().with_http(), endpoint, settings)?.build()
            }
        };
        let exporter = exporter.map_err(unusable(endpoint))?;
        let mut reader = PeriodicReader::builder(exporter);
        if let Some(interval) = settings.metrics_interval {
            reader = reader.with_interval(interval);
        }
        builder = builder.with_reader(reader.build());
    }
    Ok(builder.build())
}
