//! Changes of settings, seen from outside the server: by its callers and its operators.

use std::time::Duration;

use relight::internals::{
    domain::fold::hash_text,
    grpc::v1::{
        CircuitState, FailureClass, InvokeWithRecoveryRequest, ListTargetsRequest,
        invoke_with_recovery_response::Outcome,
    },
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use tonic::Code;

use crate::support::{
    front::question,
    relight::asking,
    reloaded::{Reloaded, WATCHING_KEY},
    upstream::{Reply, chunk},
};

/// Far beyond what any of these calls takes, and far below any default wait.
pub(super) const SOON: Duration = Duration::from_secs(8);

pub(super) fn class_of(outcome: Option<Outcome>) -> Option<FailureClass> {
    match outcome? {
        Outcome::Failure(failure) => Some(failure.failure_class()),
        Outcome::Completion(_) => None,
    }
}

#[tokio::test]
async fn callers_are_identified_by_the_changed_keys() {
    let mut server = Reloaded::start(json!({})).await;
    server.invoke().await;
    let sha256 = hash_text("guest");
    let watching = json!({ "tenant": "watch", "sha256": hash_text(WATCHING_KEY), "role": "admin" });
    server
        .change(json!({ "server": { "keys": [{ "tenant": "acme", "sha256": sha256 }, watching] } }))
        .await;
    let invoke = async |server: &Reloaded, key: Option<&str>| {
        let mut request = tonic::Request::new(InvokeWithRecoveryRequest {
            invocation: Some(asking("hello")),
        });
        if let Some(key) = key {
            request
                .metadata_mut()
                .insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        server
            .recovery()
            .invoke_with_recovery(request)
            .await
            .map_err(|status| status.code())
            .map(|_| ())
    };
    assert_eq!(invoke(&server, None).await, Err(Code::Unauthenticated));
    assert_eq!(invoke(&server, Some("guest")).await, Ok(()));
    let administers = async |server: &Reloaded| {
        let mut request = tonic::Request::new(ListTargetsRequest::default());
        request
            .metadata_mut()
            .insert("authorization", "Bearer guest".parse().unwrap());
        server.admin().list_targets(request).await.is_ok()
    };
    for (role, expires, may) in [
        ("admin", "2099-01-01T00:00:00Z", true),
        ("admin", "2020-01-01T00:00:00Z", false),
    ] {
        let keys = json!([{ "tenant": "acme", "sha256": sha256, "role": role, "expires": expires }, watching]);
        server.change(json!({ "server": { "keys": keys } })).await;
        assert_eq!(administers(&server).await, may, "{role} until {expires}");
    }
    for admin in [true, false] {
        let keys = json!([{ "tenant": "acme", "sha256": sha256, "admin": admin }, watching]);
        server.change(json!({ "server": { "keys": keys } })).await;
        assert_eq!(administers(&server).await, admin, "admin");
    }
    let second = json!({ "second": { "targets": ["main"] } });
    let keys = json!([{ "tenant": "acme", "sha256": sha256, "routes": ["second"] }, watching]);
    server
        .change(json!({ "routes": second, "server": { "keys": keys } }))
        .await;
    assert_eq!(
        invoke(&server, Some("guest")).await,
        Err(Code::PermissionDenied),
        "routes"
    );
}

#[tokio::test]
async fn the_drain_ends_when_the_changed_timeout_is_over() {
    let mut server = Reloaded::start(json!({ "server": { "drain_timeout": "5m" } })).await;
    server
        .change(json!({ "server": { "drain_timeout": "100ms" } }))
        .await;
    server.upstream.otherwise(Reply::silence());
    let (mut client, request) = (
        server.recovery(),
        InvokeWithRecoveryRequest {
            invocation: Some(asking("hello")),
        },
    );
    let mut calls = JoinSet::new();
    calls.spawn(async move { client.invoke_with_recovery(request).await });
    server.upstream.await_request(1).await;
    let began = Instant::now();
    server.running.shutdown().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_front_sends_comments_as_often_as_the_changed_setting_requires() {
    let mut server = Reloaded::start(json!({})).await;
    server
        .change(json!({ "server": { "openai_front": { "keepalive": "100ms" } } }))
        .await;
    let words = [
        chunk(&json!({ "content": "Hi" }), None),
        chunk(&json!({}), Some("stop")),
        "[DONE]".to_owned(),
    ];
    server.upstream.push(
        Reply::events(&words)
            .in_pieces_of(190)
            .paced(Duration::from_millis(600)),
    );
    let address = server.running.openai_front_address.unwrap();
    let answer =
        crate::support::front::post(address, "/v1/chat/completions", &question("default", true))
            .await;
    assert!(
        answer
            .body
            .lines()
            .filter(|line| line.starts_with(':'))
            .count()
            >= 2,
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn calls_without_a_route_go_to_the_changed_default_route() {
    let other = json!({ "other": { "provider": "p", "model": "m-2" } });
    let mut server = Reloaded::start(
        json!({ "targets": other, "routes": { "second": { "targets": ["other"] } } }),
    )
    .await;
    assert_eq!(server.invoke().await.final_target, "main");
    server.change(json!({ "default_route": "second" })).await;
    assert_eq!(server.invoke().await.final_target, "other");
}

#[tokio::test]
async fn a_circuit_opens_after_as_many_failures_as_the_changed_setting_allows() {
    let mut server =
        Reloaded::start(json!({ "policies": { "standard": { "retry": { "max_retries": 0 } } } }))
            .await;
    server.upstream.otherwise(Reply::status(500));
    server
        .change(json!({ "circuit": { "mode": "consecutive", "consecutive_failures": 2 } }))
        .await;
    server.invoke().await;
    assert_eq!(
        server.target().await.circuit.unwrap().state(),
        CircuitState::Closed
    );
    server.invoke().await;
    assert_eq!(
        server.target().await.circuit.unwrap().state(),
        CircuitState::Open
    );
}

#[tokio::test]
async fn a_failure_has_the_changed_texts() {
    let mut server =
        Reloaded::start(json!({ "policies": { "standard": { "retry": { "max_retries": 0 } } } }))
            .await;
    server.upstream.otherwise(Reply::status(500));
    server
        .change(json!({ "texts": { "server_error": { "user": "Please come back at noon." } } }))
        .await;
    let Some(Outcome::Failure(failure)) = server.invoke().await.outcome else {
        panic!("it was answered")
    };
    assert_eq!(failure.user_message, "Please come back at noon.");
}

#[tokio::test]
async fn the_changed_preset_lies_under_the_file() {
    let mut server = Reloaded::start(json!({})).await;
    server
        .change(json!({ "preset": "literal", "operations": { "executor": { "max_retries": 0 } } }))
        .await;
    server.upstream.otherwise(Reply::reset());
    let Some(Outcome::Failure(failure)) = server.invoke().await.outcome else {
        panic!("it was answered")
    };
    assert!(
        failure
            .recovery_hint
            .starts_with("Network connectivity issue."),
        "{}",
        failure.recovery_hint
    );
}

#[tokio::test]
async fn an_invalid_setting_is_ignored_where_the_changed_file_allows_it() {
    let mut server = Reloaded::start(json!({})).await;
    let changed = json!({ "on_invalid_setting": "default", "timers": { "idle": "soon" }, "budget": { "capacity": 99 } });
    server.change(changed).await;
    let capacity = server.target().await.budget.unwrap().capacity;
    assert!((capacity - 99.0).abs() < 1e-9, "{capacity}");
}

#[tokio::test]
async fn the_front_holds_back_what_the_changed_setting_requires() {
    let mut server = Reloaded::start(json!({})).await;
    server
        .change(json!({ "server": { "openai_front": { "hold_back": "whole" } } }))
        .await;
    server
        .upstream
        .push(Reply::text("One two three four five six.").cut_in_the_middle());
    server
        .upstream
        .push(Reply::text("Something else entirely."));
    let address = server.running.openai_front_address.unwrap();
    let answer =
        crate::support::front::post(address, "/v1/chat/completions", &question("default", true))
            .await;
    assert!(
        answer.succeeded_with("Something else entirely."),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_front_ends_a_stream_that_diverges_as_the_changed_setting_requires() {
    // Two models, of which the first supports prefill.
    let mut server = Reloaded::start(json!({
        "targets": { "main": { "capabilities": { "assistant_prefill": true, "prefill_mark": "prefix" } } },
        "policies": { "standard": { "retry": { "backoff": { "base": "1ms", "cap": "2ms" } } } },
    }))
    .await;
    server
        .change(json!({ "server": { "openai_front": { "on_divergence": "error" } } }))
        .await;
    server
        .upstream
        .push(Reply::text("One two three four five six.").cut_in_the_middle());
    server
        .upstream
        .otherwise(Reply::text("Something else entirely."));
    let address = server.running.openai_front_address.unwrap();
    let answer =
        crate::support::front::post(address, "/v1/chat/completions", &question("default", true))
            .await;
    assert_eq!(answer.error()["code"], "stream_interrupted", "{answer:?}");
    let continued = server
        .upstream
        .requests()
        .iter()
        .any(|request| request.body["messages"].to_string().contains("One"));
    assert!(!continued, "no model is given the begun answer");
}
