//! Waits stated in the text as a moment: `resets at 2026-09-10T06:02:00Z`, `"reset_at": 1788933600`,
//! `available again at Thu, 10 Sep 2026 06:02:00 GMT`.
//!
//! A moment counts only with its zone; a time of day alone says neither the day nor the place.

use jiff::{Timestamp, fmt::rfc2822};

use super::until;
use crate::{
    domain::failure::{ProviderError, Wait, WaitSource},
    policy::classify::reading::{NormalizedText, ends_with_any},
};

/// Words (in normalized spelling) that precede the moment.
const LEADS: &str = "\
    reset at|resets at|reset on|resets on|reset|resets|reset time|next reset|retry at|retry after|try again at|\
    try again after|try again on|available at|available again at|blocked until|limited until|wait until|again until";
/// Days of the week, which an HTTP date begins with.
const DAYS: &str = "mon|tue|wed|thu|fri|sat|sun";
/// The longest moment in bytes: `2026-09-10 06:02:00.123456789 +00:00`.
const WIDTH: usize = 36;

/// Returns the wait until the first moment that the text names.
pub(super) fn stated(
    error: &ProviderError,
    reading: &NormalizedText,
    now: Timestamp,
) -> Option<Wait> {
    let source = error.text()?;
    let announced = reading.numbers.iter().filter(|number| {
        let before = &reading.text[..number.at];
        let day = before.trim_end().rsplit_once(' ');
        ends_with_any(before, LEADS)
            || day.is_some_and(|(before, day)| {
                DAYS.split('|').any(|name| name == day)
                    && ends_with_any(&format!("{before} "), LEADS)
            })
    });
    let mut moments = announced.filter_map(|number| moment(source.get(number.source..)?));
    let duration = until(moments.next()?, error, now)?;
    Some(Wait {
        duration,
        source: WaitSource::Text,
    })
}

/// Reads seconds or milliseconds since 1970, an ISO date with time and zone, or an HTTP date without
/// its day of the week.
fn moment(rest: &str) -> Option<Timestamp> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        10 => Timestamp::from_second(rest[..digits].parse().ok()?).ok(),
        13 => Timestamp::from_millisecond(rest[..digits].parse().ok()?).ok(),
        4 => {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || ":-+. ".contains(c)));
            let text = &rest[..end.unwrap_or(rest.len()).min(WIDTH)];
            zoned(text)
        }
        1 | 2 => {
            let end = rest.find(" GMT")?;
            let text = rest.get(..end + 4).filter(|text| text.len() <= WIDTH)?;
            rfc2822::parse(text).ok().map(|at| at.timestamp())
        }
        _ => None,
    }
}

/// Reads the longest beginning that is a date with time and zone.
fn zoned(text: &str) -> Option<Timestamp> {
    let date = text.get(..19)?;
    let behind = text.get(19..)?;
    let fraction = behind.strip_prefix('.').map_or(0, |rest| {
        1 + rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    let zone = behind[fraction..].trim_start();
    let is_utc = ["Z", "UTC", "GMT"].iter().any(|it| zone.starts_with(it));
    let offset = zone.get(..6).filter(|it| it.starts_with(['+', '-']));
    let zone = if is_utc { Some("Z") } else { offset }?;
    format!("{date}{zone}").parse().ok()
}
