//! The waits that presets promise, to the digit: after every retryable failure, measured at the
//! provider.

use std::time::Duration;

use relight::internals::grpc::v1::{Attempt, Overrides, invoke_with_recovery_response::Outcome};
use serde_json::json;

use crate::support::{
    http::closed_address,
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

/// How much longer than planned a wait may take on a busy machine; what was planned is reported to
/// the digit.
const LATE: Duration = Duration::from_secs(10);

/// One target at this address, and a route over it with this policy and the default settings
/// otherwise.
fn settings(base_url: &str, policy: &str) -> String {
    format!(
        r#"
providers: {{ model: {{ dialect: openai_chat, base_url: "{base_url}", api_key: k }} }}
targets: {{ main: {{ provider: model, model: m-1 }} }}
routes: {{ default: {{ targets: [main], deadline: 60s, policy: {policy} }} }}
"#
    )
}

fn failing(status: u16, message: &str) -> Reply {
    Reply::refusal(status, &[], &json!({"error": {"message": message}}))
}

/// Every kind of failure that the documents call retryable.
fn retryable_failures() -> Vec<(&'static str, Reply)> {
    vec![
        ("a rate limit", failing(429, "HTTP 429: Too Many Requests")),
        ("a timeout", failing(504, "Gateway Timeout")),
        ("a lost connection", Reply::reset()),
        ("an overload", failing(503, "Service Unavailable")),
        ("a server error", failing(500, "Internal server error")),
        ("an unknown failure", failing(418, "Something went wrong")),
    ]
}

fn crash() -> (&'static str, Reply) {
    (
        "a crash",
        failing(500, "Claude process exited with signal SIGKILL"),
    )
}

/// The attempts of a call that failed for good.
async fn failed_attempts(base_url: &str, policy: &str) -> Vec<Attempt> {
    let relight = Relight::start(&settings(base_url, policy)).await;
    match relight.ask("Hello").await.outcome {
        Some(Outcome::Failure(failure)) => failure.attempts,
        other => panic!("no failure but {other:?}"),
    }
}

/// Asserts that every retry came after a wait in its range, in seconds, as reported and as measured
/// by the provider.
async fn assert_waits(policy: &str, kind: &str, reply: Reply, ranges: &[(f64, f64)]) {
    let upstream = Upstream::start().await;
    upstream.otherwise(reply);
    let attempts = failed_attempts(&upstream.base_url(), policy).await;
    assert_within(&format!("{policy}: {kind}"), &attempts, ranges);
    let arrived: Vec<_> = upstream
        .requests()
        .iter()
        .map(|request| request.at)
        .collect();
    assert_eq!(arrived.len(), ranges.len() + 1, "{policy}: {kind}");
    for (pair, (min, max)) in arrived.windows(2).zip(ranges) {
        let gap = pair[1] - pair[0];
        let (min, max) = (
            Duration::from_secs_f64(*min),
            Duration::from_secs_f64(*max) + LATE,
        );
        assert!(
            min <= gap && gap <= max,
            "{policy}: {kind}: {gap:?} is not {min:?} to {max:?}"
        );
    }
}

fn assert_within(what: &str, attempts: &[Attempt], ranges: &[(f64, f64)]) {
    let waits = attempts
        .iter()
        .skip(1)
        .map(|attempt| Duration::from_millis(attempt.wait_before_ms).as_secs_f64());
    let waits: Vec<f64> = waits.collect();
    assert_eq!(waits.len(), ranges.len(), "{what}: {waits:?}");
    for (wait, (min, max)) in waits.iter().zip(ranges) {
        assert!(
            min <= wait && wait <= max,
            "{what}: {waits:?} are not within {ranges:?}"
        );
    }
}

/// Plays these failures at the same time, each with a provider of its own.
async fn assert_all(
    policy: &'static str,
    failures: Vec<(&'static str, Reply)>,
    ranges: &'static [(f64, f64)],
) {
    let mut playing = tokio::task::JoinSet::new();
    for (kind, reply) in failures {
        playing.spawn(assert_waits(policy, kind, reply, ranges));
    }
    playing.join_all().await;
}

#[tokio::test]
async fn patient_waits_1_to_1_25_then_2_to_2_5_then_4_to_5_seconds_after_every_retryable_failure() {
    let failures = [retryable_failures(), vec![crash()]].concat();
    assert_all("patient", failures, &[(1.0, 1.25), (2.0, 2.5), (4.0, 5.0)]).await;
}

#[tokio::test]
async fn patient_waits_as_long_where_no_connection_is_accepted() {
    let (_socket, closed) = closed_address();
    let attempts = failed_attempts(&format!("http://{closed}/v1"), "patient").await;
    assert_within("refused", &attempts, &[(1.0, 1.25), (2.0, 2.5), (4.0, 5.0)]);
}

#[tokio::test]
async fn steady_adds_at_most_a_fifth_to_each_wait() {
    assert_all(
        "steady",
        retryable_failures(),
        &[(1.0, 1.2), (2.0, 2.4), (4.0, 4.8)],
    )
    .await;
}

#[tokio::test]
async fn literal_retries_twice_and_calls_no_process_again_that_died() {
    assert_all("literal", retryable_failures(), &[(1.0, 1.25), (2.0, 2.5)]).await;
    assert_all("literal", vec![crash()], &[]).await;
}

#[tokio::test]
async fn a_caller_may_have_five_retries_and_no_more() {
    let upstream = Upstream::start().await;
    upstream.otherwise(failing(500, "Internal server error"));
    let short = "policies: { standard: { retry: { backoff: { base: 1ms, cap: 2ms } } } }";
    let relight = Relight::start(&format!(
        "{}{short}",
        settings(&upstream.base_url(), "standard")
    ))
    .await;
    let mut invocation = asking("Hello");
    invocation.overrides = Some(Overrides {
        max_retries: Some(5),
        ..Overrides::default()
    });
    match relight.invoke(invocation.clone()).await.outcome {
        Some(Outcome::Failure(failure)) => {
            assert_eq!((failure.attempts.len(), failure.retries_attempted), (6, 5));
        }
        other => panic!("no failure but {other:?}"),
    }
    assert_eq!(upstream.requests().len(), 6);
    invocation.overrides = Some(Overrides {
        max_retries: Some(6),
        ..Overrides::default()
    });
    let request = relight::internals::grpc::v1::InvokeWithRecoveryRequest {
        invocation: Some(invocation),
    };
    let refused = relight
        .recovery()
        .invoke_with_recovery(request)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
}
