//! Reads the wait that a failure states, and where it states it.
//!
//! In order: `retry-after-ms` and `x-ms-retry-after-ms`; `retry-after` in seconds or as an HTTP date; the reset of the
//! exhausted rate-limit window; then the text (prose, `RetryInfo`, fields that name a wait). A precise text beats a rounded
//! header. Dates are measured against the failure's own `date`, else against the given clock; a date in the past is a wait
//! of zero, one more than [`LONGEST`] away is garbage.
//!
//! Never believes garbage, negative numbers, a client's own backoff ("retrying in") or vague words ("a few minutes").

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};

mod length;

use self::length::duration;
use super::reading::{Reading, Sieve, Word, last_mark, mark};
use crate::domain::failure::{FailureClass, ProviderError, Wait, WaitSource};

/// The longest wait that is believed: a month.
const LONGEST: Duration = Duration::from_hours(31 * 24);

/// The stated wait, if any; `in_words` says whether one may be written in words ("in one minute").
pub(super) fn stated(
    error: &ProviderError,
    reading: &Reading,
    class: FailureClass,
    in_words: bool,
    now: Timestamp,
) -> Option<Wait> {
    let from_header = header(error, now).or_else(|| match class {
        FailureClass::RateLimited | FailureClass::QuotaExceeded => window(error, now),
        _ => None,
    });
    // Words are never more precise than a header.
    let from_text = text::stated(error, reading, in_words && from_header.is_none());
    match (from_header, from_text) {
        (Some(header), Some(text)) if rounds_to(text.duration, header.duration) => Some(text),
        (Some(header), _) => Some(header),
        (None, text) => text,
    }
    .filter(|wait| wait.duration <= LONGEST)
}

/// Whether the header is the text's wait rounded to whole seconds.
fn rounds_to(precise: Duration, rounded: Duration) -> bool {
    precise.subsec_nanos() != 0 && rounded.subsec_nanos() == 0 && rounded.abs_diff(precise) <= Duration::from_secs(1)
}

fn header(error: &ProviderError, now: Timestamp) -> Option<Wait> {
    for name in ["retry-after-ms", "x-ms-retry-after-ms"] {
        if let Some(millis) = error.header(name).and_then(plain_number) {
            return Some(Wait { duration: Duration::from_secs_f64(millis / 1000.0), source: WaitSource::RetryAfterMs });
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
    Some(Wait { duration, source: WaitSource::RetryAfter })
}

/// The reset of the window that is exhausted; of the only window where nothing says which.
fn window(error: &ProviderError, now: Timestamp) -> Option<Wait> {
    let mut only: Option<Option<Duration>> = None;
    let mut longest: Option<Duration> = None;
    for (name, value) in &error.headers {
        let Some(kind) = reset_kind(name) else { continue };
        let left = left(error, name, kind);
        let reset = reset(value.trim(), error, now).filter(|wait| !wait.is_zero());
        if left.is_some_and(is_nothing) {
            longest = longest.max(reset);
        } else if left.is_none() {
            // More than one window and no word on which: nothing usable is stated.
            only = Some(if only.is_some() { None } else { reset });
        }
    }
    let duration = longest.or(only.flatten())?;
    Some(Wait { duration, source: WaitSource::RateLimitReset })
}

/// Whether headers say that nothing is left of a rate-limit window.
pub(super) fn window_is_exhausted(error: &ProviderError) -> bool {
    let windows = error.headers.iter().filter_map(|(name, _)| Some((name, reset_kind(name)?)));
    windows.filter_map(|(name, kind)| left(error, name, kind)).any(is_nothing)
}

/// What headers say is left of the window of a reset header.
fn left(error: &ProviderError, reset: &str, kind: &str) -> Option<f64> {
    let mut headers = error.headers.iter();
    let (_, value) = headers.find(|(name, _)| {
        name.contains("remaining") && (kind.is_empty() || name.contains(kind)) && same_family(name, reset)
    })?;
    value.trim().parse().ok()
}

/// Nothing left, which -1 does not say.
fn is_nothing(left: f64) -> bool {
    left <= 0.0 && left > -1.0
}

/// The window a reset header belongs to (`tokens`, `requests`, …), empty for the only one.
fn reset_kind(name: &str) -> Option<&str> {
    if !name.contains("ratelimit") && !name.contains("rate-limit") {
        return None;
    }
    if let Some((_, kind)) = name.split_once("-reset") {
        return Some(kind.trim_start_matches('-'));
    }
    None.or_else(|| name.strip_suffix("-reset")).and_then(|name| name.rsplit_once("ratelimit-")).map(|(_, kind)| kind)
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
        Some(number) if number > 1e11 => until(Timestamp::from_millisecond(whole(number)).ok()?, error, now),
        Some(number) if number > 1e9 => until(Timestamp::from_second(whole(number)).ok()?, error, now),
        Some(seconds) => Some(Duration::from_secs_f64(seconds)),
        None => duration(value, None),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounded by plain_number")]
fn whole(number: f64) -> i64 {
    number as i64
}

/// From the failure's own date, else from the given clock; zero for the past, nothing for what cannot be meant.
fn until(at: Timestamp, error: &ProviderError, now: Timestamp) -> Option<Duration> {
    let from = error.header("date").and_then(http_date).unwrap_or(now);
    match Duration::try_from(at.duration_since(from)) {
        Ok(wait) => (wait <= LONGEST).then_some(wait),
        Err(_) => Some(Duration::ZERO),
    }
}

fn http_date(value: &str) -> Option<Timestamp> {
    rfc2822::parse(value).ok().map(|at| at.timestamp()).or_else(|| value.parse().ok())
}

/// A number of this world: not negative, not infinite, no words.
fn plain_number(value: &str) -> Option<f64> {
    let number: f64 = value.trim().parse().ok()?;
    (number.is_finite() && (0.0..1e14).contains(&number)).then_some(number)
}

pub(super) mod text {
    //! Waits that stand in the text.

    use super::length::{Unit, bounded, clock, duration};
    use super::{Duration, ProviderError, Reading, Sieve, Wait, WaitSource, Word, last_mark, mark, rounds_to};

    /// Words (in the spelling of a reading) after which a wait stands; whether a bare number means seconds or milliseconds.
    const LEADS: [(&str, Option<Unit>); 48] = [
        (" retry after ms ", Some(Unit::Millis)),
        (" retry in ms ", Some(Unit::Millis)),
        (" retry after milliseconds ", Some(Unit::Millis)),
        (" retry after millis ", Some(Unit::Millis)),
        (" retry after seconds ", Some(Unit::Seconds)),
        (" retry after sec ", Some(Unit::Seconds)),
        (" retry after s ", Some(Unit::Seconds)),
        (" retry after secs ", Some(Unit::Seconds)),
        (" suspended time ", Some(Unit::Seconds)),
        (" retry after ", Some(Unit::Seconds)),
        (" retry delay ", Some(Unit::Seconds)),
        (" retry delay seconds ", Some(Unit::Seconds)),
        (" resets in seconds ", Some(Unit::Seconds)),
        (" reset in seconds ", Some(Unit::Seconds)),
        (" reset after seconds ", Some(Unit::Seconds)),
        (" reset seconds ", Some(Unit::Seconds)),
        (" wait seconds ", Some(Unit::Seconds)),
        (" wait time ", Some(Unit::Seconds)),
        (" estimated time ", Some(Unit::Seconds)),
        (" cooldown seconds ", Some(Unit::Seconds)),
        (" try again in ", None),
        (" try again after ", None),
        (" try again in about ", None),
        (" try again in approximately ", None),
        (" retry in ", None),
        (" retry in about ", None),
        (" retried in ", None),
        (" retry again in ", None),
        (" retry your request after ", None),
        (" retry your request in ", None),
        (" request again in ", None),
        (" reset after ", None),
        (" resets in ", None),
        (" resets after ", None),
        (" come back in ", None),
        (" blocked for ", None),
        (" banned for ", None),
        (" suspended for ", None),
        (" reset in ", None),
        (" reset ", None),
        (" available in ", None),
        (" available again in ", None),
        (" expires in ", None),
        (" wait ", None),
        (" wait for ", None),
        (" wait at least ", None),
        (" wait another ", None),
        (" wait about ", None),
    ];

    /// The last word of each.
    const LASTS: [u64; LEADS.len()] = {
        let (mut lasts, mut at) = ([0; LEADS.len()], 0);
        while at < LEADS.len() {
            lasts[at] = last_mark(LEADS[at].0);
            at += 1;
        }
        lasts
    };
    const ENDS_LEAD: Sieve = Sieve::NONE.and_all(&LASTS);

    /// Words of which one stands in every sentence that names a wait.
    pub(in crate::policy::classify) const WAITS: [&str; 4] = ["again", "retry", "wait", "resets"];
    /// Units, of which one stands in every wait that is written in words, in seconds.
    pub(in crate::policy::classify) const UNITS: [(&str, f64); 8] = [
        ("second", 1.0),
        ("seconds", 1.0),
        ("minute", 60.0),
        ("minutes", 60.0),
        ("hour", 3600.0),
        ("hours", 3600.0),
        ("day", 86_400.0),
        ("days", 86_400.0),
    ];

    /// What ends like a lead and is the client's own business.
    const NOT_LEADS: [&str; 7] = [
        " total retry delay ",
        " total retry wait time ",
        " total wait time ",
        " total wait ",
        " with retry in ",
        " and retry in ",
        " will retry in ",
    ];

    /// The first wait that the text states.
    pub(super) fn stated(error: &ProviderError, reading: &Reading, in_words: bool) -> Option<Wait> {
        let source = error.text()?;
        let mut rounded: Option<Wait> = None;
        for number in &reading.numbers {
            let before = &reading.text[..number.at];
            let word = number.words.checked_sub(1).and_then(|at| reading.text.words().get(at));
            // Nearly no word before a number ends a lead.
            let word = word.filter(|word| ENDS_LEAD.may_have(word.mark));
            let lead = word.and_then(|word| {
                let leads = LEADS.iter().zip(LASTS).filter(|(_, last)| *last == word.mark).map(|(lead, _)| lead);
                leads.filter(|(lead, _)| before.ends_with(lead.as_bytes())).max_by_key(|(lead, _)| lead.len())
            });
            let lead = lead.filter(|_| !NOT_LEADS.iter().any(|no| before.ends_with(no.as_bytes())));
            let rest = source.get(number.source..)?;
            let wait = if let Some((lead, unit)) = lead {
                if source.as_bytes().get(number.source.wrapping_sub(1)) == Some(&b'-') {
                    continue;
                }
                let source = match *lead {
                    " retry delay " => WaitSource::RetryInfo,
                    _ if unit.is_some() => WaitSource::BodyField,
                    _ => WaitSource::Text,
                };
                // Behind "after" and a bare "reset" a clock is a time of day.
                let clock = if lead.ends_with("after ") || *lead == " reset " { None } else { clock(rest) };
                clock.or_else(|| duration(rest, *unit)).map(|duration| Wait { duration, source })
            } else {
                later(rest).map(|duration| Wait { duration, source: WaitSource::Text })
            };
            // A field may be a text's wait rounded; the text stands behind it then.
            match (wait, rounded) {
                (Some(wait), Some(field)) if rounds_to(wait.duration, field.duration) => return Some(wait),
                (Some(wait), None) if wait.source == WaitSource::Text => return Some(wait),
                (wait, field) => rounded = field.or(wait),
            }
        }
        rounded.or_else(|| if in_words { self::in_words(reading) } else { None })
    }

    /// `60秒后`, `5 minutes later`: the word comes after the number.
    fn later(rest: &str) -> Option<Duration> {
        const UNITS: [(&str, f64); 13] = [
            ("秒后", 1.0),
            ("秒之后", 1.0),
            ("秒後", 1.0),
            ("秒以后", 1.0),
            ("分钟后", 60.0),
            ("分鐘後", 60.0),
            ("分后", 60.0),
            ("小时后", 3600.0),
            ("小時後", 3600.0),
            ("초 후", 1.0),
            ("분 후", 60.0),
            ("seconds later", 1.0),
            ("minutes later", 60.0),
        ];
        let end = rest.bytes().position(|b| !b.is_ascii_digit() && b != b'.')?;
        // Nearly no number has such a unit; those that have none are not read.
        if matches!(rest.as_bytes()[end], b'!'..=b'~' if !matches!(rest.as_bytes()[end], b's' | b'm')) {
            return None;
        }
        let tail = rest[end..].trim_start();
        let (_, seconds) = UNITS.iter().find(|(unit, _)| tail.starts_with(unit))?;
        let number: f64 = rest[..end].parse().ok()?;
        bounded(number * seconds)
    }

    /// "try again in one minute".
    fn in_words(reading: &Reading) -> Option<Wait> {
        const LEADS: [&str; 7] = [
            " try again in ",
            " try again after ",
            " retry in ",
            " retry after ",
            " wait ",
            " wait for ",
            " resets in ",
        ];
        const SIEVE: Sieve = Sieve::NONE.and_all(&[mark("in"), mark("after"), mark("wait"), mark("for")]);
        const NUMBERS: [(u64, f64); 17] = marks([
            ("one", 1.0),
            ("two", 2.0),
            ("three", 3.0),
            ("four", 4.0),
            ("five", 5.0),
            ("six", 6.0),
            ("seven", 7.0),
            ("eight", 8.0),
            ("nine", 9.0),
            ("ten", 10.0),
            ("fifteen", 15.0),
            ("twenty", 20.0),
            ("thirty", 30.0),
            ("forty", 40.0),
            ("sixty", 60.0),
            ("a", 1.0),
            ("an", 1.0),
        ]);
        const SECONDS: [(u64, f64); 8] = marks(UNITS);
        let of = |table: &[(u64, f64)], word: &Word| table.iter().find(|(mark, _)| *mark == word.mark).map(|row| row.1);
        reading.text.words().windows(3).find_map(|words| {
            // Nearly no word ends a lead.
            let [lead, number, unit] = words else { return None };
            if !SIEVE.may_have(lead.mark) {
                return None;
            }
            let seconds = of(&NUMBERS, number)? * of(&SECONDS, unit)?;
            let before = &reading.text[..number.begin];
            let leads = LEADS.iter().any(|lead| before.ends_with(lead.as_bytes()));
            let duration = leads.then(|| bounded(seconds))??;
            Some(Wait { duration, source: WaitSource::Text })
        })
    }
    /// The marks of words that stand for numbers.
    const fn marks<const COUNT: usize>(words: [(&str, f64); COUNT]) -> [(u64, f64); COUNT] {
        let (mut marks, mut at) = ([(0, 0.0); COUNT], 0);
        while at < COUNT {
            marks[at] = (mark(words[at].0), words[at].1);
            at += 1;
        }
        marks
    }
}
