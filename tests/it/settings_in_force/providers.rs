//! Changes of a provider's section, seen by the provider: where it is called, how, with which key
//! and connections.

use std::time::Duration;

use relight::internals::{
    grpc::v1::{
        Invocation, InvokeWithRecoveryRequest, Message, Part, ReasoningPart, Role,
        invocation::Call, invoke_with_recovery_response::Outcome, part::Content,
    },
    wire_server::Request,
};
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::Instant,
};

use super::probes::{SOON, class_of};
use crate::support::{
    process::{Serve, replace},
    relight::asking,
    reloaded::{Reloaded, merge},
    upstream::{Reply, Upstream, chunk},
};

/// The next request, after a change of the provider's section.
async fn request_after(server: &mut Reloaded, provider: Value, invocation: Invocation) -> Request {
    let before = server.upstream.requests().len();
    server
        .change(json!({ "providers": { "p": provider } }))
        .await;
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    server
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap();
    server.upstream.await_request(before + 1).await
}

#[tokio::test]
async fn the_provider_is_called_as_its_changed_section_requires() {
    let mut server = Reloaded::start(json!({})).await;
    server
        .change(
            json!({ "providers": { "p": { "headers": { "x-team": "blue" }, "api_key": "k-2" } } }),
        )
        .await;
    server.invoke().await;
    let request = server.upstream.await_request(1).await;
    assert_eq!(
        (request.header("x-team"), request.header("authorization")),
        (Some("blue"), Some("Bearer k-2"))
    );
}

#[tokio::test]
async fn the_provider_is_called_in_the_changed_dialect() {
    let mut server = Reloaded::start(json!({})).await;
    let limited = || {
        let mut invocation = asking("hello");
        if let Some(Call::Model(call)) = &mut invocation.call {
            call.max_output_tokens = Some(100);
            call.messages.insert(
                0,
                Message {
                    role: Role::Developer.into(),
                    ..call.messages[0].clone()
                },
            );
            let reasoning = ReasoningPart {
                text: "Hm.".to_owned(),
            };
            let mut parts = vec![Part {
                content: Some(Content::Reasoning(reasoning)),
                ..Part::default()
            }];
            parts.extend(call.messages[1].parts.clone());
            call.messages.push(Message {
                role: Role::Assistant.into(),
                parts,
                ..Message::default()
            });
            call.messages.push(call.messages[1].clone());
        }
        invocation
    };
    let chat = json!({ "path": "/chat",
        "reasoning_field": "reasoning_content" });
    let sent = request_after(&mut server, json!({ "chat": chat }), limited()).await;
    assert_eq!(sent.path, "/v1/chat");
    assert_eq!(
        sent.body["messages"][2]["reasoning_content"], "Hm.",
        "{}",
        sent.body
    );
    let chat = json!({ "path": null, "stream": false });
    let sent = request_after(
        &mut server,
        json!({ "chat": chat, "api_key_header": "api_key" }),
        limited(),
    )
    .await;
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(sent.body["stream"], json!(false));
    assert_eq!(
        (sent.header("api-key"), sent.header("authorization")),
        (Some("k"), None)
    );
    let sent = request_after(
        &mut server,
        json!({ "dialect": "anthropic", "family": "mistral" }),
        asking("hello"),
    )
    .await;
    assert!(sent.header("anthropic-version").is_some());
    let metrics = crate::support::http::metrics(server.running.admin_address).await;
    assert!(
        metrics.contains("gen_ai_provider_name=\"mistral\""),
        "{metrics}"
    );
    let bedrock =
        json!({ "dialect": "bedrock", "api_key": "AKIDEXAMPLE:secret", "region": "eu-central-1" });
    let sent = request_after(&mut server, bedrock, asking("hello")).await;
    assert!(
        sent.header("authorization")
            .is_some_and(|signed| signed.contains("/eu-central-1/bedrock/")),
        "{sent:?}"
    );
}

#[tokio::test]
async fn the_provider_is_reached_at_its_changed_address() {
    let mut server = Reloaded::start(json!({})).await;
    let other = Upstream::start().await;
    server
        .change(json!({ "providers": { "p": { "base_url": other.base_url() } } }))
        .await;
    server.invoke().await;
    assert_eq!(
        (server.upstream.requests().len(), other.requests().len()),
        (0, 1)
    );
}

#[tokio::test]
async fn the_scripted_model_plays_the_changed_script() {
    let script = |text: &str| json!({ "script": { "otherwise": { "answer": { "text": text } } } });
    let mut stage = script("The first.");
    merge(&mut stage, json!({ "dialect": "scripted" }));
    let mut server = Reloaded::start(json!({
        "providers": { "p": null, "stage": stage },
        "targets": { "main": { "provider": "stage" } },
    }))
    .await;
    server
        .change(json!({ "providers": { "stage": script("The second.") } }))
        .await;
    let Some(Outcome::Completion(completion)) = server.invoke().await.outcome else {
        panic!("it is answered")
    };
    assert_eq!(completion.text, "The second.");
}

#[tokio::test]
async fn a_target_is_called_with_its_changed_credential_and_keys_are_read_from_changed_files() {
    let mut server = Reloaded::start(
        json!({ "providers": { "p": { "credentials": { "other": { "api_key": "k-2" } } } } }),
    )
    .await;
    let sent = request_after(
        &mut server,
        json!({ "credentials": { "other": { "api_key": "k-3" } } }),
        asking("hello"),
    )
    .await;
    assert_eq!(sent.header("authorization"), Some("Bearer k"));
    server
        .change(json!({ "targets": { "main": { "credential": "other" } } }))
        .await;
    server.invoke().await;
    assert_eq!(
        server
            .upstream
            .await_request(2)
            .await
            .header("authorization"),
        Some("Bearer k-3")
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "k-4\n").unwrap();
    let from_file =
        json!({ "credentials": { "other": { "api_key": null, "api_key_file": file } } });
    let sent = request_after(&mut server, from_file, asking("hello")).await;
    assert_eq!(sent.header("authorization"), Some("Bearer k-4"));
    server
        .change(json!({ "targets": { "main": { "credential": null } } }))
        .await;
    let sent = request_after(
        &mut server,
        json!({ "api_key": null, "api_key_file": file }),
        asking("hello"),
    )
    .await;
    assert_eq!(sent.header("authorization"), Some("Bearer k-4"));
    let pool = json!({ "api_key_file": null, "api_keys": ["k-5"] });
    let sent = request_after(&mut server, pool, asking("hello")).await;
    assert_eq!(sent.header("authorization"), Some("Bearer k-5"));
    let from_file = json!({ "api_keys": null, "api_keys_file": file });
    let sent = request_after(&mut server, from_file, asking("hello")).await;
    assert_eq!(sent.header("authorization"), Some("Bearer k-4"));
}

#[tokio::test]
async fn responses_are_as_large_as_the_changed_limits_of_the_http_client_allow() {
    let once = json!({ "policies": { "standard": { "retry": { "max_retries": 0 } } } });
    let mut server = Reloaded::start(once).await;
    let long = "a word and ".repeat(10_000);
    let longer = "a word and ".repeat(200_000);
    let in_one_line = [
        chunk(&json!({ "content": longer }), None),
        chunk(&json!({}), Some("stop")),
        "[DONE]".to_owned(),
    ];
    for (http, reply, answered) in [
        (
            json!({ "max_body_bytes": "64KiB" }),
            Reply::text(&long),
            false,
        ),
        (
            json!({ "max_body_bytes": "32MiB" }),
            Reply::events(&in_one_line),
            false,
        ),
        (
            json!({ "max_body_bytes": "512MiB" }),
            Reply::events(&in_one_line),
            true,
        ),
    ] {
        server
            .change(json!({ "providers": { "p": { "http": http.clone() } } }))
            .await;
        server.upstream.push(reply);
        let outcome = server.invoke().await.outcome;
        assert_eq!(
            matches!(outcome, Some(Outcome::Completion(_))),
            answered,
            "{http}"
        );
    }
}

#[tokio::test]
async fn http_2_is_used_as_the_changed_http_client_requires() {
    let mut server = Reloaded::start(json!({})).await;
    server
        .change(json!({ "providers": { "p": { "http": { "http2_prior_knowledge": true } } } }))
        .await;
    assert!(
        class_of(server.invoke().await.outcome).is_some(),
        "the server speaks HTTP/1.1 only"
    );
}

#[tokio::test]
async fn a_connection_is_waited_for_as_long_as_the_changed_http_client_allows() {
    let slow = json!({ "providers": { "p": { "http": { "connect_timeout": "1m" } } } });
    let mut server = Reloaded::start(slow).await;
    // The kernel lets a few connections wait in the queue, and drops all others.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = socket.listen(1).unwrap();
    let address = full.local_addr().unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..8 {
        waiting.spawn(TcpStream::connect(address));
    }
    let url = format!("http://{address}/v1");
    server.change(json!({ "providers": { "p": { "base_url": url, "http": { "connect_timeout": "100ms" } } } })).await;
    let began = Instant::now();
    assert!(class_of(server.invoke().await.outcome).is_some());
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn another_host_is_taken_without_tls_where_the_changed_section_allows_it() {
    let mut server = Reloaded::start(json!({})).await;
    let section = json!({ "base_url": "http://10.0.0.1:9/v1", "allow_plaintext": true, "allow_private_addresses": true });
    // Without either the change is refused, which ends the test.
    let (event, _) = server
        .change(json!({ "providers": { "p": section } }))
        .await;
    assert!(
        event
            .changed_paths
            .contains(&"providers.p.base_url".to_owned()),
        "{event:?}"
    );
}

/// A token that is named after what it was requested for, or an answer.
fn token_or_answer(request: &Request) -> Reply {
    let resource = request.path.split_once("resource=");
    let token = match resource.and_then(|(_, rest)| rest.split('&').next()) {
        Some(resource) => resource,
        None if request.path.contains("computeMetadata") => "of-google",
        None => return Reply::text("Hello."),
    };
    Reply::document(&json!({ "access_token": token, "expires_in": 3600 }))
}

#[tokio::test]
async fn a_changed_identity_and_its_scope_prove_the_next_call() {
    let upstream = Upstream::start().await;
    upstream.answering(token_or_answer);
    let url = upstream.base_url();
    let config = |proof: &str| {
        format!(
            "providers: {{ p: {{ dialect: openai_chat, base_url: \"{url}\", {proof} }} }}\ntargets: {{ t: {{ provider: p, model: m }} \
             }}\nroutes: {{ default: {{ targets: [t] }} }}\njournal: {{ store: memory }}\n"
        )
    };
    let host = url.trim_start_matches("http://").trim_end_matches("/v1");
    let server = Serve::on("127.0.0.1:0", &config("api_key: k"))
        .env("IDENTITY_ENDPOINT", &url)
        .env("IDENTITY_HEADER", "h")
        .env("GCE_METADATA_HOST", host)
        .start()
        .await;
    for (proof, sent) in [
        ("api_key: k", "Bearer k"),
        (
            "identity: { cloud: azure, scope: first/.default }",
            "Bearer first",
        ),
        ("identity: { cloud: azure, scope: second }", "Bearer second"),
        ("identity: { cloud: google }", "Bearer of-google"),
    ] {
        replace(&server.file, &config(proof));
        let proven = async {
            loop {
                let request = InvokeWithRecoveryRequest {
                    invocation: Some(asking("Hello")),
                };
                server
                    .recovery()
                    .invoke_with_recovery(request)
                    .await
                    .unwrap();
                let last = upstream.requests().pop().unwrap();
                if last.header("authorization") == Some(sent) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), proven)
            .await
            .unwrap_or_else(|_| panic!("no call with {sent}"));
    }
}
