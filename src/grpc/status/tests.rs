//! Tests of `status`, one for each guarantee.

use super::*;

fn reason(status: &Status) -> String {
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.domain, "relight.dev");
    info.reason
}

fn fact(status: &Status, key: &str) -> Option<String> {
    status
        .get_details_error_info()
        .unwrap()
        .metadata
        .get(key)
        .cloned()
}

fn pushback(status: &Status) -> Option<&str> {
    status
        .metadata()
        .get(PUSHBACK)
        .map(|value| value.to_str().unwrap())
}

fn retry_delay(status: &Status) -> Option<Duration> {
    status
        .get_details_retry_info()
        .and_then(|info| info.retry_delay)
}

#[test]
fn every_status_names_its_reason_and_only_those_that_may_be_repeated_lack_the_pushback() {
    let (thread, id) = (ThreadId::from("t1"), InvocationId::from("i1"));
    let soon = Duration::from_secs(2);
    for (status, code, name, again) in [
        (
            invalid_field("route", "is empty"),
            Code::InvalidArgument,
            "INVALID_REQUEST",
            false,
        ),
        (
            route_not_found("x", None),
            Code::NotFound,
            "ROUTE_NOT_FOUND",
            false,
        ),
        (
            invocation_not_found("i1"),
            Code::NotFound,
            "INVOCATION_NOT_FOUND",
            false,
        ),
        (
            thread_not_found(&thread),
            Code::NotFound,
            "THREAD_NOT_FOUND",
            false,
        ),
        (
            not_found("target", "x", Some("y")),
            Code::NotFound,
            "TARGET_NOT_FOUND",
            false,
        ),
        (
            request_id_reused(&"r".into(), Some(&id)),
            Code::AlreadyExists,
            "REQUEST_ID_REUSED",
            false,
        ),
        (
            shed("tenant:a", "64 calls at once", soon),
            Code::ResourceExhausted,
            "SHED",
            true,
        ),
        (draining(soon), Code::Unavailable, "DRAINING", true),
        (
            store_unavailable("journal", soon),
            Code::Unavailable,
            "STORE_UNAVAILABLE",
            true,
        ),
        (
            unauthenticated(),
            Code::Unauthenticated,
            "UNAUTHENTICATED",
            false,
        ),
        (
            permission_denied("not yours"),
            Code::PermissionDenied,
            "PERMISSION_DENIED",
            false,
        ),
        (
            deadline_exceeded(Some(&id)),
            Code::DeadlineExceeded,
            "DEADLINE_EXCEEDED",
            false,
        ),
        (
            cancelled("client gone"),
            Code::Cancelled,
            "CANCELLED",
            false,
        ),
        (
            thread_busy(&thread, &id),
            Code::FailedPrecondition,
            "THREAD_BUSY",
            false,
        ),
        (
            failed_precondition("NO_STABLE", "none", Vec::new()),
            Code::FailedPrecondition,
            "NO_STABLE",
            false,
        ),
        (internal("fold"), Code::Internal, "INTERNAL", false),
    ] {
        assert_eq!((status.code(), reason(&status).as_str()), (code, name));
        assert_eq!(
            pushback(&status),
            if again { None } else { Some("-1") },
            "{name}"
        );
        assert_eq!(retry_delay(&status), again.then_some(soon), "{name}");
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
    let status = invalid_argument(&faults);
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
    let status = route_not_found("defualt", Some("default"));
    assert_eq!(
        status.message(),
        "there is no route `defualt`; did you mean `default`?"
    );
    assert_eq!(fact(&status, "nearest").as_deref(), Some("default"));
    assert!(route_not_found(&"é".repeat(10_000), None).message().len() < 200);
}

#[test]
fn shed_work_names_the_bound_that_was_reached() {
    let status = shed("tenant:a", "64 calls at once", Duration::from_millis(250));
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].subject, "tenant:a");
    assert_eq!(quota.violations[0].description, "64 calls at once");
}
