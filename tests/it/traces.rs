//! Every attempt is a span, under the caller's own trace, at a real OTLP receiver.

use std::time::Duration;

use relight::internals::grpc::v1::InvokeWithRecoveryRequest;

use crate::{
    recovery::one_target,
    support::{
        otlp::{OtlpReceiver, attr, hex, is_error, named, parent},
        relight::{Relight, asking},
        upstream::{Reply, Upstream},
    },
};

#[tokio::test]
async fn attempts_appear_as_spans_under_the_callers_trace() {
    let receiver = OtlpReceiver::start().await;
    let upstream = Upstream::start().await;
    upstream.push(Reply::body(500, &[("x-request-id", "req-7")], b"{}"));
    let yaml = format!("{}telemetry: {{ otlp_endpoint: \"{}\" }}\n", one_target(&upstream), receiver.endpoint());
    let yaml = yaml.replace("api_key: k", "api_key: k, propagate_trace: true");
    let relight = Relight::start(&yaml).await;
    let mut request = tonic::Request::new(InvokeWithRecoveryRequest { invocation: Some(asking("Hello")) });
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    request.metadata_mut().insert("traceparent", caller.parse().unwrap());
    let response = relight.recovery().invoke_with_recovery(request).await.unwrap().into_inner();
    assert_eq!(response.attempts[0].trace_id, "0af7651916cd43dd8448eb211c80319c");
    let spans = receiver.await_spans(8, Duration::from_secs(15)).await;
    let root = named(&spans, "relight.v1.RecoveryService/InvokeWithRecovery");
    assert_eq!(hex(&root.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&root.parent_span_id), "b7ad6b7169203331");
    assert!(!is_error(root), "a recovered invocation is no error");
    let (first, second) = (named(&spans, "attempt 1"), named(&spans, "attempt 2"));
    assert!(is_error(first) && !is_error(second));
    let ids: Vec<&str> = response.attempts.iter().map(|attempt| attempt.span_id.as_str()).collect();
    assert_eq!(ids, [hex(&first.span_id), hex(&second.span_id)]);
    assert_eq!(response.attempts[0].upstream_request_id, "req-7", "to be quoted to the provider's support");
    for attempt in [first, second] {
        assert_eq!(parent(&spans, attempt).unwrap().span_id, root.span_id);
    }
    let why = ["rule", "fact"].map(|what| attr(first, &format!("relight.error.{what}")));
    assert_eq!(why.each_ref().map(Option::as_deref), [Some("status.http"), Some("status 500")]);
    assert_eq!(attr(second, "relight.attempt.cause").as_deref(), Some("retry:server_error"));
    assert_eq!(parent(&spans, named(&spans, "backoff")).unwrap().span_id, second.span_id);
    let chats: Vec<_> = spans.iter().filter(|span| span.name == "chat m-1").collect();
    assert_eq!(chats.len(), 2);
    assert!(chats.iter().any(|chat| attr(chat, "error.type").as_deref() == Some("server_error")));
    let posts: Vec<_> = spans.iter().filter(|span| span.name == "POST").collect();
    assert_eq!(posts.len(), 2);
    assert!(posts.iter().any(|post| attr(post, "http.request.resend_count").as_deref() == Some("1")));
    let sent = upstream.requests();
    let outgoing = sent[1].headers.iter().find(|(name, _)| name == "traceparent").map(|(_, value)| value.clone());
    assert!(outgoing.is_some_and(|value| value.contains("0af7651916cd43dd8448eb211c80319c")), "{:?}", sent[1].headers);
}

#[tokio::test]
async fn metrics_tell_of_attempts_and_recoveries() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::status(500));
    let relight = Relight::start(&one_target(&upstream)).await;
    relight.ask("Hello").await;
    let address = relight.running.admin_address;
    let text = loop {
        let text = http_get(&format!("http://{address}/metrics")).await;
        let recovered = |line: &str| line.contains("outcome=\"recovered\"") && !line.ends_with(" 0");
        if text.lines().any(|line| line.starts_with("relight_invocations_total") && recovered(line)) {
            break text;
        }
        tokio::task::yield_now().await;
    };
    let journal = ["invocations", "steps", "size", "threads", "waiting", "dropped_total", "removed_total"];
    for series in journal.map(|what| format!("relight_journal_{what}")) {
        assert!(text.contains(&series), "{series} is missing in\n{text}");
    }
    for series in ["relight_attempts_total", "relight_recoveries_total", "relight_circuit_state", "relight_inflight"] {
        assert!(text.contains(series), "{series} is missing in\n{text}");
    }
}

pub(crate) async fn http_get(url: &str) -> String {
    use http_body_util::{BodyExt as _, Empty};
    use hyper_util::{client::legacy::Client, rt::TokioExecutor};
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<bytes::Bytes>>();
    let response = client.get(url.parse().unwrap()).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}
