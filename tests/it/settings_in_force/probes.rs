//! Changes of settings, seen from outside the server: by its callers, its operators and its providers.

use std::time::Duration;

use relight::grpc::v1::{
    CircuitState, ClassifyFailureRequest, FailureClass, GateKind, InvokeWithRecoveryRequest, Overrides,
    invocation::Call, invoke_with_recovery_response::Outcome,
};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use tonic::Code;

use crate::support::{
    front::question,
    relight::asking,
    reloaded::Reloaded,
    upstream::{Reply, chunk},
};

/// Far beyond what any of these calls takes, and far below any default that would be waited for.
const SOON: Duration = Duration::from_secs(8);

fn class_of(outcome: Option<Outcome>) -> Option<FailureClass> {
    match outcome? {
        Outcome::Failure(failure) => Some(failure.failure_class()),
        Outcome::Completion(_) => None,
    }
}

#[tokio::test]
async fn callers_are_identified_as_the_changed_keys_say() {
    let mut server = Reloaded::start(json!({})).await;
    server.invoke().await;
    let sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"; // of `secret`
    server.change(json!({ "server": { "keys": [{ "tenant": "acme", "sha256": sha256 }] } })).await;
    let invoke = async |key: Option<&str>| {
        let mut request = tonic::Request::new(InvokeWithRecoveryRequest { invocation: Some(asking("hello")) });
        if let Some(key) = key {
            request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        server.recovery().invoke_with_recovery(request).await.map_err(|status| status.code()).map(|_| ())
    };
    assert_eq!(invoke(None).await, Err(Code::Unauthenticated));
    assert_eq!(invoke(Some("secret")).await, Ok(()));
}

#[tokio::test]
async fn calls_are_as_large_as_the_changed_limits_say() {
    let mut server = Reloaded::start(json!({})).await;
    let invoke = async |server: &Reloaded| {
        let mut invocation = asking("hello");
        if let Some(Call::Model(call)) = &mut invocation.call {
            call.messages = vec![call.messages[0].clone(); 3];
        }
        let request = InvokeWithRecoveryRequest { invocation: Some(invocation) };
        server.recovery().invoke_with_recovery(request).await.map_err(|status| status.code()).map(|_| ())
    };
    assert_eq!(invoke(&server).await, Ok(()));
    server.change(json!({ "server": { "limits": { "messages": 2 } } })).await;
    assert_eq!(invoke(&server).await, Err(Code::InvalidArgument));
}

#[tokio::test]
async fn the_drain_ends_when_the_changed_timeout_is_over() {
    let mut server = Reloaded::start(json!({ "server": { "drain_timeout": "5m" } })).await;
    server.change(json!({ "server": { "drain_timeout": "100ms" } })).await;
    server.upstream.otherwise(Reply::silence());
    let (mut client, request) = (server.recovery(), InvokeWithRecoveryRequest { invocation: Some(asking("hello")) });
    let mut calls = JoinSet::new();
    calls.spawn(async move { client.invoke_with_recovery(request).await });
    server.upstream.await_request(1).await;
    let began = Instant::now();
    server.running.shutdown().await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_front_sends_comments_as_often_as_the_changed_setting_says() {
    let mut server = Reloaded::start(json!({})).await;
    server.change(json!({ "server": { "openai_front": { "keepalive": "100ms" } } })).await;
    let words = [chunk(&json!({ "content": "Hi" }), None), chunk(&json!({}), Some("stop")), "[DONE]".to_owned()];
    server.upstream.push(Reply::events(&words).in_pieces_of(190).paced(Duration::from_millis(600)));
    let address = server.running.openai_front_address.unwrap();
    let answer = crate::support::front::post(address, "/v1/chat/completions", &question("default", true)).await;
    assert!(answer.body.lines().filter(|line| line.starts_with(':')).count() >= 2, "{}", answer.body);
}

#[tokio::test]
async fn the_provider_is_called_as_its_changed_section_says() {
    let mut server = Reloaded::start(json!({})).await;
    server.change(json!({ "providers": { "p": { "headers": { "x-team": "blue" }, "api_key": "k-2" } } })).await;
    server.invoke().await;
    let request = server.upstream.await_request(1).await;
    assert_eq!((request.header("x-team"), request.header("authorization")), (Some("blue"), Some("Bearer k-2")));
}

#[tokio::test]
async fn the_model_is_the_one_of_the_changed_target() {
    let mut server = Reloaded::start(json!({})).await;
    server.change(json!({ "targets": { "main": { "model": "m-9" } } })).await;
    server.invoke().await;
    assert_eq!(server.upstream.await_request(1).await.body["model"], "m-9");
}

#[tokio::test]
async fn a_call_ends_at_the_changed_deadline_of_its_route() {
    let mut server = Reloaded::start(json!({})).await;
    server.upstream.otherwise(Reply::silence());
    server.change(json!({ "routes": { "default": { "deadline": "500ms" } } })).await;
    let began = Instant::now();
    assert_eq!(class_of(server.invoke().await.outcome), Some(FailureClass::Timeout));
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn calls_without_a_route_go_to_the_changed_default_route() {
    let other = json!({ "other": { "provider": "p", "model": "m-2" } });
    let mut server =
        Reloaded::start(json!({ "targets": other, "routes": { "second": { "targets": ["other"] } } })).await;
    assert_eq!(server.invoke().await.final_target, "main");
    server.change(json!({ "default_route": "second" })).await;
    assert_eq!(server.invoke().await.final_target, "other");
}

#[tokio::test]
async fn an_operation_retries_as_its_changed_section_says() {
    let mut server = Reloaded::start(json!({})).await;
    server.upstream.otherwise(Reply::status(500));
    server.change(json!({ "operations": { "executor": { "max_retries": 0 } } })).await;
    assert_eq!(server.invoke().await.attempts.len(), 1);
}

#[tokio::test]
async fn calls_are_retried_as_the_changed_policy_says() {
    let mut server = Reloaded::start(json!({})).await;
    server.upstream.otherwise(Reply::status(500));
    server.change(json!({ "policies": { "standard": { "retry": { "max_retries": 1 } } } })).await;
    assert_eq!(server.invoke().await.attempts.len(), 2);
}

#[tokio::test]
async fn the_model_is_told_in_the_words_of_the_changed_template() {
    let mut server = Reloaded::start(json!({})).await;
    let changed = json!({ "mode": "always", "template": "It broke: {error}. Again.", "short_for": [] });
    server.change(json!({ "policies": { "standard": { "injection": changed } } })).await;
    server.upstream.push(Reply::status(500));
    let attempts = server.invoke().await.attempts;
    assert!(attempts[1].injected_note.starts_with("It broke: "), "{}", attempts[1].injected_note);
}

#[tokio::test]
async fn the_retry_budget_has_the_changed_capacity() {
    let mut server = Reloaded::start(json!({})).await;
    server.change(json!({ "budget": { "capacity": 321 } })).await;
    let capacity = server.target().await.budget.unwrap().capacity;
    assert!((capacity - 321.0).abs() < 1e-9, "{capacity}");
}

#[tokio::test]
async fn a_silent_attempt_ends_when_the_changed_timer_says() {
    let mut server = Reloaded::start(json!({ "policies": { "standard": { "retry": { "max_retries": 0 } } } })).await;
    server.upstream.otherwise(Reply::silence());
    let timers = json!({ "first_token": "300ms", "first_token_alone": "300ms" });
    server.change(json!({ "timers": timers })).await;
    let began = Instant::now();
    assert_eq!(class_of(server.invoke().await.outcome), Some(FailureClass::Timeout));
    assert!(began.elapsed() < SOON);
}

#[tokio::test]
async fn a_circuit_opens_after_as_many_failures_as_the_changed_setting_says() {
    let mut server = Reloaded::start(json!({ "policies": { "standard": { "retry": { "max_retries": 0 } } } })).await;
    server.upstream.otherwise(Reply::status(500));
    server.change(json!({ "circuit": { "mode": "consecutive", "consecutive_failures": 2 } })).await;
    server.invoke().await;
    assert_eq!(server.target().await.circuit.unwrap().state(), CircuitState::Closed);
    server.invoke().await;
    assert_eq!(server.target().await.circuit.unwrap().state(), CircuitState::Open);
}

#[tokio::test]
async fn a_rate_gate_closes_for_as_long_as_the_changed_setting_says() {
    let mut server = Reloaded::start(json!({ "gates": { "rate_wait": "50ms" } })).await;
    server.change(json!({ "gates": { "rate_wait": "40s" } })).await;
    server.upstream.otherwise(Reply::status(429));
    let mut invocation = asking("hello");
    invocation.overrides = Some(Overrides { max_retries: Some(0), ..Overrides::default() });
    let request = InvokeWithRecoveryRequest { invocation: Some(invocation) };
    server.recovery().invoke_with_recovery(request).await.unwrap();
    let gates = server.target().await.gates;
    let rate = gates.iter().find(|gate| gate.kind() == GateKind::Rate).unwrap();
    assert!(rate.reopens_in_ms() > 20_000, "{rate:?}");
}

#[tokio::test]
async fn a_call_beyond_the_changed_limit_is_shed() {
    let mut server = Reloaded::start(json!({})).await;
    server.change(json!({ "admission": { "max_in_flight": 1 } })).await;
    server.upstream.push(Reply::silence());
    let (mut client, request) = (server.recovery(), InvokeWithRecoveryRequest { invocation: Some(asking("hello")) });
    let mut calls = JoinSet::new();
    calls.spawn(async move { client.invoke_with_recovery(request).await });
    server.upstream.await_request(1).await;
    let request = InvokeWithRecoveryRequest { invocation: Some(asking("hello")) };
    let shed = server.recovery().invoke_with_recovery(request).await.unwrap_err();
    assert_eq!(shed.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_target_has_no_more_slots_than_the_changed_setting_says() {
    let mut server = Reloaded::start(json!({})).await;
    server.invoke().await;
    let slots = json!({ "min": 1, "start": 2, "max": 2 });
    server.change(json!({ "concurrency": slots.clone(), "targets": { "main": { "concurrency": slots } } })).await;
    server.invoke().await;
    assert!(server.target().await.concurrency.unwrap().limit <= 2);
}

#[tokio::test]
async fn failures_are_judged_by_the_changed_rules() {
    let mut server = Reloaded::start(json!({})).await;
    let rule = json!({ "name": "busy", "when": { "message": "bananas" }, "class": "overloaded" });
    server.change(json!({ "classifier": { "rules": [rule] } })).await;
    let failure = ClassifyFailureRequest { message: Some("out of bananas".to_owned()), ..Default::default() };
    let verdict = server.recovery().classify_failure(failure).await.unwrap().into_inner();
    assert_eq!((verdict.failure_class(), verdict.rule.contains("busy")), (FailureClass::Overloaded, true));
}

#[tokio::test]
async fn a_failure_is_worded_as_the_changed_texts_say() {
    let mut server = Reloaded::start(json!({ "policies": { "standard": { "retry": { "max_retries": 0 } } } })).await;
    server.upstream.otherwise(Reply::status(500));
    server.change(json!({ "texts": { "server_error": { "user": "Please come back at noon." } } })).await;
    let Some(Outcome::Failure(failure)) = server.invoke().await.outcome else { panic!("it was answered") };
    assert_eq!(failure.user_message, "Please come back at noon.");
}

#[tokio::test]
async fn the_changed_preset_lies_under_the_file() {
    let mut server = Reloaded::start(json!({})).await;
    server.change(json!({ "preset": "literal", "operations": { "executor": { "max_retries": 0 } } })).await;
    server.upstream.otherwise(Reply::reset());
    let Some(Outcome::Failure(failure)) = server.invoke().await.outcome else { panic!("it was answered") };
    assert!(failure.recovery_hint.starts_with("Network connectivity issue."), "{}", failure.recovery_hint);
}

#[tokio::test]
async fn an_invalid_setting_is_left_out_where_the_changed_file_says_so() {
    let mut server = Reloaded::start(json!({})).await;
    let changed =
        json!({ "on_invalid_setting": "default", "timers": { "idle": "soon" }, "budget": { "capacity": 99 } });
    server.change(changed).await;
    let capacity = server.target().await.budget.unwrap().capacity;
    assert!((capacity - 99.0).abs() < 1e-9, "{capacity}");
}
