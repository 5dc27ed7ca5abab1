//! Changes of routes and their operations, each setting by itself, seen by callers and providers.

use std::{collections::BTreeSet, time::Duration};

use relight::internals::grpc::v1::{
    AttemptCause, FailureClass, Invocation, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse,
    Overrides, Resumable, invocation::Call, invoke_with_recovery_response::Outcome,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tonic::Code;

use crate::support::{
    relight::asking,
    reloaded::{Reloaded, merge},
    upstream::Reply,
};

/// Far beyond what any of these calls takes, and below any default wait.
const SOON: Duration = Duration::from_secs(8);

/// A server whose route has two targets, `main` (model `m-1`) and `spare` (model `m-2`), and these
/// settings.
async fn two_targets(settings: Value) -> Reloaded {
    let mut config = json!({
        "targets": { "spare": { "provider": "p", "model": "m-2" } },
        "routes": { "default": { "targets": ["main", "spare"] } },
        "policies": { "standard": { "retry": { "backoff": { "base": "1ms", "cap": "2ms" } } }, "once": { "retry": { "max_retries": 0 } } },
    });
    merge(&mut config, settings);
    Reloaded::start(config).await
}

/// `main` plays this, and `spare` answers.
fn main_plays(server: &Reloaded, reply: impl Fn() -> Reply + Send + Sync + 'static) {
    server.upstream.answering(move |request| {
        if request.body["model"] == "m-1" {
            reply()
        } else {
            Reply::text("From the spare.")
        }
    });
}

/// These settings at a path such as `routes.default.hedge`.
fn under(path: &str, settings: Value) -> Value {
    path.rsplit('.')
        .fold(settings, |value, name| json!({ name: value }))
}

fn request(overrides: Overrides) -> InvokeWithRecoveryRequest {
    let invocation = Invocation {
        overrides: Some(overrides),
        ..asking("hello")
    };
    InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    }
}

async fn invoke(
    server: &Reloaded,
    overrides: Overrides,
) -> Result<InvokeWithRecoveryResponse, Code> {
    let response = server
        .recovery()
        .invoke_with_recovery(request(overrides))
        .await;
    response
        .map(tonic::Response::into_inner)
        .map_err(|status| status.code())
}

fn class_of(response: &InvokeWithRecoveryResponse) -> Option<FailureClass> {
    match response.outcome.as_ref()? {
        Outcome::Failure(failure) => Some(failure.failure_class()),
        Outcome::Completion(_) => None,
    }
}

#[tokio::test]
async fn a_call_goes_to_the_changed_targets_of_its_route_by_their_changed_policy() {
    let mut server = two_targets(json!({})).await;
    server
        .change(json!({ "routes": { "default": { "targets": ["spare"] } } }))
        .await;
    assert_eq!(server.invoke().await.final_target, "spare");
    server.upstream.otherwise(Reply::status(500));
    server
        .change(json!({ "routes": { "default": { "policy": "once" } } }))
        .await;
    assert_eq!(server.invoke().await.attempts.len(), 1);
}

#[tokio::test]
async fn a_call_ends_at_the_changed_deadline_of_its_route() {
    let mut server = two_targets(json!({})).await;
    server.upstream.otherwise(Reply::silence());
    for (settings, deadline_ms) in [
        (json!({ "deadline": "500ms" }), None),
        (
            json!({ "deadline": "400ms", "max_deadline": "500ms" }),
            Some(60_000),
        ),
    ] {
        server
            .change(json!({ "routes": { "default": settings } }))
            .await;
        let began = Instant::now();
        let response = invoke(
            &server,
            Overrides {
                deadline_ms,
                ..Overrides::default()
            },
        )
        .await
        .unwrap();
        assert_eq!(class_of(&response), Some(FailureClass::Timeout));
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn an_operation_is_recovered_as_each_of_its_changed_settings_requires() {
    let told = json!({ "mode": "always", "short_for": [] });
    let mut server = two_targets(json!({
        "routes": { "default": { "targets": ["main"] } },
        "policies": { "standard": { "injection": told } },
    }))
    .await;
    for section in ["operations", "routes.default.operations"] {
        for (setting, value, attempts) in [
            ("enabled", json!(false), 1),
            ("policy", json!("once"), 1),
            ("max_retries", json!(1), 2),
        ] {
            // An answer in between keeps the circuit closed.
            server.upstream.otherwise(Reply::text("Well."));
            server.invoke().await;
            server.upstream.otherwise(Reply::status(500));
            server
                .change(under(section, json!({ "executor": { setting: value } })))
                .await;
            assert_eq!(
                server.invoke().await.attempts.len(),
                attempts,
                "{section}: {setting}"
            );
            server
                .change(under(section, json!({ "executor": null })))
                .await;
        }
        server.upstream.otherwise(Reply::text("Well."));
        for (injection, is_told) in [("never", false), ("always", true)] {
            server
                .change(under(
                    section,
                    json!({ "executor": { "injection": injection } }),
                ))
                .await;
            server.upstream.push(Reply::status(500));
            let note = server.invoke().await.attempts[1].injected_note.clone();
            assert_eq!(
                !note.is_empty(),
                is_told,
                "{section}: injection {injection}: {note}"
            );
        }
        server
            .change(under(section, json!({ "executor": null })))
            .await;
    }
}

#[tokio::test]
async fn targets_are_chosen_in_the_changed_order() {
    let mut server = two_targets(json!({})).await;
    server
        .change(json!({ "routes": { "default": { "select": { "order": "shuffled" } } } }))
        .await;
    let mut chosen = BTreeSet::new();
    for _ in 0..30 {
        chosen.insert(server.invoke().await.final_target);
    }
    assert_eq!(chosen.len(), 2, "{chosen:?}");
    for (select, only) in [
        (
            json!({ "order": "weighted", "weights": { "main": 0 } }),
            Some("spare"),
        ),
        (
            json!({ "order": "shuffled", "weights": null, "affinity": { "by": "any", "keep": "1m" } }),
            None,
        ),
    ] {
        let select = under("routes.default.select", select);
        server.change(select).await;
        let first = server.invoke().await.final_target;
        for _ in 0..20 {
            assert_eq!(server.invoke().await.final_target, first);
        }
        assert!(only.is_none_or(|only| only == first), "{first}");
    }
}

#[tokio::test]
async fn a_second_attempt_starts_beside_a_slow_one_as_each_changed_setting_of_the_hedge_requires() {
    let hedge = json!({ "enabled": true, "min_delay": "50ms", "max_share": 1.0 });
    for (setting, other) in [
        ("enabled", json!(false)),
        ("min_delay", json!("10m")),
        ("max_share", json!(0.0)),
        ("nothing", Value::Null),
    ] {
        let mut server = two_targets(json!({
            "timers": { "soft_first_token": "0ms", "first_token": "2s" },
            "routes": { "default": { "hedge": hedge } },
        }))
        .await;
        for _ in 0..100 {
            server.invoke().await;
        }
        if !other.is_null() {
            server
                .change(json!({ "routes": { "default": { "hedge": { setting: other } } } }))
                .await;
        }
        main_plays(&server, Reply::silence);
        let response = server.invoke().await;
        let hedged = response
            .attempts
            .iter()
            .any(|attempt| attempt.cause() == AttemptCause::Hedge);
        assert_eq!(
            (hedged, response.final_target.as_str()),
            (other.is_null(), "spare"),
            "{setting} = {other}"
        );
    }
}

#[tokio::test]
async fn an_attempt_is_abandoned_as_each_changed_timer_requires() {
    let (both, alone) = (json!(["main", "spare"]), json!(["main"]));
    // The first bytes of an answer, and then nothing, or too little.
    let stalled = || Reply::text("One two three four.").stall_after(400);
    let dripping = || {
        Reply::text(&"word ".repeat(200))
            .in_pieces_of(190)
            .paced(Duration::from_millis(300))
    };
    for section in ["timers", "routes.default.timers"] {
        type Played = Box<dyn Fn() -> Reply + Send + Sync>;
        let cases: [(&str, Value, &Value, Played, AttemptCause); 5] = [
            (
                "first_token",
                json!({ "first_token": "300ms", "soft_first_token": "0ms" }),
                &both,
                Box::new(Reply::silence),
                AttemptCause::Fallback,
            ),
            (
                "first_token_alone",
                json!({ "first_token": "200ms", "first_token_alone": "300ms", "soft_first_token": "0ms" }),
                &alone,
                Box::new(Reply::silence),
                AttemptCause::Retry,
            ),
            (
                "soft_first_token",
                json!({ "soft_first_token": "200ms" }),
                &both,
                Box::new(Reply::silence),
                AttemptCause::Hedge,
            ),
            (
                "idle",
                json!({ "idle": "300ms" }),
                &both,
                Box::new(stalled),
                AttemptCause::Fallback,
            ),
            (
                "min_bytes_per_second",
                json!({ "min_bytes_per_second": 100_000 }),
                &both,
                Box::new(dripping),
                AttemptCause::Fallback,
            ),
        ];
        for (timer, settings, targets, reply, cause) in cases {
            let mut server =
                two_targets(json!({ "routes": { "default": { "targets": targets } } })).await;
            main_plays(&server, reply);
            server.change(under(section, settings)).await;
            let began = Instant::now();
            let response = invoke(
                &server,
                Overrides {
                    max_retries: Some(1),
                    ..Overrides::default()
                },
            )
            .await
            .unwrap();
            assert_eq!(
                response.attempts[1].cause(),
                cause,
                "{section}.{timer}: {response:#?}"
            );
            assert!(
                began.elapsed() < SOON,
                "{section}.{timer}: {:?}",
                began.elapsed()
            );
        }
    }
}

#[tokio::test]
async fn callers_may_override_what_each_changed_permission_allows() {
    let mut server = two_targets(json!({})).await;
    let grace = |ms| Some(Resumable { grace_ms: Some(ms) });
    for (permission, denied, overrides) in [
        (
            "max_retries",
            json!(1),
            Overrides {
                max_retries: Some(2),
                ..Overrides::default()
            },
        ),
        (
            "targets",
            json!(false),
            Overrides {
                allowed_targets: vec!["spare".to_owned()],
                ..Overrides::default()
            },
        ),
        (
            "policy",
            json!(false),
            Overrides {
                preset: "once".to_owned(),
                ..Overrides::default()
            },
        ),
        (
            "max_resumable_grace",
            json!("1s"),
            Overrides {
                resumable: grace(2000),
                ..Overrides::default()
            },
        ),
    ] {
        assert!(
            invoke(&server, overrides.clone()).await.is_ok(),
            "{permission}: it is allowed by default"
        );
        server
            .change(
                json!({ "routes": { "default": { "allow_overrides": { permission: denied } } } }),
            )
            .await;
        assert_eq!(
            invoke(&server, overrides).await.unwrap_err(),
            Code::InvalidArgument,
            "{permission}"
        );
    }
}

#[tokio::test]
async fn a_long_conversation_is_shortened_as_the_changed_overflow_of_its_route_allows() {
    let window = json!({ "capabilities": { "context_window_tokens": 4_000 } });
    let mut server = Reloaded::start(json!({ "targets": { "main": window } })).await;
    let mut invocation = asking("hello");
    let long = asking(&"words ".repeat(4_000));
    if let (Some(Call::Model(model)), Some(Call::Model(long))) = (&mut invocation.call, long.call) {
        let question = model.messages[0].clone();
        for _ in 0..3 {
            model.messages.extend(long.messages.iter().cloned());
        }
        model.messages.push(question);
    }
    for overflow in ["fail", "drop_middle"] {
        let route = json!({ "routes": { "default": { "overflow": overflow } } });
        if overflow != "fail" {
            server.change(route).await;
        }
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation.clone()),
        };
        let answered = server.recovery().invoke_with_recovery(request).await;
        let outcome = answered.unwrap().into_inner().outcome;
        let is_answered = matches!(outcome, Some(Outcome::Completion(_)));
        assert_eq!(is_answered, overflow != "fail", "{outcome:?}");
    }
}
