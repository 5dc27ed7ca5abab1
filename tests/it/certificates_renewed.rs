//! Certificates and client authorities that are renewed on disk are served without a restart.

use std::{fs, path::Path, sync::Arc, time::Duration};

use rcgen::{Certificate, ExtendedKeyUsagePurpose, KeyPair};
use relight::internals::{
    grpc::v1::{
        GetInvocationRequest, InvokeWithRecoveryRequest, ListTargetsRequest, RecoveryEvent,
        WatchRecoveryRequest, admin_service_client::AdminServiceClient, get_invocation_request,
        recovery_event::Body, recovery_service_client::RecoveryServiceClient,
        watch_recovery_request::Start,
    },
    server::Running,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tonic::{
    Code, Streaming,
    transport::{Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::support::{
    authority::Authority,
    process::replace,
    relight::{asking, running},
};

/// Longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client certificate by the name of `team-a` may administer.
const ADMINISTRATOR: &str = "  auth: client_certificate\n  keys: [{ tenant: team-a, certificate_name: team-a, admin: true }]\n";

/// A server whose certificates are files, and its folder.
struct Secured {
    running: Running,
    folder: tempfile::TempDir,
    authority: Authority,
}

/// Accepts every certificate, so that what is served can be looked at.
#[derive(Debug)]
struct Anything;

// === impl Secured ===

impl Secured {
    async fn start(client_ca: bool) -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        write_identity(
            folder.path(),
            &authority.sign_for("localhost", ExtendedKeyUsagePurpose::ServerAuth),
        );
        replace(&folder.path().join("ca.pem"), &authority.pem);
        // Changes of the configuration are shown to administrators only.
        let ca = if client_ca {
            ", client_ca_file: ca.pem"
        } else {
            ""
        };
        let keys = if client_ca { ADMINISTRATOR } else { "" };
        let text = format!(
            "server:\n  listen: \"127.0.0.1:0\"\n  admin_listen: \"127.0.0.1:0\"\n  \
             openai_front: {{ listen: \"127.0.0.1:0\" }}\n  \
             tls: {{ cert_file: cert.pem, key_file: key.pem{ca} }}\n{keys}"
        );
        let file = folder.path().join("relight.yaml");
        let running = running(&text, Some(&file)).await;
        Self {
            running,
            folder,
            authority,
        }
    }

    /// The certificate and key are replaced, as a renewal does it.
    fn renew(&self) -> Certificate {
        let renewed = self
            .authority
            .sign_for("localhost", ExtendedKeyUsagePurpose::ServerAuth);
        write_identity(self.folder.path(), &renewed);
        renewed.0
    }

    async fn client(
        &self,
        authority: &Authority,
        name: Option<&str>,
    ) -> Result<Channel, tonic::transport::Error> {
        let root = tonic::transport::Certificate::from_pem(&self.authority.pem);
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(root)
            .domain_name("localhost");
        if let Some(name) = name {
            let (certificate, key) = authority.sign_for(name, ExtendedKeyUsagePurpose::ClientAuth);
            tls = tls.identity(Identity::from_pem(certificate.pem(), key.serialize_pem()));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.running.address)).unwrap();
        endpoint.tls_config(tls).unwrap().connect().await
    }

    async fn watch(
        &self,
        client: Channel,
    ) -> Streaming<relight::internals::grpc::v1::WatchRecoveryResponse> {
        let request = WatchRecoveryRequest {
            filter: None,
            start: Some(Start::Live(true)),
        };
        let mut stream = RecoveryServiceClient::new(client)
            .watch_recovery(request)
            .await
            .unwrap()
            .into_inner();
        // The first message is a bookmark: nothing after it is missed.
        stream.message().await.unwrap();
        stream
    }

    /// The certificates now served, of the gRPC API and of the front.
    async fn served(&self) -> [Vec<u8>; 2] {
        let front = self.running.openai_front_address.unwrap();
        [
            certificate_at(self.running.address).await,
            certificate_at(front).await,
        ]
    }
}

async fn certificate_at(address: std::net::SocketAddr) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = connector
        .connect(ServerName::try_from("localhost").unwrap(), socket)
        .await
        .unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn write_identity(folder: &Path, (certificate, key): &(Certificate, KeyPair)) {
    replace(&folder.join("cert.pem"), &certificate.pem());
    replace(&folder.join("key.pem"), &key.serialize_pem());
}

async fn invoked(client: &Channel) -> Result<String, tonic::Status> {
    let request = InvokeWithRecoveryRequest {
        invocation: Some(asking("hello")),
    };
    let response = RecoveryServiceClient::new(client.clone())
        .invoke_with_recovery(request)
        .await?;
    Ok(response.into_inner().invocation_id)
}

/// Reads until `wanted` returns true for an event.
async fn until<T>(
    events: &mut Streaming<relight::internals::grpc::v1::WatchRecoveryResponse>,
    wanted: impl Fn(&Body) -> Option<T>,
) -> T {
    let reading = async {
        loop {
            let event: RecoveryEvent = events.message().await.unwrap().unwrap().event.unwrap();
            if let Some(found) = event.body.as_ref().and_then(&wanted) {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the event in time")
}

async fn changed(
    events: &mut Streaming<relight::internals::grpc::v1::WatchRecoveryResponse>,
) -> Vec<String> {
    let reloaded = |body: &Body| match body {
        Body::ConfigurationReloaded(event) => Some(event.changed_paths.clone()),
        _ => None,
    };
    until(events, reloaded).await
}

// === impl Anything ===

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_served_on_both_listeners_while_open_connections_continue() {
    let server = Secured::start(false).await;
    let old_connection = server.client(&server.authority, None).await.unwrap();
    let mut events = server.watch(old_connection.clone()).await;
    let renewed = server.renew();
    let mut paths = Vec::new();
    // Two files are renamed one after the other; whether that is one change or two is a matter of
    // time.
    while !paths.iter().any(|path| path == "server.tls.key_file") {
        paths.extend(changed(&mut events).await);
    }
    assert!(
        paths.iter().any(|path| path == "server.tls.cert_file"),
        "{paths:?}"
    );
    let expected = renewed.der().to_vec();
    assert!(
        server
            .served()
            .await
            .iter()
            .all(|served| *served == expected)
    );
    invoked(&old_connection)
        .await
        .expect("an open connection is kept");
    let new_connection = server.client(&server.authority, None).await.unwrap();
    invoked(&new_connection).await.unwrap();
}

#[tokio::test]
async fn a_broken_certificate_leaves_the_earlier_one_in_force_and_is_reported_by_its_setting() {
    let server = Secured::start(false).await;
    let client = server.client(&server.authority, None).await.unwrap();
    let before = server.served().await;
    let mut events = server.watch(client.clone()).await;
    let other = Authority::new().sign_for("localhost", ExtendedKeyUsagePurpose::ServerAuth);
    for (file, text, setting) in [
        (
            "cert.pem",
            "-----BEGIN CERTIFICATE-----\nnonsense\n",
            "server.tls.cert_file",
        ),
        ("cert.pem", "", "server.tls.cert_file"),
        ("cert.pem", other.0.pem().as_str(), "server.tls.key_file"),
    ] {
        replace(&server.folder.path().join(file), text);
        let rejected = |body: &Body| match body {
            Body::ConfigurationRejected(event) => Some(event.faults.clone()),
            _ => None,
        };
        let faults = until(&mut events, rejected).await;
        assert_eq!(
            faults
                .iter()
                .map(|fault| fault.path.as_str())
                .collect::<Vec<_>>(),
            [setting],
            "{faults:?}"
        );
        assert_eq!(server.served().await, before);
    }
    invoked(&client).await.unwrap();
}

#[tokio::test]
async fn a_renewed_client_authority_lets_its_clients_in_and_no_longer_those_of_the_earlier_one() {
    let server = Secured::start(true).await;
    let known = server
        .client(&server.authority, Some("team-a"))
        .await
        .unwrap();
    invoked(&known).await.unwrap();
    let mut events = server.watch(known.clone()).await;
    let next = Authority::new();
    replace(&server.folder.path().join("ca.pem"), &next.pem);
    assert_eq!(changed(&mut events).await, ["server.tls.client_ca_file"]);
    let welcome = server.client(&next, Some("team-b")).await.unwrap();
    invoked(&welcome).await.unwrap();
    invoked(&known).await.expect("an open connection is kept");
    // With TLS 1.3 a client sees its rejection at the first request.
    let stranger = async {
        invoked(
            &server
                .client(&server.authority, Some("team-a"))
                .await
                .ok()?,
        )
        .await
        .ok()
    };
    assert_eq!(stranger.await, None);
}

#[tokio::test]
async fn a_renewed_client_certificate_is_the_same_tenant_and_another_name_is_another_one() {
    let server = Secured::start(true).await;
    let first = server
        .client(&server.authority, Some("team-a"))
        .await
        .unwrap();
    let id = invoked(&first).await.unwrap();
    let look = async |client: Channel| {
        let invocation = Some(get_invocation_request::Invocation::InvocationId(id.clone()));
        RecoveryServiceClient::new(client)
            .get_invocation(GetInvocationRequest { invocation })
            .await
    };
    let renewed = server
        .client(&server.authority, Some("team-a"))
        .await
        .unwrap();
    assert!(look(renewed).await.is_ok());
    let other = server
        .client(&server.authority, Some("team-b"))
        .await
        .unwrap();
    assert_eq!(look(other).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn the_certificate_of_the_changed_name_may_administer() {
    let server = Secured::start(true).await;
    let may = async |name: &str| {
        let client = server.client(&server.authority, Some(name)).await.unwrap();
        AdminServiceClient::new(client)
            .list_targets(ListTargetsRequest::default())
            .await
            .is_ok()
    };
    assert_eq!((may("team-a").await, may("team-b").await), (true, false));
    let mut events = server
        .watch(
            server
                .client(&server.authority, Some("team-a"))
                .await
                .unwrap(),
        )
        .await;
    let file = server.folder.path().join("relight.yaml");
    let text = fs::read_to_string(&file).unwrap();
    replace(
        &file,
        &text.replace("certificate_name: team-a", "certificate_name: team-b"),
    );
    assert!(!changed(&mut events).await.is_empty());
    assert_eq!((may("team-a").await, may("team-b").await), (false, true));
}
