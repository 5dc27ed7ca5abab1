//! Web pages may call where their origin is allowed, and only there.

use crate::support::{
    front::Front,
    http::post,
    process::{KEY, key},
};

const CONFIG: &str = "providers: { a: { dialect: scripted } }\ntargets: { a: { provider: a, model: m } }\nroutes: { chat: { \
                      targets: [a] } }\n";
const PATHS: [&str; 2] = [
    "/relight.v1.RecoveryService/WatchRecovery",
    "/v1/chat/completions",
];

/// What a page could do harm with, or learn from.
const GRPC: [&str; 4] = [
    "/relight.v1.AdminService/ForceCircuit",
    "/relight.v1.AdminService/GetStatus",
    "/relight.v1.RecoveryService/InvokeWithRecovery",
    "/grpc.health.v1.Health/Check",
];

#[tokio::test]
async fn a_preflight_is_answered_for_the_pages_that_may_call_and_for_no_others() {
    let server = "  cors: { allow_origins: [\"https://dashboard.example\"] }";
    let front = Front::start_with(server, CONFIG).await;
    for path in PATHS {
        let allowed = front.preflight(path, "https://dashboard.example").await;
        assert_eq!(allowed.status, 200, "{path}: {allowed:?}");
        assert_eq!(
            allowed.header("access-control-allow-origin"),
            Some("https://dashboard.example")
        );
        assert_eq!(
            allowed.header("access-control-allow-headers"),
            Some("content-type,x-grpc-web")
        );
        let other = front.preflight(path, "https://elsewhere.example").await;
        assert_eq!(
            other.header("access-control-allow-origin"),
            None,
            "{path}: {other:?}"
        );
    }
}

#[tokio::test]
async fn no_page_may_call_where_no_origin_is_allowed() {
    let front = Front::start(CONFIG).await;
    for path in PATHS {
        let answer = front.preflight(path, "https://dashboard.example").await;
        assert_eq!(
            answer.header("access-control-allow-origin"),
            None,
            "{path}: {answer:?}"
        );
    }
    let refused = front
        .preflight("/v1/chat/completions", "https://dashboard.example")
        .await;
    assert_eq!(refused.status, 403, "{refused:?}");
}

/// Calls by gRPC-Web with these headers; returns the status of gRPC where the head has one, which
/// that of a refusal does.
async fn called(front: &Front, path: &str, headers: &[(&str, &str)]) -> Option<String> {
    let mut all = vec![
        ("content-type", "application/grpc-web+proto"),
        ("x-grpc-web", "1"),
    ];
    all.extend_from_slice(headers);
    let address = front.grpc_address.to_string();
    let (status, refused) = post(&address, path, &all, false, vec![0; 5]).await.unwrap();
    assert_eq!(status, 200, "{path} {headers:?}");
    refused
}

#[tokio::test]
async fn a_page_whose_name_leads_to_this_host_reaches_nothing_of_the_grpc_port() {
    let front = Front::start(CONFIG).await;
    let port = front.grpc_address.port();
    let name = format!("evil.example:{port}");
    let rebound = format!("http://{name}");
    for path in GRPC {
        for origin in [
            rebound.as_str(),
            "https://evil.example",
            "null",
            "http://127.0.0.1:3000",
        ] {
            let refused = called(&front, path, &[("host", &name), ("origin", origin)]).await;
            assert_eq!(refused.as_deref(), Some("7"), "{path} {origin}");
        }
        for host in ["127.0.0.1", "localhost", "[::1]"] {
            let own = format!("{host}:{port}");
            let origin = format!("http://{own}");
            let taken = called(&front, path, &[("host", &own), ("origin", &origin)]).await;
            assert_ne!(taken.as_deref(), Some("7"), "{path}: the console's page");
        }
        // Programs that are no browsers name no origin, and may reach it by any name.
        let taken = called(&front, path, &[("host", &name)]).await;
        assert_ne!(taken.as_deref(), Some("7"), "{path}");
    }
}

#[tokio::test]
async fn where_callers_need_a_key_a_page_of_the_server_s_own_name_may_call_with_one() {
    let settings = format!("  keys: [{}]\n", key("acme", KEY, ", admin: true"));
    let front = Front::start_with(&settings, CONFIG).await;
    let bearer = format!("Bearer {KEY}");
    let own = [
        ("host", "relight.example"),
        ("origin", "https://relight.example"),
    ];
    let with_key = [own[0], own[1], ("authorization", bearer.as_str())];
    let path = "/relight.v1.AdminService/GetStatus";
    assert_eq!(called(&front, path, &with_key).await, None);
    assert_eq!(called(&front, path, &own).await.as_deref(), Some("16"));
    let other = [own[0], ("origin", "https://evil.example"), with_key[2]];
    assert_eq!(called(&front, path, &other).await.as_deref(), Some("7"));
}
