//! Tests of `metrics`: its promises, each as one test.

use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::domain::{
    circuit::GateKind,
    completion::Usage,
    event::{EventBody, EventScope},
    failure::{FailureClass, Wait, WaitSource},
    ids::TargetId,
    invocation::{AttemptCause, RecoveryStrategy},
    target::{Capabilities, Dialect, Target},
};

fn target(id: &str, family: &str) -> Target {
    Target {
        id: id.into(),
        provider: family.into(),
        family: family.into(),
        dialect: Dialect::OpenaiChat,
        model: format!("{family}-model").into(),
        credential: "key".into(),
        endpoint: "https://api.example.com".into(),
        capabilities: Capabilities::default(),
        system_prompt: None,
    }
}

fn names() -> TargetNames {
    TargetNames::of(&[target("main", "anthropic"), target("spare", "openai")])
}

fn scope(operation: &str) -> Arc<EventScope> {
    Arc::new(EventScope {
        invocation: "inv-1".into(),
        thread: None,
        request_id: None,
        tenant: "acme".into(),
        route: "default".into(),
        operation: operation.into(),
        labels: BTreeMap::new(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
    })
}

const fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage {
        input_tokens,
        output_tokens,
        cached_input_tokens: None,
        cache_write_tokens: None,
        reasoning_tokens: None,
        exactness: crate::domain::completion::Exactness::Exact,
    }
}

fn started(cause: AttemptCause, model: &str) -> EventBody {
    EventBody::AttemptStarted {
        cause,
        model: model.to_owned(),
        wait: None,
    }
}

/// An invocation that is cut on `main`, falls back, and is answered by `spare`.
fn recover(bus: &EventBus) {
    let class = FailureClass::StreamInterrupted;
    let main = || Some(TargetId::from("main"));
    let spare = || Some(TargetId::from("spare"));
    let publish =
        |attempt, target, body| bus.publish(Some(scope("executor")), attempt, target, body);
    publish(
        0,
        None,
        EventBody::InvocationStarted {
            deadline_ms: 60_000,
            max_retries: 2,
        },
    );
    publish(1, main(), started(AttemptCause::Initial, "anthropic-model"));
    publish(1, main(), EventBody::FirstToken { after_ms: 700 });
    publish(
        1,
        main(),
        EventBody::AttemptFailed {
            signature: String::new(),
            class,
            detail: None,
            message: "cut".to_owned(),
            recovery_hint: String::new(),
            retryable: true,
            retry_after: None,
            status: Some(200),
            duration_ms: 1500,
            sent: true,
            usage: usage(400, 50),
        },
    );
    publish(
        1,
        main(),
        EventBody::RecoveryAttempted {
            error: "cut".to_owned(),
            class,
            recovery_hint: String::new(),
            retry: 1,
            max_retries: 2,
            strategy: RecoveryStrategy::Fallback,
            wait: Wait {
                duration: Duration::from_millis(300),
                source: WaitSource::Backoff,
            },
            adaptation: None,
            going_on: None,
        },
    );
    publish(
        2,
        spare(),
        EventBody::FallbackChosen {
            from: "main".into(),
            class,
        },
    );
    publish(
        2,
        spare(),
        started(AttemptCause::Fallback(class), "openai-model"),
    );
    publish(
        2,
        spare(),
        EventBody::AttemptSucceeded {
            duration_ms: 2000,
            usage: usage(412, 96),
            is_flawed: false,
        },
    );
    publish(
        0,
        spare(),
        EventBody::InvocationRecovered {
            duration_ms: 3800,
            attempts: 2,
            strategies: vec![RecoveryStrategy::Fallback],
            usage: usage(812, 146),
            first_failure: Some(class),
        },
    );
}

async fn rendered(bus: &EventBus, happen: impl FnOnce(&EventBus, &Metrics)) -> String {
    let (metrics, task) = Metrics::start(bus, &TelemetrySettings::default(), names()).unwrap();
    happen(bus, &metrics);
    assert!(task.reader.finish(Duration::from_secs(5)).await);
    metrics.render()
}

#[track_caller]
fn assert_series(text: &str, series: &str) {
    assert!(
        text.lines().any(|line| line == series),
        "no `{series}` in\n{text}"
    );
}

#[tokio::test]
async fn a_recovered_invocation_is_counted_with_its_attempts_and_its_strategy() {
    let text = rendered(&EventBus::new(64), |bus, _| recover(bus)).await;
    for series in [
        r#"relight_invocations_total{class="",operation="executor",outcome="recovered",route="default"} 1"#,
        r#"relight_tenant_invocations_total{outcome="recovered",tenant="acme"} 1"#,
        r#"relight_invocation_attempts_sum{operation="executor",outcome="recovered",route="default"} 2"#,
        r#"relight_invocation_duration_seconds_sum{operation="executor",outcome="recovered",route="default"} 3.8"#,
        r#"relight_attempts_total{cause="initial",class="stream_interrupted",model="anthropic-model",outcome="failed",provider="anthropic",target="main"} 1"#,
        r#"relight_attempts_total{cause="fallback",class="",model="openai-model",outcome="answered",provider="openai",target="spare"} 1"#,
        r#"relight_recoveries_total{class="stream_interrupted",strategy="fallback"} 1"#,
        r#"relight_recoveries_succeeded_total{strategy="fallback"} 1"#,
        r#"relight_fallbacks_total{class="stream_interrupted",from="main",to="spare"} 1"#,
        r#"relight_retry_delay_seconds_sum{class="stream_interrupted",source="backoff"} 0.3"#,
        r#"gen_ai_client_operation_duration_seconds_sum{error_type="stream_interrupted",gen_ai_operation_name="chat",gen_ai_provider_name="anthropic",gen_ai_request_model="anthropic-model"} 1.5"#,
        r#"gen_ai_client_operation_time_to_first_chunk_seconds_sum{gen_ai_operation_name="chat",gen_ai_provider_name="anthropic",gen_ai_request_model="anthropic-model"} 0.7"#,
    ] {
        assert_series(&text, series);
    }
}

#[tokio::test]
async fn tokens_spent_less_tokens_delivered_is_what_the_failed_attempt_cost() {
    let text = rendered(&EventBus::new(64), |bus, _| recover(bus)).await;
    for series in [
        r#"relight_tokens_spent_total{model="anthropic-model",provider="anthropic",target="main",type="input"} 400"#,
        r#"relight_tokens_spent_total{model="openai-model",provider="openai",target="spare",type="input"} 412"#,
        r#"relight_tokens_delivered_total{model="openai-model",provider="openai",target="spare",type="input"} 412"#,
        r#"relight_tokens_delivered_total{model="openai-model",provider="openai",target="spare",type="output"} 96"#,
    ] {
        assert_series(&text, series);
    }
    assert!(!text.contains(r#"relight_tokens_delivered_total{model="anthropic-model""#));
}

#[tokio::test]
async fn a_target_that_left_the_configuration_leaves_no_gauge_behind() {
    let text = rendered(&EventBus::new(64), |bus, metrics| {
        let class = FailureClass::RateLimited;
        let gate = GateKind::Rate;
        let source = WaitSource::RetryAfter;
        bus.publish(
            None,
            0,
            Some("spare".into()),
            EventBody::GateClosed {
                gate,
                reopens_in_ms: 1,
                source,
                class,
                key: None,
            },
        );
        metrics.set_budget_level(&"main".into(), 4.5);
        metrics.targets_changed(TargetNames::of(&[target("spare", "openai")]));
    })
    .await;
    assert_series(
        &text,
        r#"relight_gate_closed{gate="rate",target="spare"} 1"#,
    );
    let is_gauge = |line: &&str| {
        [
            "relight_gate_",
            "relight_retry_budget_level",
            "relight_circuit_state",
        ]
        .iter()
        .any(|name| line.starts_with(name))
    };
    assert!(
        !text
            .lines()
            .filter(is_gauge)
            .any(|line| line.contains(r#"target="main""#)),
        "{text}"
    );
}

#[tokio::test]
async fn facts_that_are_no_events_are_set_by_their_owners() {
    let text = rendered(&EventBus::new(64), |_, metrics| {
        metrics.inflight_changed(3);
        metrics.inflight_changed(-1);
        metrics.parked_changed(1);
        metrics.watchers_changed(1);
        metrics.set_draining(true);
        metrics.set_budget_level(&"main".into(), 4.5);
        metrics.set_store_up("journal", false);
        metrics.rpc_finished(
            "relight.v1.RecoveryService/InvokeWithRecovery".into(),
            "OK",
            Duration::from_secs(30),
        );
        metrics.journal_took("append", Duration::from_millis(2));
    })
    .await;
    for series in [
        "relight_inflight 2",
        "relight_parked 1",
        "relight_watchers 1",
        "relight_draining 1",
        r#"relight_retry_budget_level{target="main"} 4.5"#,
        r#"relight_store_up{store="journal"} 0"#,
        r#"relight_journal_duration_seconds_count{operation="append"} 1"#,
        r#"rpc_server_call_duration_seconds_bucket{rpc_method="relight.v1.RecoveryService/InvokeWithRecovery",rpc_response_status_code="OK",le="40"} 1"#,
    ] {
        assert_series(&text, series);
    }
}

#[tokio::test]
async fn levels_are_read_anew_at_each_scrape() {
    let (metrics, _task) =
        Metrics::start(&EventBus::new(4), &TelemetrySettings::default(), names()).unwrap();
    let level = Arc::new(std::sync::atomic::AtomicI64::new(2));
    let read = Arc::clone(&level);
    metrics.read_levels(move || GaugeLevels {
        inflight: read.load(Relaxed),
        budgets: vec![("main".into(), 7.5), ("gone".into(), 1.0)],
        ..GaugeLevels::default()
    });
    assert_series(&metrics.render(), "relight_inflight 2");
    level.store(5, Relaxed);
    let text = metrics.render();
    assert_series(&text, "relight_inflight 5");
    assert_series(&text, r#"relight_retry_budget_level{target="main"} 7.5"#);
    assert!(!text.contains(r#"target="gone""#));
}

#[tokio::test]
async fn failures_are_counted_by_what_they_mean() {
    let failed = |class, sent| EventBody::AttemptFailed {
        signature: String::new(),
        class,
        detail: None,
        message: String::new(),
        recovery_hint: String::new(),
        retryable: false,
        retry_after: None,
        status: None,
        duration_ms: 1,
        sent,
        usage: Usage::default(),
    };
    let text = rendered(&EventBus::new(64), |bus, _| {
        bus.publish(
            Some(scope("planner")),
            1,
            Some("main".into()),
            failed(FailureClass::Unknown, true),
        );
        bus.publish(
            Some(scope("planner")),
            2,
            Some("main".into()),
            failed(FailureClass::CircuitOpen, false),
        );
        let shed = EventBody::InvocationFailed {
            duration_ms: 1,
            attempts: 0,
            usage: Usage::default(),
            strategies: Vec::new(),
            class: FailureClass::Shed,
            detail: None,
            message: String::new(),
            user_message: String::new(),
            recovery_hint: String::new(),
            stopped_by: None,
        };
        bus.publish(Some(scope("planner")), 0, None, shed);
        bus.publish(
            None,
            0,
            None,
            EventBody::ConfigurationRejected {
                reason: String::new(),
                faults: Vec::new(),
            },
        );
    })
    .await;
    for series in [
        r#"relight_classifier_unknown_total{provider="anthropic"} 1"#,
        r#"relight_attempts_total{cause="unknown",class="circuit_open",model="anthropic-model",outcome="refused",provider="anthropic",target="main"} 1"#,
        r#"relight_shed_total{operation="planner",route="default"} 1"#,
        r#"relight_config_reloads_total{result="rejected"} 1"#,
    ] {
        assert_series(&text, series);
    }
    assert!(
        !text.contains(r#"error_type="circuit_open""#),
        "what was never sent is no model call"
    );
}

#[tokio::test]
async fn operations_without_end_make_no_series_without_end() {
    let text = rendered(&EventBus::new(4096), |bus, _| {
        for number in 0..1000 {
            let body = EventBody::InvocationSucceeded {
                duration_ms: 1,
                usage: Usage::default(),
            };
            bus.publish(Some(scope(&format!("operation-{number}"))), 1, None, body);
        }
    })
    .await;
    let series = text
        .lines()
        .filter(|line| line.starts_with("relight_invocations_total{"))
        .count();
    assert_eq!(
        series, 33,
        "32 operations of a lone tenant, who leaves as many to others, and `other`"
    );
    assert_series(
        &text,
        r#"relight_invocations_total{class="",operation="other",outcome="succeeded",route="default"} 968"#,
    );
}

#[tokio::test]
async fn events_that_the_counter_did_not_get_are_counted_as_missed() {
    let text = rendered(&EventBus::new(2), |bus, _| {
        for _ in 0..10 {
            bus.publish(
                None,
                0,
                None,
                EventBody::ConfigurationReloaded {
                    generation: 2,
                    changed: Vec::new(),
                    needs_restart: Vec::new(),
                },
            );
        }
    })
    .await;
    assert_series(&text, r#"relight_events_missed_total{reader="metrics"} 8"#);
    assert_series(
        &text,
        r#"relight_config_reloads_total{result="accepted"} 2"#,
    );
}
