//! The keys whose values a reading treats apart: codes and messages are kept as values, echoes of the caller are dropped.
//!
//! Never looks at a value.

use super::letters::{Sieve, Word, mark};

/// Keys whose value is a code, or the message itself.
const CODE_KEYS: [u64; 12] = [
    mark("code"),
    mark("type"),
    mark("status"),
    mark("reason"),
    mark("name"),
    mark("errcode"),
    mark("category"),
    mark("error"),
    mark("detail"),
    mark("message"),
    mark("event"),
    mark("exception"),
];

/// The marks of a key, and of the word before it if one must stand there.
type Key = (Option<u64>, u64);

/// Keys whose value repeats what the caller sent or the model wrote.
const ECHOES: [Key; 7] = [
    (None, mark("input")),
    (None, mark("prompt")),
    (Some(mark("failed")), mark("generation")),
    (Some(mark("input")), mark("value")),
    (Some(mark("request")), mark("id")),
    (Some(mark("documentation")), mark("url")),
    (Some(mark("request")), mark("body")),
];

/// Keys whose number keeps its digits, because systems number their errors the same in every language.
const NUMBERED: [Key; 7] = [
    (None, mark("errno")),
    (None, mark("curl")),
    (Some(mark("win")), mark("error")),
    (Some(mark("os")), mark("error")),
    (Some(mark("curl")), mark("error")),
    (Some(mark("err")), mark("code")),
    (Some(mark("exit")), mark("code")),
];

/// What the value of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A code, or the message itself.
    Code,
    /// What the caller sent or the model wrote.
    Echo,
    Other,
}

/// What the value after these words is.
#[inline]
pub(super) fn value_of(words: &[Word]) -> Value {
    const SIEVE: Sieve = sieve_of(&ECHOES).and_all(&CODE_KEYS);
    match words.last() {
        Some(key) if !SIEVE.may_have(key.mark) => Value::Other,
        Some(key) if CODE_KEYS.contains(&key.mark) => Value::Code,
        _ if end_with(words, &ECHOES) => Value::Echo,
        _ => Value::Other,
    }
}

/// Whether a number after these words keeps its digits.
#[inline]
pub(super) fn names_number(words: &[Word]) -> bool {
    const SIEVE: Sieve = sieve_of(&NUMBERED);
    words.last().is_some_and(|key| SIEVE.may_have(key.mark)) && end_with(words, &NUMBERED)
}

fn end_with(words: &[Word], keys: &[Key]) -> bool {
    let mut last = words.iter().rev().map(|word| word.mark);
    let (key, before) = (last.next(), last.next());
    keys.iter().any(|(first, last)| key == Some(*last) && (first.is_none() || before == *first))
}

/// The last words of keys.
const fn sieve_of(keys: &[Key]) -> Sieve {
    let (mut sieve, mut at) = (Sieve::NONE, 0);
    while at < keys.len() {
        sieve = sieve.and(keys[at].1);
        at += 1;
    }
    sieve
}
