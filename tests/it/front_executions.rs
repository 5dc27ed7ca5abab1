//! A call of the OpenAI-compatible front is an invocation like one over gRPC: joined, replayed,
//! looked up, cancelled, kept on a thread, and ended with a word to its caller when the process
//! ends.

use std::time::Duration;

use hyper::Method;
use relight::internals::grpc::v1::{
    CancelInvocationRequest, GetInvocationRequest, GetThreadRequest, InvocationState,
    cancel_invocation_request, get_invocation_request,
    recovery_service_client::RecoveryServiceClient,
};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::support::{
    front::{Answer, Front, question},
    upstream::{Reply, Upstream, chunk},
};

const PATH: &str = "/v1/chat/completions";
const TEXT: &str = "One two three four five six seven eight.";

async fn front(upstream: &Upstream, server: &str) -> Front {
    let rest = format!(
        "providers:\n  a: {{ dialect: openai_chat, base_url: \"{}\", api_key: k, allow_plaintext: true }}\ntargets:\n  a: {{ \
         provider: a, model: m }}\nroutes:\n  chat: {{ targets: [a] }}\n",
        upstream.base_url()
    );
    Front::start_with(server, &rest).await
}

async fn grpc(front: &Front) -> RecoveryServiceClient<Channel> {
    let endpoint = format!("http://{}", front.grpc_address);
    RecoveryServiceClient::new(
        Channel::from_shared(endpoint)
            .unwrap()
            .connect()
            .await
            .unwrap(),
    )
}

/// The text at this pace: one word after the other.
fn slow(after: Duration) -> Reply {
    let events = TEXT
        .split_inclusive(' ')
        .map(|word| chunk(&json!({"content": word}), None));
    let events: Vec<String> = events
        .chain([chunk(&json!({}), Some("stop")), "[DONE]".to_owned()])
        .collect();
    Reply::events(&events).paced(after)
}

async fn send(front: &Front, headers: &[(&str, &str)], body: &Value) -> Answer {
    front
        .send(Method::POST, PATH, headers, body.to_string())
        .await
}

#[tokio::test]
async fn the_same_key_joins_a_running_call_and_replays_a_finished_one() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        upstream.otherwise(slow(Duration::from_millis(50)));
        let front = front(&upstream, "").await;
        let (body, key) = (question("chat", stream), [("idempotency-key", "k-1")]);
        let (one, other) = tokio::join!(send(&front, &key, &body), send(&front, &key, &body));
        let replayed = send(&front, &key, &body).await;
        for answer in [&one, &other, &replayed] {
            assert!(answer.succeeded_with(TEXT), "{answer:?}");
            assert_eq!(
                answer.header("x-relight-invocation"),
                one.header("x-relight-invocation")
            );
        }
        assert_eq!(upstream.requests().len(), 1, "stream: {stream}");
    }
}

#[tokio::test]
async fn the_same_key_with_another_body_is_a_conflict_that_is_not_retried() {
    let upstream = Upstream::start().await;
    let front = front(&upstream, "").await;
    let key = [("idempotency-key", "k-1")];
    assert_eq!(
        send(&front, &key, &question("chat", false)).await.status,
        200
    );
    let mut body = question("chat", false);
    body["messages"][0]["content"] = json!("Something else?");
    let refused = send(&front, &key, &body).await;
    assert_eq!(
        (refused.status, refused.header("x-should-retry")),
        (409, Some("false"))
    );
    assert_eq!(
        (&refused.error()["code"], &refused.error()["param"]),
        (&json!("idempotency_key_reused"), &json!("idempotency-key"))
    );
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_call_can_be_looked_up_and_cancelled_by_the_id_in_its_header() {
    let upstream = Upstream::start().await;
    let front = front(&upstream, "").await;
    let mut grpc = grpc(&front).await;
    let answer = send(&front, &[], &question("chat", false)).await;
    let id = answer.header("x-relight-invocation").unwrap().to_owned();
    let invocation = Some(get_invocation_request::Invocation::InvocationId(id.clone()));
    let record = grpc
        .get_invocation(GetInvocationRequest { invocation })
        .await
        .unwrap()
        .into_inner()
        .invocation
        .unwrap();
    assert_eq!((record.invocation_id, record.attempts.len()), (id, 1));

    upstream.otherwise(slow(Duration::from_millis(300)));
    let key = [("idempotency-key", "k-1")];
    let body = question("chat", true);
    let cancel = async {
        upstream.await_request(2).await;
        let invocation = Some(cancel_invocation_request::Invocation::RequestId(
            "k-1".to_owned(),
        ));
        let request = CancelInvocationRequest {
            invocation,
            reason: "enough".to_owned(),
        };
        grpc.cancel_invocation(request).await.unwrap().into_inner()
    };
    let (broken, cancelled) = tokio::join!(send(&front, &key, &body), cancel);
    assert!(
        cancelled.cancelled && cancelled.state == i32::from(InvocationState::Cancelled),
        "{cancelled:?}"
    );
    assert_eq!(broken.error()["code"], "cancelled", "{broken:?}");
    upstream.await_cancel(2).await;
}

#[tokio::test]
async fn a_response_is_cancelled_by_a_request_without_a_body() {
    let upstream = Upstream::start().await;
    upstream.otherwise(slow(Duration::from_millis(300)));
    let front = front(&upstream, "").await;
    let mut grpc = grpc(&front).await;
    let body = json!({"model": "chat", "input": "Why?"}).to_string();
    let key = [("idempotency-key", "k-1")];
    let cancel = async {
        upstream.await_request(1).await;
        let invocation = Some(get_invocation_request::Invocation::RequestId(
            "k-1".to_owned(),
        ));
        let record = grpc
            .get_invocation(GetInvocationRequest { invocation })
            .await
            .unwrap()
            .into_inner()
            .invocation
            .unwrap();
        let path = format!("/v1/responses/resp_{}/cancel", record.invocation_id);
        front.send(Method::POST, &path, &[], "").await
    };
    let (broken, cancelled) = tokio::join!(
        front.send(Method::POST, "/v1/responses", &key, body),
        cancel
    );
    assert_eq!(
        (cancelled.status, &cancelled.json()["status"]),
        (200, &json!("cancelled")),
        "{cancelled:?}"
    );
    assert_eq!(broken.error()["code"], "cancelled", "{broken:?}");
    upstream.await_cancel(1).await;
}

#[tokio::test]
async fn a_thread_is_named_by_a_header() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Because."));
    let front = front(&upstream, "").await;
    let thread = [("x-relight-thread", "t-1")];
    for stream in [false, true] {
        assert!(
            send(&front, &thread, &question("chat", stream))
                .await
                .succeeded_with("Because.")
        );
    }
    let asked = upstream.await_request(2).await.body["messages"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(
        asked, 3,
        "the second turn comes with the first one and its answer"
    );
    let request = GetThreadRequest {
        thread_id: "t-1".to_owned(),
    };
    let kept = grpc(&front)
        .await
        .get_thread(request)
        .await
        .unwrap()
        .into_inner()
        .thread
        .unwrap();
    assert_eq!((kept.messages.len(), kept.errors.len()), (4, 0));
}

#[tokio::test]
async fn the_same_key_and_body_run_again_after_the_client_was_lost() {
    for stream in [false, true] {
        let upstream = Upstream::start().await;
        upstream.push(slow(Duration::from_millis(300)));
        upstream.otherwise(Reply::text(TEXT));
        let front = front(&upstream, "").await;
        let (body, key) = (question("chat", stream), [("idempotency-key", "k-1")]);
        tokio::select! {
            _ = send(&front, &key, &body) => panic!("it takes seconds"),
            _ = upstream.await_request(1) => {}
        }
        upstream.await_cancel(1).await;
        let again = send(&front, &key, &body).await;
        assert!(again.succeeded_with(TEXT), "stream {stream}: {again:?}");
        assert_eq!(upstream.requests().len(), 2);
        let replayed = send(&front, &key, &body).await;
        assert!(
            replayed.succeeded_with(TEXT) && upstream.requests().len() == 2,
            "{replayed:?}"
        );
    }
}

#[tokio::test]
async fn at_the_end_of_a_drain_every_caller_gets_a_status_or_an_error_event() {
    let upstream = Upstream::start().await;
    upstream.otherwise(slow(Duration::from_secs(1)));
    let mut front = front(&upstream, "  drain_timeout: 300ms").await;
    let running = front.take_running();
    let drain = async {
        for number in 1..=4 {
            upstream.await_request(number).await;
        }
        // The streams have begun: their first words are on the way.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        running.shutdown().await;
    };
    let (document, stream) = (question("chat", false), question("chat", true));
    let calls = futures_util::future::join_all(
        [&document, &stream, &document, &stream].map(|body| send(&front, &[], body)),
    );
    let (answers, ()) = tokio::join!(calls, drain);
    for answer in &answers {
        assert!(answer.clean, "{answer:?}");
        assert_eq!(answer.error()["code"], "draining", "{answer:?}");
    }
    for number in [0, 2] {
        assert_eq!(
            (
                answers[number].status,
                answers[number].header("x-should-retry")
            ),
            (503, Some("true"))
        );
    }
}

#[tokio::test]
async fn what_of_a_history_is_repaired_is_reported_once() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::status(500));
    let front = front(&upstream, "").await;
    for stream in [false, true] {
        let mut body = question("chat", stream);
        let call =
            json!({"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}});
        body["messages"] = json!([
            {"role": "user", "content": "Add."},
            {"role": "tool", "tool_call_id": "gone", "content": "2"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "user", "content": "Well?"},
        ]);
        let answer = send(&front, &[], &body).await;
        let words =
            "1 tool result without its call was left out, and 1 missing tool result was filled in";
        assert_eq!(
            answer.header("x-relight-adapted"),
            Some(words),
            "{answer:?}"
        );
        let id = answer.header("x-relight-invocation").unwrap().to_owned();
        let request = GetInvocationRequest {
            invocation: Some(get_invocation_request::Invocation::InvocationId(id)),
        };
        let record = grpc(&front)
            .await
            .get_invocation(request)
            .await
            .unwrap()
            .into_inner()
            .invocation
            .unwrap();
        assert_eq!(record.reasoning.matches(words).count(), 1, "{record:?}");
    }
}
