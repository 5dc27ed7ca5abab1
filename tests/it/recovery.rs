//! A failed model call is answered all the same: what `InvokeWithRecovery` promises, over real gRPC
//! and real sockets.

use std::time::Duration;

use relight::internals::grpc::v1::{
    FailureClass, Overrides, RecoveryStrategy, invoke_with_recovery_response::Outcome,
    watch_recovery_request::Start,
};

use crate::support::{
    relight::{Relight, asking},
    targets::{one_target, two_targets},
    upstream::{Reply, Upstream},
};

fn answer(outcome: Option<&Outcome>) -> &str {
    match outcome {
        Some(Outcome::Completion(completion)) => &completion.text,
        other => panic!("no answer but {other:?}"),
    }
}

fn failure_class(outcome: Option<&Outcome>) -> FailureClass {
    match outcome {
        Some(Outcome::Failure(failure)) => failure.failure_class(),
        other => panic!("no failure but {other:?}"),
    }
}

#[tokio::test]
async fn a_call_that_times_out_once_succeeds_with_the_second_attempt_which_is_informed() {
    let upstream = Upstream::start().await;
    upstream
        .push(Reply::silence())
        .push(Reply::text("Here I am."));
    let relight = Relight::start(&one_target(&upstream)).await;
    let response = relight.ask("Summarise this.").await;
    assert_eq!(answer(response.outcome.as_ref()), "Here I am.");
    assert_eq!(
        response.recovery_applied().collect::<Vec<_>>(),
        [RecoveryStrategy::Retry]
    );
    assert_eq!(response.attempts.len(), 2);
    assert_eq!(response.attempts[0].failure_class(), FailureClass::Timeout);
    let requests = upstream.requests();
    assert_eq!(requests.len(), 2);
    let (first, second) = (requests[0].body.to_string(), requests[1].body.to_string());
    assert!(!first.contains("previous model call failed"), "{first}");
    assert!(
        second.contains("The previous model call failed: Request timeout"),
        "{second}"
    );
    assert!(!response.attempts[1].injected_note.is_empty());
}

#[tokio::test]
async fn what_no_retry_can_mend_makes_exactly_one_attempt() {
    let quota = br#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    let crash = br#"{"error":{"message":"Sidecar process exited with code 137"}}"#;
    let cases: [(u16, &[u8], FailureClass); 3] = [
        (429, quota, FailureClass::QuotaExceeded),
        (500, crash, FailureClass::Crash),
        (
            401,
            br#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
            FailureClass::Authentication,
        ),
    ];
    for (status, body, class) in cases {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::body(
            status,
            &[("content-type", "application/json")],
            body,
        ));
        let relight = Relight::start(&one_target(&upstream)).await;
        let response = relight.ask("Hello").await;
        assert_eq!(failure_class(response.outcome.as_ref()), class);
        assert_eq!(upstream.requests().len(), 1, "{class:?}");
        assert_eq!(response.attempts.len(), 1, "{class:?}");
    }
}

#[tokio::test]
async fn a_permanent_timeout_makes_one_attempt_and_max_retries_more_and_reports_them() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let relight = Relight::start(&one_target(&upstream)).await;
    for (operation, attempts) in [("executor", 3), ("planner", 2)] {
        let before = upstream.requests().len();
        let mut invocation = asking("Hello");
        invocation.operation = operation.to_owned();
        let response = relight.invoke(invocation).await;
        assert_eq!(
            failure_class(response.outcome.as_ref()),
            FailureClass::Timeout
        );
        assert_eq!(response.attempts.len(), attempts, "{operation}");
        assert_eq!(upstream.requests().len() - before, attempts, "{operation}");
        let Some(Outcome::Failure(failure)) = response.outcome else {
            panic!("an answer")
        };
        assert_eq!(failure.retries_attempted as usize, attempts - 1);
        assert_eq!(failure.attempts.len(), attempts);
        assert_eq!(failure.failed_operation, operation);
    }
}

#[tokio::test]
async fn retries_that_are_switched_off_or_overridden_are_not_made() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(503));
    let yaml = format!(
        "{}operations: {{ once: {{ enabled: false }} }}\n",
        one_target(&upstream)
    );
    let relight = Relight::start(&yaml).await;
    let mut once = asking("Hello");
    once.operation = "once".to_owned();
    assert_eq!(relight.invoke(once).await.attempts.len(), 1);
    let mut overridden = asking("Hello");
    overridden.overrides = Some(Overrides {
        max_retries: Some(0),
        ..Overrides::default()
    });
    assert_eq!(relight.invoke(overridden).await.attempts.len(), 1);
}

#[tokio::test]
async fn a_stated_wait_is_waited_for() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::body(
        429,
        &[("retry-after", "1")],
        b"{\"error\":{\"message\":\"Rate limit reached\"}}",
    ));
    let relight = Relight::start(&one_target(&upstream)).await;
    let response = relight.ask("Hello").await;
    assert_eq!(answer(response.outcome.as_ref()), "Hello from upstream.");
    assert!(
        response.attempts[1].wait_before_ms >= 1000,
        "{:?}",
        response.attempts[1]
    );
    let requests = upstream.requests();
    assert!(requests[1].at - requests[0].at >= Duration::from_secs(1));
}

#[tokio::test]
async fn the_fallback_answers_when_the_first_target_fails() {
    let (first, second) = (Upstream::start().await, Upstream::start().await);
    first.otherwise(Reply::status(500));
    second.otherwise(Reply::text("From the second."));
    let relight = Relight::start(&two_targets(&first, &second)).await;
    let mut watch = relight.watch(Start::Live(true)).await;
    let response = relight.ask("Hello").await;
    assert_eq!(answer(response.outcome.as_ref()), "From the second.");
    assert_eq!(response.final_target, "second");
    assert!(
        response
            .recovery_applied()
            .any(|strategy| strategy == RecoveryStrategy::Fallback)
    );
    watch.until("invocation_recovered").await;
    let kinds = watch.kinds();
    let expected = [
        "invocation_started",
        "attempt_started",
        "attempt_failed",
        "recovery_attempted",
        "fallback_chosen",
        "attempt_started",
        "invocation_recovered",
    ];
    let mut rest = kinds.iter();
    assert!(
        expected.iter().all(|kind| rest.any(|seen| seen == kind)),
        "{kinds:?}"
    );
    let recovery = watch.seen.iter().find(|event| {
        event
            .display_text
            .starts_with("Retrying executor (attempt 1/2)")
    });
    assert!(recovery.is_some(), "{:?}", watch.seen);
}

#[tokio::test]
async fn a_watcher_that_comes_later_replays_from_its_cursor() {
    let upstream = Upstream::start().await;
    upstream.push(Reply::status(500));
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut early = relight.watch(Start::Live(true)).await;
    relight.ask("Hello").await;
    early.until("invocation_recovered").await;
    let mut late = relight.watch(Start::FromStart(true)).await;
    late.until("invocation_recovered").await;
    assert_eq!(early.kinds(), late.kinds());
    let middle = early.seen[2].cursor.clone();
    let mut resumed = relight.watch(Start::After(middle)).await;
    resumed.until("invocation_recovered").await;
    assert_eq!(resumed.kinds(), early.kinds()[3..]);
}

#[tokio::test]
async fn a_client_that_disconnects_cancels_the_upstream_request() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::silence());
    let yaml = one_target(&upstream).replace("400ms", "30s");
    let relight = Relight::start(&yaml).await;
    let mut client = relight.recovery();
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move {
        let request = relight::internals::grpc::v1::InvokeWithRecoveryRequest {
            invocation: Some(asking("Hello")),
        };
        client.invoke_with_recovery(request).await
    });
    upstream.await_request(1).await;
    let gone = tokio::time::Instant::now();
    calls.abort_all();
    let cancelled = upstream.await_cancel(1).await;
    // 100 ms is the promise; the rest is for a busy machine.
    assert!(
        cancelled - gone < Duration::from_secs(1),
        "{:?}",
        cancelled - gone
    );
}

#[tokio::test]
async fn the_deadline_is_never_overrun_and_never_slept_through() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::body(429, &[("retry-after", "60")], b"{}"));
    let relight = Relight::start(&one_target(&upstream)).await;
    let began = tokio::time::Instant::now();
    let mut invocation = asking("Hello");
    invocation.overrides = Some(Overrides {
        deadline_ms: Some(2000),
        ..Overrides::default()
    });
    let response = relight.invoke(invocation).await;
    // Waiting a minute would be pointless: the failure comes at once with a retry time.
    assert!(
        began.elapsed() < Duration::from_millis(1900),
        "{:?}",
        began.elapsed()
    );
    let Some(Outcome::Failure(failure)) = response.outcome else {
        panic!("an answer")
    };
    assert_eq!(failure.failure_class(), FailureClass::RateLimited);
    assert!(failure.retry_after_ms() >= 50_000);
    assert_eq!(response.attempts.len(), 1);

    let silent = Upstream::start().await;
    silent.otherwise(Reply::silence());
    let relight = Relight::start(&one_target(&silent).replace("400ms", "30s")).await;
    let began = tokio::time::Instant::now();
    let mut invocation = asking("Hello");
    invocation.overrides = Some(Overrides {
        deadline_ms: Some(600),
        ..Overrides::default()
    });
    let response = relight.invoke(invocation).await;
    assert_eq!(
        failure_class(response.outcome.as_ref()),
        FailureClass::Timeout
    );
    assert_eq!(response.attempts.len(), 1);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn malformed_tool_arguments_are_reported_to_the_model_which_then_does_better() {
    use relight::internals::grpc::v1::{ToolDefinition, invocation::Call};
    let upstream = Upstream::start().await;
    upstream
        .push(Reply::tool_call("search", "{\"query\": \"unf"))
        .push(Reply::tool_call("search", "{\"query\":\"x\"}"));
    let relight = Relight::start(&one_target(&upstream)).await;
    let mut invocation = asking("Search for x.");
    if let Some(Call::Model(call)) = &mut invocation.call {
        let parameters =
            r#"{"type":"object","required":["query"],"properties":{"query":{"type":"string"}}}"#;
        call.tools.push(ToolDefinition {
            name: "search".to_owned(),
            input_schema_json: parameters.to_owned(),
            ..ToolDefinition::default()
        });
    }
    let response = relight.invoke(invocation).await;
    assert!(
        matches!(response.outcome, Some(Outcome::Completion(_))),
        "{response:?}"
    );
    assert_eq!(
        response.attempts[0].failure_class(),
        FailureClass::MalformedResponse
    );
    let told = upstream.requests()[1].body.to_string();
    assert!(
        told.contains("arguments of tool `search` were not valid JSON at line 1"),
        "{told}"
    );
}
