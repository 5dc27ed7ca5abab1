//! Changes of how a provider is reached: its proxy and its certificates, also those that are
//! renewed in their files.

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::json;

use super::probes::class_of;
use crate::support::{
    authority::Authority,
    connections::{ConnectProxy, TlsFront, address_of, file},
    reloaded::Reloaded,
};

#[tokio::test]
async fn a_provider_is_reached_by_its_changed_proxy_and_certificates() {
    let (authority, clients, folder) = (
        Authority::new(),
        Authority::new(),
        tempfile::tempdir().unwrap(),
    );
    let mut server = Reloaded::start(
        json!({ "circuit": { "mode": "consecutive", "consecutive_failures": 100 } }),
    )
    .await;
    let front = TlsFront::start(&authority, Some(&clients), address_of(&server.upstream)).await;
    let proxy = ConnectProxy::start("user:right").await;
    let ca_file = file(folder.path(), "ca.pem", &authority.pem);
    let identity = |of: &Authority| {
        let (certificate, key) = of.sign_for("relight", ExtendedKeyUsagePurpose::ClientAuth);
        (certificate.pem(), key.serialize_pem())
    };
    // Signed by an authority that the provider does not know.
    let (certificate, key) = identity(&Authority::new());
    let cert_file = file(folder.path(), "cert.pem", &certificate);
    let key_file = file(folder.path(), "key.pem", &key);
    let tls = json!({ "ca_file": ca_file, "cert_file": cert_file, "key_file": key_file });
    server
        .change(json!({ "providers": { "p": { "base_url": front.base_url(), "tls": tls } } }))
        .await;
    assert!(class_of(server.invoke().await.outcome).is_some());
    let (certificate, key) = identity(&clients);
    file(folder.path(), "key.pem", &key);
    file(folder.path(), "cert.pem", &certificate);
    server.accepted().await;
    assert_eq!(class_of(server.invoke().await.outcome), None);
    assert!(proxy.wanted().is_empty());
    let url = format!("http://127.0.0.1:{}", proxy.port);
    server.change(json!({ "providers": { "p": { "proxy": { "url": url, "credentials": "user:wrong" } } } })).await;
    assert!(class_of(server.invoke().await.outcome).is_some());
    let tunnels = proxy.wanted().len();
    let credentials_file = file(folder.path(), "proxy", "user:right");
    let from_file = json!({ "credentials": null, "credentials_file": credentials_file });
    server
        .change(json!({ "providers": { "p": { "proxy": from_file } } }))
        .await;
    assert_eq!(class_of(server.invoke().await.outcome), None);
    assert_eq!(proxy.wanted().len(), tunnels + 1);
}
