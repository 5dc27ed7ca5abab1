//! The arguments of a tool call as a JSON object, and places within it.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::policy::redact::redact;

/// The least whole number of which a float may be the nearest one: 2^53.
const FIRST_GAP: f64 = 9_007_199_254_740_992.0;

/// The arguments of a tool call.
pub type Arguments = Map<String, Value>;

/// Reads raw arguments; nothing at all is an empty object.
///
/// # Errors
/// Returns the reason for which they are not a JSON object, in words.
pub fn read(raw: &str) -> Result<Arguments, String> {
    if raw.trim().is_empty() {
        return Ok(Arguments::new());
    }
    match serde_json::from_str(raw) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err("the arguments are JSON, but no object".to_owned()),
        Err(error) => Err(format!(
            "the arguments are not JSON: line {}, column {}",
            error.line(),
            error.column()
        )),
    }
}

/// Returns the arguments as raw JSON text.
#[must_use]
pub fn write(arguments: &Arguments) -> String {
    // A map with texts as keys is always written.
    serde_json::to_string(arguments).unwrap_or_default()
}

/// Returns the value at a place: a name at the root, or a JSON pointer.
#[must_use]
pub fn get<'a>(arguments: &'a Arguments, place: &str) -> Option<&'a Value> {
    let Some(pointer) = place.strip_prefix('/') else {
        return arguments.get(place);
    };
    let (first, rest) = pointer
        .split_once('/')
        .map_or((pointer, None), |(first, rest)| (first, Some(rest)));
    let value = arguments.get(&unescaped(first))?;
    rest.map_or(Some(value), |rest| value.pointer(&format!("/{rest}")))
}

/// Puts a value at a place: where the way there exists, or at the root.
pub fn set(arguments: &mut Arguments, place: &str, value: Value) {
    let Some(pointer) = place.strip_prefix('/') else {
        arguments.insert(place.to_owned(), value);
        return;
    };
    let mut parts = pointer.split('/').map(unescaped);
    let (Some(mut name), mut at) = (parts.next(), arguments) else {
        return;
    };
    for next in parts {
        let Some(inner) = at.get_mut(&name).and_then(Value::as_object_mut) else {
            return;
        };
        (at, name) = (inner, next);
    }
    at.insert(name, value);
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Returns whether a value is longer than this as JSON text, counted without writing it.
#[must_use]
pub fn is_longer(value: &Value, max_bytes: usize) -> bool {
    struct Counter {
        left: usize,
    }
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.left = self
                .left
                .checked_sub(bytes.len())
                .ok_or_else(|| std::io::Error::other("too long"))?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    serde_json::to_writer(Counter { left: max_bytes }, value).is_err()
}

/// Returns an upstream name for people and models: on one line, bounded, between quotation marks.
#[must_use]
pub fn quoted(name: &str) -> String {
    let shown: String = redact(name, 64)
        .chars()
        .filter(|letter| *letter != '`')
        .collect();
    format!("`{shown}`")
}

/// Returns a hash of texts, in 32 letters.
#[must_use]
pub fn short_hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(text);
    }
    let mut letters = String::with_capacity(32);
    for byte in hash.finalize().iter().take(16) {
        // Writing to a string cannot fail.
        let _ = write!(letters, "{byte:02x}");
    }
    letters
}

/// Returns whether a text names an argument: as a word of its own.
#[must_use]
pub fn names(text: &str, name: &str) -> bool {
    places(text, name).next().is_some()
}

/// Returns the places at which a text names an argument.
pub(super) fn places<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    let all = text.match_indices(name).map(|(at, _)| at);
    all.filter(move |at| {
        !name.is_empty()
            && !is_part(text[..*at].chars().next_back())
            && !is_part(text[*at + name.len()..].chars().next())
    })
}

/// Returns whether every number has the digits that it was written with: one of more than 64 bits
/// is kept as the nearest one.
#[must_use]
pub fn keep_their_digits(arguments: &Arguments) -> bool {
    arguments.values().all(keeps_its_digits)
}

fn keeps_its_digits(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            let is_near = |number: f64| number.abs() >= FIRST_GAP;
            !number.is_f64() || !number.as_f64().is_some_and(is_near)
        }
        Value::Array(items) => items.iter().all(keeps_its_digits),
        Value::Object(members) => keep_their_digits(members),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}
