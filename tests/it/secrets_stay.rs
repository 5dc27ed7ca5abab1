//! A provider's error may repeat the key that it was sent, and the prompt: neither leaves where it may not.

use std::time::Duration;

use relight::internals::grpc::v1::{
    GetStatusRequest, InvokeWithRecoveryRequest, ListTargetsRequest, StreamWithRecoveryRequest,
    admin_service_client::AdminServiceClient, invoke_with_recovery_response::Outcome,
    stream_with_recovery_request::Start as StreamStart, watch_recovery_request::Start,
};
use serde_json::json;
use tonic::transport::Channel;

use crate::support::{
    otlp::OtlpReceiver,
    process::{Process, key, with_key},
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

const PROMPT: &str = "my-private-question";

/// A server whose provider repeats everything that it was sent.
async fn echoing(upstream: &Upstream, key: &str) -> Relight {
    upstream.answering(|request| {
        let key = request.header("authorization").unwrap_or_default().trim_start_matches("Bearer ").to_owned();
        let prompt = request.texts_of("user").join(" ");
        let error = json!({"error": {"message": format!("key {key} may not say {prompt}"), "code": "invalid_request"}});
        Reply::body(400, &[("content-type", "application/json"), ("x-request-id", &key)], error.to_string().as_bytes())
    });
    Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: {key:?} }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\njournal: {{ store: memory }}\n",
        upstream.base_url()
    ))
    .await
}

#[tokio::test]
async fn a_key_of_any_shape_is_shown_to_none_and_a_prompt_to_its_caller_alone() {
    for key in ["sk-1234", "changeme", "Hunter2hunter2", "q\"uo/ted k"] {
        let upstream = Upstream::start().await;
        let server = echoing(&upstream, key).await;
        let mut watch = server.watch(Start::Live(true)).await;
        let response = server.invoke(asking(PROMPT)).await;
        assert_eq!(upstream.requests()[0].header("authorization"), Some(format!("Bearer {key}").as_str()));
        let Some(Outcome::Failure(failure)) = &response.outcome else { panic!("{response:?}") };
        assert!(failure.message.contains(PROMPT), "the caller gets the provider's words: {failure:?}");
        watch.until("invocation_failed").await;
        let events = format!("{:?}", watch.seen);
        let record = format!("{:?}", server.get(&response.invocation_id).await);
        for shown in [format!("{response:?}"), record, events.clone()] {
            assert!(!shown.contains(key) && !shown.contains(&format!("{key:?}")), "{key}: {shown}");
        }
        assert!(!events.contains(PROMPT), "{events}");
    }
}

/// The files of a folder, all bytes of them.
fn bytes_of(folder: &std::path::Path) -> Vec<u8> {
    let files = std::fs::read_dir(folder).unwrap();
    files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

/// The log is at its most talkative, that of all libraries included.
#[tokio::test]
async fn no_key_is_in_the_journal_the_log_the_spans_the_metrics_or_what_operators_see() {
    const PROVIDERS: &str = "hunter2-of-the-provider";
    const CALLERS: &str = "hunter2-of-the-caller";
    const QUERY: &str = "hunter2-of-the-query";
    let (upstream, collector) = (Upstream::start().await, OtlpReceiver::start().await);
    upstream.answering(|request| {
        let sent = format!("{:?} {}", request.headers, request.path);
        let error = json!({"error": {"message": format!("refused: {sent}")}});
        Reply::body(503, &[("content-type", "application/json"), ("x-echo", PROVIDERS)], error.to_string().as_bytes())
    });
    let folder = tempfile::tempdir().unwrap();
    let keys = key("acme", CALLERS, ", admin: true");
    let server = Process::serve(
        "",
        &format!(
            "  keys: [{keys}]\njournal: {{ store: \"sqlite:{}\" }}\n\
             telemetry: {{ otlp_endpoint: \"{}\", otlp_metrics: true, log: {{ level: trace, format: json }} }}\n\
             providers: {{ p: {{ dialect: openai_chat, base_url: \"{}?token={QUERY}\", api_key: {PROVIDERS} }} }}\n\
             targets: {{ main: {{ provider: p, model: m }} }}\nroutes: {{ default: {{ targets: [main] }} }}\n\
             policies: {{ standard: {{ retry: {{ backoff: {{ base: 1ms, cap: 1ms }} }} }} }}\n",
            folder.path().join("journal.db").display(),
            collector.endpoint(),
            upstream.base_url()
        ),
    )
    .await;
    let mut client = server.recovery().await;
    let invocation = || Some(asking("hello"));
    let request = with_key(CALLERS, InvokeWithRecoveryRequest { invocation: invocation() });
    let response = client.invoke_with_recovery(request).await.unwrap().into_inner();
    assert!(!upstream.requests().is_empty(), "{response:?}");
    let mut shown = vec![format!("{response:?}")];
    let start = Some(StreamStart::Invocation(invocation().unwrap()));
    let stream = client.stream_with_recovery(with_key(CALLERS, StreamWithRecoveryRequest { start })).await.unwrap();
    let mut stream = stream.into_inner();
    while let Some(event) = stream.message().await.unwrap() {
        shown.push(format!("{event:?}"));
    }
    let question = crate::support::front::question("default", true);
    let front = server.front.parse().unwrap();
    shown.push(crate::support::front::post(front, "/v1/chat/completions", &question).await.body);
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap().connect().await.unwrap();
    let mut admin = AdminServiceClient::new(channel);
    shown.push(format!("{:?}", admin.get_status(with_key(CALLERS, GetStatusRequest {})).await.unwrap()));
    shown.push(format!("{:?}", admin.list_targets(with_key(CALLERS, ListTargetsRequest::default())).await.unwrap()));
    shown.push(crate::traces::http_get(&format!("http://{}/metrics", server.admin)).await);
    let spans = collector.await_spans(4, Duration::from_secs(30)).await;
    shown.push(format!("{spans:?} {:?}", collector.metrics()));
    let log = server.log().iter().map(ToString::to_string).collect::<String>();
    assert!(log.contains("hyper") || log.contains("h2"), "the log of libraries is there");
    let journal = String::from_utf8_lossy(&bytes_of(folder.path())).into_owned();
    assert!(journal.contains("hello"), "the journal keeps the call");
    let shown = shown.concat();
    for (place, text) in [("answers", &shown), ("log", &log), ("journal", &journal)] {
        for secret in [PROVIDERS, CALLERS, QUERY] {
            let found =
                text.find(secret).map(|at| text[at.saturating_sub(200)..].chars().take(300).collect::<String>());
            assert_eq!(found, None, "{secret} is in the {place}");
        }
    }
}
