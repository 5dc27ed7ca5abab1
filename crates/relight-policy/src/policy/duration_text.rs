//! Durations as texts write them: `7m12s`, `8.64s`, `60 seconds`, `5分钟`, `0:09:48`.
//!
//! One parser for headers and prose, so that both accept the same units.

use std::time::Duration;

/// The longest duration that is believed: a month.
pub(super) const LONGEST: Duration = Duration::from_hours(31 * 24);

/// Most digits and points of a number, as many as a double has when it is written out.
const DIGITS: usize = 20;

/// Units that a bare number may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Seconds,
}

/// Reads `7m12s`, `8.64s`, `644ms`, `60 seconds`, `1m 57s`, `5 minutes`; a bare number only in a
/// given unit.
pub(super) fn duration(text: &str, bare: Option<Unit>) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut total = 0.0_f64;
    let mut parts = 0;
    while parts < 5 {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let digits = rest[..end].trim_end_matches('.');
        if digits.is_empty() || digits.len() > DIGITS || is_date(digits, &rest[end..]) {
            break;
        }
        let number: f64 = digits.parse().ok()?;
        let tail = if digits.len() < end {
            ""
        } else {
            rest[end..].trim_start_matches([' ', '-'])
        };
        let unit_end = tail
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(tail.len());
        let unit = &tail[..unit_end];
        let seconds = match seconds_of(unit) {
            Some(seconds) => seconds,
            None if parts == 0 => {
                return match (bare, chinese(tail)) {
                    (_, Some(seconds)) => bounded(number * seconds),
                    (Some(Unit::Seconds), None) => bounded(number),
                    (Some(Unit::Millis), None) => bounded(number / 1000.0),
                    (None, None) => None,
                };
            }
            None => break,
        };
        total += number * seconds;
        parts += 1;
        rest = tail[unit_end..].trim_start_matches([' ', ',']);
        rest = rest.strip_prefix("and ").unwrap_or(rest);
    }
    if parts == 0 { None } else { bounded(total) }
}

/// Returns the seconds of a unit.
pub(super) fn seconds_of(unit: &str) -> Option<f64> {
    const UNITS: [(&[&str], f64); 5] = [
        (&["s", "sec", "secs", "second", "seconds"], 1.0),
        (
            &[
                "ms",
                "msec",
                "msecs",
                "millis",
                "millisecond",
                "milliseconds",
            ],
            0.001,
        ),
        (&["m", "min", "mins", "minute", "minutes"], 60.0),
        (&["h", "hr", "hrs", "hour", "hours"], 3600.0),
        (&["d", "day", "days"], 86_400.0),
    ];
    let named =
        |(names, _): &&(&[&str], f64)| names.iter().any(|name| name.eq_ignore_ascii_case(unit));
    UNITS.iter().find(named).map(|(_, seconds)| *seconds)
}

/// `2026-09-10`, `06:02:00`: the number is part of a date or of a time of day.
fn is_date(digits: &str, rest: &str) -> bool {
    let year = digits.len() == 4;
    matches!(rest.as_bytes(), [sign, next, ..] if next.is_ascii_digit() && (*sign == b':' || year && *sign == b'-'))
}

fn chinese(tail: &str) -> Option<f64> {
    [
        ("毫秒", 0.001),
        ("秒", 1.0),
        ("分", 60.0),
        ("小时", 3600.0),
        ("天", 86_400.0),
    ]
    .iter()
    .find(|(unit, _)| tail.starts_with(unit))
    .map(|(_, seconds)| *seconds)
}

/// Reads a clock of three parts, also behind days: `0:09:48`, `00:00:45`, `1 day, 3:12:05`.
///
/// Python, .NET and SQL print durations so. Call it only behind words that announce a duration
/// ("retry in"): behind "at" or "after" the same digits are a time of day.
pub(super) fn clock(text: &str) -> Option<Duration> {
    let text = text.trim_start();
    let (days, rest) = days(text).unwrap_or((0.0, text));
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != ':' && c != '.')
        .unwrap_or(rest.len());
    if !rest[..end].contains(':') {
        return None;
    }
    let mut parts = rest[..end].trim_end_matches(['.', ':']).split(':');
    let hours: f64 = parts
        .next()
        .filter(|hours| (1..=3).contains(&hours.len()))?
        .parse()
        .ok()?;
    let minutes: f64 = parts
        .next()
        .filter(|minutes| minutes.len() == 2)?
        .parse()
        .ok()?;
    let seconds: f64 = parts
        .next()
        .filter(|seconds| (2..=9).contains(&seconds.len()))?
        .parse()
        .ok()?;
    let whole = parts.next().is_none() && minutes < 60.0 && seconds < 60.0;
    if whole {
        bounded(((days * 24.0 + hours) * 60.0 + minutes) * 60.0 + seconds)
    } else {
        None
    }
}

/// Returns the days before the clock, and what follows them.
fn days(text: &str) -> Option<(f64, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .filter(|digits| (1..=2).contains(digits))?;
    let rest = text[digits..].strip_prefix(" day")?;
    let rest = rest
        .strip_prefix('s')
        .unwrap_or(rest)
        .trim_start_matches([',', ' ']);
    Some((text[..digits].parse().ok()?, rest))
}

/// Returns a length that is believed.
pub(super) fn bounded(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_behind_words_of_length_is_a_length() {
        for (text, expected) in [
            ("0:09:48.", Some(588.0)),
            (" 00:00:45", Some(45.0)),
            ("17:40:00 hours", Some(63_600.0)),
            ("1 day, 3:12:05", Some(97_925.0)),
            ("0:00:01.500000", Some(1.5)),
            ("5:30", None),
            ("0:61:00", None),
            ("1:2:3", None),
            ("0:09:48:11", None),
            ("2026-09-10", None),
            ("45 seconds", None),
            ("1 day", None),
            ("", None),
        ] {
            assert_eq!(clock(text), expected.map(Duration::from_secs_f64), "{text}");
        }
    }
}
