//! A bare reverse proxy: what it costs is what any proxy in hyper must cost.

use std::net::SocketAddr;

use hyper::{
    Request, Response, Uri,
    body::Incoming,
    header::{CONNECTION, HOST},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use tokio::net::TcpListener;

/// The first argument of a process that is the proxy; the second is its upstream.
pub(crate) const ARGUMENT: &str = "serve-as-passthrough";

type Pool = Client<HttpConnector, Incoming>;

/// Serves for ever, and prints first what a peer prints.
pub(crate) fn serve(upstream: SocketAddr) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            let mut connector = HttpConnector::new();
            connector.set_nodelay(true);
            let pool: Pool = Client::builder(TokioExecutor::new()).build(connector);
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            println!(
                "http://{}/v1/chat/completions default",
                listener.local_addr().unwrap()
            );
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let pool = pool.clone();
                let service = service_fn(move |request| forward(pool.clone(), upstream, request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
}

async fn forward(
    pool: Pool,
    upstream: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Error> {
    *request.uri_mut() =
        Uri::try_from(format!("http://{upstream}{}", request.uri().path())).unwrap();
    request.headers_mut().remove(HOST);
    request.headers_mut().remove(CONNECTION);
    pool.request(request).await
}
