//! How upstreams are reached: through an egress proxy, by authorities of the operator's own, and
//! with a client certificate.

use rcgen::ExtendedKeyUsagePurpose;
use relight::internals::{
    grpc::v1::{Failure, InvokeWithRecoveryRequest, invoke_with_recovery_response::Outcome},
    wire_server::{
        WireServer,
        mcp::{Executed, McpScript, ScriptedTool},
    },
};
use serde_json::json;

use crate::support::{
    authority::Authority,
    connections::{ConnectProxy, TlsFront, address_of, file},
    http::closed_address,
    relight::Relight,
    tool_stage::calling,
    upstream::Upstream,
};

/// A server with one provider at this URL, reached by these settings, and no retries.
async fn relight(base_url: &str, connection: &str) -> Relight {
    Relight::start(&format!(
        "providers:\n  p: {{ dialect: openai_chat, base_url: \"{base_url}\", api_key: k, {connection} }}\n\
         targets: {{ main: {{ provider: p, model: m }} }}\n\
         routes: {{ default: {{ targets: [main] }} }}\n\
         policies: {{ standard: {{ retry: {{ max_retries: 0 }} }} }}\n"
    ))
    .await
}

/// The text of the response, or the failure.
async fn asked(relight: &Relight) -> Result<String, Box<Failure>> {
    match relight.ask("hello").await.outcome.unwrap() {
        Outcome::Completion(completion) => Ok(completion.text),
        Outcome::Failure(failure) => Err(Box::new(failure)),
    }
}

#[tokio::test]
async fn a_provider_is_called_through_its_proxy_and_by_the_authority_that_signed_its_certificate() {
    let (upstream, authority, folder) = (
        Upstream::start().await,
        Authority::new(),
        tempfile::tempdir().unwrap(),
    );
    let front = TlsFront::start(&authority, None, address_of(&upstream)).await;
    let proxy = ConnectProxy::start("user:proxy-password").await;
    let ca = file(folder.path(), "ca.pem", &authority.pem);
    let secret = file(folder.path(), "proxy", "user:proxy-password\n");
    let through = format!(
        "proxy: {{ url: \"http://127.0.0.1:{}\", credentials_file: {secret} }}",
        proxy.port
    );
    let relight = relight(
        &front.base_url(),
        &format!("{through}, tls: {{ ca_file: {ca} }}"),
    )
    .await;
    for _ in 0..2 {
        assert_eq!(asked(&relight).await.unwrap(), "Hello from upstream.");
    }
    // The connection is kept: the second call needs no second tunnel.
    assert_eq!(proxy.wanted(), [format!("localhost:{}", front.port)]);
    assert_eq!((upstream.requests().len(), upstream.connections()), (2, 1));
}

#[tokio::test]
async fn a_certificate_of_an_authority_that_is_not_configured_fails_the_call_in_words_that_say_so()
{
    let (upstream, authority, folder) = (
        Upstream::start().await,
        Authority::new(),
        tempfile::tempdir().unwrap(),
    );
    let front = TlsFront::start(&authority, None, address_of(&upstream)).await;
    let other = file(folder.path(), "other.pem", &Authority::new().pem);
    for connection in [String::new(), format!("tls: {{ ca_file: {other} }}")] {
        let failure = asked(&relight(&front.base_url(), &connection).await)
            .await
            .unwrap_err();
        assert!(
            failure.message.contains("certificate is not trusted"),
            "{}",
            failure.message
        );
        assert_eq!(
            failure.failure_class().as_str_name(),
            "FAILURE_CLASS_NETWORK",
            "{failure:?}"
        );
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_provider_that_requires_one() {
    let (upstream, authority, clients) =
        (Upstream::start().await, Authority::new(), Authority::new());
    let front = TlsFront::start(&authority, Some(&clients), address_of(&upstream)).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = file(folder.path(), "ca.pem", &authority.pem);
    let (certificate, key) = clients.sign_for("relight", ExtendedKeyUsagePurpose::ClientAuth);
    let cert = file(folder.path(), "cert.pem", &certificate.pem());
    let key = file(folder.path(), "key.pem", &key.serialize_pem());
    let without = relight(&front.base_url(), &format!("tls: {{ ca_file: {ca} }}")).await;
    let failure = asked(&without).await.unwrap_err();
    assert!(
        failure.message.contains("no secure connection"),
        "{}",
        failure.message
    );
    assert!(
        failure.message.contains("CertificateRequired"),
        "{}",
        failure.message
    );
    assert!(upstream.requests().is_empty());
    let with = format!("tls: {{ ca_file: {ca}, cert_file: {cert}, key_file: {key} }}");
    assert_eq!(
        asked(&relight(&front.base_url(), &with).await)
            .await
            .unwrap(),
        "Hello from upstream."
    );
}

#[tokio::test]
async fn a_proxy_that_opens_no_tunnel_is_named_with_its_reason_and_nothing_is_sent_past_it() {
    let upstream = Upstream::start().await;
    let proxy = ConnectProxy::start("user:proxy-password").await;
    let refused = format!(
        "proxy: {{ url: \"http://localhost:{}\", credentials: \"user:wrong\" }}",
        proxy.port
    );
    let failure = asked(&relight(&upstream.base_url(), &refused).await)
        .await
        .unwrap_err();
    let expected = format!(
        "407 Proxy Authentication Required (connections go through the proxy localhost:{})",
        proxy.port
    );
    assert!(failure.message.contains(&expected), "{}", failure.message);
    assert!(!failure.message.contains("wrong"), "{}", failure.message);
    let (_socket, address) = closed_address();
    let gone = format!("localhost:{}", address.port());
    let failure = asked(
        &relight(
            &upstream.base_url(),
            &format!("proxy: {{ url: \"http://{gone}\" }}"),
        )
        .await,
    )
    .await;
    let message = failure.unwrap_err().message;
    assert!(
        message.contains("refuses connections") && message.contains(&format!("the proxy {gone}")),
        "{message}"
    );
    assert_eq!((proxy.wanted().len(), upstream.requests().len()), (1, 0));
}

#[tokio::test]
async fn a_tool_server_is_called_through_its_proxy_with_its_certificates() {
    let wire = WireServer::start().await.unwrap();
    let tool = ScriptedTool::new("look", &json!({"type": "object"}), |_| {
        Executed::Result(json!("fine"))
    });
    McpScript::new(vec![tool]).play_on(&wire);
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let front = TlsFront::start(&authority, None, wire.address().to_string()).await;
    let proxy = ConnectProxy::start("user:proxy-password").await;
    let ca = file(folder.path(), "ca.pem", &authority.pem);
    let relight = Relight::start(&format!(
        "tools:\n  servers:\n    s:\n      url: https://localhost:{}/mcp\n      \
         proxy: {{ url: \"http://127.0.0.1:{}\", credentials: \"user:proxy-password\" }}\n      \
         tls: {{ ca_file: {ca} }}\n",
        front.port, proxy.port
    ))
    .await;
    let invocation = Some(calling("look", json!({})));
    let response = relight
        .recovery()
        .invoke_with_recovery(InvokeWithRecoveryRequest { invocation })
        .await
        .unwrap();
    let Some(Outcome::Completion(completion)) = response.into_inner().outcome else {
        panic!("the tool failed")
    };
    assert_eq!(completion.text, "fine");
    assert!(
        proxy
            .wanted()
            .iter()
            .all(|to| *to == format!("localhost:{}", front.port))
    );
    assert!(!proxy.wanted().is_empty());
}
