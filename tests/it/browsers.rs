//! Web pages may call where their origin is allowed, and only there.

use crate::support::front::Front;

const CONFIG: &str = "providers: { a: { dialect: scripted } }\ntargets: { a: { provider: a, model: m } }\nroutes: { chat: { \
                      targets: [a] } }\n";
const PATHS: [&str; 2] = [
    "/relight.v1.RecoveryService/WatchRecovery",
    "/v1/chat/completions",
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
