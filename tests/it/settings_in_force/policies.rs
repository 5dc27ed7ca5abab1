//! Changes of policies, each setting by itself, seen in what is planned after a failure and in what
//! calls do.

use std::time::Duration;

use relight::internals::grpc::v1::{
    AttemptCause, ClassifyFailureRequest, FailureClass, FailureSurface, Header, Invocation,
    InvokeWithRecoveryRequest, InvokeWithRecoveryResponse, Overrides, PlannedRecovery,
    RecoveryStrategy, ToolDefinition, invocation::Call, invoke_with_recovery_response::Outcome,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    relight::asking,
    reloaded::{Reloaded, merge},
    upstream::{Reply, chunk},
};

type Played = fn() -> Reply;

/// Far beyond what any of these calls takes, and below what the defaults would wait for.
const SOON: Duration = Duration::from_secs(8);

fn retry(settings: impl Into<Value>) -> Value {
    standard("retry", settings.into())
}

fn injection(settings: impl Into<Value>) -> Value {
    standard("injection", settings.into())
}

fn standard(section: &str, settings: Value) -> Value {
    let mut policy = json!({});
    policy[section] = settings;
    json!({ "policies": { "standard": policy } })
}

/// What would be done after a failure of attempt `attempt` at the only target.
async fn planned(
    server: &Reloaded,
    status: u32,
    attempt: u32,
    retry_after: Option<&str>,
) -> PlannedRecovery {
    let headers = retry_after.map(|value| Header {
        name: "retry-after".to_owned(),
        value: value.to_owned(),
    });
    let failure = ClassifyFailureRequest {
        surface: FailureSurface::Http.into(),
        status: Some(status),
        message: Some("the disk is on fire".to_owned()),
        headers: headers.into_iter().collect(),
        operation: "executor".to_owned(),
        attempt,
        ..ClassifyFailureRequest::default()
    };
    server
        .recovery()
        .classify_failure(failure)
        .await
        .unwrap()
        .into_inner()
        .planned_recovery
        .unwrap()
}

async fn invoke(server: &Reloaded, overrides: Overrides) -> InvokeWithRecoveryResponse {
    let invocation = Invocation {
        overrides: Some(overrides),
        ..asking("hello")
    };
    let request = InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    server
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap()
        .into_inner()
}

fn class_of(response: &InvokeWithRecoveryResponse) -> Option<FailureClass> {
    match response.outcome.as_ref()? {
        Outcome::Failure(failure) => Some(failure.failure_class()),
        Outcome::Completion(_) => None,
    }
}

/// A route of two targets, `main` (model `m-1`), which plays this, and `spare`, which answers.
async fn beside_a_spare(
    settings: Value,
    main: impl Fn() -> Reply + Send + Sync + 'static,
) -> Reloaded {
    let mut config = json!({
        "targets": { "spare": { "provider": "p", "model": "m-2" } },
        "routes": { "default": { "targets": ["main", "spare"] } },
    });
    merge(&mut config, settings);
    let server = Reloaded::start(config).await;
    server.upstream.answering(move |request| {
        if request.body["model"] == "m-1" {
            main()
        } else {
            Reply::text("From the spare.")
        }
    });
    server
}

#[tokio::test]
async fn the_waits_that_are_planned_are_those_of_the_changed_backoffs() {
    let mut server = Reloaded::start(retry(json!({ "max_retries": 5 }))).await;
    let stated = planned(&server, 429, 1, Some("120")).await.wait_ms;
    server.change(retry(json!({ "wait_cap": "1m" }))).await;
    let capped = planned(&server, 429, 1, Some("120")).await.wait_ms;
    assert_eq!((stated, capped), (120_000, 60_000), "wait_cap");
    for (section, status) in [("backoff", 500), ("throttle_backoff", 429)] {
        for (setting, value, attempt, expected) in [
            ("base", json!("700ms"), 2, 1400),
            ("factor", json!(3.0), 2, 2100),
            ("cap", json!("4s"), 3, 4000),
        ] {
            server
                .change(retry(
                    json!({ section: { setting: value }, "uniform_waits": section == "backoff" }),
                ))
                .await;
            let wait_ms = planned(&server, status, attempt, None).await.wait_ms;
            assert_eq!(wait_ms, expected, "{section}.{setting}, uniform_waits");
        }
    }
}

#[tokio::test]
async fn waits_are_spread_by_the_changed_jitter() {
    let mut server = Reloaded::start(json!({})).await;
    server.upstream.otherwise(Reply::text("Well."));
    for (section, status) in [("backoff", 500), ("throttle_backoff", 503)] {
        let exact = json!({ "base": "400ms", "cap": "400ms", "jitter": "none" });
        for (setting, settings, is_spread) in [
            ("jitter", exact.clone(), false),
            (
                "jitter_share",
                json!({ "jitter": "additive", "jitter_share": 1.0 }),
                true,
            ),
            (
                "jitter_share",
                json!({ "jitter": "additive", "jitter_share": 0.0 }),
                false,
            ),
            ("jitter", json!({ "jitter": "full" }), true),
        ] {
            server.change(retry(json!({ section: settings }))).await;
            let mut waits = Vec::new();
            for _ in 0..8 {
                server.upstream.push(Reply::status(status));
                waits.push(server.invoke().await.attempts[1].wait_before_ms);
            }
            let spread = waits.iter().max().unwrap() - waits.iter().min().unwrap();
            assert_eq!(spread > 2, is_spread, "{section}.{setting}: {waits:?}");
        }
    }
}

#[tokio::test]
async fn as_many_attempts_follow_as_each_changed_setting_allows() {
    let quick = json!({ "base": "1ms", "cap": "1ms" });
    let mut server = Reloaded::start(retry(
        json!({ "backoff": quick, "throttle_backoff": quick, "min_attempt_time": "1ms" }),
    ))
    .await;
    let well = async |server: &Reloaded| {
        // An answer in between keeps the circuit closed.
        server.upstream.otherwise(Reply::text("Well."));
        server.invoke().await;
    };
    let crash = async |server: &Reloaded| {
        let failure = ClassifyFailureRequest {
            message: Some("CrashLoopBackOff: back-off restarting failed container".to_owned()),
            ..ClassifyFailureRequest::default()
        };
        let verdict = server
            .recovery()
            .classify_failure(failure)
            .await
            .unwrap()
            .into_inner();
        assert_eq!(verdict.failure_class(), FailureClass::Crash);
        verdict.planned_recovery.unwrap().strategy()
    };
    assert_eq!(crash(&server).await, RecoveryStrategy::None);
    server.change(retry(json!({ "retry_crash": true }))).await;
    assert_eq!(crash(&server).await, RecoveryStrategy::Retry);

    for (setting, value, reply, attempts) in [
        ("max_retries", json!(1), Reply::status(500), 2),
        ("semantic_retries", json!(1), Reply::html(), 2),
        ("enabled", json!(false), Reply::status(500), 1),
    ] {
        well(&server).await;
        server.change(retry(json!({ setting: value }))).await;
        server.upstream.otherwise(reply);
        assert_eq!(server.invoke().await.attempts.len(), attempts, "{setting}");
    }
    server.change(retry(json!({ "enabled": true }))).await;
    // What an unusable answer was billed leaves nothing for a second one.
    for (multiple, attempts) in [(100.0, 2), (1.0, 1)] {
        well(&server).await;
        server
            .change(retry(json!({ "max_token_multiple": multiple })))
            .await;
        server.upstream.otherwise(Reply::text(""));
        assert_eq!(
            server.invoke().await.attempts.len(),
            attempts,
            "max_token_multiple {multiple}"
        );
    }
    for (min_attempt_time, attempts) in [("1ms", 2), ("1m", 1)] {
        well(&server).await;
        server
            .change(retry(
                json!({ "min_attempt_time": min_attempt_time, "max_token_multiple": 100.0 }),
            ))
            .await;
        server.upstream.otherwise(Reply::status(500));
        let overrides = Overrides {
            deadline_ms: Some(20_000),
            ..Overrides::default()
        };
        let made = invoke(&server, overrides).await.attempts.len();
        assert_eq!(made, attempts, "min_attempt_time {min_attempt_time}");
    }
}

#[tokio::test]
async fn another_target_is_called_where_and_when_each_changed_setting_requires() {
    let filtered = || {
        Reply::refusal(
            400,
            &[],
            &json!({ "error": { "code": "content_filter", "message": "filtered" } }),
        )
    };
    let denied = || {
        Reply::refusal(
            403,
            &[],
            &json!({ "error": { "message": "You have no access to this model." } }),
        )
    };
    let cases: [(&str, Played); 2] = [
        ("fallback_on_content_filter", filtered),
        ("fallback_on_permission_denied", denied),
    ];
    for (setting, reply) in cases {
        let mut server = beside_a_spare(json!({}), reply).await;
        assert!(
            class_of(&server.invoke().await).is_some(),
            "{setting}: no other target by default"
        );
        server.change(retry(json!({ setting: true }))).await;
        assert_eq!(server.invoke().await.final_target, "spare", "{setting}");
    }
    let once = json!({ "backoff": { "base": "1s", "jitter": "none" } });
    let server = beside_a_spare(retry(once.clone()), || Reply::status(500)).await;
    assert_eq!(
        server.invoke().await.attempts[1].cause(),
        AttemptCause::Retry,
        "a hiccup is waited for"
    );
    let settings = json!({ "prefer_same_target": "0ms", "fallback_wait_max": "2s" });
    // A wait is drawn at random, and a target that failed is not the first one for a while: each
    // gets a server of its own.
    let mut waits = Vec::new();
    while waits.len() < 20 && !waits.iter().any(|wait| *wait > 100) {
        let mut server = beside_a_spare(retry(once.clone()), || Reply::status(500)).await;
        server.change(retry(settings.clone())).await;
        let attempts = server.invoke().await.attempts;
        assert_eq!(
            attempts[1].cause(),
            AttemptCause::Fallback,
            "prefer_same_target: {attempts:#?}"
        );
        waits.push(attempts[1].wait_before_ms);
    }
    assert!(
        waits.iter().any(|wait| *wait > 100),
        "fallback_wait_max: {waits:?}"
    );
}

#[tokio::test]
async fn an_answer_that_its_limit_cut_is_treated_as_the_changed_setting_requires() {
    let mut server = Reloaded::start(json!({})).await;
    let cut = || {
        Reply::events(&[
            chunk(&json!({ "content": "One two" }), None),
            chunk(&json!({}), Some("length")),
            "[DONE]".to_owned(),
        ])
    };
    for (on_length, attempts) in [("shorten", 2), ("accept", 1)] {
        server
            .change(retry(json!({ "on_length": on_length })))
            .await;
        server.upstream.push(cut());
        assert_eq!(
            server.invoke().await.attempts.len(),
            attempts,
            "{on_length}"
        );
    }
}

#[tokio::test]
async fn calls_wait_for_a_closed_target_as_each_changed_setting_requires() {
    for (setting, value) in [
        ("enabled", json!(false)),
        ("max_parked", json!(0)),
        ("max_wait", json!("100ms")),
    ] {
        let mut server = Reloaded::start(json!({})).await;
        server
            .change(retry(json!({ "park": { setting: value } })))
            .await;
        let slow_down = json!({ "error": { "message": "slow down" } });
        server
            .upstream
            .otherwise(Reply::refusal(429, &[("retry-after", "60")], &slow_down));
        let began = Instant::now();
        for _ in 0..2 {
            let response = invoke(
                &server,
                Overrides {
                    max_retries: Some(0),
                    ..Overrides::default()
                },
            )
            .await;
            assert_eq!(
                class_of(&response),
                Some(FailureClass::RateLimited),
                "{setting}"
            );
        }
        assert!(began.elapsed() < SOON, "{setting}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn the_model_is_informed_as_each_changed_setting_of_the_injection_requires() {
    let mut server = Reloaded::start(injection(json!({ "mode": "always" }))).await;
    let note = async |server: &Reloaded| planned(server, 500, 1, None).await.injected_note;
    let first = note(&server).await;
    server
        .change(injection(json!({ "error": "message" })))
        .await;
    assert_ne!(note(&server).await, first, "error");
    server
        .change(injection(json!({ "template": "It broke: {error} Again." })))
        .await;
    assert!(note(&server).await.starts_with("It broke: "), "template");
    server
        .change(injection(json!({ "short_for": ["executor"] })))
        .await;
    assert!(!note(&server).await.starts_with("It broke: "), "short_for");
    server
        .change(injection(json!({ "short_template": "Short: {error}" })))
        .await;
    assert!(note(&server).await.starts_with("Short: "), "short_template");
    server
        .change(injection(
            json!({ "templates": { "server_error": "The server: {error}" } }),
        ))
        .await;
    assert!(note(&server).await.starts_with("The server: "), "templates");
    server
        .change(injection(
            json!({ "templates": { "server_error": format!("{} {{error}}", "x".repeat(30)) } }),
        ))
        .await;
    server
        .change(injection(json!({ "max_note_chars": 80 })))
        .await;
    assert!(note(&server).await.chars().count() <= 80, "max_note_chars");
    server.change(injection(json!({ "mode": "never" }))).await;
    assert_eq!(note(&server).await, "", "mode");
}

#[tokio::test]
async fn a_note_lists_as_many_failures_as_the_changed_setting_allows() {
    let mut server = Reloaded::start(json!({})).await;
    let mut invocation = asking("hello");
    if let Some(Call::Model(call)) = &mut invocation.call {
        let input_schema_json = json!({ "type": "object" }).to_string();
        call.tools = vec![ToolDefinition {
            name: "look".to_owned(),
            input_schema_json,
            ..ToolDefinition::default()
        }];
    }
    let mut notes = Vec::new();
    for max_failures_listed in [1, 3] {
        server
            .change(injection(
                json!({ "max_failures_listed": max_failures_listed }),
            ))
            .await;
        for _ in 0..2 {
            server.upstream.push(Reply::tool_call("listen", "{}"));
        }
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation.clone()),
        };
        let response = server
            .recovery()
            .invoke_with_recovery(request)
            .await
            .unwrap()
            .into_inner();
        notes.push(response.attempts[2].injected_note.clone());
    }
    assert!(notes[0].len() < notes[1].len(), "{notes:#?}");
}
