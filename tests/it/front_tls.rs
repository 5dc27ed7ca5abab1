//! Where TLS is configured the front serves it, and requests certificates as the gRPC API does.

use std::{fs, path::Path, sync::Arc, time::Duration};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Bytes};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use rcgen::{ExtendedKeyUsagePurpose, KeyPair};
use relight::internals::server::Running;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::net::TcpStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig};

use crate::support::{authority::Authority, relight::running};

/// Longest wait for a client that is served.
const PATIENCE: Duration = Duration::from_secs(10);

async fn front(folder: &Path, authority: &Authority, client_ca: bool) -> Running {
    let (certificate, key) = authority.sign(ExtendedKeyUsagePurpose::ServerAuth);
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    fs::write(folder.join("ca.pem"), &authority.pem).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let ca = if client_ca {
        format!(", client_ca_file: {}", at("ca.pem"))
    } else {
        String::new()
    };
    let text = format!(
        "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  \
         openai_front: {{ listen: \"127.0.0.1:0\" }}\n  \
         tls: {{ cert_file: {}, key_file: {}{ca} }}\n",
        at("cert.pem"),
        at("key.pem")
    );
    running(&text, None).await
}

/// Lists the models over TLS; the status, or `None` when no connection came about.
async fn listed(
    running: &Running,
    authority: &Authority,
    identity: Option<(rcgen::Certificate, KeyPair)>,
) -> Option<u16> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = builder.with_root_certificates(roots);
    let tls = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
            builder
                .with_client_auth_cert(vec![certificate.der().clone()], key)
                .unwrap()
        }
    };
    // HTTP/1.1 alone, as the SDKs' clients use it.
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .build();
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let port = running.openai_front_address.unwrap().port();
    let uri = format!("https://localhost:{port}/v1/models");
    let response = client
        .request(Request::get(uri).body(Full::<Bytes>::default()).unwrap())
        .await
        .ok()?;
    let status = response.status().as_u16();
    response.into_body().collect().await.ok()?;
    Some(status)
}

#[tokio::test]
async fn with_a_certificate_the_front_serves_tls_and_http_1_1_over_it() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let running = front(folder.path(), &authority, false).await;
    assert_eq!(listed(&running, &authority, None).await, Some(200));
    let stranger = Authority::new();
    assert_eq!(
        listed(&running, &stranger, None).await,
        None,
        "its certificate is the configured one"
    );
    let address = running.openai_front_address.unwrap();
    let plain = Client::builder(TokioExecutor::new()).build_http();
    let uri = format!("http://{address}/v1/models");
    let answer = plain
        .request(Request::get(uri).body(Full::<Bytes>::default()).unwrap())
        .await;
    assert!(
        answer.is_err(),
        "nothing is served in plaintext: {answer:?}"
    );
}

#[tokio::test]
async fn with_an_authority_only_its_clients_are_let_in() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let running = front(folder.path(), &authority, true).await;
    let known = authority.sign(ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(listed(&running, &authority, Some(known)).await, Some(200));
    assert_eq!(listed(&running, &authority, None).await, None);
    let stranger = Authority::new().sign(ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(listed(&running, &authority, Some(stranger)).await, None);
}

#[tokio::test]
async fn three_hundred_silent_handshakes_keep_no_client_out() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let running = front(folder.path(), &authority, false).await;
    let (front, grpc) = (running.openai_front_address.unwrap(), running.address);
    let mut silent = Vec::new();
    for address in [front, grpc] {
        for _ in 0..300 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
    }
    for _ in 0..3 {
        let listed = tokio::time::timeout(PATIENCE, listed(&running, &authority, None)).await;
        assert_eq!(listed.expect("silent handshakes shut the front"), Some(200));
    }
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&authority.pem))
        .domain_name("localhost");
    let endpoint = Channel::from_shared(format!("https://localhost:{}", grpc.port()))
        .unwrap()
        .tls_config(tls)
        .unwrap();
    let connected = tokio::time::timeout(PATIENCE, endpoint.connect()).await;
    assert!(
        connected
            .expect("silent handshakes shut the gRPC API")
            .is_ok()
    );
    drop(silent);
}
