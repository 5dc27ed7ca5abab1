//! Plain requests over HTTP, and addresses: one to serve at, and one that refuses connections.

use std::{
    fmt::Display,
    net::{SocketAddr, TcpListener},
    time::Duration,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes, http::request::Builder};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use tokio::net::TcpSocket;

use super::front::get;

/// Longest time that anything here may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// What came back: the status of HTTP, and the one of gRPC where there is one.
pub(crate) type Came = Result<(u16, Option<String>), String>;

/// Posts a body with these header fields and reads the response.
pub(crate) async fn post(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    http2: bool,
    body: Vec<u8>,
) -> Came {
    exchange(
        Request::post(format!("http://{address}{path}")),
        headers,
        http2,
        body,
    )
    .await
}

/// Looks up what is at this path, with these header fields.
pub(crate) async fn look_up(address: &str, path: &str, headers: &[(&str, &str)]) -> Came {
    exchange(
        Request::get(format!("http://{address}{path}")),
        headers,
        false,
        Vec::new(),
    )
    .await
}

async fn exchange(
    mut request: Builder,
    headers: &[(&str, &str)],
    http2: bool,
    body: Vec<u8>,
) -> Came {
    let client = Client::builder(TokioExecutor::new())
        .http2_only(http2)
        .build_http();
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let exchange = async {
        let response = client
            .request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let in_head = response
            .headers()
            .get("grpc-status")
            .map(|code| code.to_str().unwrap().to_owned());
        let collected = response
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        let in_trailers = collected.trailers().and_then(|all| all.get("grpc-status"));
        Ok((
            status,
            in_head.or_else(|| in_trailers.map(|code| code.to_str().unwrap().to_owned())),
        ))
    };
    tokio::time::timeout(PATIENCE, exchange)
        .await
        .expect("the call hangs")
}

/// The metrics that a server has at this address.
pub(crate) async fn metrics(admin_address: impl Display) -> String {
    let page = get(admin_address, "/metrics").await;
    assert_eq!(page.status, 200);
    page.body
}

/// An address of this host at which a server may be started.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|released| released.local_addr())
        .unwrap()
}

/// An address of this host that refuses connections, and that no other socket gets while this one
/// is kept.
pub(crate) fn closed_address() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}
