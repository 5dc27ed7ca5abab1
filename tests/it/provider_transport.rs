//! What goes wrong between Relight and a provider has a name, a bound and an end: over real
//! sockets.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use relight::internals::{
    domain::{
        completion::{Delta, FinishReason},
        failure::{Surface, TransportFault},
    },
    provider::{BuildError, Providers},
};
use tokio::{net::TcpListener, time::Instant};
use tower::Service as _;

use crate::support::{
    upstream::{Reply, Upstream},
    wire::{Seen, ask, asking, attempt, providers, spec},
};

mod http2;
mod tls;

/// Far above what a cancel may take, far below what would go unnoticed.
const PROMPTLY: Duration = Duration::from_secs(1);

async fn answer_to(reply: Reply) -> Seen {
    let upstream = Upstream::start().await;
    upstream.push(reply);
    ask(&providers(spec(upstream.base_url())), attempt(asking("Hi"))).await
}

async fn fault_at(base_url: String) -> TransportFault {
    let mut given = spec(base_url);
    given.http.connect_timeout = Duration::from_millis(300);
    let seen = ask(&providers(given), attempt(asking("Hi"))).await;
    let error = seen.failed();
    assert_eq!(error.surface, Surface::Transport);
    error.fault.unwrap()
}

#[tokio::test]
async fn a_refused_connection_was_never_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let fault = fault_at(format!("http://{address}/v1")).await;
    assert_eq!(fault, TransportFault::Refused);
    assert!(fault.never_sent());
}

#[tokio::test]
async fn a_name_that_does_not_resolve_was_never_sent() {
    let mut given = spec("http://does-not-exist.invalid/v1");
    given.http.allow_http = true;
    given.http.connect_timeout = Duration::from_secs(30);
    let fault = ask(&providers(given), attempt(asking("Hi")))
        .await
        .failed()
        .fault;
    assert_eq!(fault, Some(TransportFault::Dns));
}

#[tokio::test]
async fn an_unanswered_handshake_ends_with_the_connect_timeout() {
    // The kernel accepts the connection; no TLS handshake follows.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let began = Instant::now();
    let fault = fault_at(format!("https://{}/v1", listener.local_addr().unwrap())).await;
    assert_eq!(fault, TransportFault::ConnectTimeout);
    assert!(began.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_connection_that_dies_before_the_head_may_have_been_sent() {
    for (reply, fault) in [
        (Reply::reset(), TransportFault::Reset),
        (Reply::raw(b""), TransportFault::ClosedEarly),
        (Reply::raw(b"HTTP/1.1 200 O"), TransportFault::ClosedEarly),
        (
            Reply::raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
            TransportFault::Protocol,
        ),
    ] {
        let seen = answer_to(reply).await;
        assert_eq!(seen.failed().fault, Some(fault));
        assert!(!fault.never_sent());
    }
}

#[tokio::test]
async fn a_connection_reset_within_the_answer_is_a_fault_of_the_stream() {
    let seen = answer_to(Reply::text("one two three four").reset_after(400)).await;
    let error = seen.failed();
    assert_eq!(
        (error.surface, error.fault),
        (Surface::Stream, Some(TransportFault::Reset))
    );
    assert!(!seen.text().is_empty());
}

#[tokio::test]
async fn every_status_beyond_success_is_an_error_with_that_status() {
    let upstream = Upstream::start().await;
    let providers = providers(spec(upstream.base_url()));
    for code in [300, 304, 400, 401, 404, 408, 418, 429, 500, 503, 529, 599] {
        upstream.push(Reply::status(code));
        let seen = ask(&providers, attempt(asking("Hi"))).await;
        assert_eq!(
            (seen.failed().status, seen.failed().surface),
            (Some(code), Surface::Http)
        );
    }
}

#[tokio::test]
async fn a_slow_answer_is_waited_for() {
    let seen = answer_to(Reply::text("a b c").paced(Duration::from_millis(30))).await;
    assert_eq!(
        (seen.text().as_str(), seen.finish()),
        ("a b c", Some(FinishReason::Stop))
    );
}

#[tokio::test]
async fn a_refusal_keeps_status_body_and_hints() {
    let body = br#"{"error":{"message":"slow down"}}"#;
    let headers = [
        ("Retry-After-Ms", "250"),
        ("X-RateLimit-Reset-Tokens", "6m0s"),
        ("Set-Cookie", "secret"),
    ];
    let seen = answer_to(Reply::body(429, &headers, body)).await;
    let error = seen.failed();
    assert_eq!(
        (error.status, error.surface, error.fault),
        (Some(429), Surface::Http, None)
    );
    assert_eq!(error.header("retry-after-ms"), Some("250"));
    assert_eq!(error.header("x-ratelimit-reset-tokens"), Some("6m0s"));
    assert_eq!(error.header("set-cookie"), None);
    assert!(error.body.as_deref().unwrap().contains("slow down"));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let upstream = Upstream::start().await;
    let elsewhere = upstream.base_url();
    upstream.push(Reply::body(307, &[("location", elsewhere.as_str())], b""));
    let seen = ask(&providers(spec(upstream.base_url())), attempt(asking("Hi"))).await;
    assert_eq!(seen.failed().status, Some(307));
    let message = seen.failed().message.as_deref().unwrap();
    assert!(
        message.contains("redirects are not followed") && message.contains(&elsewhere),
        "{message}"
    );
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_compressed_response_is_named_and_not_shown() {
    for status in [200, 500] {
        let seen = answer_to(Reply::body(
            status,
            &[("content-encoding", "gzip")],
            &[0x1f, 0x8b, 8, 0, 1, 2],
        ))
        .await;
        let error = seen.failed();
        assert_eq!(error.body, None, "{error:?}");
        let is_named = error
            .message
            .as_deref()
            .is_some_and(|message| message.contains("compressed (gzip)"));
        assert!(is_named || status == 500, "{error:?}");
    }
}

#[tokio::test]
async fn an_error_body_is_read_within_its_bound_and_its_time() {
    let long = answer_to(Reply::body(500, &[], &vec![b'x'; 1 << 20])).await;
    assert_eq!(long.failed().body.as_deref().map(str::len), Some(64 << 10));
    let began = Instant::now();
    let stalled = answer_to(Reply::body(500, &[], b"only the beginning").stall_after(8)).await;
    assert_eq!(stalled.failed().body.as_deref(), Some("only the"));
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_answer_without_end_ends_at_its_bound() {
    for reply in [Reply::endless_body(), Reply::endless_line()] {
        let upstream = Upstream::start().await;
        upstream.push(reply);
        let mut given = spec(upstream.base_url());
        given.http.max_body_bytes = 4 << 20;
        let seen = ask(&providers(given), attempt(asking("Hi"))).await;
        assert_eq!(seen.failed().fault, Some(TransportFault::TooLarge));
        upstream.await_cancel(1).await;
    }
}

#[tokio::test]
async fn a_document_beyond_the_bound_is_refused() {
    let upstream = Upstream::start().await;
    let document = serde_json::json!({"choices": [], "padding": "x".repeat(100_000)});
    upstream.push(Reply::document(&document));
    let mut given = spec(upstream.base_url());
    given.http.max_body_bytes = 10_000;
    let seen = ask(&providers(given), attempt(asking("Hi"))).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::TooLarge));
}

#[tokio::test]
async fn dropping_the_call_before_the_head_closes_the_connection_upstream() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::silence());
    let mut providers = providers(spec(upstream.base_url()));
    let call = providers.call(attempt(asking("Hi")));
    tokio::select! {
        answer = call => panic!("silence was answered: {:?}", answer.err()),
        _ = upstream.await_request(1) => {}
    }
    let request = upstream.await_request(1).await;
    assert!(upstream.await_cancel(1).await - request.at < PROMPTLY);
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection_upstream() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::text("one two three").stall_after(400));
    let mut stream = providers(spec(upstream.base_url()))
        .call(attempt(asking("Hi")))
        .await
        .unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Delta::Start { .. }))));
    drop(stream);
    let dropped = Instant::now();
    assert!(
        upstream
            .await_cancel(1)
            .await
            .saturating_duration_since(dropped)
            < PROMPTLY
    );
}

#[tokio::test]
async fn calls_one_after_the_other_use_one_connection() {
    let upstream = Upstream::start().await;
    let providers = providers(spec(upstream.base_url()));
    for _ in 0..3 {
        let seen = ask(&providers, attempt(asking("Hi"))).await;
        assert_eq!(seen.finish(), Some(FinishReason::Stop));
    }
    let connections: Vec<usize> = upstream
        .requests()
        .iter()
        .map(|request| request.connection)
        .collect();
    assert_eq!((connections, upstream.connections()), (vec![0, 0, 0], 1));
}

#[tokio::test]
async fn a_request_is_never_sent_twice() {
    let upstream = Upstream::start().await;
    let providers = providers(spec(upstream.base_url()));
    assert_eq!(
        ask(&providers, attempt(asking("Hi"))).await.finish(),
        Some(FinishReason::Stop)
    );
    // The second request goes out on the connection that is kept, and dies with it.
    upstream.push(Reply::raw(b""));
    let seen = ask(&providers, attempt(asking("Hi"))).await;
    assert_eq!(seen.failed().fault, Some(TransportFault::ClosedEarly));
    assert_eq!((upstream.requests().len(), upstream.connections()), (2, 1));
}

#[tokio::test]
async fn many_calls_at_once_are_each_answered_once() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::text("Hello there.").slow_head(Duration::from_millis(20)));
    let providers = Arc::new(providers(spec(upstream.base_url())));
    let calls = (0..50).map(|_| {
        let providers = Arc::clone(&providers);
        async move { ask(&providers, attempt(asking("Hi"))).await.finish() }
    });
    let finishes = futures_util::future::join_all(calls).await;
    assert!(
        finishes
            .iter()
            .all(|finish| *finish == Some(FinishReason::Stop))
    );
    assert_eq!(upstream.requests().len(), 50);
}

#[test]
fn plaintext_beyond_this_host_must_be_allowed() {
    assert!(matches!(
        Providers::build(&[spec("http://10.1.2.3/v1")]),
        Err(BuildError::BaseUrl { .. })
    ));
    let mut allowed = spec("http://10.1.2.3/v1");
    allowed.http.allow_http = true;
    assert!(Providers::build(&[allowed]).is_ok());
}
