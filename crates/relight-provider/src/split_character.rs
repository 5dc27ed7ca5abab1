//! Joins a character that a server split over two events.
//!
//! Servers that cut a text between the two UTF-16 halves of a character write each half as an escape
//! of its own (`\ud83d`, then `\ude00`). JSON can be written so, and no reader of Unicode can read
//! it. The first half is kept from its event, and put before the second one in the event that starts
//! with it.

use std::{fmt::Write as _, mem};

/// Length of the escape of a half, in bytes.
const ESCAPE: usize = 6;

/// The first half of a character whose second one is still to come.
#[derive(Debug, Default)]
pub(super) struct SplitCharacter {
    first: Option<u16>,
}

/// Half that is alone, and the position at which its escape starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lone {
    /// The first one, at the end of a string.
    First(usize, u16),
    /// The second one, at the beginning of a string.
    Second(usize),
}

// === impl SplitCharacter ===

impl SplitCharacter {
    /// Returns whether the second half of a character is missing.
    pub(super) const fn is_open(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the JSON of an event, with a split character in the event that holds its second
    /// half. What cannot be joined is left as it came: it does not parse.
    pub(super) fn join(&mut self, json: String) -> String {
        if memchr::memmem::find(json.as_bytes(), b"\\u").is_none() {
            return json;
        }
        let Some(halves) = lone(&json).filter(|halves| !halves.is_empty()) else {
            return json;
        };
        let before = self.first;
        let (mut joined, mut from, mut kept) =
            (String::with_capacity(json.len() + ESCAPE), 0, None);
        let mut is_used = false;
        for half in halves {
            match half {
                Lone::First(at, unit) => {
                    let is_other = kept
                        .or(before.filter(|_| !is_used))
                        .is_some_and(|known| known != unit);
                    if is_other {
                        return json;
                    }
                    joined.push_str(&json[from..at]);
                    from = at + ESCAPE;
                    kept = Some(unit);
                }
                Lone::Second(at) => {
                    let Some(first) = before else {
                        return json;
                    };
                    joined.push_str(&json[from..at]);
                    let _ = write!(joined, "\\u{first:04x}");
                    from = at;
                    is_used = true;
                }
            }
        }
        joined.push_str(&json[from..]);
        if is_used {
            self.first = None;
        }
        self.first = kept.or(mem::take(&mut self.first));
        joined
    }
}

/// Returns the halves of characters that are alone; `None` if one is neither at the end nor at the
/// start of a string, so that nothing can be joined to it.
fn lone(json: &str) -> Option<Vec<Lone>> {
    let bytes = json.as_bytes();
    let mut halves = Vec::new();
    let mut at = 0;
    let mut after_escape = 0;
    while let Some(next) = memchr::memchr(b'\\', bytes.get(at..)?) {
        let here = at + next;
        let Some(unit) = unit(bytes, here) else {
            at = here + 2;
            after_escape = at;
            continue;
        };
        at = here + ESCAPE;
        match unit {
            0xD800..=0xDBFF if matches!(self::unit(bytes, at), Some(0xDC00..=0xDFFF)) => {
                at += ESCAPE;
            }
            0xD800..=0xDBFF if bytes.get(at) == Some(&b'"') => halves.push(Lone::First(here, unit)),
            0xDC00..=0xDFFF if here > after_escape && bytes.get(here - 1) == Some(&b'"') => {
                halves.push(Lone::Second(here));
            }
            0xD800..=0xDFFF => return None,
            _ => {}
        }
        after_escape = at;
    }
    Some(halves)
}

/// Returns the UTF-16 unit whose escape is at this place.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
    let digits = str::from_utf8(escape).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Returns the texts that a JavaScript server writes for these pieces of UTF-16.
    fn written(units: &[u16]) -> String {
        let escapes = units.iter().map(|unit| format!("\\u{unit:04x}"));
        format!("{{\"t\":\"{}\"}}", escapes.collect::<String>())
    }

    fn text(json: &str) -> String {
        let value: Value = serde_json::from_str(json).unwrap();
        value["t"].as_str().unwrap().to_owned()
    }

    proptest! {
        #[test]
        fn a_text_is_the_same_wherever_it_is_cut_between_units(
            whole in "[a\"\\\\\u{e9}\u{1f600}\u{10ffff}]{0,12}", cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5)
        ) {
            let units: Vec<u16> = whole.encode_utf16().collect();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(units.len() + 1)).collect();
            places.extend([0, units.len()]);
            places.sort_unstable();
            places.dedup();
            let mut split = SplitCharacter::default();
            let pieces = places.windows(2).map(|pair| text(&split.join(written(&units[pair[0]..pair[1]]))));
            prop_assert_eq!(pieces.collect::<String>(), whole);
            prop_assert!(!split.is_open());
        }
    }

    #[test]
    fn what_cannot_be_joined_is_left_as_it_came() {
        for json in [
            r#"{"t":"\ude00"}"#,
            r#"{"t":"\ud83d a"}"#,
            r#"{"t":"a \ude00"}"#,
            r#"{"t":"\"\ude00"}"#,
            r#"{"t":"a\\ud83d"}"#,
            r#"{"t":"\ud8"}"#,
            r#"{"t":"😀 \ud83d\ude00"}"#,
        ] {
            let mut split = SplitCharacter::default();
            assert_eq!(split.join(json.to_owned()), json);
            assert!(!split.is_open(), "{json}");
        }
    }

    #[test]
    fn a_first_half_waits_through_other_events_and_for_one_second_half_only() {
        let mut split = SplitCharacter::default();
        assert_eq!(
            split.join(r#"{"t":"hi \ud83d"}"#.to_owned()),
            r#"{"t":"hi "}"#
        );
        assert!(split.is_open());
        assert_eq!(split.join("{}".to_owned()), "{}");
        // The same text once more, as a whole.
        assert_eq!(
            split.join(r#"{"t":"hi \ud83d"}"#.to_owned()),
            r#"{"t":"hi "}"#
        );
        let other = r#"{"t":"\ud83e"}"#;
        assert_eq!(split.join(other.to_owned()), other);
        let both = split.join(r#"{"t":"\ude00 there","u":"\ude00 there"}"#.to_owned());
        assert_eq!(
            both,
            r#"{"t":"\ud83d\ude00 there","u":"\ud83d\ude00 there"}"#
        );
        assert!(!split.is_open());
    }
}
