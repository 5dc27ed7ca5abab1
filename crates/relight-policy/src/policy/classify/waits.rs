//! Reads the wait that a failure states, and the place where it states it.
//!
//! In order: `retry-after-ms` and `x-ms-retry-after-ms`; `retry-after` in seconds or as an HTTP
//! date; the reset of the exhausted rate-limit window; then the text (prose, `RetryInfo`, fields
//! that name a wait; last, a moment with its zone). A precise text beats a rounded header. Dates are measured against the
//! failure's own `date`, else against the given clock; a date in the past is a wait of zero, one
//! more than [`LONGEST`] away is garbage.
//!
//! Garbage, negative numbers, a client's own backoff ("retrying in") and vague words ("a few
//! minutes") do not count.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};

mod moment;
mod text;

use super::reading::NormalizedText;
use crate::{
    domain::failure::{FailureClass, ProviderError, Wait, WaitSource},
    policy::duration_text::{LONGEST, duration},
};

/// Returns the stated wait, if any.
pub(super) fn stated(
    error: &ProviderError,
    reading: &NormalizedText,
    class: FailureClass,
    now: Timestamp,
) -> Option<Wait> {
    let from_header = header(error, now).or_else(|| match class {
        FailureClass::RateLimited | FailureClass::QuotaExceeded => window(error, now),
        _ => None,
    });
    // Text is not more precise than a header.
    let from_text = text::stated(error, reading, from_header.is_none());
    match (from_header, from_text) {
        (Some(header), Some(text)) if rounds_to(text.duration, header.duration) => Some(text),
        (Some(header), _) => Some(header),
        (None, text) => text,
    }
    .filter(|wait| wait.duration <= LONGEST)
    .or_else(|| match class {
        FailureClass::RateLimited | FailureClass::QuotaExceeded | FailureClass::Overloaded => {
            moment::stated(error, reading, now)
        }
        _ => None,
    })
}

/// Returns whether the header is the text's wait rounded to whole seconds.
fn rounds_to(precise: Duration, rounded: Duration) -> bool {
    precise.subsec_nanos() != 0
        && rounded.subsec_nanos() == 0
        && rounded.abs_diff(precise) <= Duration::from_secs(1)
}

fn header(error: &ProviderError, now: Timestamp) -> Option<Wait> {
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        if let Some(millis) = error.header(name).and_then(plain_number) {
            return Some(Wait {
                duration: Duration::from_secs_f64(millis / 1000.0),
                source: WaitSource::RetryAfterMs,
            });
        }
    }
    let value = error.header("retry-after")?.trim();
    let duration = match plain_number(value) {
        Some(seconds) => Duration::from_secs_f64(seconds),
        None => match http_date(value) {
            Some(at) => until(at, error, now)?,
            None => duration(value, None)?,
        },
    };
    Some(Wait {
        duration,
        source: WaitSource::RetryAfter,
    })
}

/// Returns the reset of the exhausted window; of the only window if none is marked as exhausted.
fn window(error: &ProviderError, now: Timestamp) -> Option<Wait> {
    let mut only: Option<Option<Duration>> = None;
    let mut longest: Option<Duration> = None;
    for (name, value) in &error.headers {
        let Some(kind) = reset_kind(name) else {
            continue;
        };
        let left = left(error, name, kind);
        let reset = reset(value.trim(), error, now).filter(|wait| !wait.is_zero());
        if left.is_some_and(is_nothing) {
            longest = longest.max(reset);
        } else if left.is_none() {
            // More than one window and no sign which one is exhausted: nothing usable is stated.
            only = Some(if only.is_some() { None } else { reset });
        }
    }
    let duration = longest.or(only.flatten())?;
    Some(Wait {
        duration,
        source: WaitSource::RateLimitReset,
    })
}

/// Returns whether headers show a rate-limit window with nothing left.
pub(super) fn window_is_exhausted(error: &ProviderError) -> bool {
    let windows = error
        .headers
        .iter()
        .filter_map(|(name, _)| Some((name, reset_kind(name)?)));
    windows
        .filter_map(|(name, kind)| left(error, name, kind))
        .any(is_nothing)
}

/// Returns the remaining amount in the window of a reset header.
fn left(error: &ProviderError, reset: &str, kind: &str) -> Option<f64> {
    let mut headers = error.headers.iter();
    let (_, value) = headers.find(|(name, _)| {
        name.contains("remaining")
            && (kind.is_empty() || name.contains(kind))
            && same_family(name, reset)
    })?;
    value.trim().parse().ok()
}

/// Returns whether nothing is left; -1 means something else.
fn is_nothing(left: f64) -> bool {
    left <= 0.0 && left > -1.0
}

/// Returns the window a reset header belongs to (`tokens`, `requests`, …), empty for the only one.
fn reset_kind(name: &str) -> Option<&str> {
    if !name.contains("ratelimit") && !name.contains("rate-limit") {
        return None;
    }
    name.split_once("-reset")
        .map(|(_, kind)| kind.trim_start_matches('-'))
}

/// Anthropic puts the window before the word (`anthropic-ratelimit-tokens-reset`), others after it.
fn same_family(remaining: &str, reset: &str) -> bool {
    match reset.strip_suffix("-reset") {
        Some(prefix) if reset.starts_with("anthropic-") => remaining.starts_with(prefix),
        _ => true,
    }
}

fn reset(value: &str, error: &ProviderError, now: Timestamp) -> Option<Duration> {
    if let Ok(at) = value.parse::<Timestamp>() {
        return until(at, error, now);
    }
    match plain_number(value) {
        // Seconds or milliseconds since 1970.
        Some(number) if number > 1e11 => {
            until(Timestamp::from_millisecond(whole(number)).ok()?, error, now)
        }
        Some(number) if number > 1e9 => {
            until(Timestamp::from_second(whole(number)).ok()?, error, now)
        }
        Some(seconds) => Some(Duration::from_secs_f64(seconds)),
        None => duration(value, None),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounded by plain_number")]
fn whole(number: f64) -> i64 {
    number as i64
}

/// From the failure's own date, else from the given clock; zero for the past, `None` for
/// implausible values.
fn until(at: Timestamp, error: &ProviderError, now: Timestamp) -> Option<Duration> {
    let from = error.header("date").and_then(http_date).unwrap_or(now);
    match Duration::try_from(at.duration_since(from)) {
        Ok(wait) => (wait <= LONGEST).then_some(wait),
        Err(_) => Some(Duration::ZERO),
    }
}

fn http_date(value: &str) -> Option<Timestamp> {
    rfc2822::parse(value)
        .ok()
        .map(|at| at.timestamp())
        .or_else(|| value.parse().ok())
}

/// Returns a finite, non-negative number; `None` for anything else.
fn plain_number(value: &str) -> Option<f64> {
    let number: f64 = value.trim().parse().ok()?;
    (number.is_finite() && (0.0..1e14).contains(&number)).then_some(number)
}
