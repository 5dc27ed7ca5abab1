//! `preset: literal`: how it judges what the specification names by its status or words, and what
//! users of a tool read.

use relight::internals::grpc::v1::{
    ClassifyFailureRequest, ClassifyFailureResponse, FailureClass, FailureCode, FailureSurface,
};

use crate::support::{
    literal::{failing, failure, literal},
    relight::Relight,
    upstream::Upstream,
};

#[tokio::test]
async fn a_bare_403_is_a_quota_what_says_nothing_is_unknown_and_exited_is_not_retried_at_any_status()
 {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&literal(&upstream, "circuit: { mode: \"off\" }")).await;
    let quota =
        "API quota exceeded. Check your API key limits at console.anthropic.com/settings/limits";
    let unknown = "Unexpected error occurred. Check logs for details.";
    let crash =
        "Agent process crashed unexpectedly. This may indicate a bug or resource constraint.";
    for (reply, class, retryable, hint) in [
        (
            failing(500, "Something went wrong"),
            FailureClass::Unknown,
            true,
            unknown,
        ),
        (
            failing(400, "Something went wrong."),
            FailureClass::Unknown,
            true,
            unknown,
        ),
        (
            failing(500, "Unexpected internal error"),
            FailureClass::Unknown,
            true,
            unknown,
        ),
        (
            failing(503, "Claude process exited with code 137"),
            FailureClass::Crash,
            false,
            crash,
        ),
        (
            failing(502, "Sidecar process exited"),
            FailureClass::Crash,
            false,
            crash,
        ),
        (
            failing(403, "Forbidden"),
            FailureClass::QuotaExceeded,
            false,
            quota,
        ),
    ] {
        upstream.push(reply);
        let failure = failure(&relight, 0).await;
        assert_eq!(
            (
                failure.failure_class(),
                failure.retryable,
                failure.recovery_hint.as_str()
            ),
            (class, retryable, hint)
        );
    }
    for (status, body, class) in [
        (403, "", FailureClass::QuotaExceeded),
        (403, "HTTP 403", FailureClass::QuotaExceeded),
        (
            403,
            "<html><head><title>403 Forbidden</title></head><body><center><h1>403 Forbidden</h1></center><hr><center>nginx</center></body></html>",
            FailureClass::QuotaExceeded,
        ),
        (
            403,
            "Your country is not supported",
            FailureClass::PermissionDenied,
        ),
        (503, "Engine is not configured", FailureClass::Configuration),
        (500, "Sidecar not started", FailureClass::Configuration),
    ] {
        let verdict = classified(&relight, FailureSurface::Http, status, body).await;
        assert_eq!(verdict.failure_class(), class, "{status} {body}");
    }
    let tool = classified(&relight, FailureSurface::Tool, 403, "Forbidden").await;
    assert_eq!(tool.failure_class(), FailureClass::PermissionDenied);
}

#[tokio::test]
async fn a_tools_failure_has_the_sentence_of_tools_in_every_class() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&literal(&upstream, "")).await;
    for (status, body) in [
        (400, "unknown argument 'x'"),
        (401, "invalid token"),
        (403, "Forbidden"),
        (404, "no such page"),
        (413, "too large"),
        (429, "too many requests"),
        (500, "it broke"),
        (503, "at capacity"),
        (504, "timed out"),
    ] {
        let verdict = classified(&relight, FailureSurface::Tool, status, body).await;
        assert_eq!(
            (verdict.code(), verdict.user_message.as_str()),
            (
                FailureCode::ToolError,
                "I couldn't access that information."
            ),
            "{status} {body}"
        );
    }
}

async fn classified(
    relight: &Relight,
    surface: FailureSurface,
    status: u32,
    body: &str,
) -> ClassifyFailureResponse {
    let request = ClassifyFailureRequest {
        surface: surface.into(),
        status: Some(status),
        body: Some(body.to_owned()),
        ..ClassifyFailureRequest::default()
    };
    relight
        .recovery()
        .classify_failure(request)
        .await
        .unwrap()
        .into_inner()
}
