//! Names of one and the same argument.
//!
//! Two names mean the same if they hold the same words in the same order, or are usual names of one
//! thing. Names that negate each other, that state another direction, kind or unit, or of which one
//! is that of a secret, are never taken for one another, not even on the word of the tool: a
//! proposal in an error is often only the name that is spelt most like the unknown one.

use std::collections::BTreeSet;

use super::super::similarity::words;
use crate::policy::redact::is_name_of_secret;

/// Usual names of one argument, in letters only.
const SYNONYMS: [&[&str]; 6] = [
    &["limit", "maxresults", "numresults", "perpage", "pagesize"],
    &["query", "q", "searchquery"],
    &["path", "filepath"],
    &["url", "uri"],
    &["cursor", "pagetoken"],
    &["color", "colour"],
];

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

/// Words that exclude each other; each narrows a name that has none of its side.
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

/// Returns whether two names hold the same words, however these are joined and written.
pub(super) fn same_words(left: &str, right: &str) -> bool {
    let letters = letters(left);
    !letters.is_empty() && letters == self::letters(right)
}

/// Returns whether two names hold the same words, some of them in the plural.
pub(super) fn same_but_number(left: &str, right: &str) -> bool {
    let joined = |name: &str| letters(&words(name).join("_"));
    let is_plain = |name: &str| {
        name.chars()
            .all(|it| is_separator(it) || it.is_alphanumeric())
    };
    is_plain(left) && is_plain(right) && !joined(left).is_empty() && joined(left) == joined(right)
}

/// Returns whether two names are usual names of one argument.
pub(super) fn are_synonyms(left: &str, right: &str) -> bool {
    let left = letters(left);
    let right = letters(right);
    let mut groups = SYNONYMS.iter();
    groups.any(|names| names.contains(&left.as_str()) && names.contains(&right.as_str()))
}

/// Returns whether two names are surely those of different things.
pub(super) fn mean_otherwise(left: &str, right: &str) -> bool {
    if same_words(left, right) {
        return false;
    }
    let one = words(left);
    let other = words(right);
    let these = set(&one);
    let those = set(&other);
    let only_one: Vec<&str> = these.difference(&those).copied().collect();
    let only_other: Vec<&str> = those.difference(&these).copied().collect();
    let differ = |list: &[&str]| {
        let mut differing = only_one.iter().chain(&only_other);
        differing.any(|word| list.contains(word))
    };
    let are_kinds = |words: &[&str]| !words.is_empty() && words.iter().all(|it| KINDS.contains(it));
    let shared: Vec<&str> = these.intersection(&those).copied().collect();
    let is_swapped = !shared.is_empty() && !only_one.is_empty() && !only_other.is_empty();
    differ(&MARKS)
        || differ(&UNITS)
        || is_narrowed(&only_one, &those)
        || is_narrowed(&only_other, &these)
        || are_contrary(&only_one, &only_other)
        || ends_in_a_unit(&letters(left), &letters(right))
        || is_secret(left)
        || is_secret(right)
        || (is_swapped && (are_kinds(&shared) || are_kinds(&only_one) || are_kinds(&only_other)))
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

/// Returns whether one of these words has an opposite, and the other name no word of its side.
fn is_narrowed(words: &[&str], other: &BTreeSet<&str>) -> bool {
    let sides = || OPPOSITES.iter().flat_map(|(these, those)| [these, those]);
    words.iter().any(|word| {
        let mut own = sides().filter(|side| side.contains(word)).peekable();
        own.peek().is_some() && !own.any(|side| side.iter().any(|it| other.contains(it)))
    })
}

/// Returns whether a word of one name is a word of the other one with a negation.
fn are_contrary(left: &[&str], right: &[&str]) -> bool {
    let negates = |long: &str, short: &str| {
        CONTRARY.iter().any(|mark| {
            long.strip_prefix(mark)
                .is_some_and(|rest| !rest.is_empty() && rest == short)
        })
    };
    left.iter().any(|one| {
        right
            .iter()
            .any(|other| negates(one, other) || negates(other, one))
    })
}

const fn is_separator(letter: char) -> bool {
    matches!(letter, '_' | '-' | ' ')
}

/// Returns a name in lower case without what joins its words; between digits it is kept.
fn letters(name: &str) -> String {
    let mut letters = String::with_capacity(name.len());
    let mut rest = name.chars().peekable();
    while let Some(letter) = rest.next() {
        let is_in_number = letters.ends_with(|it: char| it.is_ascii_digit())
            && rest.peek().is_some_and(char::is_ascii_digit);
        if !is_separator(letter) || is_in_number {
            letters.extend(letter.to_lowercase());
        }
    }
    letters
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
mod tests;
