//! What is kept in memory after the calls: prompts, answers, keys of requests, events.

use std::future;

use futures_util::{StreamExt as _, stream};
use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, recovery_service_client::RecoveryServiceClient,
};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};
use tonic::transport::Channel;

use super::chat;
use crate::support::{
    limits::Limits,
    process::{KEY, with_key},
    relight::asking,
    room::room,
    upstream::{Reply, Upstream},
};

const LIMITS: Limits = Limits {
    connections: 8,
    in_flight_mib: 4,
    requests: 8,
    answer_kib: 256,
    journal_mib: 2,
    events: 256,
};

/// The id of the request, or its key, with this number.
fn id(number: usize) -> String {
    format!("{number:0>100}")
}

async fn invoke(mut client: RecoveryServiceClient<Channel>, number: usize, prompt: &str) -> bool {
    let mut invocation = asking(prompt);
    invocation.request_id = id(number);
    let request = with_key(
        KEY,
        InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        },
    );
    client.invoke_with_recovery(request).await.is_ok()
}

/// Makes calls of which each has an id or a key of its own, half of them through the front; the
/// oldest is forgotten then, and nearly all were answered.
async fn kept(name: &str, calls: usize, prompt: usize, answer: usize) {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text(
        &format!("{} ", "a".repeat(answer / 10)).repeat(10),
    ));
    let attacked = LIMITS.serve(&upstream.base_url(), "", "").await;
    let (server, prompt) = (&attacked.server, "p".repeat(prompt));
    let client = server.recovery();
    let called = (0..calls).map(|number| {
        let (client, prompt) = (client.clone(), prompt.clone());
        async move {
            if number % 2 == 0 {
                return invoke(client, number, &prompt).await;
            }
            let body =
                json!({"model": "default", "messages": [{"role": "user", "content": prompt}]})
                    .to_string();
            chat(
                server,
                body.into_bytes(),
                &[("idempotency-key", &id(number))],
            )
            .await
            .is_ok_and(|came| came.0 == 200)
        }
    });
    let answered = stream::iter(called)
        .buffer_unordered(4)
        .filter(|answered| future::ready(*answered))
        .count()
        .await;
    attacked.assert_bounded(name);
    assert!(
        answered > calls * 9 / 10,
        "{name}: {answered} of {calls} were answered"
    );
    let before = upstream.requests().len();
    assert!(
        invoke(client.clone(), calls, &prompt).await
            && invoke(client.clone(), calls, &prompt).await
    );
    assert_eq!(
        upstream.requests().len(),
        before + 1,
        "{name}: the newest is known"
    );
    assert!(invoke(client, 0, &prompt).await);
    assert_eq!(
        upstream.requests().len(),
        before + 2,
        "{name}: the oldest is known still"
    );
}

#[tokio::test]
async fn a_journal_in_memory_holds_no_more_than_its_bytes_under_load() {
    let _room = room().await;
    kept("a journal in memory", 300, 200_000, 200_000).await;
}

#[tokio::test]
async fn very_many_keys_of_requests_take_no_more_than_the_journal_s_bytes() {
    let _room = room().await;
    kept("keys of requests", 4_000, 10, 10).await;
}

#[tokio::test]
async fn records_that_wait_for_a_locked_database_hold_no_more_than_their_bytes() {
    let _room = room().await;
    let (calls, prompt) = (1_000, "p".repeat(300_000));
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    upstream.otherwise(Reply::text("Fine."));
    let file = folder.path().join("journal.db");
    // What may wait, in place of what a journal in memory may keep.
    let limits = Limits {
        journal_mib: 32,
        ..LIMITS
    };
    let attacked = limits
        .serve_over(
            &format!("sqlite:{}", file.display()),
            &upstream.base_url(),
            "",
            "",
        )
        .await;
    let mut other = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file))
        .await
        .unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let body =
        json!({"model": "default", "messages": [{"role": "user", "content": prompt}]}).to_string();
    let called = (0..calls).map(|_| chat(&attacked.server, body.clone().into_bytes(), &[]));
    let came = stream::iter(called).buffer_unordered(4);
    let answered = came
        .filter(|came| future::ready(came.as_ref().is_ok_and(|came| came.0 == 200)))
        .count()
        .await;
    attacked.assert_bounded("a locked database");
    assert_eq!(
        answered, calls,
        "a call without a name of its own needs no record"
    );
}
