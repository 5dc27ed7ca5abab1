//! The console: a page that holds nothing of the server, where it is switched on. What it does in a
//! browser is tested by `tests/console`.

use serde_json::{Value, json};

use crate::support::{
    front::{Front, get, post},
    relight::Relight,
};

const MODELS: &str = "providers: { a: { dialect: scripted } }\ntargets: { a: { provider: a, model: m } }\nroutes: { chat: { \
                      targets: [a] } }\n";

/// What the page is made of, as it names its parts itself.
async fn parts(address: std::net::SocketAddr) -> Vec<(String, String)> {
    let mut known = vec![(String::new(), get(address, "/console/").await.body)];
    let mut next = 0;
    while let Some((_, text)) = known.get(next) {
        let marks = ["src=\"", "href=\"", "from './", "fetch('"];
        let found: Vec<String> = marks
            .iter()
            .flat_map(|mark| text.split(mark).skip(1))
            .filter_map(|rest| Some(rest.split(['"', '\'']).next()?.to_owned()))
            .filter(|name| !name.starts_with('#') && !known.iter().any(|(known, _)| known == name))
            .collect();
        for name in found {
            if !known.iter().any(|(known, _)| *known == name) {
                let part = get(address, &format!("/console/{name}")).await;
                assert_eq!(part.status, 200, "{name}");
                known.push((name, part.body));
            }
        }
        next += 1;
    }
    known
}

#[tokio::test]
async fn there_is_no_console_unless_it_is_switched_on() {
    let relight = Relight::start(MODELS).await;
    for path in [
        "/console",
        "/console/",
        "/console/console.js",
        "/console/schema.json",
    ] {
        assert!(
            get(relight.running.address, path).await.status >= 400,
            "{path}"
        );
    }
    assert_eq!(relight.running.console_url(), None);
}

#[tokio::test]
async fn the_page_may_run_its_own_script_and_call_its_own_server_and_nothing_else() {
    let front = Front::start_with("  console: true\n", MODELS).await;
    let page = get(front.grpc_address, "/console/").await;
    let policy = page.header("content-security-policy").unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    for (name, text) in parts(front.grpc_address).await {
        for trap in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "http://",
            "https://",
            "style=\"",
        ] {
            assert!(!text.contains(trap), "{name} has {trap}");
        }
    }
}

#[tokio::test]
async fn every_part_of_the_page_is_there_and_nothing_beside_it() {
    let front = Front::start_with("  console: true\n", MODELS).await;
    let address = front.grpc_address;
    let found = parts(address).await;
    let kinds = |name: &str| match name.rsplit_once('.').map(|(_, kind)| kind) {
        None => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some(_) => "application/json",
    };
    assert_eq!(
        found.len(),
        11,
        "{:?}",
        found.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    for (name, text) in &found {
        let part = get(address, &format!("/console/{name}")).await;
        assert_eq!(
            (part.status, part.header("content-type")),
            (200, Some(kinds(name))),
            "{name}"
        );
        assert!(!text.is_empty(), "{name}");
    }
    let schema = &found
        .iter()
        .find(|(name, _)| name == "schema.json")
        .unwrap()
        .1;
    let schema: Value = serde_json::from_str(schema).unwrap();
    assert_eq!(
        schema["methods"]["WatchRecovery"]["path"],
        "relight.v1.RecoveryService/WatchRecovery"
    );
    let moved = get(address, "/console").await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (308, Some("/console/"))
    );
    assert_eq!(get(address, "/console/../server.rs").await.status, 404);
    assert_eq!(get(address, "/console/none.js").await.status, 404);
    assert_eq!(post(address, "/console/", &json!({})).await.status, 405);
}

#[tokio::test]
async fn the_page_is_sent_to_everybody_and_what_it_asks_for_only_to_those_with_a_key() {
    let keys = "  console: true\n  keys: [ { tenant: ops, admin: true, sha256: \
                2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b } ]\n";
    let front = Front::start_with(keys, MODELS).await;
    assert_eq!(get(front.grpc_address, "/console/").await.status, 200);
    let called = post(
        front.grpc_address,
        "/relight.v1.AdminService/ListTargets",
        &json!({}),
    )
    .await;
    assert_ne!(called.header("grpc-status"), Some("0"), "{called:?}");
}
