//! What is between a server and its upstream: a proxy with CONNECT, and a TLS server with
//! certificates of its own.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::support::{authority::Authority, process::replace, upstream::Upstream};

/// A proxy that opens tunnels for clients with its credentials, and keeps the destination of each.
pub(crate) struct ConnectProxy {
    pub(crate) port: u16,
    wanted: Arc<Mutex<Vec<String>>>,
    _tasks: JoinSet<()>,
}

/// A TLS server that forwards what it decrypts to a plain one.
pub(crate) struct TlsFront {
    pub(crate) port: u16,
    _tasks: JoinSet<()>,
}

// === impl ConnectProxy ===

impl ConnectProxy {
    pub(crate) async fn start(credentials: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let wanted: Arc<Mutex<Vec<String>>> = Arc::default();
        let (kept, mut tasks) = (Arc::clone(&wanted), JoinSet::new());
        tasks.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                tunnels.spawn(tunnel(client, credentials, Arc::clone(&kept)));
            }
        });
        Self {
            port,
            wanted,
            _tasks: tasks,
        }
    }

    pub(crate) fn wanted(&self) -> Vec<String> {
        self.wanted.lock().unwrap().clone()
    }
}

async fn tunnel(mut client: TcpStream, credentials: &str, wanted: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let to = head
        .strip_prefix("CONNECT ")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned();
    wanted.lock().unwrap().push(to.clone());
    if !head.contains(&format!(
        "Proxy-Authorization: Basic {}\r\n",
        STANDARD.encode(credentials)
    )) {
        let _ = client
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            .await;
        return;
    }
    let mut upstream = TcpStream::connect(to).await.unwrap();
    client
        .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        .await
        .unwrap();
    let _ = copy_bidirectional(&mut client, &mut upstream).await;
}

// === impl TlsFront ===

impl TlsFront {
    /// A front for `localhost`, whose certificate this authority signed, before the server at
    /// `behind`.
    pub(crate) async fn start(
        authority: &Authority,
        client_authority: Option<&Authority>,
        behind: String,
    ) -> Self {
        let (certificate, key) =
            authority.sign_for("localhost", ExtendedKeyUsagePurpose::ServerAuth);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(
                        <CertificateDer as rustls::pki_types::pem::PemObject>::from_pem_slice(
                            authority.pem.as_bytes(),
                        )
                        .unwrap(),
                    )
                    .unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.unwrap())
            }
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = builder
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                connections.spawn(async move {
                    // A handshake that fails is what some tests are about.
                    let Ok(mut client) = acceptor.accept(socket).await else {
                        return;
                    };
                    let mut server = TcpStream::connect(behind).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self {
            port,
            _tasks: tasks,
        }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("https://localhost:{}/v1", self.port)
    }
}

pub(crate) fn address_of(upstream: &Upstream) -> String {
    upstream
        .base_url()
        .trim_start_matches("http://")
        .trim_end_matches("/v1")
        .to_owned()
}

/// A file of this text in this folder, by its path.
pub(crate) fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    replace(&path, text);
    path.display().to_string()
}
