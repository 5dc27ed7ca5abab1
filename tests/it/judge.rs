//! `ClassifyFailure`: what Relight makes of a failure, why, and what it would do, over real gRPC.

use std::time::Duration;

use relight::internals::grpc::v1::{
    ClassifyFailureRequest, FailureClass, FailureCode, Header, InvalidRequestDetail,
    RecoveryStrategy, WaitSource,
};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::support::{process::Process, relight::Relight, targets::one_target, upstream::Upstream};

/// What a caller reports of an answer.
fn answer(status: u32, body: &str) -> ClassifyFailureRequest {
    ClassifyFailureRequest {
        provider: "openai".to_owned(),
        status: Some(status),
        body: Some(body.to_owned()),
        ..ClassifyFailureRequest::default()
    }
}

#[tokio::test]
async fn a_failure_is_judged_with_the_rule_the_fact_the_wait_and_what_would_be_done() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let body = r#"{"error":{"message":"Rate limit reached for sk-abcdefgh12345678. Please try again in 1.25s.",
        "type":"requests","code":"rate_limit_exceeded"}}"#;
    let mut request = answer(429, body);
    request.headers = vec![Header {
        name: "Retry-After".to_owned(),
        value: "2".to_owned(),
    }];
    let verdict = relight
        .recovery()
        .classify_failure(request)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(verdict.failure_class(), FailureClass::RateLimited);
    assert_eq!(verdict.code(), FailureCode::LlmError);
    assert_eq!(
        (verdict.retryable_same_target, verdict.fallback_helps),
        (true, true)
    );
    // The precise text beats the header that rounds it.
    assert_eq!(
        (verdict.retry_after_ms, verdict.retry_after_source()),
        (Some(1250), WaitSource::ErrorText)
    );
    assert_eq!(
        (&*verdict.rule, &*verdict.fact),
        ("api.rate_limited", "rate limit reached for")
    );
    assert!(
        verdict
            .message
            .starts_with("Rate limit reached for [redacted]"),
        "{}",
        verdict.message
    );
    assert!(
        verdict.user_message.ends_with("It frees up in 2 s."),
        "{}",
        verdict.user_message
    );
    assert!(
        verdict.recovery_hint.ends_with("Stated wait: 2 s."),
        "{}",
        verdict.recovery_hint
    );
    let planned = verdict.planned_recovery.unwrap();
    assert_eq!(planned.strategy(), RecoveryStrategy::Retry);
    assert!(planned.wait_ms >= 1250, "{planned:?}");
    assert_eq!(
        planned.display_text,
        "Retrying executor (attempt 1/2): Rate limit reached"
    );
    assert!(upstream.requests().is_empty(), "nothing is asked");
}

#[tokio::test]
async fn a_fault_of_a_request_is_reported_and_not_retried() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let body = r#"{"error":{"message":"Unsupported parameter: 'max_tokens'","code":"unsupported_parameter"}}"#;
    let verdict = relight
        .recovery()
        .classify_failure(answer(400, body))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(verdict.failure_class(), FailureClass::InvalidRequest);
    assert_eq!(verdict.detail(), InvalidRequestDetail::UnsupportedParameter);
    assert_eq!(
        (verdict.retryable_same_target, verdict.retry_after_ms),
        (false, None)
    );
    assert_eq!(verdict.retry_after_source(), WaitSource::Unspecified);
    let planned = verdict.planned_recovery.unwrap();
    assert_eq!(
        (planned.strategy(), planned.wait_ms),
        (RecoveryStrategy::None, 0)
    );
    assert!(!planned.reason.is_empty());
}

#[tokio::test]
async fn an_unrecognised_failure_is_unknown_and_an_invalid_report_is_rejected_with_every_fault() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    let unknown = ClassifyFailureRequest {
        message: Some("quux".to_owned()),
        ..ClassifyFailureRequest::default()
    };
    let verdict = relight
        .recovery()
        .classify_failure(unknown)
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (verdict.failure_class(), &*verdict.rule),
        (FailureClass::Unknown, "unknown")
    );
    let bad = ClassifyFailureRequest {
        attempt: 99,
        ..answer(7, "{}")
    };
    let status = relight.recovery().classify_failure(bad).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    let violations = status.get_details_bad_request().unwrap().field_violations;
    let fields: Vec<&str> = violations
        .iter()
        .map(|violation| violation.field.as_str())
        .collect();
    assert_eq!(fields, ["status", "attempt"]);
    let lost = ClassifyFailureRequest {
        route: "defalt".to_owned(),
        ..answer(500, "{}")
    };
    let status = relight.recovery().classify_failure(lost).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("default"), "{}", status.message());
}

#[tokio::test]
async fn a_rule_that_is_added_to_the_file_of_a_running_server_judges_from_then_on() {
    let without = "\
providers: { stage: { dialect: scripted, script: { otherwise: timeout } } }
targets: { silent: { provider: stage, model: silent } }
";
    let server = Process::start(without).await;
    let mut client = server.recovery();
    let house = answer(429, "Rate limit: the house limit");
    let before = client
        .classify_failure(house.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(before.failure_class(), FailureClass::RateLimited);
    let rule =
        "{ name: house, class: quota_exceeded, when: { message: house limit }, retry_after: 90s }";
    std::fs::write(
        &server.file,
        format!("{without}classifier: {{ rules: [{rule}] }}\n"),
    )
    .unwrap();
    let judged_by_it = async {
        loop {
            let verdict = client
                .classify_failure(house.clone())
                .await
                .unwrap()
                .into_inner();
            if verdict.rule == "user:house" {
                return verdict;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let after = tokio::time::timeout(Duration::from_secs(30), judged_by_it)
        .await
        .unwrap();
    assert_eq!(after.failure_class(), FailureClass::QuotaExceeded);
    assert_eq!(after.retry_after_ms, Some(90_000));
}
