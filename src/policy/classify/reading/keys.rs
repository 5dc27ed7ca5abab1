//! The keys whose values a reading treats apart: codes and messages are kept as values, echoes of the caller are dropped.
//!
//! Never looks at a value.

use super::letters::{Word, mark, place};

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

/// Some places of 256, by which nearly all other words are told from a few keys at once.
struct Places([u64; 4]);

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
    const PLACES: Places = Places::of(&ECHOES).and(&CODE_KEYS);
    match words.last() {
        Some(key) if !PLACES.has(key.mark) => Value::Other,
        Some(key) if CODE_KEYS.contains(&key.mark) => Value::Code,
        _ if end_with(words, &ECHOES) => Value::Echo,
        _ => Value::Other,
    }
}

/// Whether a number after these words keeps its digits.
#[inline]
pub(super) fn names_number(words: &[Word]) -> bool {
    const PLACES: Places = Places::of(&NUMBERED);
    words.last().is_some_and(|key| PLACES.has(key.mark)) && end_with(words, &NUMBERED)
}

fn end_with(words: &[Word], keys: &[Key]) -> bool {
    let mut last = words.iter().rev().map(|word| word.mark);
    let (key, before) = (last.next(), last.next());
    keys.iter().any(|(first, last)| key == Some(*last) && (first.is_none() || before == *first))
}

// === impl Places ===

impl Places {
    /// Of the last words of keys.
    const fn of(keys: &[Key]) -> Self {
        let (mut places, mut at) = (Self([0; 4]), 0);
        while at < keys.len() {
            places = places.and(&[keys[at].1]);
            at += 1;
        }
        places
    }

    /// Of more marks.
    const fn and(mut self, marks: &[u64]) -> Self {
        let mut at = 0;
        while at < marks.len() {
            let (part, bit) = Self::place(marks[at]);
            self.0[part] |= bit;
            at += 1;
        }
        self
    }

    #[inline]
    fn has(&self, mark: u64) -> bool {
        let (part, bit) = Self::place(mark);
        self.0[part] & bit != 0
    }

    #[inline]
    const fn place(mark: u64) -> (usize, u64) {
        ((mark % 4) as usize, place(mark))
    }
}
