//! Stated waits: every form, and every invalid value.

use super::*;

fn with(headers: &[(&str, &str)], body: &str) -> ProviderError {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    ProviderError {
        headers,
        ..http(429, body)
    }
}

const DATE: (&str, &str) = ("date", "Thu, 10 Sep 2026 06:00:00 GMT");

/// Headers, a body, and the wait that they state, in milliseconds.
type Stated = (
    &'static [(&'static str, &'static str)],
    &'static str,
    u64,
    WaitSource,
);

const STATED: &[Stated] = &[
    (
        &[("retry-after-ms", "1250")],
        "",
        1250,
        WaitSource::RetryAfterMs,
    ),
    (
        &[("x-ms-retry-after-ms", "1250"), ("retry-after", "2")],
        "",
        1250,
        WaitSource::RetryAfterMs,
    ),
    (&[("retry-after", "7")], "", 7000, WaitSource::RetryAfter),
    (&[("retry-after", "0.5")], "", 500, WaitSource::RetryAfter),
    (
        &[("retry-after", "20s")],
        "",
        20_000,
        WaitSource::RetryAfter,
    ),
    (
        &[("retry-after", "Thu, 10 Sep 2026 06:02:00 GMT"), DATE],
        "",
        120_000,
        WaitSource::RetryAfter,
    ),
    (
        &[("x-ratelimit-reset-tokens", "1m30s")],
        "",
        90_000,
        WaitSource::RateLimitReset,
    ),
    (
        &[
            ("x-ratelimit-reset-requests", "8.64s"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-tokens", "1h"),
            ("x-ratelimit-remaining-tokens", "5"),
        ],
        "",
        8640,
        WaitSource::RateLimitReset,
    ),
    (
        &[
            ("anthropic-ratelimit-tokens-reset", "2026-09-10T06:00:20Z"),
            ("anthropic-ratelimit-tokens-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-09-10T06:05:00Z"),
            ("anthropic-ratelimit-requests-remaining", "9"),
            DATE,
        ],
        "",
        20_000,
        WaitSource::RateLimitReset,
    ),
    (
        &[],
        r#"{"error":{"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}]}}"#,
        34_500,
        WaitSource::RetryInfo,
    ),
    (
        &[],
        r#"{"retry_after":64.57}"#,
        64_570,
        WaitSource::BodyField,
    ),
    (&[], r#"{"retry_after_ms":250}"#, 250, WaitSource::BodyField),
    (
        &[],
        r#"{"retryDelay":"2s"} Please retry in 2.06s."#,
        2060,
        WaitSource::Text,
    ),
    (
        &[],
        r#"{"retry_after":3,"message":"Try again in 2.416s."}"#,
        2416,
        WaitSource::Text,
    ),
    (
        &[],
        r#"{"retry_after":30,"message":"Try again in 2.416s."}"#,
        30_000,
        WaitSource::BodyField,
    ),
    (
        &[],
        r#"{"error":"loading","estimated_time":20.5}"#,
        20_500,
        WaitSource::BodyField,
    ),
    (
        &[],
        r#"{"error":"loading","estimated_time":20.500000000000002}"#,
        20_500,
        WaitSource::BodyField,
    ),
    (&[], "Please try again in 7m12s.", 432_000, WaitSource::Text),
    (&[], "Please try again in 644ms", 644, WaitSource::Text),
    (
        &[],
        "RESOURCE_EXHAUSTED: try again later in 3s",
        3000,
        WaitSource::Text,
    ),
    (
        &[],
        "ResourceExhausted desc = spent, retry later in 1m5s",
        65_000,
        WaitSource::Text,
    ),
    (
        &[],
        "try again after 1 hour 2 minutes",
        3_720_000,
        WaitSource::Text,
    ),
    (
        &[],
        "Please wait 30 seconds before",
        30_000,
        WaitSource::Text,
    ),
    (
        &[],
        "Too many requests, retry in 0:09:48.",
        588_000,
        WaitSource::Text,
    ),
    (
        &[],
        "quota resets in 17:40:00",
        63_600_000,
        WaitSource::Text,
    ),
    (
        &[],
        "you are blocked for 2 minutes: too many requests",
        120_000,
        WaitSource::Text,
    ),
    (
        &[],
        "too many requests, suspended_time=90",
        90_000,
        WaitSource::BodyField,
    ),
    (
        &[],
        r#"{"retry_after_secs":15}"#,
        15_000,
        WaitSource::BodyField,
    ),
    (&[], "try again in one minute", 60_000, WaitSource::Text),
    (&[], "请在60秒后重试", 60_000, WaitSource::Text),
    (
        &[],
        "All keys are rate limited. Soonest reset ~3m.",
        180_000,
        WaitSource::Text,
    ),
    (
        &[("retry-after", "9")],
        "rate limit: try again in 8.64s",
        8640,
        WaitSource::Text,
    ),
];

#[test]
fn every_form_of_a_stated_wait_is_read_with_its_source() {
    for (headers, body, millis, source) in STATED {
        let wait = judge(&with(headers, body)).retry_after;
        let read = wait.map(|wait| (wait.duration, wait.source));
        assert_eq!(
            read,
            Some((Duration::from_millis(*millis), *source)),
            "{headers:?} {body}"
        );
    }
}

#[test]
fn a_moment_in_a_text_is_measured_against_the_failures_own_date() {
    for text in [
        "limit resets at 2026-09-10T06:02:00Z",
        "Rate limit exceeded. Retry after 2026-09-10 06:02:00 UTC",
        "too many requests, try again at 2026-09-10T08:02:00.000+02:00.",
        "throttled: available again at Thu, 10 Sep 2026 06:02:00 GMT",
        r#"{"error":{"type":"rate_limit_error","resets_at":1789020120}}"#,
        r#"{"error":{"type":"rate_limit_error","reset_at":1789020120000}}"#,
    ] {
        let dated = with(&[("date", "Thu, 10 Sep 2026 06:00:00 GMT")], text);
        let wait = judge(&dated).retry_after.map(|wait| wait.duration);
        assert_eq!(wait, Some(Duration::from_mins(2)), "{text}");
    }
    for text in [
        "Rate limit exceeded. Limits reset 06:02:00 UTC",
        "Rate limit exceeded. Limits reset at 2026-09-10 06:02:00",
        "Rate limit exceeded for build 1789020120",
    ] {
        let dated = with(&[("date", "Thu, 10 Sep 2026 06:00:00 GMT")], text);
        assert_eq!(judge(&dated).retry_after, None, "{text}");
    }
}

#[test]
fn a_date_in_the_past_and_a_zero_are_no_wait_at_all() {
    let past = with(
        &[
            ("retry-after", "Thu, 10 Sep 2026 05:58:00 GMT"),
            ("date", "Thu, 10 Sep 2026 06:00:00 GMT"),
        ],
        "",
    );
    assert_eq!(
        judge(&past).retry_after.map(|wait| wait.duration),
        Some(Duration::ZERO)
    );
    assert_eq!(
        judge(&with(&[("retry-after", "0")], ""))
            .retry_after
            .map(|wait| wait.duration),
        Some(Duration::ZERO)
    );
}

#[test]
fn lies_and_vague_words_are_not_believed() {
    for headers in [
        [("retry-after", "-1")],
        [("retry-after", "soon")],
        [("retry-after", "NaN")],
        [("retry-after", "inf")],
        [("retry-after", "99999999999999999999")],
        [("retry-after-ms", "-5")],
        [("x-ratelimit-reset-tokens", "0")],
        [("x-ratelimit-reset-tokens", "-1")],
        [("retry-after", "Thu, 10 Sep 2126 06:00:00 GMT")],
        [("retry-after", "")],
    ] {
        assert_eq!(judge(&with(&headers, "")).retry_after, None, "{headers:?}");
    }
    for text in [
        "Retrying in 4s",
        "wait a few minutes",
        "Waited 5.0 seconds",
        "timed out after 30000ms",
        "try again in -5s",
        "will retry later in 4s",
        "totalRetryDelay: 274",
        "retried 5 times (total retry wait time: 30.23 seconds)",
        "gave up, total wait 12 s",
        "Please try again later",
        "retry_after: null",
        "try again in 5 parsecs",
        "Rate limit exceeded. Retry after 2026-09-10 06:02:00 UTC",
        "Rate limit exceeded. Retry after 06:02:00",
        "Rate limit exceeded. Limits reset 06:02:00 UTC",
    ] {
        assert_eq!(
            judge(&error_text(Surface::Http, text)).retry_after,
            None,
            "{text}"
        );
    }
}

#[test]
fn a_window_is_ignored_on_a_failure_that_is_no_limit() {
    let error = ProviderError {
        status: Some(500),
        ..with(&[("x-ratelimit-reset-tokens", "1.5s")], "")
    };
    assert_eq!(judge(&error).retry_after, None);
}

#[test]
fn a_limit_that_frees_up_after_ten_minutes_is_a_quota() {
    let body = "Rate limit reached for requests. Please try again in";
    assert_eq!(
        judge(&http(429, &format!("{body} 9m59s"))).class,
        FailureClass::RateLimited
    );
    let hour = judge(&http(429, &format!("{body} 1h")));
    assert_eq!(
        (hour.class, hour.retryable),
        (FailureClass::QuotaExceeded, false)
    );
}

#[test]
fn without_a_date_of_its_own_a_failure_is_measured_against_the_clock() {
    let now: Timestamp = "2026-09-10T06:00:00Z".parse().unwrap();
    let error = with(&[("retry-after", "Thu, 10 Sep 2026 06:00:30 GMT")], "");
    let wait = Classifier::new().classify(&error, now).retry_after;
    assert_eq!(
        wait.map(|wait| wait.duration),
        Some(Duration::from_secs(30))
    );
}

#[test]
fn what_can_never_fit_into_a_limit_is_too_long_and_what_only_does_not_fit_now_is_a_limit() {
    use FailureClass as C;
    for (used, requested, class) in [(0, 9000, C::ContextLength), (5500, 900, C::RateLimited)] {
        let text = format!(
            "Rate limit reached on tokens per minute (TPM): Limit 6,000, Used {used}, Requested ~{requested}. \
             Please try again in 9.5s."
        );
        assert_eq!(judge(&http(429, &text)).class, class, "{text}");
    }
}

#[test]
fn who_has_used_up_a_window_and_is_refused_is_limited_and_not_forbidden() {
    let refused = |left: &str, body: &str| {
        let window = [("x-ratelimit-remaining", left), ("x-ratelimit-reset", "90")];
        let error = ProviderError {
            status: Some(403),
            ..with(&window, body)
        };
        let verdict = Classifier::new().classify(&error, Timestamp::UNIX_EPOCH);
        (
            verdict.class,
            verdict.retry_after.map(|wait| wait.duration.as_secs()),
        )
    };
    assert_eq!(refused("0", ""), (FailureClass::RateLimited, Some(90)));
    assert_eq!(refused("7", ""), (FailureClass::PermissionDenied, None));
    // A reason in words is more specific.
    assert_eq!(
        refused("0", "Your organization has been disabled.").0,
        FailureClass::PermissionDenied
    );
}
