//! The keys whose values a reading treats apart: codes and messages are kept as values, echoes of the caller are dropped.
//!
//! Never looks at a value.

use super::letters::packed;

/// Keys whose value is a code, or the message itself.
const CODE_KEYS: [u64; 11] = [
    packed(b"code"),
    packed(b"type"),
    packed(b"status"),
    packed(b"reason"),
    packed(b"name"),
    packed(b"errcode"),
    packed(b"category"),
    packed(b"error"),
    packed(b"detail"),
    packed(b"message"),
    packed(b"event"),
];

/// Whether the value of this key is a code, or the message itself.
pub(super) fn is_code_key(word: &[u8]) -> bool {
    if word.len() > 8 { word == b"exception" } else { CODE_KEYS.contains(&packed(word)) }
}

/// Whether the value of this key repeats what the caller sent or the model wrote.
pub(super) fn is_echo(word: &[u8], text: &[u8]) -> bool {
    match word {
        b"input" | b"prompt" => true,
        b"generation" => ends_with_words(text, b"failed generation"),
        b"value" => ends_with_words(text, b"input value"),
        b"id" => ends_with_words(text, b"request id"),
        b"url" => ends_with_words(text, b"documentation url"),
        b"body" => ends_with_words(text, b"request body"),
        _ => false,
    }
}

fn ends_with_words(text: &[u8], words: &[u8]) -> bool {
    text.strip_suffix(b" ")
        .and_then(|text| text.strip_suffix(words))
        .is_some_and(|before| before.last().is_none_or(|b| !b.is_ascii_alphanumeric()))
}
