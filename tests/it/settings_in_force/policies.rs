//! Changes of policies, each setting by itself, seen in what is planned after a failure and in what
//! calls do.

use std::time::Duration;

use relight::internals::grpc::v1::{
    AttemptCause, ClassifyFailureRequest, FailureClass, FailureSurface, Header, Invocation,
    InvokeWithRecoveryRequest, InvokeWithRecoveryResponse, Overrides, PlannedRecovery,
    RecoveryStrategy, invoke_with_recovery_response::Outcome,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    relight::asking,
    reloaded::{Reloaded, merge},
    upstream::{Reply, chunk},
};

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
    for (status, uniform_waits, base, cap) in [(500, true, 700, 2000), (429, false, 600, 1900)] {
        for (setting, value, attempt, expected) in [
            ("base", json!(format!("{base}ms")), 2, 2 * base),
            ("cap", json!(format!("{cap}ms")), 3, cap),
        ] {
            server
                .change(retry(
                    json!({ "backoff": { setting: value }, "uniform_waits": uniform_waits }),
                ))
                .await;
            let wait_ms = planned(&server, status, attempt, None).await.wait_ms;
            assert_eq!(
                wait_ms, expected,
                "{setting}, uniform_waits: {uniform_waits}"
            );
        }
    }
}

#[tokio::test]
async fn waits_are_spread_by_the_changed_jitter() {
    let mut server = Reloaded::start(json!({})).await;
    server.upstream.otherwise(Reply::text("Well."));
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
        server.change(retry(json!({ "backoff": settings }))).await;
        let mut waits = Vec::new();
        for _ in 0..8 {
            server.upstream.push(Reply::status(500));
            waits.push(server.invoke().await.attempts[1].wait_before_ms);
        }
        let spread = waits.iter().max().unwrap() - waits.iter().min().unwrap();
        assert_eq!(spread > 2, is_spread, "{setting}: {waits:?}");
    }
}

#[tokio::test]
async fn as_many_attempts_follow_as_each_changed_setting_allows() {
    let quick = json!({ "base": "1ms", "cap": "1ms" });
    let mut server = Reloaded::start(retry(json!({ "backoff": quick }))).await;
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

    for (setting, value, replies, attempts) in [
        (
            "max_retries",
            json!(1),
            vec![Reply::status(500), Reply::html()],
            2,
        ),
        ("enabled", json!(false), vec![Reply::status(500)], 1),
    ] {
        server.change(retry(json!({ setting: value }))).await;
        for reply in replies {
            well(&server).await;
            server.upstream.otherwise(reply);
            assert_eq!(server.invoke().await.attempts.len(), attempts, "{setting}");
        }
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
    let mut server = beside_a_spare(json!({}), filtered).await;
    let setting = "fallback_on_content_filter";
    assert!(
        class_of(&server.invoke().await).is_some(),
        "{setting}: no other target by default"
    );
    server.change(retry(json!({ setting: true }))).await;
    assert_eq!(server.invoke().await.final_target, "spare", "{setting}");
    let once = json!({ "backoff": { "base": "1s", "jitter": "none" } });
    let server = beside_a_spare(retry(once.clone()), || Reply::status(500)).await;
    assert_eq!(
        server.invoke().await.attempts[1].cause(),
        AttemptCause::Retry,
        "a hiccup is waited for"
    );
    // A target that failed is not the first one for a while.
    let mut server = beside_a_spare(retry(once), || Reply::status(500)).await;
    server
        .change(retry(json!({ "prefer_same_target": "0ms" })))
        .await;
    let attempts = server.invoke().await.attempts;
    assert_eq!(
        attempts[1].cause(),
        AttemptCause::Fallback,
        "prefer_same_target: {attempts:#?}"
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
    for (setting, value) in [("enabled", json!(false))] {
        let mut server = Reloaded::start(json!({})).await;
        server
            .change(retry(json!({ "park": { setting: value } })))
            .await;
        let slow_down = json!({ "error": { "message": "slow down" } });
        server
            .upstream
            .otherwise(Reply::refusal(429, &[("retry-after", "60")], &slow_down));
        let began = Instant::now();
        // Where calls wait, each of them waits for a probe of its own.
        for _ in 0..20 {
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
    server.change(injection(json!({ "mode": "never" }))).await;
    assert_eq!(note(&server).await, "", "mode");
}
