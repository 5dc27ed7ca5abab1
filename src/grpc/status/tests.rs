//! Tests of `status`, one for each guarantee.

use std::time::Duration;

use super::*;
use crate::call_error::table::{ROUTE_NOT_FOUND, SHED, TABLE};

fn fact(status: &Status, key: &str) -> Option<String> {
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.domain, "relight.dev");
    info.metadata.get(key).cloned()
}

#[test]
fn every_status_names_its_reason_and_only_those_that_may_be_repeated_lack_the_pushback() {
    for row in TABLE {
        let status = Status::from(CallError::new(row));
        let name = row.name;
        let reason = status.get_details_error_info().unwrap().reason;
        assert_eq!((status.code(), reason.as_str()), (row.grpc, row.reason));
        let pushback = status.metadata().get(PUSHBACK);
        let pushback = pushback.map(|value| value.to_str().unwrap());
        let retry = status
            .get_details_retry_info()
            .and_then(|info| info.retry_delay);
        assert_eq!(retry, row.retry_ms.map(Duration::from_millis), "{name}");
        assert_eq!(pushback, retry.is_none().then_some("-1"), "{name}");
    }
}

#[test]
fn a_bad_request_lists_every_violation() {
    let mut faults = Violations::of("a", "is empty");
    faults.add("b[1].c", "is 0; the least is 1");
    let status = Status::from(faults);
    let bad = status.get_details_bad_request().unwrap();
    let violations: Vec<(&str, &str)> = bad
        .field_violations
        .iter()
        .map(|violation| (violation.field.as_str(), violation.description.as_str()))
        .collect();
    assert_eq!(
        violations,
        [("a", "is empty"), ("b[1].c", "is 0; the least is 1")]
    );
    assert_eq!(
        status.message(),
        "the request is not valid: `a` is empty, and 1 more"
    );
    assert_eq!(fact(&status, "violations").as_deref(), Some("2"));
    assert_eq!(fact(&status, "violationsNotShown"), None);
}

#[test]
fn a_flood_of_violations_still_fits_a_client_s_trailers() {
    let mut faults = Violations::default();
    for index in 0..5000 {
        faults.add(
            format!("invocation.model.messages[{index}].parts[0].tool_call.id"),
            "is empty",
        );
    }
    let status = Status::from(faults);
    let mut headers = http::HeaderMap::new();
    status.add_header(&mut headers).unwrap();
    let bytes: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum();
    assert!(bytes < 8192, "{bytes} bytes of trailers");
    let shown = status
        .get_details_bad_request()
        .unwrap()
        .field_violations
        .len();
    assert_eq!(
        fact(&status, "violationsNotShown"),
        Some((5000 - shown).to_string())
    );
}

#[test]
fn a_wrong_route_names_the_nearest_one_and_a_long_name_is_cut() {
    let missing =
        |name: &str, nearest| Status::from(CallError::not_found(ROUTE_NOT_FOUND, name, nearest));
    let status = missing("defualt", Some("default"));
    assert_eq!(
        status.message(),
        "there is no route `defualt`; did you mean `default`?"
    );
    assert_eq!(fact(&status, "nearest").as_deref(), Some("default"));
    assert!(missing(&"é".repeat(10_000), None).message().len() < 200);
}

#[test]
fn shed_work_names_the_bound_that_was_reached() {
    let error = CallError::new(SHED)
        .fact("subject", "tenant:a")
        .word("bound", "64 calls at once");
    let status = Status::from(error.after(Duration::from_millis(250)));
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].subject, "tenant:a");
    assert_eq!(quota.violations[0].description, "64 calls at once");
    let retry = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(retry, Some(Duration::from_millis(250)));
}
