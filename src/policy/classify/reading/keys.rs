//! The keys whose values a reading treats apart: codes and messages are kept as values, echoes of the caller are dropped.
//!
//! Never looks at a value.

use super::{letters::mark, text::Word};

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
