//! A collector on a real socket: what a tracing UI and a metrics store would have been sent.
//!
//! It implements OTLP over gRPC as a collector does, so that exporter, connection and resource are
//! tested too. It keeps everything in memory and judges nothing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its world fails"
)]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, header::CONTENT_TYPE},
    routing::post,
};
use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{AnyValue, KeyValue, any_value::Value},
    trace::v1::{Span, status::StatusCode},
};
use prost::Message as _;
use relight::internals::telemetry::{OtlpEndpoint, OtlpEndpoints, OtlpProtocol};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    Request, Response, Status,
    codec::CompressionEncoding,
    transport::{Identity, Server, ServerTlsConfig},
};

/// A collector that listens on a port of its own until it is dropped.
pub(crate) struct OtlpReceiver {
    endpoint: String,
    kept: Arc<Mutex<Kept>>,
    arrived: watch::Receiver<usize>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Kept {
    spans: Vec<Span>,
    metrics: BTreeSet<String>,
    resource: Vec<KeyValue>,
    headers: Vec<(String, String)>,
    /// All messages as they came.
    exports: Vec<String>,
}

#[derive(Clone)]
struct Collector {
    kept: Arc<Mutex<Kept>>,
    arrived: watch::Sender<usize>,
}

/// An export of traces by HTTP.
async fn take_traces(
    State(collector): State<Collector>,
    headers: HeaderMap,
    body: Bytes,
) -> (HeaderMap, Vec<u8>) {
    collector.keep_traces(&headers, ExportTraceServiceRequest::decode(body).unwrap());
    (
        protobuf(&headers),
        ExportTraceServiceResponse::default().encode_to_vec(),
    )
}

/// An export of metrics by HTTP.
async fn take_metrics(
    State(collector): State<Collector>,
    headers: HeaderMap,
    body: Bytes,
) -> (HeaderMap, Vec<u8>) {
    collector.keep_metrics(ExportMetricsServiceRequest::decode(body).unwrap());
    (
        protobuf(&headers),
        ExportMetricsServiceResponse::default().encode_to_vec(),
    )
}

/// The media type of a response, which is that of the request.
fn protobuf(request: &HeaderMap) -> HeaderMap {
    assert_eq!(request["content-type"], "application/x-protobuf");
    HeaderMap::from_iter([(CONTENT_TYPE, request["content-type"].clone())])
}

impl Collector {
    fn keep_traces(&self, headers: &HeaderMap, request: ExportTraceServiceRequest) {
        let mut kept = self.kept.lock().unwrap();
        kept.headers = headers
            .iter()
            .map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            })
            .collect();
        kept.exports.push(format!("{request:?}"));
        for resource in request.resource_spans {
            kept.resource = resource
                .resource
                .map(|resource| resource.attributes)
                .unwrap_or_default();
            kept.spans.extend(
                resource
                    .scope_spans
                    .into_iter()
                    .flat_map(|scope| scope.spans),
            );
        }
        self.arrived.send_replace(kept.spans.len());
    }

    fn keep_metrics(&self, request: ExportMetricsServiceRequest) {
        self.kept
            .lock()
            .unwrap()
            .exports
            .push(format!("{request:?}"));
        let resources = request.resource_metrics;
        let metrics = resources
            .into_iter()
            .flat_map(|resource| resource.scope_metrics)
            .flat_map(|scope| scope.metrics);
        self.kept
            .lock()
            .unwrap()
            .metrics
            .extend(metrics.map(|metric| metric.name));
    }
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.keep_traces(&headers, request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.keep_metrics(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

impl OtlpReceiver {
    /// Listens on a free port of this host.
    pub(crate) async fn start() -> Self {
        Self::listen("http", Server::builder()).await
    }

    /// Listens with TLS; the certificate (PEM) that clients must trust comes with it.
    pub(crate) async fn start_tls() -> (Self, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let pem = made.cert.pem();
        let identity = Identity::from_pem(&pem, made.signing_key.serialize_pem());
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap();
        (Self::listen("https", server).await, pem.into_bytes())
    }

    async fn listen(scheme: &str, mut server: Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap());
        let kept = Arc::<Mutex<Kept>>::default();
        let (sender, arrived) = watch::channel(0);
        let collector = Collector {
            kept: Arc::clone(&kept),
            arrived: sender,
        };
        let traces =
            TraceServiceServer::new(collector.clone()).accept_compressed(CompressionEncoding::Gzip);
        let metrics =
            MetricsServiceServer::new(collector).accept_compressed(CompressionEncoding::Gzip);
        let router = server.add_service(traces).add_service(metrics);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            router
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
                .unwrap();
        });
        Self {
            endpoint,
            kept,
            arrived,
            _server: tasks,
        }
    }

    /// Listens for OTLP by HTTP in place of gRPC.
    pub(crate) async fn start_http() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let kept = Arc::<Mutex<Kept>>::default();
        let (sender, arrived) = watch::channel(0);
        let router = axum::Router::new()
            .route("/v1/traces", post(take_traces))
            .route("/v1/metrics", post(take_metrics))
            .with_state(Collector {
                kept: Arc::clone(&kept),
                arrived: sender,
            });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            endpoint,
            kept,
            arrived,
            _server: tasks,
        }
    }

    /// Where to export to.
    pub(crate) fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// Traces to this receiver by gRPC, as a setting.
    pub(crate) fn traces(&self) -> OtlpEndpoints {
        traces_to(self.endpoint())
    }

    /// Every span that has arrived, in order of arrival: children end, and come, before their
    /// parents.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.kept.lock().unwrap().spans.clone()
    }

    /// Every span, once `enough` returns true; panics with the names of what came when that takes
    /// longer than `within`.
    pub(crate) async fn await_until(
        &self,
        within: Duration,
        enough: impl Fn(&[Span]) -> bool,
    ) -> Vec<Span> {
        let mut arrived = self.arrived.clone();
        let waited =
            tokio::time::timeout(within, arrived.wait_for(|_| enough(&self.spans()))).await;
        let spans = self.spans();
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert!(
            matches!(waited, Ok(Ok(_))),
            "not the spans that were waited for: {names:?}"
        );
        spans
    }

    /// Every span, once there are at least so many.
    pub(crate) async fn await_spans(&self, count: usize, within: Duration) -> Vec<Span> {
        self.await_until(within, |spans| spans.len() >= count).await
    }

    /// All messages as they came, of spans and of metrics.
    pub(crate) fn exports(&self) -> String {
        self.kept.lock().unwrap().exports.join("\n")
    }

    /// The names of all metrics that have arrived.
    pub(crate) fn metrics(&self) -> BTreeSet<String> {
        self.kept.lock().unwrap().metrics.clone()
    }

    /// An attribute of the exporting process, such as `service.name`.
    pub(crate) fn resource(&self, key: &str) -> Option<String> {
        value(&self.kept.lock().unwrap().resource, key)
    }

    /// A header of the newest export.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let kept = self.kept.lock().unwrap();
        kept.headers
            .iter()
            .find(|(kept, _)| kept == name)
            .map(|(_, value)| value.clone())
    }
}

/// Traces to this place by gRPC.
pub(crate) fn traces_to(url: String) -> OtlpEndpoints {
    let traces = Some(OtlpEndpoint {
        url,
        protocol: OtlpProtocol::Grpc,
    });
    OtlpEndpoints {
        traces,
        ..OtlpEndpoints::default()
    }
}

/// An attribute of a span as text; numbers and booleans are written out, arrays are joined by
/// commas.
pub(crate) fn attr(span: &Span, key: &str) -> Option<String> {
    value(&span.attributes, key)
}

/// An id as traces write it.
pub(crate) fn hex(id: &[u8]) -> String {
    id.iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The one span of that name; panics when there is none or more than one.
pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let names = || {
        spans
            .iter()
            .map(|span| span.name.as_str())
            .collect::<Vec<_>>()
    };
    let span = found
        .next()
        .unwrap_or_else(|| panic!("no span `{name}` among {:?}", names()));
    assert!(
        found.next().is_none(),
        "more than one span `{name}` among {:?}",
        names()
    );
    span
}

/// The span that this one hangs under, where it came too.
pub(crate) fn parent<'a>(spans: &'a [Span], span: &Span) -> Option<&'a Span> {
    spans
        .iter()
        .find(|other| other.trace_id == span.trace_id && other.span_id == span.parent_span_id)
}

/// The spans that hang under this one, in order of their beginning.
pub(crate) fn children<'a>(spans: &'a [Span], span: &Span) -> Vec<&'a Span> {
    let mut children: Vec<&Span> = spans
        .iter()
        .filter(|other| other.trace_id == span.trace_id && other.parent_span_id == span.span_id)
        .collect();
    children.sort_by_key(|child| child.start_time_unix_nano);
    children
}

/// Whether the span is marked as failed.
pub(crate) fn is_error(span: &Span) -> bool {
    span.status
        .as_ref()
        .is_some_and(|status| status.code() == StatusCode::Error)
}

fn value(attributes: &[KeyValue], key: &str) -> Option<String> {
    attributes
        .iter()
        .rfind(|pair| pair.key == key)?
        .value
        .as_ref()
        .and_then(text)
}

fn text(value: &AnyValue) -> Option<String> {
    match value.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::BoolValue(flag) => Some(flag.to_string()),
        Value::IntValue(number) => Some(number.to_string()),
        Value::DoubleValue(number) => Some(number.to_string()),
        Value::ArrayValue(array) => Some(
            array
                .values
                .iter()
                .filter_map(text)
                .collect::<Vec<_>>()
                .join(","),
        ),
        _ => None,
    }
}
