//! Waits that stand in the text: behind words that announce one, with a unit that says "later", or written in words.
//!
//! Never reads a client's own backoff ("will retry in").

use std::time::Duration;

use super::{
    length::{Unit, bounded, clock, duration},
    rounds_to,
};
use crate::{
    domain::failure::{ProviderError, Wait, WaitSource},
    policy::classify::reading::{Reading, Sieve, Word, last_marks, mark},
};

/// Words (in the spelling of a reading) after which a wait stands.
struct Lead {
    words: &'static str,
    /// The marks of the last of them and of the one before it.
    ends: (u64, Option<u64>),
    /// Whether a bare number means seconds or milliseconds.
    unit: Option<Unit>,
}

/// Words after which a wait stands, and what a bare number means.
const LEADS: [Lead; 48] = [
    lead(" retry after ms ", Some(Unit::Millis)),
    lead(" retry in ms ", Some(Unit::Millis)),
    lead(" retry after milliseconds ", Some(Unit::Millis)),
    lead(" retry after millis ", Some(Unit::Millis)),
    lead(" retry after seconds ", Some(Unit::Seconds)),
    lead(" retry after sec ", Some(Unit::Seconds)),
    lead(" retry after s ", Some(Unit::Seconds)),
    lead(" retry after secs ", Some(Unit::Seconds)),
    lead(" suspended time ", Some(Unit::Seconds)),
    lead(" retry after ", Some(Unit::Seconds)),
    lead(" retry delay ", Some(Unit::Seconds)),
    lead(" retry delay seconds ", Some(Unit::Seconds)),
    lead(" resets in seconds ", Some(Unit::Seconds)),
    lead(" reset in seconds ", Some(Unit::Seconds)),
    lead(" reset after seconds ", Some(Unit::Seconds)),
    lead(" reset seconds ", Some(Unit::Seconds)),
    lead(" wait seconds ", Some(Unit::Seconds)),
    lead(" wait time ", Some(Unit::Seconds)),
    lead(" estimated time ", Some(Unit::Seconds)),
    lead(" cooldown seconds ", Some(Unit::Seconds)),
    lead(" try again in ", None),
    lead(" try again after ", None),
    lead(" try again in about ", None),
    lead(" try again in approximately ", None),
    lead(" retry in ", None),
    lead(" retry in about ", None),
    lead(" retried in ", None),
    lead(" retry again in ", None),
    lead(" retry your request after ", None),
    lead(" retry your request in ", None),
    lead(" request again in ", None),
    lead(" reset after ", None),
    lead(" resets in ", None),
    lead(" resets after ", None),
    lead(" come back in ", None),
    lead(" blocked for ", None),
    lead(" banned for ", None),
    lead(" suspended for ", None),
    lead(" reset in ", None),
    lead(" reset ", None),
    lead(" available in ", None),
    lead(" available again in ", None),
    lead(" expires in ", None),
    lead(" wait ", None),
    lead(" wait for ", None),
    lead(" wait at least ", None),
    lead(" wait another ", None),
    lead(" wait about ", None),
];

/// The last word of each.
const ENDS_LEAD: Sieve = {
    let (mut sieve, mut at) = (Sieve::NONE, 0);
    while at < LEADS.len() {
        sieve = sieve.and(LEADS[at].ends.0);
        at += 1;
    }
    sieve
};

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
const NOT_LEADS: [Lead; 7] = [
    lead(" total retry delay ", None),
    lead(" total retry wait time ", None),
    lead(" total wait time ", None),
    lead(" total wait ", None),
    lead(" with retry in ", None),
    lead(" and retry in ", None),
    lead(" will retry in ", None),
];

const fn lead(words: &'static str, unit: Option<Unit>) -> Lead {
    Lead { words, ends: last_marks(words), unit }
}

/// The first wait that the text states.
pub(super) fn stated(error: &ProviderError, reading: &Reading, in_words: bool) -> Option<Wait> {
    let source = error.text()?;
    let mut rounded: Option<Wait> = None;
    for number in &reading.numbers {
        let before = &reading.text[..number.at];
        let mut words = reading.text.words().get(..number.words).unwrap_or_default().iter().rev().map(|word| word.mark);
        // Nearly no word before a number ends a lead.
        let last = words.next().filter(|last| ENDS_LEAD.may_have(*last));
        let lead = last.and_then(|last| {
            let marks = (last, words.next());
            let lead = LEADS.iter().filter(|lead| lead.ends(before, marks)).max_by_key(|lead| lead.words.len())?;
            (!NOT_LEADS.iter().any(|no| no.ends(before, marks))).then_some(lead)
        });
        let rest = source.get(number.source..)?;
        let wait = if let Some(Lead { words, unit, .. }) = lead {
            if source.as_bytes().get(number.source.wrapping_sub(1)) == Some(&b'-') {
                continue;
            }
            let source = match *words {
                " retry delay " => WaitSource::RetryInfo,
                _ if unit.is_some() => WaitSource::BodyField,
                _ => WaitSource::Text,
            };
            // Behind "after" and a bare "reset" a clock is a time of day.
            let clock = if words.ends_with("after ") || *words == " reset " { None } else { clock(rest) };
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
    const LEADS: [&str; 7] =
        [" try again in ", " try again after ", " retry in ", " retry after ", " wait ", " wait for ", " resets in "];
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

// === impl Lead ===

impl Lead {
    /// Whether a text ends with it, of which these are the marks of the last words.
    #[inline]
    fn ends(&self, text: &[u8], (last, before): (u64, Option<u64>)) -> bool {
        let (own_last, own_before) = self.ends;
        last == own_last && (own_before.is_none() || before == own_before) && text.ends_with(self.words.as_bytes())
    }
}
