//! The keys whose values a reading treats apart: codes and messages are kept as values, echoes of the caller are dropped.
//!
//! Never looks at a value.

use super::{letters::Mark, text::Word};

/// Keys whose value is a code, or the message itself.
const CODE_KEYS: [u64; 12] = [
    mark(b"code"),
    mark(b"type"),
    mark(b"status"),
    mark(b"reason"),
    mark(b"name"),
    mark(b"errcode"),
    mark(b"category"),
    mark(b"error"),
    mark(b"detail"),
    mark(b"message"),
    mark(b"event"),
    mark(b"exception"),
];

/// The marks of a key, and of the word before it if one must stand there.
type Key = (Option<u64>, u64);

/// Keys whose value repeats what the caller sent or the model wrote.
const ECHOES: [Key; 7] = [
    (None, mark(b"input")),
    (None, mark(b"prompt")),
    (Some(mark(b"failed")), mark(b"generation")),
    (Some(mark(b"input")), mark(b"value")),
    (Some(mark(b"request")), mark(b"id")),
    (Some(mark(b"documentation")), mark(b"url")),
    (Some(mark(b"request")), mark(b"body")),
];

/// Keys whose number keeps its digits, because systems number their errors the same in every language.
const NUMBERED: [Key; 7] = [
    (None, mark(b"errno")),
    (None, mark(b"curl")),
    (Some(mark(b"win")), mark(b"error")),
    (Some(mark(b"os")), mark(b"error")),
    (Some(mark(b"curl")), mark(b"error")),
    (Some(mark(b"err")), mark(b"code")),
    (Some(mark(b"exit")), mark(b"code")),
];

/// Whether the value after these words is a code, or the message itself.
pub(super) fn is_code(words: &[Word]) -> bool {
    words.last().is_some_and(|key| CODE_KEYS.contains(&key.mark))
}

/// Whether the value after these words repeats what the caller sent or the model wrote.
pub(super) fn is_echo(words: &[Word]) -> bool {
    end_with(words, &ECHOES)
}

/// Whether a number after these words keeps its digits.
pub(super) fn names_number(words: &[Word]) -> bool {
    end_with(words, &NUMBERED)
}

fn end_with(words: &[Word], keys: &[Key]) -> bool {
    let mut last = words.iter().rev().map(|word| word.mark);
    let (key, before) = (last.next(), last.next());
    keys.iter().any(|(first, last)| key == Some(*last) && (first.is_none() || before == *first))
}

const fn mark(word: &[u8]) -> u64 {
    Mark::of(word, word.len())
}
