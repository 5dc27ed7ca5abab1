//! Who may do what: signed tokens, roles, keys that expire, and an `AdminService` on a listener of its own.

#![expect(clippy::disallowed_methods, reason = "the publisher of keys ends with the test")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use relight::internals::{
    domain::{clock::wall_now, fold::hash_text},
    grpc::v1::{
        CancelInvocationRequest, CircuitForce, ClassifyFailureRequest, DeleteThreadRequest, ForceCircuitRequest,
        GetInvocationRequest, GetStatusRequest, GetThreadRequest, InvokeWithRecoveryRequest, ListInvocationsRequest,
        ListTargetsRequest, ResetCircuitRequest, Resume, StreamWithRecoveryRequest, WatchRecoveryRequest,
        admin_service_client::AdminServiceClient, cancel_invocation_request, get_invocation_request,
        recovery_service_client::RecoveryServiceClient, resume, stream_with_recovery_request::Start as StreamStart,
        watch_recovery_request::Start,
    },
};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::Instant,
};
use tonic::{Code, Status, transport::Channel};

use crate::support::{
    http::metrics,
    process::with_key,
    relight::{Relight, asking},
};

const ISSUER: &str = "https://login.example";

/// An identity provider: its key, under a name.
struct Signer {
    name: String,
    key: SignerKey,
}

enum SignerKey {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

// === impl Signer ===

impl Signer {
    fn ed25519(name: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { name: name.to_owned(), key: SignerKey::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()) }
    }

    fn p256(name: &str) -> Self {
        let (random, scheme) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &random).unwrap();
        Self { name: name.to_owned(), key: SignerKey::P256(key) }
    }

    /// The public key as it is published.
    fn published(&self) -> Value {
        match &self.key {
            SignerKey::Ed25519(key) => {
                let x = BASE64.encode(key.public_key());
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.name, "x": x, "use": "sig" })
            }
            SignerKey::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                json!({ "kty": "EC", "crv": "P-256", "kid": self.name, "x": x, "y": y, "alg": "ES256" })
            }
        }
    }

    fn token(&self, claims: &Value) -> String {
        let algorithm = if matches!(self.key, SignerKey::P256(_)) { "ES256" } else { "EdDSA" };
        self.token_with(&json!({ "alg": algorithm, "kid": self.name }), claims)
    }

    fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = match &self.key {
            SignerKey::Ed25519(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            SignerKey::P256(key) => key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec(),
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

fn set(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.published()).collect::<Vec<_>>() }).to_string()
}

/// Seconds from now, as a claim has them.
fn at(seconds: i64) -> i64 {
    wall_now().as_second() + seconds
}

/// Good claims, with some of them others; `null` takes one away.
fn claims(others: &Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "aud": "relight", "sub": "acme", "exp": at(600) });
    for (name, value) in others.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

/// A server with these settings of `server`.
async fn server(settings: &Value) -> Relight {
    let mut server = json!({ "listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0" });
    for (name, value) in settings.as_object().unwrap() {
        server[name] = value.clone();
    }
    let config = json!({
        "server": server,
        "providers": { "p": { "dialect": "scripted" } },
        "targets": { "t": { "provider": "p", "model": "m" } },
        "routes": { "default": { "targets": ["t"] }, "other": { "targets": ["t"] } },
        "journal": { "store": "memory" },
    });
    Relight::start_whole(&config.to_string()).await
}

fn jwt(more: &Value) -> Value {
    let mut jwt = json!({ "issuer": ISSUER, "audience": "relight", "clock_skew": "30s" });
    for (name, value) in more.as_object().unwrap() {
        jwt[name] = value.clone();
    }
    jwt
}

async fn invoke(server: &Relight, credential: &str, route: &str) -> Result<String, Code> {
    let mut invocation = asking("Hello.");
    route.clone_into(&mut invocation.route);
    let request = with_key(credential, InvokeWithRecoveryRequest { invocation: Some(invocation) });
    let invoked = server.recovery().invoke_with_recovery(request).await;
    invoked.map(|response| response.into_inner().invocation_id).map_err(|status| status.code())
}

/// The keys are fetched when the server starts, and nothing says when: until then tokens are refused.
async fn accepted(server: &Relight, token: &str) {
    for _ in 0..200 {
        if invoke(server, token, "").await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the token is not accepted");
}

#[tokio::test]
async fn a_token_is_its_tenant_with_the_role_and_the_routes_that_it_names_and_a_wrong_one_is_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (signer, other, stranger) = (Signer::ed25519("a"), Signer::p256("b"), Signer::ed25519("a"));
    std::fs::write(folder.path().join("jwks.json"), set(&[&signer, &other])).unwrap();
    let file = folder.path().join("jwks.json").display().to_string();
    let key = json!([{ "tenant": "by-key", "sha256": hash_text("key") }]);
    let server = server(&json!({ "jwt": jwt(&json!({ "jwks_file": file })), "keys": key })).await;
    accepted(&server, &signer.token(&claims(&json!({})))).await;

    let good = |others: Value| signer.token(&claims(&others));
    for token in [
        good(json!({ "aud": ["x", "relight"] })),
        good(json!({ "exp": at(-20), "nbf": at(20) })),
        other.token(&claims(&json!({}))),
        "key".to_owned(),
    ] {
        assert!(invoke(&server, &token, "").await.is_ok());
    }
    let body = claims(&json!({}));
    let crossed = format!("{}x", signer.token(&body));
    let unsigned = format!("{}.{}.", BASE64.encode(r#"{"alg":"none"}"#), BASE64.encode(claims(&json!({})).to_string()));
    for (what, token) in [
        ("expired", signer.token(&claims(&json!({ "exp": at(-60) })))),
        ("without an end", signer.token(&claims(&json!({ "exp": null })))),
        ("with an end that is no number", signer.token(&claims(&json!({ "exp": "9999999999" })))),
        ("not valid yet", signer.token(&claims(&json!({ "nbf": at(60) })))),
        ("with a beginning that is no number", signer.token(&claims(&json!({ "nbf": "0" })))),
        ("of another issuer", signer.token(&claims(&json!({ "iss": "https://evil.example" })))),
        ("of no issuer", signer.token(&claims(&json!({ "iss": null })))),
        ("for another audience", signer.token(&claims(&json!({ "aud": "other" })))),
        ("for no audience", signer.token(&claims(&json!({ "aud": null })))),
        ("without a tenant", signer.token(&claims(&json!({ "sub": null })))),
        ("with an odd tenant", signer.token(&claims(&json!({ "sub": "a\nb" })))),
        ("with an unknown role", signer.token(&claims(&json!({ "relight_role": "root" })))),
        ("with no route at all", signer.token(&claims(&json!({ "relight_routes": [] })))),
        ("of a stranger with the same key name", stranger.token(&body)),
        ("with an extension", signer.token_with(&json!({ "alg": "EdDSA", "kid": "a", "crit": ["b64"] }), &body)),
        ("by a shared secret", signer.token_with(&json!({ "alg": "HS256", "kid": "a" }), &body)),
        ("of another algorithm", signer.token_with(&json!({ "alg": "ES256", "kid": "a" }), &body)),
        ("with a name that no key has", signer.token_with(&json!({ "alg": "EdDSA", "kid": "z" }), &body)),
        ("unsigned", unsigned),
        ("cut", crossed),
        ("empty parts", "..".to_owned()),
        ("no token", "wrong".to_owned()),
        ("nothing", String::new()),
    ] {
        assert_eq!(invoke(&server, &token, "").await, Err(Code::Unauthenticated), "{what}");
    }
    let bound = signer.token(&claims(&json!({ "relight_routes": ["other"] })));
    assert!(invoke(&server, &bound, "other").await.is_ok());
    assert_eq!(invoke(&server, &bound, "default").await, Err(Code::PermissionDenied));

    let list = async |token: String| server.admin().list_targets(with_key(&token, ListTargetsRequest::default())).await;
    let admin = signer.token(&claims(&json!({ "relight_role": ["viewer", "admin", "watcher"] })));
    assert!(list(admin).await.is_ok());
    assert_eq!(list(signer.token(&body)).await.unwrap_err().code(), Code::PermissionDenied);
    // Each refusal is counted.
    let page = metrics(server.running.admin_address).await;
    let refused = |status: &str| {
        page.lines().any(|line| line.starts_with("rpc_server_call_duration_seconds_count") && line.contains(status))
    };
    assert!(refused("UNAUTHENTICATED") && refused("PERMISSION_DENIED"), "{page}");
}

/// Publishes what it holds at an address of its own, and counts how often.
async fn publisher() -> (String, Arc<Mutex<(String, usize)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let published = Arc::new(Mutex::new((String::new(), 0)));
    let shared = Arc::clone(&published);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let text = {
                let mut published = shared.lock().unwrap();
                published.1 += 1;
                published.0.clone()
            };
            let mut head = [0; 1024];
            let _ = socket.read(&mut head).await;
            let length = text.len();
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
            let _ = socket.write_all(response.as_bytes()).await;
        }
    });
    (url, published)
}

#[tokio::test]
async fn keys_are_fetched_and_rotated_without_a_restart_and_not_for_every_unknown_token() {
    let (url, published) = publisher().await;
    let (first, second) = (Signer::ed25519("first"), Signer::ed25519("second"));
    published.lock().unwrap().0 = set(&[&first]);
    let server = server(&json!({ "jwt": jwt(&json!({ "jwks_url": url })) })).await;
    accepted(&server, &first.token(&claims(&json!({})))).await;
    let fetched = published.lock().unwrap().1;
    assert!(fetched <= 2, "at the start, and once for the first token if that was earlier: {fetched}");
    // A flood of tokens with unknown keys fetches nothing within the quiet time.
    let (unknown, began) = (Signer::ed25519("unknown").token(&claims(&json!({}))), Instant::now());
    for _ in 0..20 {
        assert_eq!(invoke(&server, &unknown, "").await, Err(Code::Unauthenticated));
    }
    let quiet_times = usize::try_from(began.elapsed().as_secs() / 10).unwrap();
    assert!(published.lock().unwrap().1 <= fetched + 1 + quiet_times);
    // A rotation: the next token with an unknown key fetches the set that has it, and is accepted itself.
    published.lock().unwrap().0 = set(&[&second]);
    accepted_in(&server, &second.token(&claims(&json!({}))), Duration::from_secs(40)).await;
    assert_eq!(invoke(&server, &first.token(&claims(&json!({}))), "").await, Err(Code::Unauthenticated));
    // A broken set leaves the keys in force.
    published.lock().unwrap().0 = "<html>".to_owned();
    assert_eq!(invoke(&server, &unknown, "").await, Err(Code::Unauthenticated));
    assert!(invoke(&server, &second.token(&claims(&json!({}))), "").await.is_ok());
}

async fn accepted_in(server: &Relight, token: &str, time: Duration) {
    let accepted = async {
        while invoke(server, token, "").await.is_err() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(time, accepted).await.unwrap();
}

#[tokio::test]
async fn a_key_is_taken_until_it_expires() {
    let key = |tenant: &str, key: &str, expires: i64| {
        let expires = jiff::Timestamp::from_second(at(expires)).unwrap().to_string();
        json!({ "tenant": tenant, "sha256": hash_text(key), "expires": expires })
    };
    let server = server(&json!({ "keys": [key("a", "old", -1), key("b", "short", 3), key("c", "long", 600)] })).await;
    assert_eq!(invoke(&server, "old", "").await, Err(Code::Unauthenticated));
    assert!(invoke(&server, "long", "").await.is_ok());
    let ended = async {
        while invoke(&server, "short", "").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    assert!(invoke(&server, "long", "").await.is_ok());
}

/// What each method does for a caller, with an invocation and a thread of tenant `acme`.
async fn outcomes(
    server: &Relight,
    admin: &Channel,
    key: &str,
    (id, request): (&str, &str),
) -> Vec<(&'static str, Result<(), Code>)> {
    let done = |result: Result<(), Status>| result.map_err(|status| status.code());
    let id = || id.to_owned();
    let (mut recovery, mut admin) = (server.recovery(), AdminServiceClient::new(admin.clone()));
    let mut outcomes = Vec::new();
    let mut note = |method: &'static str, outcome: Result<(), Status>| outcomes.push((method, done(outcome)));
    let invoking = InvokeWithRecoveryRequest { invocation: Some(asking("Hello.")) };
    note("InvokeWithRecovery", recovery.invoke_with_recovery(with_key(key, invoking)).await.map(drop));
    let start = Some(StreamStart::Invocation(asking("Hello.")));
    let streaming = StreamWithRecoveryRequest { start };
    note("StreamWithRecovery", recovery.stream_with_recovery(with_key(key, streaming)).await.map(drop));
    let resume = Resume { invocation: Some(resume::Invocation::RequestId(request.to_owned())), ..Resume::default() };
    let request = StreamWithRecoveryRequest { start: Some(StreamStart::Resume(resume)) };
    note("resume", recovery.stream_with_recovery(with_key(key, request)).await.map(drop));
    let request = WatchRecoveryRequest { filter: None, start: Some(Start::Live(true)) };
    note("WatchRecovery", recovery.watch_recovery(with_key(key, request)).await.map(drop));
    let invocation = Some(get_invocation_request::Invocation::InvocationId(id()));
    note("GetInvocation", recovery.get_invocation(with_key(key, GetInvocationRequest { invocation })).await.map(drop));
    let request = ListInvocationsRequest::default();
    note("ListInvocations", recovery.list_invocations(with_key(key, request)).await.map(drop));
    let request = GetThreadRequest { thread_id: "talk".to_owned() };
    note("GetThread", recovery.get_thread(with_key(key, request)).await.map(drop));
    let invocation = Some(cancel_invocation_request::Invocation::InvocationId(id()));
    let request = CancelInvocationRequest { invocation, ..CancelInvocationRequest::default() };
    note("CancelInvocation", recovery.cancel_invocation(with_key(key, request)).await.map(drop));
    let classified = recovery.classify_failure(with_key(key, ClassifyFailureRequest::default())).await;
    // Without a failure in it, the request is refused for what it lacks.
    let classified = classified.map(drop).or_else(|status| match status.code() {
        Code::InvalidArgument => Ok(()),
        _ => Err(status),
    });
    note("ClassifyFailure", classified);
    note("ListTargets", admin.list_targets(with_key(key, ListTargetsRequest::default())).await.map(drop));
    note("GetStatus", admin.get_status(with_key(key, GetStatusRequest {})).await.map(drop));
    let request = ResetCircuitRequest { target: "t".to_owned() };
    note("ResetCircuit", admin.reset_circuit(with_key(key, request)).await.map(drop));
    let force = CircuitForce::Auto.into();
    let request = ForceCircuitRequest { target: "t".to_owned(), force, ..ForceCircuitRequest::default() };
    note("ForceCircuit", admin.force_circuit(with_key(key, request)).await.map(drop));
    let request = DeleteThreadRequest { thread_id: "talk".to_owned(), ..DeleteThreadRequest::default() };
    note("DeleteThread", recovery.delete_thread(with_key(key, request)).await.map(drop));
    outcomes
}

#[tokio::test]
async fn each_role_may_do_its_part_of_every_method_and_nothing_of_another_tenant() {
    let key = |tenant: &str, key: &str, role: &str| json!({ "tenant": tenant, "sha256": hash_text(key), "role": role });
    let keys = json!([
        key("acme", "caller", "caller"),
        key("acme", "watcher", "watcher"),
        key("rival", "rival", "caller"),
        key("ops", "admin", "admin"),
    ]);
    let server = server(&json!({ "keys": keys, "admin_service": { "listen": "127.0.0.1:0" } })).await;
    let address = server.running.admin_service_address.unwrap();
    let admin = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let begin = async |request_id: &str| {
        let mut invocation = asking("Hello.");
        request_id.clone_into(&mut invocation.request_id);
        "talk".clone_into(&mut invocation.thread_id);
        let request = with_key("caller", InvokeWithRecoveryRequest { invocation: Some(invocation) });
        server.recovery().invoke_with_recovery(request).await.unwrap().into_inner().invocation_id
    };
    let (denied, missing) = (Err(Code::PermissionDenied), Err(Code::NotFound));
    let looked = ["WatchRecovery", "GetInvocation", "ListInvocations", "GetThread", "ClassifyFailure"];
    let administered = ["ListTargets", "GetStatus", "ResetCircuit", "ForceCircuit"];
    let named = ["resume", "GetInvocation", "GetThread", "CancelInvocation", "DeleteThread"];
    for key in ["watcher", "rival", "unknown", "", "caller"] {
        let request = format!("before {key}");
        let id = begin(&request).await;
        for (method, outcome) in outcomes(&server, &admin, key, (&id, &request)).await {
            let expected = match key {
                "unknown" | "" => Err(Code::Unauthenticated),
                "watcher" if looked.contains(&method) => Ok(()),
                "watcher" => denied,
                _ if administered.contains(&method) => denied,
                "rival" if named.contains(&method) => missing,
                _ => Ok(()),
            };
            assert_eq!(outcome, expected, "{method} by `{key}`");
        }
    }
    let id = begin("last").await;
    for (method, outcome) in outcomes(&server, &admin, "admin", (&id, "last")).await {
        // One who administers sees and cancels invocations of all; names that a tenant gave are its own.
        let own = ["resume", "GetThread", "DeleteThread"];
        let expected = if own.contains(&method) { missing } else { Ok(()) };
        assert_eq!(outcome, expected, "{method} by an administrator");
    }
    // The AdminService is nowhere else, and its listener serves nothing else.
    let status = server.admin().get_status(with_key("admin", GetStatusRequest {})).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    let request = with_key("admin", ListInvocationsRequest::default());
    let status = RecoveryServiceClient::new(admin).list_invocations(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_watcher_calls_no_model_through_the_http_front_either() {
    let key = |key: &str, role: &str| json!({ "tenant": "acme", "sha256": hash_text(key), "role": role });
    let front = json!({ "listen": "127.0.0.1:0" });
    let server =
        server(&json!({ "keys": [key("caller", "caller"), key("watcher", "watcher")], "openai_front": front })).await;
    let url = format!("{}", server.running.openai_front_address.unwrap());
    for (key, expected) in [("caller", "200"), ("watcher", "403"), ("wrong", "401")] {
        let body = json!({ "model": "default", "messages": [{ "role": "user", "content": "Hello." }] }).to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut socket = tokio::net::TcpStream::connect(&url).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {expected}")), "{key}: {response}");
    }
}
