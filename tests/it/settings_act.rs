//! Settings and instruments that once had no effect: each has its effect, seen from outside.

use std::time::Duration;

use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, invoke_with_recovery_response::Outcome,
};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{
    http::metrics,
    otlp::{OtlpReceiver, attr},
    relight::asking,
    reloaded::Reloaded,
    upstream::{Reply, chunk, usage_chunk},
};

/// Longest time that a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(30);

const TRACEPARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn invoke_traced(server: &Reloaded) {
    let mut request = tonic::Request::new(InvokeWithRecoveryRequest {
        invocation: Some(asking("hello")),
    });
    request
        .metadata_mut()
        .insert("traceparent", TRACEPARENT.parse().unwrap());
    request
        .metadata_mut()
        .insert("tracestate", "corp=internal".parse().unwrap());
    server
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_trace_context_is_sent_to_a_provider_only_where_it_is_wanted() {
    let mut server = Reloaded::start(json!({})).await;
    invoke_traced(&server).await;
    let sent = server.upstream.await_request(1).await;
    for header in ["traceparent", "tracestate", "baggage"] {
        assert_eq!(sent.header(header), None);
    }
    server
        .change(json!({ "providers": { "p": { "propagate_trace": true } } }))
        .await;
    invoke_traced(&server).await;
    let sent = server.upstream.await_request(2).await;
    assert!(
        sent.header("traceparent")
            .is_some_and(|sent| sent.contains("0af7651916cd43dd8448eb211c80319c"))
    );
    assert_eq!(sent.header("tracestate"), Some("corp=internal"));
}

#[tokio::test]
async fn prompts_and_answers_are_on_spans_only_where_content_is_captured() {
    for captured in [false, true] {
        let collector = OtlpReceiver::start().await;
        let telemetry =
            json!({ "otlp_endpoint": collector.endpoint(), "capture_content": captured });
        let server = Reloaded::start(json!({ "telemetry": telemetry })).await;
        server.upstream.push(Reply::text("The answer itself."));
        invoke_traced(&server).await;
        let spans = collector
            .await_until(PATIENCE, |spans| {
                spans.iter().any(|span| span.name == "chat m-1")
            })
            .await;
        let chat = spans.iter().find(|span| span.name == "chat m-1").unwrap();
        let [input, output] =
            ["gen_ai.input.messages", "gen_ai.output.messages"].map(|name| attr(chat, name));
        if captured {
            assert!(
                input.unwrap().contains("hello") && output.unwrap().contains("The answer itself.")
            );
        } else {
            let all = format!("{spans:?}");
            assert!(
                !all.contains("The answer itself.") && !all.contains("hello"),
                "{all}"
            );
        }
    }
}

#[tokio::test]
async fn metrics_are_sent_over_otlp_where_that_is_switched_on() {
    let collector = OtlpReceiver::start().await;
    let telemetry = json!({ "otlp_endpoint": collector.endpoint(), "otlp_metrics": true });
    let server = Reloaded::start(json!({ "telemetry": telemetry })).await;
    server.invoke().await;
    // The last export is made when the server ends.
    server.running.shutdown().await;
    assert!(
        collector.metrics().contains("relight.invocations"),
        "{:?}",
        collector.metrics()
    );
}

#[tokio::test]
async fn an_answer_that_drips_below_the_floor_is_abandoned_for_another_target() {
    let targets = json!({ "spare": { "provider": "p", "model": "m-2" } });
    let server = Reloaded::start(json!({
        "targets": targets,
        "routes": { "default": { "targets": ["main", "spare"] } },
        "timers": { "min_bytes_per_second": 1000 },
    }))
    .await;
    let mut words: Vec<String> = (0..40)
        .map(|_| chunk(&json!({ "content": "a" }), None))
        .collect();
    words.extend([
        chunk(&json!({}), Some("stop")),
        usage_chunk(1, 1),
        "[DONE]".to_owned(),
    ]);
    server.upstream.push(
        Reply::events(&words)
            .in_pieces_of(190)
            .paced(Duration::from_millis(300)),
    );
    let began = Instant::now();
    let response = server.invoke().await;
    assert!(
        began.elapsed() < Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    assert!(matches!(response.outcome, Some(Outcome::Completion(_))));
    assert!(
        response.attempts[0].message.contains("bytes per second"),
        "{}",
        response.attempts[0].message
    );
}

#[tokio::test]
async fn calls_the_journals_operations_and_its_store_are_in_the_metrics() {
    let server = Reloaded::start(json!({})).await;
    server.invoke().await;
    let scraped = metrics(server.running.admin_address).await;
    let call = "rpc_server_call_duration_seconds_count{";
    let called = scraped
        .lines()
        .find(|line| line.starts_with(call))
        .unwrap_or_else(|| panic!("{scraped}"));
    for label in ["relight.v1.RecoveryService/InvokeWithRecovery", "\"OK\""] {
        assert!(called.contains(label), "{called}");
    }
    let recorded = |operation: &str| {
        let label = format!("operation=\"{operation}\"");
        scraped.lines().any(|line| {
            line.starts_with("relight_journal_duration_seconds_count") && line.contains(&label)
        })
    };
    assert!(recorded("begin") && recorded("finish"), "{scraped}");
    let up = scraped
        .lines()
        .find(|line| line.starts_with("relight_store_up{"))
        .unwrap();
    assert!(up.contains("journal") && up.ends_with(" 1"), "{up}");
}

#[tokio::test]
async fn the_changed_limits_of_a_tenant_hold_for_the_next_call() {
    let mut server = Reloaded::start(json!({})).await;
    let answer = Reply::events(&[
        chunk(&json!({ "content": "Hi." }), None),
        chunk(&json!({}), Some("stop")),
        usage_chunk(50, 50),
    ]);
    server.upstream.otherwise(answer);
    for limit in [
        "requests_per_minute",
        "input_tokens_per_minute",
        "output_tokens_per_minute",
    ] {
        let names = |max: serde_json::Value| json!({ "server": { "tenants": { "default": { "limits": { limit: max } } } } });
        let invoke = async |server: &Reloaded| {
            let invocation = Some(asking("hello"));
            let request = InvokeWithRecoveryRequest { invocation };
            server.recovery().invoke_with_recovery(request).await
        };
        assert!(invoke(&server).await.is_ok());
        server.change(names(json!(1))).await;
        assert!(invoke(&server).await.is_ok());
        let refused = invoke(&server).await.unwrap_err();
        assert!(refused.message().contains(limit), "{refused:?}");
        server.change(names(serde_json::Value::Null)).await;
    }
    // One call at once: see `tenant_limits`.
    let change = json!({ "in_flight": 1 });
    let change = json!({ "server": { "tenants": { "default": { "limits": change } } } });
    let (event, _) = server.change(change).await;
    assert!(event.needs_restart_paths.is_empty(), "{event:?}");
}
