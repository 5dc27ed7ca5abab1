//! What tool servers, libraries and settings would say of secrets reaches neither callers nor the
//! log, however a server fails before its first call.

use std::time::Duration;

use relight::internals::grpc::v1::{
    Invocation, InvokeWithRecoveryRequest, ToolCall, invocation::Call,
};
use serde_json::json;
use tokio::time::sleep;

use crate::support::{
    binary::run,
    front::post,
    postgres::Database,
    process::{Process, Serve},
    upstream::{Reply, Upstream},
};

/// None of them looks like a secret, but the last, which is no one's setting.
const SECRETS: [&str; 6] = [
    "tools-of-summer",
    "query-of-autumn",
    "child-of-winter",
    "keys-of-spring",
    "path-of-the-day",
    "sk-proj-A1b2C3d4E5f6G7h8I9j0",
];

/// A remote server that repeats the head of its request, and a child that tells what it was given
/// and what it has fetched.
fn config(upstream: &Upstream) -> String {
    json!({
        "server": {
            "openai_front": { "listen": "127.0.0.1:0" },
            "auth": "none",
        },
        "providers": { "p": { "dialect": "scripted" } },
        "targets": { "t": { "provider": "p", "model": "m" } },
        "routes": { "default": { "targets": ["t"] } },
        "journal": { "store": "memory" },
        "telemetry": { "log": { "level": "trace" } },
        "tools": {
            "mcp_front": { "listen": "127.0.0.1:0" },
            "servers": {
                "remote": {
                    "url": format!("{}/mcp?code=query-of-autumn", upstream.base_url()),
                    "api_key": "tools-of-summer",
                },
                "child": {
                    "command": "/bin/sh",
                    "args": ["-c", "echo \"I hold $SEASON and sk-proj-\"A1b2C3d4E5f6G7h8I9j0 >&2; exit 3"],
                    "env": { "SEASON": "child-of-winter" },
                },
                "plain": {
                    "http": {
                        "base_url": "http://127.0.0.1:9/api",
                        "tools": { "look": { "method": "GET", "path": "/look/{id}?key=path-of-the-day" } },
                    },
                },
            },
        },
    })
    .to_string()
}

/// A server whose callers have tokens, with keys that cannot be fetched.
fn config_of_tokens() -> String {
    json!({
        "server": {
            "jwt": {
                "issuer": "https://login.example", "audience": "relight",
                "jwks_url": "http://127.0.0.1:9/keys?code=keys-of-spring",
            },
            "auth": "jwt",
        },
        "providers": { "p": { "dialect": "scripted" } },
        "targets": { "t": { "provider": "p", "model": "m" } },
        "journal": { "store": "memory" },
        "telemetry": { "log": { "level": "trace" } },
    })
    .to_string()
}

/// Calls tools in every way, and returns what callers were told.
async fn told(process: &Process) -> String {
    let mut told = String::new();
    for name in ["nothing", "remote/nothing", "child/nothing", "look"] {
        let call = ToolCall {
            name: name.to_owned(),
            arguments_json: "{\"id\": \"7\"}".to_owned(),
            ..ToolCall::default()
        };
        let request = InvokeWithRecoveryRequest {
            invocation: Some(Invocation {
                operation: "executor".to_owned(),
                call: Some(Call::Tool(call)),
                ..Invocation::default()
            }),
        };
        let invoked = process.recovery().invoke_with_recovery(request).await;
        told.extend([format!("{invoked:?}\n")]);
        let log = process.log();
        let listening = log.iter().find(|line| line["event"] == "listening");
        let front = listening.unwrap()["mcp_front_address"].as_str().unwrap();
        for (method, params) in [
            ("tools/list", json!({})),
            (
                "tools/call",
                json!({ "name": name, "arguments": { "id": "7" } }),
            ),
        ] {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
            let answer = post(front.parse().unwrap(), "/mcp", &body).await;
            told.extend([format!("{answer:?}\n")]);
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_of_a_tool_server_that_cannot_be_listed_reaches_a_caller_or_the_log() {
    let upstream = Upstream::start().await;
    upstream.answering(|request| {
        let head = format!("{} {:?}", request.path, request.headers);
        let said = format!("bad credential: {head} sk-proj-A1b2C3d4E5f6G7h8I9j0");
        Reply::body(401, &[("content-type", "text/plain")], said.as_bytes())
    });
    let config = config(&upstream);
    let process = Serve::on("127.0.0.1:0", &config).start().await;
    let told = told(&process).await;
    assert!(told.contains("bad credential"), "why is said: {told}");
    let log = process
        .log_until(|log| {
            let text = format!("{log:?}");
            ["I hold", "cannot be used"]
                .iter()
                .all(|words| text.contains(words))
        })
        .await;
    let with_tokens = Process::start(&config_of_tokens()).await;
    with_tokens
        .log_until(|log| format!("{log:?}").contains("signing keys"))
        .await;
    // What comes a little later is looked at as well.
    sleep(Duration::from_millis(500)).await;
    let log = format!("{log:?}{:?}{:?}", process.log(), with_tokens.log());
    let mut shown = String::new();
    for process in [&process, &with_tokens] {
        let file = process.file.display().to_string();
        shown += &run(&["config", "show", &file]).await.out;
    }
    assert!(
        shown.contains("/look/{id}?key=") && shown.contains("/keys?code="),
        "{shown}"
    );
    for secret in SECRETS {
        assert!(!told.contains(secret), "{secret}: {told}");
        assert!(!log.contains(secret), "{secret}: {log}");
        assert!(!shown.contains(secret), "{secret}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_does_not_name_the_value_of_a_parameter_that_the_database_driver_does_not_know() {
    let Some(database) = Database::create().await else {
        return;
    };
    let url = database.url();
    let joined = if url.contains('?') { "&" } else { "?" };
    let config = json!({
        "providers": { "p": { "dialect": "scripted" } },
        "targets": { "t": { "provider": "p", "model": "m" } },
        "journal": { "store": format!("{url}{joined}season=value-of-harvest") },
    });
    let process = Process::start(&config.to_string()).await;
    let log = process
        .log_until(|log| format!("{log:?}").contains("season"))
        .await;
    assert!(!format!("{log:?}").contains("value-of-harvest"), "{log:?}");
    drop(process);
    database.drop().await;
}
