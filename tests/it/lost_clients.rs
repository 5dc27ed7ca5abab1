//! What callers hold when a connection is lost or an invocation fails: no request id is spent, and
//! a thread's errors are whole.

use std::time::Duration;

use relight::internals::grpc::v1::{
    GetInvocationRequest, GetThreadRequest, Invocation, InvocationState, InvokeWithRecoveryRequest,
    RequestDisposition, get_invocation_request, invoke_with_recovery_response::Outcome,
};

use crate::support::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

async fn relight(upstream: &Upstream, more: &str) -> Relight {
    let provider = format!(
        "base_url: \"{}\", api_key: k, allow_plaintext: true",
        upstream.base_url()
    );
    Relight::start(&format!(
        "providers: {{ a: {{ dialect: openai_chat, {provider} }} }}\ntargets: {{ a: {{ provider: a, model: m }} }}\nroutes: {{ \
         default: {{ targets: [a] }} }}\npolicies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 20ms }} }} }} }}\n{more}"
    ))
    .await
}

/// A call whose client is lost.
async fn lose_client(relight: &Relight, upstream: &Upstream) {
    upstream.push(Reply::silence());
    upstream.otherwise(Reply::text("Here."));
    let mut client = relight.recovery();
    tokio::select! {
        _ = client.invoke_with_recovery(InvokeWithRecoveryRequest { invocation: Some(named()) }) => panic!("silence"),
        _ = upstream.await_request(1) => {}
    }
    upstream.await_cancel(1).await;
}

fn named() -> Invocation {
    Invocation {
        request_id: "r-1".to_owned(),
        ..asking("Why?")
    }
}

#[tokio::test]
async fn the_same_request_id_and_body_run_again_after_their_client_was_lost() {
    let upstream = Upstream::start().await;
    let relight = relight(&upstream, "").await;
    lose_client(&relight, &upstream).await;
    let ended = async {
        let by_id = Some(get_invocation_request::Invocation::RequestId(
            "r-1".to_owned(),
        ));
        let request = GetInvocationRequest { invocation: by_id };
        loop {
            let found = relight
                .recovery()
                .get_invocation(request.clone())
                .await
                .expect("it is found by the id");
            if found.into_inner().invocation.unwrap().state() == InvocationState::Cancelled {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(15), ended)
        .await
        .expect("it ends as cancelled");
    let again = relight.invoke(named()).await;
    assert_eq!(again.disposition, i32::from(RequestDisposition::New));
    assert!(
        matches!(again.outcome, Some(Outcome::Completion(_))),
        "{again:?}"
    );
    let replayed = relight.invoke(named()).await;
    assert_eq!(replayed.disposition, i32::from(RequestDisposition::Replay));
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn they_run_again_where_the_journal_keeps_no_payloads() {
    let upstream = Upstream::start().await;
    let relight = relight(&upstream, "journal: { payloads: none }\n").await;
    lose_client(&relight, &upstream).await;
    let again = relight.invoke(named()).await;
    assert_eq!(again.disposition, i32::from(RequestDisposition::New));
    assert!(
        matches!(again.outcome, Some(Outcome::Completion(_))),
        "{again:?}"
    );
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn an_error_of_a_thread_is_the_failure_that_was_returned() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(503));
    let relight = relight(&upstream, "").await;
    let failed = relight
        .invoke(Invocation {
            thread_id: "t-1".to_owned(),
            ..asking("Why?")
        })
        .await;
    let Some(Outcome::Failure(returned)) = failed.outcome else {
        panic!("{failed:?}")
    };
    let request = GetThreadRequest {
        thread_id: "t-1".to_owned(),
    };
    let thread = relight
        .recovery()
        .get_thread(request)
        .await
        .unwrap()
        .into_inner()
        .thread
        .unwrap();
    assert_eq!(returned.attempts.len(), 3);
    assert_eq!(thread.errors, [returned]);
}
