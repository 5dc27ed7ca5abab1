//! Waits stated in the text: behind words that announce one, with a unit that means "later", or
//! written in words.

use std::time::Duration;

use super::rounds_to;
use crate::{
    domain::failure::{ProviderError, Wait, WaitSource},
    policy::{
        classify::reading::{NormalizedText, ends_with_any, longest_end},
        duration_text::{Unit, bounded, clock, duration, seconds_of},
    },
};

/// Words (in normalized spelling) that precede a wait, and the unit of a bare number.
const LEADS: [(&str, Option<Unit>); 3] = [
    (MILLIS, Some(Unit::Millis)),
    (SECONDS, Some(Unit::Seconds)),
    (WITH_UNIT, None),
];
const MILLIS: &str = "retry after ms|retry in ms|retry after milliseconds|retry after millis";
const SECONDS: &str = "\
    retry after seconds|retry after sec|retry after s|retry after secs|suspended time|retry after|\
    retry delay|retry delay seconds|resets in seconds|reset in seconds|reset after seconds|reset seconds|\
    wait seconds|wait time|estimated time|cooldown seconds";
const WITH_UNIT: &str = "\
    try again in|try again later in|retry later in|try later in|try again after|try again in about|\
    try again in approximately|retry in|retry in about|retried in|retry again in|retry your request after|\
    retry your request in|request again in|reset after|resets in|resets after|come back in|blocked for|banned for|\
    suspended for|reset in|reset|available in|available again in|allowed in|allowed again in|expires in|wait|wait for|\
    wait at least|wait another|wait about";

/// Words that end like a lead and are the client's own business.
const NOT_LEADS: &str = "\
    total retry delay|total retry wait time|total wait time|total wait|with retry in|and retry in|\
    will retry in|will retry later in";

/// Returns the first wait that the text states.
pub(super) fn stated(
    error: &ProviderError,
    reading: &NormalizedText,
    in_words: bool,
) -> Option<Wait> {
    let source = error.text()?;
    let mut rounded: Option<Wait> = None;
    for number in &reading.numbers {
        let before = &reading.text[..number.at];
        let leads = LEADS
            .iter()
            .filter_map(|(words, unit)| Some((longest_end(before, words)?, *unit)));
        let lead = leads
            .max_by_key(|(words, _)| words.len())
            .filter(|_| !ends_with_any(before, NOT_LEADS));
        let rest = source.get(number.source..)?;
        let wait = if let Some((words, unit)) = lead {
            if source.as_bytes().get(number.source.wrapping_sub(1)) == Some(&b'-') {
                continue;
            }
            let source = match words {
                "retry delay" => WaitSource::RetryInfo,
                _ if unit.is_some() => WaitSource::BodyField,
                _ => WaitSource::Text,
            };
            // Behind "after" and a bare "reset" a clock is a time of day.
            let clock = if words.ends_with("after") || words == "reset" {
                None
            } else {
                clock(rest)
            };
            clock
                .or_else(|| duration(rest, unit))
                .map(|duration| Wait { duration, source })
        } else {
            later(rest).map(|duration| Wait {
                duration,
                source: WaitSource::Text,
            })
        };
        // A field may be the text's wait rounded; the text follows it then.
        match (wait, rounded) {
            (Some(wait), Some(field)) if rounds_to(wait.duration, field.duration) => {
                return Some(wait);
            }
            (Some(wait), None) if wait.source == WaitSource::Text => return Some(wait),
            (wait, field) => rounded = field.or(wait),
        }
    }
    rounded.or_else(|| {
        if in_words {
            self::in_words(reading)
        } else {
            None
        }
    })
}

/// `60秒后`, `5 minutes later`: the word comes after the number.
fn later(rest: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 3] = [
        ("秒后|秒之后|秒後|秒以后|초 후|seconds later", 1.0),
        ("分钟后|分鐘後|分后|분 후|minutes later", 60.0),
        ("小时后|小時後", 3600.0),
    ];
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    // Nearly no number has such a unit; those that have none are not read.
    if matches!(rest.as_bytes()[end], b'!'..=b'~' if !matches!(rest.as_bytes()[end], b's' | b'm')) {
        return None;
    }
    let tail = rest[end..].trim_start();
    let begins = |units: &str| units.split('|').any(|unit| tail.starts_with(unit));
    let (_, seconds) = UNITS.iter().find(|(units, _)| begins(units))?;
    let number: f64 = rest[..end].parse().ok()?;
    bounded(number * seconds)
}

/// "try again in one minute".
fn in_words(reading: &NormalizedText) -> Option<Wait> {
    const LEADS: [&str; 7] = [
        " try again in ",
        " try again after ",
        " retry in ",
        " retry after ",
        " wait ",
        " wait for ",
        " resets in ",
    ];
    const NUMBERS: &str =
        "a|an|one|two|three|four|five|six|seven|eight|nine|ten|fifteen|twenty|thirty|forty|sixty";
    const VALUES: [f64; 17] = [
        1., 1., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 15., 20., 30., 40., 60.,
    ];
    let number = |word: &str| {
        NUMBERS
            .split('|')
            .zip(VALUES)
            .find(|(number, _)| *number == word)
            .map(|(_, value)| value)
    };
    let behind = |lead: &&str| {
        reading.text.match_indices(lead).find_map(|(at, _)| {
            let mut words = reading.text[at + lead.len()..].split(' ');
            bounded(number(words.next()?)? * seconds_of(words.next()?)?)
        })
    };
    let duration = LEADS.iter().find_map(behind)?;
    Some(Wait {
        duration,
        source: WaitSource::Text,
    })
}
