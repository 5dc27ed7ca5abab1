//! Relation of the name of an argument to another one: whether it may be the same argument at all,
//! and how much speaks for it.
//!
//! Names that negate each other, that state another unit, or of which one is that of a secret, are
//! never taken for one another, whatever else speaks for it: the call would do something else than
//! was asked, and nobody would see it.

use std::collections::BTreeSet;

use super::super::similarity::{same_argument, words};
use crate::policy::redact::is_name_of_secret;

/// Relation of the name of an argument to another one; the surer one comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kinship {
    /// They mean different things.
    Opposed,
    /// Nothing is known.
    Unrelated,
    /// All words of the one are most words of the other.
    Alike,
    /// Both are usual names of one argument.
    Synonyms,
    /// They hold the same words.
    Same,
}

/// Words that turn a meaning round, or narrow it: they are in both names or in neither.
const MARKS: [&str; 40] = [
    "not",
    "dont",
    "doesnt",
    "cannot",
    "cant",
    "avoid",
    "suppress",
    "mute",
    "block",
    "prevent",
    "no",
    "non",
    "never",
    "without",
    "with",
    "except",
    "exclude",
    "excluding",
    "excluded",
    "include",
    "including",
    "included",
    "ignore",
    "skip",
    "omit",
    "drop",
    "hide",
    "show",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "deny",
    "allow",
    "disallow",
    "forbid",
    "invert",
    "reverse",
    "only",
    "all",
];

/// Words with which a word becomes its contrary.
const CONTRARY: [&str; 7] = ["un", "in", "non", "no", "not", "dis", "de"];

/// Words that exclude each other.
const OPPOSITES: [(&[&str], &[&str]); 16] = [
    (
        &[
            "start", "begin", "from", "since", "after", "first", "earliest", "min", "minimum",
            "lower", "low",
        ],
        &[
            "end", "to", "until", "till", "before", "last", "latest", "max", "maximum", "upper",
            "high",
        ],
    ),
    (
        &[
            "source", "src", "from", "sender", "origin", "payer", "buyer", "debit",
        ],
        &[
            "target",
            "destination",
            "dest",
            "dst",
            "to",
            "recipient",
            "receiver",
            "payee",
            "seller",
            "credit",
        ],
    ),
    (&["asc", "ascending", "up"], &["desc", "descending", "down"]),
    (&["lat", "latitude"], &["lon", "lng", "long", "longitude"]),
    (&["width", "w", "x"], &["height", "h", "y"]),
    (&["left", "top"], &["right", "bottom"]),
    (
        &["old", "previous", "prev", "before"],
        &["new", "next", "after"],
    ),
    (
        &["add", "append", "create", "keep", "retain", "preserve"],
        &["remove", "delete", "discard", "purge"],
    ),
    (
        &["accept", "approve", "grant"],
        &["reject", "decline", "revoke"],
    ),
    (&["internal", "inner"], &["external", "outer"]),
    (
        &["open", "on", "start"],
        &["close", "closed", "off", "stop"],
    ),
    (&["public"], &["private"]),
    (&["parent"], &["child", "children"]),
    (&["read"], &["write"]),
    (&["input", "in"], &["output", "out"]),
    (&["buy"], &["sell"]),
];

/// Words that state a unit, or in which system something is counted.
const UNITS: [&str; 95] = [
    "ns",
    "nano",
    "nanosecond",
    "us",
    "micro",
    "microsecond",
    "ms",
    "msec",
    "milli",
    "millisecond",
    "s",
    "sec",
    "second",
    "min",
    "minute",
    "h",
    "hr",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "epoch",
    "unix",
    "iso",
    "utc",
    "bit",
    "byte",
    "b",
    "kb",
    "kib",
    "kilobyte",
    "mb",
    "mib",
    "megabyte",
    "gb",
    "gib",
    "gigabyte",
    "tb",
    "tib",
    "usd",
    "eur",
    "gbp",
    "jpy",
    "chf",
    "cny",
    "inr",
    "cent",
    "dollar",
    "euro",
    "pound",
    "yen",
    "minor",
    "celsius",
    "fahrenheit",
    "kelvin",
    "km",
    "kilometer",
    "kilometre",
    "m",
    "meter",
    "metre",
    "cm",
    "centimeter",
    "mm",
    "millimeter",
    "mi",
    "mile",
    "ft",
    "foot",
    "feet",
    "yard",
    "inch",
    "kg",
    "kilogram",
    "g",
    "gram",
    "mg",
    "lb",
    "ounce",
    "oz",
    "percent",
    "pct",
    "percentage",
    "ratio",
    "fraction",
    "bp",
    "deg",
    "degree",
    "rad",
    "radian",
    "px",
    "kmh",
    "mph",
];

/// Words of the names of secrets, beside what a record of a call leaves out.
const SECRET: [&str; 14] = [
    "password",
    "pass",
    "passwd",
    "pwd",
    "passphrase",
    "passcode",
    "pin",
    "otp",
    "secret",
    "token",
    "key",
    "credential",
    "cvv",
    "private",
];

/// Words of the names of tokens that hide nothing: they say where a list continues.
const PAGING: [&str; 4] = ["page", "next", "continuation", "sync"];

/// Words that say what a value is and not whose: between two names that share no more than such a
/// word, the rest is the meaning.
const KINDS: [&str; 20] = [
    "id", "uuid", "name", "date", "time", "at", "count", "number", "code", "type", "kind",
    "status", "email", "address", "url", "path", "amount", "price", "value", "text",
];

/// Returns the relation of one name to another one.
pub(super) fn kinship(left: &str, right: &str) -> Kinship {
    let one = words(left);
    let other = words(right);
    let these = set(&one);
    let those = set(&other);
    if these == those {
        return Kinship::Same;
    }
    let only_one: Vec<&str> = these.difference(&those).copied().collect();
    let only_other: Vec<&str> = those.difference(&these).copied().collect();
    let differ = |list: &[&str]| {
        let mut differing = only_one.iter().chain(&only_other);
        differing.any(|word| list.contains(word))
    };
    if differ(&MARKS)
        || differ(&UNITS)
        || are_contrary(&only_one, &only_other)
        || ends_in_a_unit(&letters(left), &letters(right))
        || is_secret(left)
        || is_secret(right)
    {
        return Kinship::Opposed;
    }
    if same_argument(left, right) {
        return Kinship::Synonyms;
    }
    let shared: Vec<&str> = these.intersection(&those).copied().collect();
    let share_a_kind = !shared.is_empty() && shared.iter().all(|word| KINDS.contains(word));
    if share_a_kind && !only_one.is_empty() && !only_other.is_empty() {
        return Kinship::Opposed;
    }
    // A word in place of another one may be another meaning (`home_score`, `away_score`).
    let is_part = only_one.is_empty() || only_other.is_empty();
    // Six tenths of the words of both names are shared.
    if is_part && 10 * shared.len() >= 3 * (these.len() + those.len()) {
        Kinship::Alike
    } else {
        Kinship::Unrelated
    }
}

/// Returns whether two texts about arguments state different units.
pub(super) fn units_differ(left: &str, right: &str) -> bool {
    let units = |text: &str| -> Vec<String> {
        let mut units: Vec<String> = words(text)
            .into_iter()
            // A single letter in a sentence is an article or a variable.
            .filter(|word| word.len() > 1 && UNITS.contains(&word.as_str()))
            .collect();
        units.sort_unstable();
        units.dedup();
        units
    };
    let left = units(left);
    let right = units(right);
    !left.is_empty() && !right.is_empty() && left != right
}

/// Returns whether an argument holds a secret by its name.
pub(super) fn is_secret(name: &str) -> bool {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    !has(&PAGING) && (is_name_of_secret(name) || has(&SECRET))
}

fn set(words: &[String]) -> BTreeSet<&str> {
    words.iter().map(String::as_str).collect()
}

/// Returns whether a word of one name is the contrary of a word of the other one.
fn are_contrary(left: &[&str], right: &[&str]) -> bool {
    let negates = |long: &str, short: &str| {
        CONTRARY.iter().any(|mark| {
            long.strip_prefix(mark)
                .is_some_and(|rest| !rest.is_empty() && rest == short)
        })
    };
    let opposed = |one: &str, other: &str| {
        OPPOSITES.iter().any(|(these, those)| {
            (these.contains(&one) && those.contains(&other))
                || (those.contains(&one) && these.contains(&other))
        })
    };
    left.iter().any(|one| {
        right
            .iter()
            .any(|other| negates(one, other) || negates(other, one) || opposed(one, other))
    })
}

fn letters(name: &str) -> String {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Returns whether names that are written in one word differ by a unit at their end (`timeoutms`).
fn ends_in_a_unit(left: &str, right: &str) -> bool {
    let common = left
        .char_indices()
        .zip(right.chars())
        .take_while(|((_, one), other)| one == other)
        .last()
        .map_or(0, |((at, letter), _)| at + letter.len_utf8());
    let is_unit = |rest: &str| {
        let rest = rest
            .strip_suffix('s')
            .filter(|one| one.len() > 2)
            .unwrap_or(rest);
        rest.len() > 1 && UNITS.contains(&rest)
    };
    common > 0 && (is_unit(&left[common..]) || is_unit(&right[common..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_one_argument_are_known() {
        for (left, right, expected) in [
            ("perPage", "per_page", Kinship::Same),
            ("user-id", "userId", Kinship::Same),
            ("id", "ids", Kinship::Same),
            ("limit", "max_results", Kinship::Synonyms),
            ("q", "query", Kinship::Synonyms),
            ("since", "start_date", Kinship::Synonyms),
            ("to", "until", Kinship::Synonyms),
            ("id", "activity_id", Kinship::Alike),
            ("order_limit", "limit", Kinship::Alike),
            ("colour", "hue", Kinship::Unrelated),
            ("home_team_score", "away_team_score", Kinship::Unrelated),
            (
                "billing_contact_note",
                "shipping_contact_note",
                Kinship::Unrelated,
            ),
            ("limit", "offset", Kinship::Unrelated),
        ] {
            assert_eq!(kinship(left, right), expected, "{left} {right}");
            assert_eq!(kinship(right, left), expected, "{right} {left}");
        }
    }

    #[test]
    fn what_means_something_else_is_never_the_same_argument() {
        for (left, right) in [
            ("include_archived", "exclude_archived"),
            ("includeArchived", "archived"),
            ("enable_cache", "disable_cache"),
            ("active", "inactive"),
            ("notify", "dont_notify"),
            ("notifyUsers", "suppressNotifyUsers"),
            ("keep_old_files", "delete_old_files"),
            ("archived", "unarchived"),
            ("recursive", "not_recursive"),
            ("recursive", "non_recursive"),
            ("archived", "archived_only"),
            ("allow_list", "deny_list"),
            ("with_deleted", "without_deleted"),
            ("min_price", "max_price"),
            ("start_date", "end_date"),
            ("since", "until"),
            ("from_account", "to_account"),
            ("source_path", "target_path"),
            ("timeout_seconds", "timeout_ms"),
            ("timeoutSeconds", "timeoutMs"),
            ("timeoutseconds", "timeoutms"),
            ("timeout", "timeout_ms"),
            ("timeout_s", "timeout_min"),
            ("size_bytes", "size_kb"),
            ("size", "size_mb"),
            ("amount_usd", "amount_eur"),
            ("amount", "amount_cents"),
            ("temperature_celsius", "temperature_fahrenheit"),
            ("distance_km", "distance_miles"),
            ("days", "hours"),
            ("user", "password"),
            ("user", "user_password"),
            ("name", "api_key"),
            ("id", "access_token"),
            ("api_key", "key"),
            ("secret", "name"),
            ("user_id", "account_id"),
            ("first_name", "last_name"),
            ("birth_date", "order_date"),
        ] {
            assert_eq!(kinship(left, right), Kinship::Opposed, "{left} {right}");
            assert_eq!(kinship(right, left), Kinship::Opposed, "{right} {left}");
        }
    }

    #[test]
    fn texts_that_state_two_units_differ() {
        assert!(units_differ(
            "Timeout in seconds",
            "The timeout, in milliseconds"
        ));
        assert!(!units_differ(
            "Timeout in seconds",
            "Seconds until it times out"
        ));
        assert!(!units_differ("Timeout", "Timeout in seconds"));
    }

    proptest! {
        #[test]
        fn a_mark_or_a_unit_on_one_side_alone_is_never_the_same(
            base in proptest::sample::select(vec!["archived", "cache", "report", "user_list", "retention"]),
            added in proptest::sample::select(
                MARKS.iter().chain(&UNITS).copied().filter(|word| word.len() > 1).collect::<Vec<_>>()
            ),
            is_before in any::<bool>(),
            is_camel in any::<bool>(),
        ) {
            let joined = if is_camel {
                let (first, second) = if is_before { (added, base) } else { (base, added) };
                let mut letters = second.chars();
                let head = letters.next().map(|letter| letter.to_ascii_uppercase()).unwrap();
                format!("{first}{head}{}", letters.as_str())
            } else if is_before {
                format!("{added}_{base}")
            } else {
                format!("{base}_{added}")
            };
            prop_assert_eq!(kinship(base, &joined), Kinship::Opposed, "{} {}", base, joined);
            prop_assert_eq!(kinship(&joined, base), Kinship::Opposed);
        }

        #[test]
        fn how_two_names_stand_depends_on_no_order(left in "[a-z_A-Z]{0,16}", right in "[a-z_A-Z]{0,16}") {
            prop_assert_eq!(kinship(&left, &right), kinship(&right, &left));
        }
    }
}
