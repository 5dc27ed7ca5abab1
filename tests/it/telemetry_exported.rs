//! What a collector is sent, from the exporters alone: traces with their parents, metrics, headers;
//! over TLS, and when it cannot be reached.

use std::{collections::BTreeMap, time::Duration};

use relight::internals::{
    domain::{
        failure::{Failure, FailureClass},
        invocation::{AttemptCause, Call, Invocation, ToolInvocation, TraceContext},
    },
    events::EventBus,
    layers::spans::{EntryPoint, Spans},
    telemetry::{Metrics, OtlpEndpoints, TargetNames, TelemetrySettings, build_tracer},
};

use crate::support::{
    http::closed_address,
    otlp::{OtlpReceiver, attr, children, hex, is_error, named, parent, traces_to},
};

const RPC: EntryPoint = EntryPoint::Grpc("relight.v1.RecoveryService/InvokeWithRecovery");
const WITHIN: Duration = Duration::from_secs(10);

fn invocation(traceparent: Option<&str>) -> Invocation {
    let (call, now) = (
        Call::Tool(ToolInvocation::default()),
        tokio::time::Instant::now(),
    );
    Invocation {
        trace: TraceContext {
            traceparent: traceparent.map(str::to_owned),
            ..TraceContext::default()
        },
        ..Invocation::new("inv-1".into(), "default".into(), call, now)
    }
}

#[tokio::test]
async fn what_is_left_at_the_end_arrives_with_its_parents_its_resource_and_its_headers() {
    let receiver = OtlpReceiver::start().await;
    let settings = TelemetrySettings {
        otlp: receiver.traces(),
        otlp_headers: BTreeMap::from([("x-key".to_owned(), "abc".to_owned().into())]),
        ..TelemetrySettings::default()
    };
    let (tracer, guard) = build_tracer(&settings).unwrap();
    let root = Spans::new(tracer).invocation(RPC, &invocation(None));
    let attempt = root.trace().attempt();
    attempt.trace().begin(1, AttemptCause::Initial);
    let trace_id = root.trace_id();
    attempt.finish_failed(&Failure::local(FailureClass::Timeout, "no answer"), true);
    drop(root);
    guard.shutdown(WITHIN).await;

    let spans = receiver.await_spans(2, WITHIN).await;
    let attempt = named(&spans, "attempt 1");
    let root = parent(&spans, attempt).unwrap();
    assert_eq!(root.name, "relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(children(&spans, root), [attempt]);
    assert_eq!(hex(&root.trace_id), trace_id);
    assert_eq!(attr(attempt, "error.type").as_deref(), Some("timeout"));
    assert_eq!((is_error(attempt), is_error(root)), (true, false));
    assert_eq!(
        receiver.resource("service.name").as_deref(),
        Some("relight")
    );
    assert_eq!(receiver.header("x-key").as_deref(), Some("abc"));
}

#[tokio::test]
async fn a_collector_behind_tls_is_trusted_only_with_its_certificate() {
    let (receiver, pem) = OtlpReceiver::start_tls().await;
    for (otlp_ca, arrived) in [(None, 0), (Some(pem), 1)] {
        let settings = TelemetrySettings {
            otlp: receiver.traces(),
            otlp_ca,
            ..TelemetrySettings::default()
        };
        let (tracer, guard) = build_tracer(&settings).unwrap();
        drop(Spans::new(tracer).invocation(RPC, &invocation(None)));
        guard.shutdown(Duration::from_secs(3)).await;
        assert_eq!(receiver.spans().len(), arrived);
    }
}

#[tokio::test]
async fn nothing_of_a_trace_that_the_caller_does_not_record_is_sent() {
    let receiver = OtlpReceiver::start().await;
    let settings = TelemetrySettings {
        otlp: receiver.traces(),
        ..TelemetrySettings::default()
    };
    let (tracer, guard) = build_tracer(&settings).unwrap();
    let open = Spans::new(tracer);
    drop(open.invocation(
        RPC,
        &invocation(Some(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        )),
    ));
    drop(open.invocation(
        RPC,
        &invocation(Some(
            "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )),
    ));
    guard.shutdown(WITHIN).await;
    let spans = receiver.await_spans(1, WITHIN).await;
    let sent: Vec<String> = spans.iter().map(|span| hex(&span.trace_id)).collect();
    assert_eq!(sent, ["1af7651916cd43dd8448eb211c80319c"]);
}

#[tokio::test]
async fn metrics_are_pushed_at_the_end_too() {
    let receiver = OtlpReceiver::start().await;
    let settings = TelemetrySettings {
        otlp: OtlpEndpoints {
            metrics: receiver.traces().traces,
            ..OtlpEndpoints::default()
        },
        ..TelemetrySettings::default()
    };
    let (metrics, task) =
        Metrics::start(&EventBus::new(4), &settings, TargetNames::default()).unwrap();
    metrics.rpc_finished(
        "relight.v1.RecoveryService/InvokeWithRecovery".into(),
        "OK",
        Duration::from_secs(1),
    );
    task.shutdown(WITHIN).await;
    let names = receiver.metrics();
    assert!(
        names.contains("rpc.server.call.duration") && names.contains("relight.inflight"),
        "{names:?}"
    );
}

#[tokio::test]
async fn without_a_collector_traces_have_ids_and_the_callers_decision_is_propagated() {
    let (tracer, guard) = build_tracer(&TelemetrySettings::default()).unwrap();
    let open = Spans::new(tracer);
    let own = open.invocation(RPC, &invocation(None));
    assert_eq!(own.trace_id().len(), 32);
    assert!(
        own.trace().outgoing().traceparent.unwrap().ends_with("-00"),
        "nobody records it"
    );
    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let theirs = open
        .invocation(RPC, &invocation(Some(given)))
        .trace()
        .outgoing()
        .traceparent
        .unwrap();
    assert!(
        theirs.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && theirs.ends_with("-01"),
        "{theirs}"
    );
    guard.shutdown(WITHIN).await;
}

#[tokio::test]
async fn an_unreachable_collector_does_not_delay_the_end() {
    let (_socket, gone) = closed_address();
    let settings = TelemetrySettings {
        otlp: traces_to(format!("http://{gone}")),
        ..TelemetrySettings::default()
    };
    let (tracer, guard) = build_tracer(&settings).unwrap();
    drop(Spans::new(tracer).invocation(RPC, &invocation(None)));
    let bound = Duration::from_secs(2);
    tokio::time::timeout(bound * 2, guard.shutdown(bound))
        .await
        .expect("the end is bounded");
}
