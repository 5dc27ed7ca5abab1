//! Readers that do not read: of answers, of streams, of events.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all, stream};
use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, RewindMode, StreamWithRecoveryRequest, WatchRecoveryRequest,
    recovery_service_client::RecoveryServiceClient, stream_with_recovery_request::Start as Begin,
    watch_recovery_request::Start,
};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};
use tonic::transport::{Channel, Endpoint};

use super::{CHAT, MIB};
use crate::support::{
    limits::{Attacked, Limits},
    process::{KEY, with_key},
    relight::{asking, streaming},
    room::room,
    upstream::{Reply, Upstream},
};

const LIMITS: Limits = Limits {
    connections: 24,
    in_flight_mib: 4,
    requests: 8,
    answer_kib: 1024,
    journal_mib: 4,
    events: 256,
};

/// A provider of long answers.
async fn long_answers() -> Upstream {
    let upstream = Upstream::start().await;
    upstream
        .otherwise(Reply::text(&format!("{} ", "w".repeat(50_000)).repeat(16)).in_pieces_of(MIB));
    upstream
}

/// A client whose responses have next to no room.
async fn narrow(attacked: &Attacked) -> RecoveryServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", attacked.server.address)).unwrap();
    let endpoint = endpoint
        .initial_stream_window_size(1)
        .initial_connection_window_size(64 << 20);
    RecoveryServiceClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test]
async fn unread_streams_hold_no_more_than_the_limits() {
    let _room = room().await;
    let upstream = long_answers().await;
    let attacked = LIMITS.serve(&upstream.base_url(), "", "").await;
    let client = narrow(&attacked).await;
    let begun = (0..150).map(|_| async {
        let request = with_key(
            KEY,
            StreamWithRecoveryRequest {
                start: Some(Begin::Invocation(streaming("Hello", RewindMode::Rewind))),
            },
        );
        client.clone().stream_with_recovery(request).await
    });
    let held: Vec<_> = stream::iter(begun).buffer_unordered(8).collect().await;
    assert!(held.iter().any(Result::is_ok), "{held:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    attacked.assert_bounded("streams that nobody reads");
}

#[tokio::test]
async fn unread_responses_hold_no_more_than_the_limits() {
    let _room = room().await;
    let upstream = long_answers().await;
    let attacked = LIMITS.serve(&upstream.base_url(), "", "").await;
    let client = narrow(&attacked).await;
    let mut calls = JoinSet::new();
    for number in 1..=150 {
        let request = with_key(
            KEY,
            InvokeWithRecoveryRequest {
                invocation: Some(asking("Hello")),
            },
        );
        let mut client = client.clone();
        calls.spawn(async move { client.invoke_with_recovery(request).await.map(drop) });
        // One after the other: no limit of calls that run keeps any of them out.
        let asked = async {
            while upstream.requests().len() < number {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(100), asked).await;
    }
    assert!(!upstream.requests().is_empty());
    attacked.assert_bounded("responses that nobody reads");
}

#[tokio::test]
async fn a_front_with_unread_responses_holds_no_more_than_the_limits() {
    let upstream = long_answers().await;
    let attacked = LIMITS.serve(&upstream.base_url(), "", "").await;
    let mut held = Vec::new();
    for number in 0..24 {
        let body = json!({"model": "default", "stream": number % 2 == 0,
            "messages": [{"role": "user", "content": "Hello"}]});
        let body = body.to_string();
        let request = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(&attacked.server.front_address)
            .await
            .unwrap();
        // Many on one connection, of which the first is not read.
        stream
            .write_all(request.repeat(50).as_bytes())
            .await
            .unwrap();
        held.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    attacked.assert_bounded("a front that nobody reads");
    assert!(!upstream.requests().is_empty());
}

#[tokio::test]
async fn watchers_that_never_read_cost_no_more_than_the_ring() {
    let _room = room().await;
    let upstream = Upstream::start().await;
    let limits = Limits {
        requests: 300,
        answer_kib: 64,
        ..LIMITS
    };
    let attacked = limits.serve(&upstream.base_url(), "", "").await;
    let client = narrow(&attacked).await;
    let watches = (0..250).map(|_| async {
        let request = WatchRecoveryRequest {
            filter: None,
            start: Some(Start::FromStart(true)),
        };
        client.clone().watch_recovery(with_key(KEY, request)).await
    });
    let held = join_all(watches).await;
    assert!(held.iter().any(Result::is_ok), "{held:?}");
    let caller = attacked.server.recovery();
    let calls = (0..1500).map(|_| async {
        let request = with_key(
            KEY,
            InvokeWithRecoveryRequest {
                invocation: Some(asking("Hello")),
            },
        );
        caller.clone().invoke_with_recovery(request).await.is_ok()
    });
    let answered: Vec<bool> = stream::iter(calls).buffer_unordered(8).collect().await;
    assert!(answered.iter().any(|answered| *answered));
    attacked.assert_bounded("watchers that never read");
}
