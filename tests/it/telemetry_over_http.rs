//! Traces and metrics of a recovered call reach a collector by OTLP over HTTP.

use std::time::Duration;

use crate::support::{
    binary::run,
    otlp::{OtlpReceiver, attr, named, parent},
    process::Serve,
    relight::Relight,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// Longest time that an export may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// What a trace of a call that was recovered by its second attempt has, whoever sends it.
async fn assert_recovered(receiver: &OtlpReceiver) {
    let is_whole = |spans: &[opentelemetry_proto::tonic::trace::v1::Span]| {
        spans
            .iter()
            .any(|span| span.name.starts_with("relight.v1.RecoveryService/"))
    };
    let spans = receiver.await_until(PATIENCE, is_whole).await;
    let (first, second) = (named(&spans, "attempt 1"), named(&spans, "attempt 2"));
    assert_eq!(attr(first, "error.type").as_deref(), Some("server_error"));
    assert_eq!(
        attr(second, "relight.attempt.cause").as_deref(),
        Some("retry:server_error")
    );
    assert_eq!(
        parent(&spans, first).unwrap().span_id,
        parent(&spans, second).unwrap().span_id
    );
}

#[tokio::test]
async fn a_recovered_call_is_seen_over_http_as_the_settings_say() {
    let (receiver, upstream) = (OtlpReceiver::start_http().await, Upstream::start().await);
    upstream.push(Reply::status(500));
    let endpoint = receiver.endpoint();
    let relight = Relight::start(&format!(
        "{}telemetry: {{ otlp_endpoint: \"{endpoint}\", otlp_protocol: http/protobuf, otlp_metrics: true, \
         otlp_headers: {{ x-key: \"a%20b\" }} }}\n",
        one_target(&upstream)
    ))
    .await;
    assert_eq!(relight.ask("hello").await.attempts.len(), 2);
    assert_recovered(&receiver).await;
    // The last export of metrics is made when the server ends.
    relight.running.shutdown().await;
    let metrics = receiver.metrics();
    assert!(
        metrics.contains("relight.recoveries") && metrics.contains("relight.attempts"),
        "{metrics:?}"
    );
    assert_eq!(
        receiver.resource("service.name").as_deref(),
        Some("relight")
    );
    assert_eq!(
        receiver.header("x-key").as_deref(),
        Some("a%20b"),
        "as it is written"
    );
}

#[tokio::test]
async fn a_recovered_call_is_seen_over_http_as_the_standard_variables_say() {
    let (receiver, upstream) = (OtlpReceiver::start_http().await, Upstream::start().await);
    upstream.push(Reply::status(500));
    let config = format!(
        "journal: {{ store: memory }}\n{}telemetry: {{ otlp_metrics: true }}\n",
        one_target(&upstream)
    );
    let server = Serve::on("127.0.0.1:0", &config)
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
        .env("OTEL_SERVICE_NAME", "relight-us")
        .env("OTEL_RESOURCE_ATTRIBUTES", "team=blue")
        .env("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
        .env("OTEL_TRACES_SAMPLER_ARG", "1.0")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .start()
        .await;
    let called = run(&["invoke", "--address", &server.address, "hello"]).await;
    assert_eq!(called.code, Some(0), "{}", called.err);
    assert_recovered(&receiver).await;
    let waiting = async {
        while !receiver.metrics().contains("relight.recoveries") {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("metrics in time");
    assert_eq!(
        receiver.resource("service.name").as_deref(),
        Some("relight-us")
    );
    assert_eq!(receiver.resource("team").as_deref(), Some("blue"));
    assert_eq!(receiver.header("x-key").as_deref(), Some("abc"));
}
