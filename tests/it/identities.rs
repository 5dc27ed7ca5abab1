//! Who may do what: signed tokens, roles, keys that expire, and an `AdminService` on a listener of
//! its own.

#![expect(
    clippy::disallowed_methods,
    reason = "the publisher of keys ends with the test"
)]

mod roles;
mod signer;
mod withdrawn;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use relight::internals::{
    domain::{clock::wall_now, fold::hash_text},
    grpc::v1::{InvokeWithRecoveryRequest, ListTargetsRequest},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::Instant,
};
use tonic::Code;

use self::signer::{Signer, set};
use crate::support::{
    http::metrics,
    process::with_key,
    relight::{Relight, asking},
};

const ISSUER: &str = "https://login.example";

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
    claims
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
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
    let mut jwt = json!({ "issuer": ISSUER, "audience": "relight" });
    for (name, value) in more.as_object().unwrap() {
        jwt[name] = value.clone();
    }
    jwt
}

async fn invoke(server: &Relight, credential: &str, route: &str) -> Result<String, Code> {
    let mut invocation = asking("Hello.");
    route.clone_into(&mut invocation.route);
    let request = with_key(
        credential,
        InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        },
    );
    let invoked = server.recovery().invoke_with_recovery(request).await;
    invoked
        .map(|response| response.into_inner().invocation_id)
        .map_err(|status| status.code())
}

/// The keys are fetched when the server starts, and nothing says when: until then tokens are
/// refused.
async fn accepted(server: &Relight, token: &str) {
    for _ in 0..200 {
        if invoke(server, token, "").await.is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the token is not accepted");
}

/// Tokens that are not accepted, and what is wrong with each; the stranger's key has the name of
/// the signer's.
fn wrong_tokens(signer: &Signer, stranger: &Signer) -> Vec<(&'static str, String)> {
    let body = claims(&json!({}));
    let crossed = format!("{}x", signer.token(&body));
    let unsigned = format!(
        "{}.{}.",
        BASE64.encode(r#"{"alg":"none"}"#),
        BASE64.encode(claims(&json!({})).to_string())
    );
    vec![
        (
            "expired",
            signer.token(&claims(&json!({ "exp": at(-120) }))),
        ),
        (
            "without an end",
            signer.token(&claims(&json!({ "exp": null }))),
        ),
        (
            "with an end that is no number",
            signer.token(&claims(&json!({ "exp": "9999999999" }))),
        ),
        (
            "not valid yet",
            signer.token(&claims(&json!({ "nbf": at(120) }))),
        ),
        (
            "with a beginning that is no number",
            signer.token(&claims(&json!({ "nbf": "0" }))),
        ),
        (
            "of another issuer",
            signer.token(&claims(&json!({ "iss": "https://evil.example" }))),
        ),
        (
            "of no issuer",
            signer.token(&claims(&json!({ "iss": null }))),
        ),
        (
            "for another audience",
            signer.token(&claims(&json!({ "aud": "other" }))),
        ),
        (
            "for no audience",
            signer.token(&claims(&json!({ "aud": null }))),
        ),
        (
            "without a tenant",
            signer.token(&claims(&json!({ "sub": null }))),
        ),
        (
            "with an odd tenant",
            signer.token(&claims(&json!({ "sub": "a\nb" }))),
        ),
        (
            "with an unknown role",
            signer.token(&claims(&json!({ "relight_role": "root" }))),
        ),
        (
            "with no route at all",
            signer.token(&claims(&json!({ "relight_routes": [] }))),
        ),
        (
            "of a stranger with the same key name",
            stranger.token(&body),
        ),
        (
            "with an extension",
            signer.token_with(
                &json!({ "alg": "EdDSA", "kid": "a", "crit": ["b64"] }),
                &body,
            ),
        ),
        (
            "by a shared secret",
            signer.token_with(&json!({ "alg": "HS256", "kid": "a" }), &body),
        ),
        (
            "of another algorithm",
            signer.token_with(&json!({ "alg": "ES256", "kid": "a" }), &body),
        ),
        (
            "with a name that no key has",
            signer.token_with(&json!({ "alg": "EdDSA", "kid": "z" }), &body),
        ),
        ("unsigned", unsigned),
        ("cut", crossed),
        ("empty parts", "..".to_owned()),
        ("no token", "wrong".to_owned()),
        ("nothing", String::new()),
    ]
}

#[tokio::test]
async fn a_token_is_its_tenant_with_the_role_and_the_routes_that_it_names_and_a_wrong_one_is_nobody()
 {
    let folder = tempfile::tempdir().unwrap();
    let (signer, other, stranger) = (
        Signer::ed25519("a"),
        Signer::p256("b"),
        Signer::ed25519("a"),
    );
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
    for (what, token) in wrong_tokens(&signer, &stranger) {
        assert_eq!(
            invoke(&server, &token, "").await,
            Err(Code::Unauthenticated),
            "{what}"
        );
    }
    let bound = signer.token(&claims(&json!({ "relight_routes": ["other"] })));
    assert!(invoke(&server, &bound, "other").await.is_ok());
    assert_eq!(
        invoke(&server, &bound, "default").await,
        Err(Code::PermissionDenied)
    );

    let list = async |token: String| {
        server
            .admin()
            .list_targets(with_key(&token, ListTargetsRequest::default()))
            .await
    };
    let admin = signer.token(&claims(
        &json!({ "relight_role": ["viewer", "admin", "watcher"] }),
    ));
    assert!(list(admin).await.is_ok());
    assert_eq!(
        list(signer.token(&body)).await.unwrap_err().code(),
        Code::PermissionDenied
    );
    // Each refusal is counted.
    let page = metrics(server.running.admin_address).await;
    let refused = |status: &str| {
        page.lines().any(|line| {
            line.starts_with("rpc_server_call_duration_seconds_count") && line.contains(status)
        })
    };
    assert!(
        refused("UNAUTHENTICATED") && refused("PERMISSION_DENIED"),
        "{page}"
    );
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
            let response = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
            );
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
    assert!(
        fetched <= 2,
        "at the start, and once for the first token if that was earlier: {fetched}"
    );
    // A flood of tokens with unknown keys fetches nothing within the quiet time.
    let (unknown, began) = (
        Signer::ed25519("unknown").token(&claims(&json!({}))),
        Instant::now(),
    );
    for _ in 0..20 {
        assert_eq!(
            invoke(&server, &unknown, "").await,
            Err(Code::Unauthenticated)
        );
    }
    let quiet_times = usize::try_from(began.elapsed().as_secs() / 10).unwrap();
    assert!(published.lock().unwrap().1 <= fetched + 1 + quiet_times);
    // A rotation: the next token with an unknown key fetches the set that has it, and is accepted
    // itself.
    published.lock().unwrap().0 = set(&[&second]);
    accepted_in(
        &server,
        &second.token(&claims(&json!({}))),
        Duration::from_secs(40),
    )
    .await;
    assert_eq!(
        invoke(&server, &first.token(&claims(&json!({}))), "").await,
        Err(Code::Unauthenticated)
    );
    // A broken set leaves the keys in force.
    published.lock().unwrap().0 = "<html>".to_owned();
    assert_eq!(
        invoke(&server, &unknown, "").await,
        Err(Code::Unauthenticated)
    );
    assert!(
        invoke(&server, &second.token(&claims(&json!({}))), "")
            .await
            .is_ok()
    );
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
        let expires = jiff::Timestamp::from_second(at(expires))
            .unwrap()
            .to_string();
        json!({ "tenant": tenant, "sha256": hash_text(key), "expires": expires })
    };
    let server = server(
        &json!({ "keys": [key("a", "old", -1), key("b", "short", 3), key("c", "long", 600)] }),
    )
    .await;
    assert_eq!(invoke(&server, "old", "").await, Err(Code::Unauthenticated));
    assert!(invoke(&server, "long", "").await.is_ok());
    let ended = async {
        while invoke(&server, "short", "").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended)
        .await
        .unwrap();
    assert!(invoke(&server, "long", "").await.is_ok());
}

#[tokio::test]
async fn a_token_s_tenant_is_held_to_its_limits_like_that_of_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let signer = Signer::ed25519("a");
    std::fs::write(folder.path().join("jwks.json"), set(&[&signer])).unwrap();
    let file = folder.path().join("jwks.json").display().to_string();
    let limits = |requests: u32| json!({ "limits": { "requests_per_minute": requests } });
    let server = server(&json!({
        "jwt": jwt(&json!({ "jwks_file": file })),
        "keys": [{ "tenant": "acme", "sha256": hash_text("key") }],
        "tenants": { "acme": limits(3), "*": limits(1) },
    }))
    .await;
    let token = |tenant: &str| signer.token(&claims(&json!({ "sub": tenant })));
    // The first one of its tenant, whenever the keys were read.
    accepted(&server, &token("acme")).await;
    assert!(invoke(&server, &token("acme"), "").await.is_ok());
    assert!(invoke(&server, "key", "").await.is_ok());
    for credential in [token("acme"), "key".to_owned()] {
        let refused = invoke(&server, &credential, "").await;
        assert_eq!(refused, Err(Code::ResourceExhausted));
    }
    for tenant in ["one", "two"] {
        assert!(invoke(&server, &token(tenant), "").await.is_ok());
        let refused = invoke(&server, &token(tenant), "").await;
        assert_eq!(refused, Err(Code::ResourceExhausted));
    }
}
