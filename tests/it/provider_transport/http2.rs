//! HTTP/2: many calls on one connection, and a cancel that resets its own stream only.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use relight::internals::domain::completion::{Delta, FinishReason};
use tokio::{net::TcpListener, sync::Notify, task::JoinSet};
use tower::Service as _;

use super::PROMPTLY;
use crate::support::{
    upstream::Reply,
    wire::{ask, asking, attempt, providers, spec},
};

#[derive(Default)]
struct Observed {
    connections: AtomicUsize,
    cancelled: Notify,
}

/// Notes when the body that holds it is dropped before its end.
struct Watch(Arc<Observed>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.cancelled.notify_one();
    }
}

/// Answers prompts with "stall" by one event and silence, all others by a text.
async fn serve(observed: Arc<Observed>) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            observed.connections.fetch_add(1, Ordering::SeqCst);
            let observed = Arc::clone(&observed);
            let service =
                hyper::service::service_fn(move |request| answer(request, Arc::clone(&observed)));
            connections.spawn(async move {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    });
    (address, tasks)
}

type Body = StreamBody<stream::BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

async fn answer(
    request: Request<Incoming>,
    observed: Arc<Observed>,
) -> Result<Response<Body>, Infallible> {
    let asked = http_body_util::BodyExt::collect(request.into_body())
        .await
        .unwrap()
        .to_bytes();
    let stalls = String::from_utf8_lossy(&asked).contains("stall");
    let body = Reply::text("Hello there.").body_bytes();
    let frame = |bytes: Vec<u8>| Ok(Frame::data(Bytes::from(bytes)));
    let stream = if stalls {
        let first = body[..200].to_vec();
        let watch = Watch(observed);
        let silence = async move {
            let _watch = watch;
            std::future::pending().await
        };
        stream::iter([frame(first)])
            .chain(silence.into_stream())
            .boxed()
    } else {
        stream::iter([frame(body)]).boxed()
    };
    Ok(Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(stream))
        .unwrap())
}

#[tokio::test]
async fn calls_at_once_share_one_connection_and_a_cancel_resets_only_its_own_stream() {
    let observed = Arc::new(Observed::default());
    let (address, _server) = serve(Arc::clone(&observed)).await;
    let mut given = spec(format!("http://{address}/v1"));
    given.http.http2_prior_knowledge = true;
    let mut providers = providers(given);

    let mut stalled = providers.call(attempt(asking("stall"))).await.unwrap();
    assert!(matches!(
        stalled.next().await,
        Some(Ok(Delta::Start { .. }))
    ));
    let others = (0..20).map(|_| ask(&providers, attempt(asking("Hi"))));
    for seen in futures_util::future::join_all(others).await {
        assert_eq!(
            (seen.text().as_str(), seen.finish()),
            ("Hello there.", Some(FinishReason::Stop))
        );
    }
    drop(stalled);
    tokio::time::timeout(PROMPTLY, observed.cancelled.notified())
        .await
        .expect("the stream was not reset upstream");
    let after = ask(&providers, attempt(asking("Hi"))).await;
    assert_eq!(after.finish(), Some(FinishReason::Stop));
    assert_eq!(observed.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn dropping_the_call_before_the_head_resets_the_stream() {
    // A server that reads and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut given = spec(format!("http://{}/v1", listener.local_addr().unwrap()));
    given.http.http2_prior_knowledge = true;
    let mut providers = providers(given);
    let observed = Arc::new(Observed::default());
    let asked = Arc::new(Notify::new());
    let (seen, told) = (Arc::clone(&observed), Arc::clone(&asked));
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        let service = hyper::service::service_fn(move |_: Request<Incoming>| {
            told.notify_one();
            let watch = Watch(Arc::clone(&seen));
            async move {
                let _watch = watch;
                std::future::pending::<Result<Response<Body>, Infallible>>().await
            }
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder
            .serve_connection(TokioIo::new(socket), service)
            .await;
    });
    let call = providers.call(attempt(asking("Hi")));
    tokio::select! {
        _ = call => panic!("silence was answered"),
        () = asked.notified() => {}
        () = tokio::time::sleep(Duration::from_secs(10)) => panic!("the request did not come"),
    }
    tokio::time::timeout(PROMPTLY, observed.cancelled.notified())
        .await
        .expect("the stream was not reset upstream");
}
