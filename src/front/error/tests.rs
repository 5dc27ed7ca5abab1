//! What refusals look like on the wire.

use std::time::Duration;

use super::*;
use crate::domain::failure::WaitSource;

fn response(failure: &Failure) -> Response {
    Refused::failure(failure).respond(Protocol::Openai)
}

#[test]
fn every_class_has_a_status_that_says_whose_fault_it_is() {
    for class in FailureClass::ALL {
        let (status, code) = class.row().http;
        let kind = kind(class, status);
        assert!((400..600).contains(&status), "{class}: {status}");
        assert!(!kind.is_empty() && !code.is_empty());
        assert_ne!(
            status, 401,
            "{class}: the caller's key is right when an invocation runs"
        );
    }
}

#[test]
fn a_stated_wait_is_told_in_both_units_and_lets_the_client_retry() {
    let limited = Failure::local(FailureClass::RateLimited, "slow down")
        .with_retry_after(Duration::from_millis(1500), WaitSource::RetryAfter);
    let response = response(&Failure {
        retryable: true,
        ..limited
    });
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    assert_eq!(response.headers()[RETRY_AFTER_MS], "1500");
    assert_eq!(response.headers()[SHOULD_RETRY], "true");
}

#[test]
fn what_was_tried_again_already_is_not_to_be_multiplied() {
    let response = response(&Failure::local(FailureClass::ServerError, "broke"));
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()[SHOULD_RETRY], "false");
    assert!(!response.headers().contains_key(header::RETRY_AFTER));
}

#[test]
fn upstream_words_about_a_credential_are_not_repeated() {
    let refused = Refused::failure(&Failure::local(
        FailureClass::Authentication,
        "bad key sk-12",
    ));
    assert_eq!(refused.status, StatusCode::BAD_GATEWAY);
    assert!(
        !refused
            .object(Protocol::Openai)
            .to_string()
            .contains("sk-12")
    );
}
