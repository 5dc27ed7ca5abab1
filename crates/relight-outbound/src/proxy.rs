//! Connections through an egress proxy: TCP to the proxy, then a tunnel by `CONNECT` to the
//! destination of the request.
//!
//! The proxy's own address is the only one that is dialled, and so the only one that is judged
//! here; the destination of the tunnel is resolved by the proxy.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderValue, Uri};
use hyper_util::{client::legacy::connect::HttpConnector, rt::TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tower::Service;

use super::{BoxError, names::Names};
use relight_policy::domain::secret::Secret;

/// Longest response head of a proxy, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// An egress proxy and how this process identifies itself to it. Its `Debug` form holds no
/// credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    uri: Uri,
    authorization: Option<HeaderValue>,
}

/// Reason why no tunnel was established.
#[derive(Debug, thiserror::Error)]
#[error("no tunnel through the proxy {proxy}")]
pub struct ProxyError {
    /// The proxy's host and port.
    pub(super) proxy: String,
    #[source]
    source: BoxError,
}

/// Connector to the destination of a request, or through the proxy if there is one.
#[derive(Clone)]
pub struct Route {
    tcp: HttpConnector<Names>,
    proxy: Option<Arc<Proxy>>,
}

// === impl Proxy ===

impl Proxy {
    /// Returns the proxy at this URL, to which these credentials (`user:password`) are sent; `None`
    /// if the URL names no host.
    #[must_use]
    pub fn new(url: &str, credentials: Option<&Secret>) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        uri.host()?;
        let authorization = credentials.and_then(|credentials| {
            let mut value =
                HeaderValue::try_from(format!("Basic {}", STANDARD.encode(credentials.expose())))
                    .ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        Some(Self { uri, authorization })
    }

    /// Returns its host and port.
    fn place(&self) -> &str {
        self.uri
            .authority()
            .map_or("", http::uri::Authority::as_str)
    }

    /// Opens a tunnel on a connection to this proxy.
    async fn tunnel(&self, stream: &mut TcpStream, to: &Uri) -> Result<(), BoxError> {
        let host = to.host().ok_or("the URL names no host")?;
        let port = to.port_u16().unwrap_or(if to.scheme_str() == Some("http") {
            80
        } else {
            443
        });
        let mut head =
            format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n").into_bytes();
        if let Some(authorization) = &self.authorization {
            head.extend_from_slice(b"Proxy-Authorization: ");
            head.extend_from_slice(authorization.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        stream.write_all(&head).await?;
        let status = status_line(stream).await?;
        // `HTTP/1.1 200 Connection established`
        let (version, rest) = status.split_once(' ').unwrap_or((&status, ""));
        match rest.get(..3).and_then(|code| code.parse::<u16>().ok()) {
            Some(200..=299) if version.starts_with("HTTP/1.") => Ok(()),
            Some(code) if version.starts_with("HTTP/1.") => {
                let status = http::StatusCode::from_u16(code)
                    .map_or(code.to_string(), |status| status.to_string());
                Err(format!("the proxy refused a tunnel to {host}:{port} with {status}").into())
            }
            Some(_) | None => Err("the proxy's response breaks the rules of HTTP".into()),
        }
    }
}

/// Returns the first line of a response, whose whole head is read. Nothing follows the head: in a
/// tunnel the client speaks first.
async fn status_line(stream: &mut TcpStream) -> Result<String, BoxError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && memchr::memmem::find(&head, b"\r\n\r\n").is_none() {
        if head.len() > MAX_HEAD_BYTES {
            return Err("the proxy's response is too long".into());
        }
        if stream.read_buf(&mut head).await? == 0 {
            let closed = "the proxy closed the connection before it responded";
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, closed).into());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

// === impl Route ===

impl Route {
    pub(super) fn new(tcp: HttpConnector<Names>, proxy: Option<Proxy>) -> Self {
        Self {
            tcp,
            proxy: proxy.map(Arc::new),
        }
    }
}

impl Service<Uri> for Route {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.tcp.call(to);
            return Box::pin(async move { connecting.await.map_err(Into::into) });
        };
        let connecting = self.tcp.call(proxy.uri.clone());
        Box::pin(async move {
            let failed = |source: BoxError| ProxyError {
                proxy: proxy.place().to_owned(),
                source,
            };
            let mut stream = connecting
                .await
                .map_err(|error| failed(error.into()))?
                .into_inner();
            proxy.tunnel(&mut stream, &to).await.map_err(failed)?;
            Ok(TokioIo::new(stream))
        })
    }
}
