//! Answers of providers: without end, in one line, compressed, or of very many small pieces.

use futures_util::future::join_all;
use relight::internals::grpc::v1::{
    InvokeWithRecoveryRequest, RewindMode, StreamWithRecoveryRequest,
    stream_with_recovery_request::Start as Begin,
};

use super::{MIB, gzip_of_zeros};
use crate::support::{
    limits::Limits,
    process::{KEY, with_key},
    relight::{asking, streaming},
    room::room,
    upstream::{Reply, Upstream, chunk},
};

const LIMITS: Limits = Limits {
    connections: 8,
    in_flight_mib: 1,
    requests: 16,
    answer_kib: 1024,
    journal_mib: 2,
    events: 64,
};

/// Calls whose provider replies like this, unary and as streams, as many at once as may be in
/// flight.
async fn answered(name: &str, reply: Reply) {
    let upstream = Upstream::start().await;
    upstream.otherwise(reply);
    let attacked = LIMITS
        .serve(&upstream.base_url(), "", "budget: { enabled: false }\n")
        .await;
    let client = attacked.server.recovery();
    let unary = (0..8).map(|_| async {
        let request = with_key(
            KEY,
            InvokeWithRecoveryRequest {
                invocation: Some(asking("Hello")),
            },
        );
        let _ = client.clone().invoke_with_recovery(request).await;
    });
    let streams = (0..8).map(|_| async {
        let request = with_key(
            KEY,
            StreamWithRecoveryRequest {
                start: Some(Begin::Invocation(streaming("Hello", RewindMode::Rewind))),
            },
        );
        let Ok(stream) = client.clone().stream_with_recovery(request).await else {
            return;
        };
        let mut stream = stream.into_inner();
        while let Ok(Some(_)) = stream.message().await {}
    });
    let all = async { tokio::join!(join_all(unary), join_all(streams)) };
    tokio::time::timeout(super::PATIENCE, all)
        .await
        .expect("it has no end");
    assert!(
        !upstream.requests().is_empty(),
        "no call reached the provider"
    );
    attacked.assert_bounded(name);
}

#[tokio::test]
async fn a_body_without_end_costs_no_more_than_an_answer_may() {
    answered("endless bodies", Reply::endless_body()).await;
}

#[tokio::test]
async fn a_line_without_end_costs_no_more_than_an_answer_may() {
    answered("endless lines", Reply::endless_line()).await;
}

#[tokio::test]
async fn text_without_end_in_small_pieces_costs_no_more_than_an_answer_may() {
    let _room = room().await;
    let piece = chunk(&serde_json::json!({"content": "word "}), None);
    answered("endless text", Reply::events(&vec![piece; 4 * MIB / 100])).await;
}

#[tokio::test]
async fn tool_calls_without_end_cost_no_more_than_an_answer_may() {
    let _room = room().await;
    let pieces: Vec<String> = (0..20_000)
        .map(|index| {
            let call = serde_json::json!({"index": index, "id": format!("c{index}"), "type": "function",
                "function": {"name": "f", "arguments": "{}"}});
            chunk(&serde_json::json!({"tool_calls": [call]}), None)
        })
        .collect();
    answered("endless tool calls", Reply::events(&pieces)).await;
}

#[tokio::test]
async fn compressed_answers_are_never_inflated() {
    let _room = room().await;
    let bomb = gzip_of_zeros(1 << 28);
    for kind in ["text/event-stream", "application/json"] {
        let headers = [("content-type", kind), ("content-encoding", "gzip")];
        answered("compressed answers", Reply::body(200, &headers, &bomb)).await;
        answered("compressed errors", Reply::body(500, &headers, &bomb)).await;
    }
}
