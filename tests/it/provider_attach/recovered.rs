//! What a caller of the whole service sees of an answer that is read on: one attempt, or ordinary
//! recovery.

use relight::internals::grpc::v1::{
    FailureClass, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse,
    invoke_with_recovery_response::Outcome, recovery_event::Body, watch_recovery_request::Start,
};

use super::{TEXT, is_cancel, knowing, methods, middle};
use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};
use relight::internals::wire_server::answers::responses::text;

fn background(upstream: &Upstream, idle: &str) -> String {
    format!(
        r#"
providers: {{ model: {{ dialect: openai_responses, base_url: "{}", api_key: k }} }}
targets: {{ main: {{ provider: model, model: m-1, capabilities: {{ background: true }} }} }}
routes: {{ default: {{ targets: [main], deadline: 30s }} }}
timers: {{ first_token: 10s, first_token_alone: 10s, soft_first_token: 0ms, idle: {idle} }}
policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }} }} }} }}
"#,
        upstream.base_url()
    )
}

fn answer(response: &InvokeWithRecoveryResponse) -> &str {
    match &response.outcome {
        Some(Outcome::Completion(completion)) => &completion.text,
        other => panic!("no answer but {other:?}"),
    }
}

#[tokio::test]
async fn one_attempt_succeeds_and_the_watcher_sees_that_it_was_resumed() {
    let upstream = knowing(|_, rest| rest).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let relight = Relight::start(&background(&upstream, "10s")).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let response = relight.ask("Count.").await;
    assert_eq!((answer(&response), response.attempts.len()), (TEXT, 1));
    let told = watch.until("attempt_read_on").await;
    let Some(Body::AttemptReadOn(body)) = told.body else {
        panic!("{told:?}")
    };
    assert_eq!(
        (body.reason.as_str(), body.requests),
        ("the answer was cut off", 1)
    );
    watch.until("invocation_succeeded").await;
    assert_eq!(methods(&upstream), ["POST", "GET"]);
}

#[tokio::test]
async fn a_stalled_answer_is_read_on_within_its_attempt() {
    let upstream = knowing(|_, rest| rest).await;
    upstream.push(text(TEXT).stall_after(middle().1));
    let relight = Relight::start(&background(&upstream, "4s")).await;
    let response = relight.ask("Count.").await;
    assert_eq!((answer(&response), response.attempts.len()), (TEXT, 1));
    assert_eq!(methods(&upstream), ["POST", "GET"]);
}

#[tokio::test]
async fn a_response_that_is_not_there_any_more_is_recovered_from_as_from_any_cut() {
    let upstream = knowing(|_, _| Reply::status(404)).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let relight = Relight::start(&background(&upstream, "10s")).await;
    let response = relight.ask("Count.").await;
    assert_eq!((answer(&response), response.attempts.len()), (TEXT, 2));
    assert_eq!(
        response.attempts[0].failure_class(),
        FailureClass::StreamInterrupted
    );
    assert_eq!(methods(&upstream), ["POST", "GET", "POST"]);
    assert!(!upstream.requests().iter().any(is_cancel));
}

#[tokio::test]
async fn a_caller_that_leaves_cancels_the_response_upstream() {
    let upstream = knowing(|_, rest| rest.stall_after(200)).await;
    upstream.push(text(TEXT).cut_after(middle().1));
    let relight = Relight::start(&background(&upstream, "30s")).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let mut client = relight.recovery();
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move {
        client
            .invoke_with_recovery(InvokeWithRecoveryRequest {
                invocation: Some(asking("Count.")),
            })
            .await
    });
    watch.until("attempt_read_on").await;
    calls.abort_all();
    assert!(is_cancel(&upstream.await_request(3).await));
    assert_eq!(methods(&upstream), ["POST", "GET", "POST"]);
}
