//! The words of one caller, which a provider quotes when it refuses the request, decide nothing for
//! another: they reach no gate that callers share, and change no class.

use relight::internals::grpc::v1::{FailureClass, invoke_with_recovery_response::Outcome};
use serde_json::json;

use crate::support::{
    relight::Relight,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// What would close a key or a limit for all, if it were the provider's own.
const LOUD: [&str; 6] = [
    "insufficient_quota",
    "invalid api key",
    "your credit balance is too low",
    "rate limit exceeded, try again in 60s",
    "x' insufficient_quota 'y",
    "This key has been disabled",
];

#[tokio::test]
async fn a_word_in_one_callers_request_closes_no_key_for_others() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&one_target(&upstream)).await;
    for loud in LOUD {
        for (status, message, code) in [
            (
                400,
                format!(
                    "Invalid schema for function 'f': '{loud}' is not valid under any of the given schemas."
                ),
                "invalid_function_parameters",
            ),
            (
                400,
                format!("Invalid value: '{loud}'. Supported values are: 'system' and 'user'."),
                "invalid_value",
            ),
            (
                422,
                format!(
                    "Input should be a valid dictionary [type=dict_type, input_value='{loud}', input_type=str]"
                ),
                "BadRequestError",
            ),
            // Words that nobody foresaw as a quotation reach no gate either.
            (
                400,
                format!("We do not like {loud} very much"),
                "bad_request",
            ),
        ] {
            upstream.push(Reply::refusal(
                status,
                &[],
                &json!({"error": {"message": message, "code": code}}),
            ));
            let refused = relight.ask("Hello").await;
            let Some(Outcome::Failure(failure)) = refused.outcome else {
                panic!("{refused:?}")
            };
            if code != "bad_request" {
                assert_eq!(
                    failure.failure_class(),
                    FailureClass::InvalidRequest,
                    "{message}"
                );
            }
            // Those that are not of the request are tried again.
            let before = upstream.requests().len();
            let answered = relight.ask("Hello").await;
            assert!(
                matches!(answered.outcome, Some(Outcome::Completion(_))),
                "{message}: {answered:?}"
            );
            assert_eq!(upstream.requests().len(), before + 1, "{message}");
        }
    }
}

#[tokio::test]
async fn vague_words_do_not_retry_what_a_status_calls_missing_or_refused() {
    for (status, message) in [
        (404, "Files are kept for 30 minutes"),
        (
            403,
            "The connection of this account is closed for the month",
        ),
        (401, "It took longer than 30s to look up who you are"),
    ] {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::refusal(
            status,
            &[],
            &json!({"error": {"message": message}}),
        ));
        let relight = Relight::start(&one_target(&upstream)).await;
        let response = relight.ask("Hello").await;
        let Some(Outcome::Failure(failure)) = response.outcome else {
            panic!("{response:?}")
        };
        assert!(!failure.retryable, "{failure:?}");
        assert_eq!(upstream.requests().len(), 1, "{status}");
    }
}
