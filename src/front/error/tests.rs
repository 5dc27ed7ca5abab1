//! What refusals look like on the wire.

use std::time::Duration;

use super::*;
use crate::{
    call_error::table::of_failure,
    domain::failure::{Failure, FailureClass, WaitSource},
};

fn response(failure: &Failure) -> Response {
    CallError::from(failure).respond(Protocol::Openai)
}

#[test]
fn every_class_has_a_status_that_says_whose_fault_it_is() {
    for class in FailureClass::ALL {
        let row = of_failure(class);
        assert_eq!((row.http, row.code), class.row().http, "{class}");
        assert!((400..600).contains(&row.http), "{class}: {}", row.http);
        assert_ne!(
            row.http, 401,
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
fn a_client_that_would_not_wait_so_long_is_not_told_to_retry() {
    for (seconds, again) in [(60, "true"), (61, "false"), (3600, "false")] {
        let limited = Failure::local(FailureClass::RateLimited, "slow down")
            .with_retry_after(Duration::from_secs(seconds), WaitSource::RetryAfter);
        let response = response(&Failure {
            retryable: true,
            ..limited
        });
        assert_eq!(response.headers()[SHOULD_RETRY], again, "{seconds} s");
        assert_eq!(
            response.headers()[header::RETRY_AFTER],
            seconds.to_string().as_str()
        );
    }
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
    let refused = CallError::from(&Failure::local(
        FailureClass::Authentication,
        "bad key sk-12",
    ));
    assert_eq!(refused.row().http, 502);
    assert!(
        !refused
            .object(Protocol::Openai)
            .to_string()
            .contains("sk-12")
    );
}
