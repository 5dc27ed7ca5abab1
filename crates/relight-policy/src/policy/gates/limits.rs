//! The caller's limits as response headers state them: how much is left, and when it is full again.
//!
//! Two formats are read: `x-ratelimit-remaining-<what>` with a Go duration in
//! `x-ratelimit-reset-<what>`, and `anthropic-ratelimit-<what>-remaining` with an RFC 3339 time in
//! `anthropic-ratelimit-<what>-reset`, from which the response's own `date` is subtracted: both
//! times are the provider's, so that the local clock need not be right.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};

/// Returns the time until all exhausted limits are reset; `None` if nothing is exhausted or nothing
/// can be read.
pub(super) fn wait_for_reset(headers: &[(String, String)]) -> Option<Duration> {
    headers
        .iter()
        .filter_map(|(name, value)| wait_of(headers, name, value))
        .max()
}

fn wait_of(headers: &[(String, String)], name: &str, remaining: &str) -> Option<Duration> {
    if let Some(what) = strip_prefix(name, "x-ratelimit-remaining-") {
        let reset = value_of(headers, &format!("x-ratelimit-reset-{what}"))?;
        return exhausted(remaining).then(|| go_duration(reset))?;
    }
    let what = strip_prefix(name, "anthropic-ratelimit-")?.strip_suffix("-remaining")?;
    let reset = value_of(headers, &format!("anthropic-ratelimit-{what}-reset"))?;
    let date = value_of(headers, "date")?;
    exhausted(remaining).then(|| between(date, reset))?
}

fn strip_prefix<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let head = name.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix)
        .then(|| &name[prefix.len()..])
}

fn value_of<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers
        .iter()
        .find(|(kept, _)| kept.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}

fn exhausted(remaining: &str) -> bool {
    remaining.trim().parse::<i64>().is_ok_and(|left| left <= 0)
}

fn between(date: &str, reset: &str) -> Option<Duration> {
    let date = rfc2822::parse(date).ok()?.timestamp();
    let reset: Timestamp = reset.parse().ok()?;
    Duration::try_from(reset.duration_since(date)).ok()
}

/// Returns a duration as Go prints it: `1m30.5s`, `17ms`, `500µs`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" | "μs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    if text.is_empty() {
        None
    } else {
        Duration::try_from_secs_f64(seconds).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(headers: &[(&str, &str)]) -> Option<Duration> {
        let headers: Vec<_> = headers
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        wait_for_reset(&headers)
    }

    #[test]
    fn an_exhausted_window_is_waited_for_and_one_with_something_left_is_not() {
        let both = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "1m30.5s"),
            ("x-ratelimit-remaining-tokens", "12"),
            ("x-ratelimit-reset-tokens", "6h0m0s"),
        ];
        assert_eq!(wait(&both), Some(Duration::from_millis(90_500)));
        assert_eq!(wait(&both[2..]), None);
        assert_eq!(
            wait(&both[..1]),
            None,
            "without a reset there is nothing to wait for"
        );
    }

    #[test]
    fn of_several_exhausted_windows_the_last_to_be_reset_counts() {
        let headers = [
            ("X-RateLimit-Remaining-Requests", "0"),
            ("X-RateLimit-Reset-Requests", "17ms"),
            ("X-RateLimit-Remaining-Tokens", "0"),
            ("X-RateLimit-Reset-Tokens", "2s"),
        ];
        assert_eq!(wait(&headers), Some(Duration::from_secs(2)));
    }

    #[test]
    fn a_reset_time_is_measured_against_the_date_of_the_same_answer() {
        let headers = [
            ("anthropic-ratelimit-input-tokens-remaining", "0"),
            (
                "anthropic-ratelimit-input-tokens-reset",
                "2026-03-01T10:00:42Z",
            ),
            ("date", "Sun, 01 Mar 2026 10:00:12 GMT"),
        ];
        assert_eq!(wait(&headers), Some(Duration::from_secs(30)));
        assert_eq!(
            wait(&headers[..2]),
            None,
            "without a date our clock would have to be right"
        );
        let past = [
            headers[0],
            (
                "anthropic-ratelimit-input-tokens-reset",
                "2026-03-01T09:00:00Z",
            ),
            headers[2],
        ];
        assert_eq!(wait(&past), None);
    }

    #[test]
    fn durations_are_read_as_go_prints_them_and_garbage_is_not() {
        for (text, micros) in [
            ("500µs", 500),
            ("1h2m3s", 3_723_000_000),
            ("0s", 0),
            ("1.5ms", 1500),
            ("2us", 2),
            ("5000ns", 5),
        ] {
            assert_eq!(
                go_duration(text).map(|d| d.as_micros()),
                Some(micros),
                "{text}"
            );
        }
        for text in ["", "soon", "5", "1", "1x", ".s", "-3s", "1e9s"] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }
}
