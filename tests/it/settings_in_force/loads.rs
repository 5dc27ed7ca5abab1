//! Changes of budgets, gates, admission, slots and rules of the classifier, each setting by itself,
//! seen from outside.

use std::time::Duration;

use relight::internals::{domain::fold::hash_text, grpc::v1::{ClassifyFailureRequest, ClassifyFailureResponse, FailureClass, FailureSurface, GateKind, Header, Invocation, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse, Overrides, Target}};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::support::{relight::asking, reloaded::{Reloaded, WATCHING_KEY, merge}, upstream::Reply};

type Answer = Result<InvokeWithRecoveryResponse, Status>;

/// Far beyond what any of these calls takes, and below what the defaults would wait for.
const SOON: Duration = Duration::from_secs(8);

/// Retries that follow at once.
fn quick(max_retries: u32) -> Value {
    let backoff = json!({ "base": "1ms", "cap": "1ms" });
    json!({ "policies": { "standard": { "retry": { "max_retries": max_retries, "backoff": backoff } } } })
}

async fn started(settings: Value, retries: u32) -> Reloaded {
    let mut config = quick(retries);
    merge(&mut config, settings);
    Reloaded::start(config).await
}

/// Begins a call, with this key where one is given.
fn begin(server: &Reloaded, calls: &mut JoinSet<Answer>, key: Option<&str>) {
    let mut client = server.recovery();
    let mut request = tonic::Request::new(InvokeWithRecoveryRequest { invocation: Some(asking("hello")) });
    if let Some(key) = key {
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    calls.spawn(async move { client.invoke_with_recovery(request).await.map(tonic::Response::into_inner) });
}

async fn call_once(server: &Reloaded) -> InvokeWithRecoveryResponse {
    let overrides = Some(Overrides { max_retries: Some(0), ..Overrides::default() });
    let invocation = Some(Invocation { overrides, ..asking("hello") });
    server.recovery().invoke_with_recovery(InvokeWithRecoveryRequest { invocation }).await.unwrap().into_inner()
}

async fn level(server: &Reloaded) -> f64 {
    server.target().await.budget.unwrap().level
}

fn reopens_in(target: &Target, kind: GateKind) -> Option<u64> {
    target.gates.iter().find(|gate| gate.kind() == kind).unwrap().reopens_in_ms
}

#[tokio::test]
async fn a_retry_is_paid_for_as_each_changed_setting_of_the_budget_requires() {
    let mut server = started(json!({ "budget": { "capacity": 100 } }), 1).await;
    let fail = async |server: &Reloaded| {
        server.upstream.otherwise(Reply::status(500));
        let attempts = server.invoke().await.attempts.len();
        server.upstream.otherwise(Reply::text("Well."));
        attempts
    };
    fail(&server).await;
    assert!(level(&server).await < 99.0, "a retry that failed has paid");
    server.change(json!({ "budget": { "capacity": 20.0 } })).await;
    assert!(level(&server).await <= 20.0, "capacity: {}", level(&server).await);
    for (enabled, attempts) in [(true, 1), (false, 2)] {
        server.change(json!({ "budget": { "enabled": enabled } })).await;
        while enabled && level(&server).await > 4.0 {
            fail(&server).await;
        }
        assert_eq!(fail(&server).await, attempts, "enabled: {enabled}");
    }
}

#[tokio::test]
async fn a_gate_closes_as_each_changed_setting_requires() {
    let closed = async |settings: Value, reply: Reply, kind: GateKind| {
        let mut server = started(json!({}), 0).await;
        server.change(json!({ "gates": settings })).await;
        server.upstream.otherwise(reply);
        call_once(&server).await;
        reopens_in(&server.target().await, kind)
    };
    let used_up = || {
        let headers = [
            ("content-type", "text/event-stream"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "70s"),
        ];
        Reply::body(200, &headers, &Reply::text("Well.").body_bytes())
    };
    for pace in [true, false] {
        let closed = closed(json!({ "pace": pace }), used_up(), GateKind::Rate).await;
        assert_eq!(closed.is_some(), pace, "pace: {closed:?}");
    }
}

#[tokio::test]
async fn callers_are_admitted_as_each_changed_setting_allows() {
    let keys = json!([
        { "tenant": "a", "sha256": hash_text("key-a") },
        { "tenant": "b", "sha256": hash_text("key-b") },
        { "tenant": "watch", "sha256": hash_text(WATCHING_KEY), "role": "admin" },
    ]);
    // Tenant `a` has two calls in flight and `b` one: whether `a` gets another is the question.
    for (setting, value, is_refused) in [
        ("max_in_flight", json!(50), false),
        ("max_in_flight", json!(3), true),
    ] {
        let mut server = started(json!({}), 0).await;
        let roomy = json!({ "max_in_flight": 40 });
        server.change(json!({ "server": { "keys": keys }, "admission": roomy })).await;
        server.change(json!({ "admission": { setting: value } })).await;
        server.upstream.otherwise(Reply::silence());
        let mut calls = JoinSet::new();
        for (number, key) in ["key-a", "key-a", "key-b"].into_iter().enumerate() {
            begin(&server, &mut calls, Some(key));
            server.upstream.await_request(number + 1).await;
        }
        let mut last = JoinSet::new();
        begin(&server, &mut last, Some("key-a"));
        if is_refused {
            let refused = last.join_next().await.unwrap().unwrap().unwrap_err();
            assert_eq!(refused.code(), Code::ResourceExhausted, "{setting}: {refused:?}");
            let retry_delay = refused.get_details_retry_info().unwrap().retry_delay;
            assert_eq!(retry_delay, Some(Duration::from_secs(1)));
        } else {
            server.upstream.await_request(4).await;
        }
    }
}

#[tokio::test]
async fn a_target_is_sent_as_much_at_once_as_each_changed_setting_allows() {
    for whose in ["all", "main"] {
        let change = |settings: Value| {
            let section = json!({ "concurrency": settings });
            if whose == "all" { section } else { json!({ "targets": { "main": section } }) }
        };
        let limit = async |server: &Reloaded| server.target().await.concurrency.unwrap().limit;
        let mut server = started(json!({}), 0).await;
        for (setting, value, expected) in [("max", json!(40), 40), ("enabled", json!(false), u32::MAX)] {
            server.change(change(json!({ setting: value }))).await;
            assert_eq!(limit(&server).await, expected, "{setting} of {whose}");
        }
    }
}

#[tokio::test]
async fn a_slot_is_waited_for_as_each_changed_setting_allows() {
    for whose in ["all", "main"] {
        {
            let setting = "max_queue_wait";
            let value = json!("50ms");
            let mut server = started(
                json!({
                    "targets": { "spare": { "provider": "p", "model": "m-2", "concurrency": { "max": 9 } } },
                    "routes": { "default": { "targets": ["main", "spare"] } },
                }),
                1,
            )
            .await;
            let settings = json!({ "concurrency": { "max": 1, setting: value } });
            let change = if whose == "all" { settings } else { json!({ "targets": { "main": settings } }) };
            server.change(change).await;
            server.upstream.push(Reply::silence());
            let mut calls = JoinSet::new();
            begin(&server, &mut calls, None);
            server.upstream.await_request(1).await;
            let began = Instant::now();
            assert_eq!(server.invoke().await.final_target, "spare", "{setting} of {whose}");
            assert!(began.elapsed() < SOON, "{setting} of {whose}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test]
async fn failures_are_judged_by_each_changed_part_of_a_rule() {
    let mut server = Reloaded::start(json!({})).await;
    let judged = async |server: &Reloaded| -> ClassifyFailureResponse {
        let header = Header { name: "x-mood".to_owned(), value: "bad".to_owned() };
        let failure = ClassifyFailureRequest {
            surface: FailureSurface::Http.into(),
            provider: "acme".to_owned(),
            status: Some(418),
            headers: vec![header],
            body: Some(json!({ "error": { "code": "e17", "type": "odd", "message": "out of bananas" } }).to_string()),
            ..ClassifyFailureRequest::default()
        };
        server.recovery().classify_failure(failure).await.unwrap().into_inner()
    };
    let rule = |name: &str, when: Value, more: Value| {
        let mut rule = json!({ "name": name, "when": when, "class": "overloaded" });
        merge(&mut rule, more);
        json!({ "classifier": { "rules": [rule] } })
    };
    // Each condition holds, and then one that is alike does not.
    for (condition, holds, fails) in [
        ("provider", json!("acme"), json!("other")),
        ("surface", json!("http"), json!("tool")),
        ("status", json!(418), json!(419)),
        ("code", json!("e17"), json!("e18")),
        ("type", json!("odd"), json!("even")),
        ("header", json!({ "name": "x-mood" }), json!({ "name": "x-food" })),
        ("header", json!({ "name": "x-mood", "value": "^bad$" }), json!({ "name": "x-mood", "value": "^good$" })),
        ("message", json!("bananas"), json!("apples")),
    ] {
        for (value, decides) in [(holds, true), (fails, false)] {
            server.change(rule("busy", json!({ condition: value }), json!({}))).await;
            let verdict = judged(&server).await;
            let decided = verdict.failure_class() == FailureClass::Overloaded && verdict.rule.contains("busy");
            assert_eq!(decided, decides, "{condition}: {verdict:?}");
        }
    }
    let always = || json!({ "status": 418 });
    server.change(rule("calm", always(), json!({ "class": "timeout" }))).await;
    let verdict = judged(&server).await;
    assert_eq!((verdict.failure_class(), verdict.rule.contains("calm")), (FailureClass::Timeout, true), "name, class");
    for said in [true, false] {
        server.change(rule("busy", always(), json!({ "retryable": said, "fallback_helps": said }))).await;
        let verdict = judged(&server).await;
        assert_eq!((verdict.retryable, verdict.fallback_helps), (said, said), "retryable, fallback_helps");
    }
    server.change(rule("busy", always(), json!({ "retry_after": "33s" }))).await;
    assert_eq!(judged(&server).await.retry_after_ms, Some(33_000), "retry_after");
}
