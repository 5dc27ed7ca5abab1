//! TLS: to a peer with an unknown certificate, or without TLS, nothing is sent.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
};

use relight::internals::domain::failure::TransportFault;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::support::wire::{ask, asking, attempt, providers, spec};

async fn fault_at(port: u16) -> TransportFault {
    let seen = ask(
        &providers(spec(format!("https://localhost:{port}/v1"))),
        attempt(asking("Hi")),
    )
    .await;
    let fault = seen.failed().fault.unwrap();
    assert!(fault.never_sent(), "{:?}", seen.failed());
    fault
}

/// Accepts one connection on a thread of its own; rustls alone, without async, is the server's
/// side.
fn serve_one(answer: impl FnOnce(std::net::TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("localhost:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || answer(listener.accept().unwrap().0));
    port
}

#[tokio::test]
async fn a_certificate_without_a_known_authority_is_not_accepted() {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    let port = serve_one(move |mut socket| {
        let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
        // The client hangs up in the middle; that is the point.
        let _ = connection.complete_io(&mut socket);
    });
    assert_eq!(fault_at(port).await, TransportFault::Certificate);
}

#[tokio::test]
async fn a_peer_without_tls_fails_the_handshake() {
    let port = serve_one(|mut socket| {
        let _ = socket.read(&mut [0; 512]);
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    assert_eq!(fault_at(port).await, TransportFault::Tls);
}

#[tokio::test]
async fn a_peer_that_hangs_up_in_the_handshake_fails_it() {
    let port = serve_one(drop);
    assert_eq!(fault_at(port).await, TransportFault::Tls);
}
