//! `preset: literal`: the promised sentences, numbers and defaults, each as a caller or operator
//! meets it.

use relight::internals::{
    config::{Config, GivenEnvironment, load_text},
    domain::ids::{Operation, RouteName},
    grpc::v1::{
        ClassifyFailureRequest, ClassifyFailureResponse, FailureClass, Overrides, RecoveryStrategy,
        Severity, Target, invoke_with_recovery_response::Outcome, recovery_event::Body,
        watch_recovery_request::Start,
    },
};

use crate::support::{
    folding::{Folding, start},
    literal::{failing, failure, literal},
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

fn config(text: &str) -> Config {
    load_text(text, None, &GivenEnvironment::new())
        .unwrap_or_else(|faults| panic!("{faults}"))
        .config
}

async fn target(relight: &Relight) -> Target {
    let request = relight::internals::grpc::v1::ListTargetsRequest::default();
    relight
        .admin()
        .list_targets(request)
        .await
        .unwrap()
        .into_inner()
        .targets
        .remove(0)
}

#[test]
fn two_retries_for_a_call_and_one_for_planner_evaluator_and_replanner() {
    let config = config("preset: literal");
    let route = &config.routes[&RouteName::from("default")];
    for (operation, retries) in [
        ("executor", 2),
        ("planner", 1),
        ("evaluator", 1),
        ("replanner", 1),
    ] {
        let retry = config
            .policy_for(route, Some(&Operation::from(operation)), None)
            .retry;
        assert_eq!(
            (retry.max_retries, retry.enabled),
            (retries, true),
            "{operation}"
        );
    }
}

#[test]
fn a_setting_that_is_written_goes_before_the_presets_own() {
    let config = config(
        "preset: literal\npolicies: { standard: { retry: { max_retries: 0, enabled: false } } }",
    );
    let retry = &config.policies["standard"].retry;
    assert_eq!(
        (retry.max_retries, retry.enabled, retry.uniform_waits),
        (0, false, true)
    );
}

#[test]
fn garbage_in_a_setting_of_recovery_falls_back_to_its_default_and_is_named() {
    let text =
        "preset: literal\npolicies: { standard: { retry: { max_retries: banana, enabled: 42 } } }";
    let loaded =
        load_text(text, None, &GivenEnvironment::new()).unwrap_or_else(|faults| panic!("{faults}"));
    let retry = &loaded.config.policies["standard"].retry;
    assert_eq!((retry.max_retries, retry.enabled), (2, true));
    let left_out: Vec<_> = loaded
        .left_out
        .iter()
        .map(|fault| fault.path.as_str())
        .collect();
    assert_eq!(
        left_out,
        [
            "policies.standard.retry.max_retries",
            "policies.standard.retry.enabled"
        ]
    );

    let ranged =
        "on_invalid_setting: default\npolicies: { standard: { retry: { max_retries: 9 } } }";
    let loaded = load_text(ranged, None, &GivenEnvironment::new())
        .unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(
        loaded.config.policies["standard"].retry.max_retries, 2,
        "out of its range"
    );

    for refused in [
        "policies: { standard: { retry: { max_retries: banana } } }",
        "preset: literal\nserver: { listen: nowhere }",
        "preset: literal\nproviders: { p: { dialect: nonsense } }",
        "preset: literally",
    ] {
        assert!(
            load_text(refused, None, &GivenEnvironment::new()).is_err(),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn each_code_has_its_sentence_for_users_and_each_type_its_hint() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&literal(&upstream, "circuit: { mode: \"off\" }")).await;
    let user = "I'm having trouble thinking. Let me try again.";
    for (reply, retryable, hint) in [
        (
            failing(504, "Claude timed out after 600000ms"),
            true,
            "Agent operation timed out. Increase timeoutMs in layer config or reduce task complexity.",
        ),
        (
            Reply::reset(),
            true,
            "Network connectivity issue. Check internet connection and API endpoint availability.",
        ),
        (
            failing(500, "Claude process exited with signal SIGKILL"),
            false,
            "Agent process crashed unexpectedly. This may indicate a bug or resource constraint.",
        ),
        (
            failing(429, "HTTP 429: Too Many Requests"),
            true,
            "API rate limit reached. Waiting before retry. Consider reducing maxTurns or spacing out requests.",
        ),
        (
            failing(403, "HTTP 403: insufficient_quota"),
            false,
            "API quota exceeded. Check your API key limits at console.anthropic.com/settings/limits",
        ),
    ] {
        upstream.push(reply);
        let failure = failure(&relight, 0).await;
        assert_eq!(
            (
                failure.recovery_hint.as_str(),
                failure.user_message.as_str()
            ),
            (hint, user)
        );
        assert_eq!(failure.retryable, retryable, "{failure:?}");
        assert_eq!(upstream.unplayed(), 0);
    }
}

/// How a failure of this class is judged, which a rule of the operator gives it.
async fn judged(relight: &Relight, message: &str) -> ClassifyFailureResponse {
    let request = ClassifyFailureRequest {
        message: Some(message.to_owned()),
        ..ClassifyFailureRequest::default()
    };
    relight
        .recovery()
        .classify_failure(request)
        .await
        .unwrap()
        .into_inner()
}

#[tokio::test]
async fn the_codes_of_tools_stores_approvals_and_streams_have_their_sentences_and_the_unknown_has_its_hint()
 {
    let upstream = Upstream::start().await;
    let classes = [
        ("tool_failed", "I couldn't access that information."),
        ("outcome_unknown", "I couldn't access that information."),
        ("state", "Something went wrong. Please refresh."),
        ("configuration", "Something went wrong. Please refresh."),
        ("checkpoint", "I couldn't load the deal context."),
        ("approval_rejected", "Got it, I won't proceed with that."),
        (
            "stream_interrupted",
            "Connection interrupted. Please try again.",
        ),
        ("cache", ""),
    ];
    let rule = |class: &str| {
        format!("{{ name: {class}, class: {class}, when: {{ message: \"ours: {class}\" }} }}")
    };
    let rules = classes.map(|(class, _)| rule(class)).join(", ");
    let relight = Relight::start(&literal(
        &upstream,
        &format!("classifier: {{ rules: [{rules}] }}"),
    ))
    .await;
    for (class, user) in classes {
        let verdict = judged(&relight, &format!("ours: {class}")).await;
        assert_eq!(
            (verdict.rule.as_str(), verdict.user_message.as_str()),
            (format!("user:{class}").as_str(), user)
        );
    }
    let unknown = judged(&relight, "quux").await;
    assert_eq!(unknown.failure_class(), FailureClass::Unknown);
    assert_eq!(
        unknown.recovery_hint,
        "Unexpected error occurred. Check logs for details."
    );
}

#[tokio::test]
async fn a_route_may_wait_for_ten_minutes() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::silence());
    let yaml = literal(&upstream, "").replace("deadline: 60s", "deadline: 10m");
    let relight = Relight::start(&yaml).await;
    let mut folding = Folding::default();
    let mut stream = start(relight.recovery(), asking("Hello")).await.unwrap();
    folding.follow(&mut stream, 1).await;
    let ends = folding.accepted.unwrap().deadline.unwrap().seconds;
    let left = ends - relight::internals::domain::clock::wall_now().as_second();
    assert!((500..=600).contains(&left), "{left} s");
}

#[tokio::test]
async fn five_failures_in_a_row_of_any_type_open_the_circuit_for_60_seconds_and_are_reported() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&literal(&upstream, "")).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let standing = target(&relight).await.circuit.unwrap().evidence.unwrap();
    assert_eq!((standing.consecutive_failures, standing.threshold), (0, 5));
    for reply in [
        failing(500, "a"),
        failing(429, "HTTP 429"),
        Reply::reset(),
        failing(400, "no"),
        failing(503, "b"),
    ] {
        upstream.push(reply);
        failure(&relight, 0).await;
    }
    let opened = watch.until("circuit_opened").await;
    let Some(Body::CircuitOpened(event)) = opened.body else {
        panic!("the circuit opened")
    };
    let evidence = event.evidence.unwrap();
    assert_eq!(
        (
            evidence.consecutive_failures,
            evidence.threshold,
            event.retry_in_ms
        ),
        (5, 5, Some(60_000))
    );
    let asked = upstream.requests().len();
    let refused = failure(&relight, 2).await;
    assert_eq!(
        refused.message,
        "Circuit breaker open after 5 consecutive failures. Failing fast to prevent cascading failures."
    );
    assert!(
        refused.recovery_hint.contains("5 open it")
            && refused.recovery_hint.contains(" is open for "),
        "{refused:?}"
    );
    assert!(
        refused.retryable && refused.retry_after_ms.is_some_and(|ms| ms > 50_000),
        "{refused:?}"
    );
    assert_eq!(upstream.requests().len(), asked, "it fails fast");
    let circuit = target(&relight).await.circuit.unwrap();
    let evidence = circuit.evidence.unwrap();
    assert_eq!(
        (evidence.consecutive_failures, evidence.threshold),
        (5, 5),
        "{circuit:?}"
    );
    assert!(circuit.since.is_some());
}

#[tokio::test]
async fn a_retry_is_notified_in_the_specified_words_and_its_end_reaches_a_watcher_of_warnings() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&literal(&upstream, "")).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    upstream.push(failing(500, "Request timeout"));
    relight.ask("Hello").await;
    let recovered = watch.until("invocation_recovered").await;
    assert_eq!(recovered.severity(), Severity::Warning);
    let retry = watch.seen.iter().find_map(|event| match &event.body {
        Some(Body::RecoveryAttempted(retry)) => Some(retry.clone()),
        _ => None,
    });
    let retry = retry.unwrap();
    assert_eq!(
        retry.display_text,
        "Retrying executor (attempt 1/2): Request timeout"
    );
    assert_eq!(
        (retry.operation.as_str(), retry.error.as_str()),
        ("executor", "Request timeout")
    );
    assert_eq!(
        (retry.attempt, retry.max_retries, retry.strategy()),
        (1, 2, RecoveryStrategy::Retry)
    );
}

#[tokio::test]
async fn what_exited_never_started_or_is_not_configured_is_called_once() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&literal(&upstream, "circuit: { mode: \"off\" }")).await;
    for (status, message) in [
        (500, "Sidecar process exited"),
        (500, "Sidecar not started"),
        (503, "Sidecar not started"),
        (500, "Model not configured"),
    ] {
        let before = upstream.requests().len();
        upstream.otherwise(failing(status, message));
        let failure = failure(&relight, 2).await;
        assert_eq!(
            upstream.requests().len() - before,
            1,
            "{message}: {failure:?}"
        );
    }
}

#[tokio::test]
async fn operators_set_texts_of_failures_by_class_code_and_language() {
    let upstream = Upstream::start().await;
    let texts = r#"
texts:
  LLM_ERROR: "We could not reach the assistant."
  timeout: { user: "It took too long.", hint: "Ask the platform team.", languages: { de: "Das hat zu lange gedauert." } }
"#;
    let yaml = literal(&upstream, texts).replace("preset: literal\n", "");
    let relight = Relight::start(&yaml).await;
    upstream.otherwise(failing(504, "Gateway Timeout"));
    let failed = failure(&relight, 0).await;
    assert_eq!(
        (failed.user_message.as_str(), failed.recovery_hint.as_str()),
        ("It took too long.", "Ask the platform team.")
    );
    let mut invocation = asking("Hallo");
    invocation
        .labels
        .insert("language".to_owned(), "de-AT".to_owned());
    invocation.overrides = Some(Overrides {
        max_retries: Some(0),
        ..Overrides::default()
    });
    match relight.invoke(invocation).await.outcome {
        Some(Outcome::Failure(failed)) => {
            assert_eq!(failed.user_message, "Das hat zu lange gedauert.");
        }
        other => panic!("no failure but {other:?}"),
    }
    upstream.otherwise(failing(500, "Internal error"));
    assert_eq!(
        failure(&relight, 0).await.user_message,
        "We could not reach the assistant."
    );

    let faulty = "texts: { time_out: x, timeout: \"\" }";
    let faults = load_text(faulty, None, &GivenEnvironment::new())
        .unwrap_err()
        .to_string();
    assert!(
        faults.contains("texts.time_out") && faults.contains("texts.timeout"),
        "{faults}"
    );
}
