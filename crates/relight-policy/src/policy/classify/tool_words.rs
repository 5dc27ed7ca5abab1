//! Reads what a tool says of a failure in words of its own.
//!
//! Load, time, network and access have words that rules know; what is left is about the call, and
//! the same call meets it again.

use super::reading::NormalizedText;
use crate::domain::failure::{ProviderError, Surface};

/// Words that say no more than that something failed.
const EMPTY: &str = "\
    a an the this it tool call request operation action execution execute executing run running \
    error errors fail failed failure failing unknown unexpected occurred happened went wrong was has \
    been is with while of for to in at by";
/// Words that ask to come back, or speak of a state that passes.
const PASSING: &str =
    "again retry later soon wait moment temporarily restart restarting recovering";
/// Other words from which on a tool says something of its own.
const TELLING: usize = 2;

/// Whether a tool says what it objects to.
pub(super) fn says_why(error: &ProviderError, reading: &NormalizedText) -> bool {
    let words = reading.text.split_ascii_whitespace();
    error.surface == Surface::Tool
        && !may_pass(reading)
        && words.filter(|word| !is_among(EMPTY, word)).count() >= TELLING
}

/// Whether a text asks to come back.
pub(super) fn may_pass(reading: &NormalizedText) -> bool {
    let mut words = reading.text.split_ascii_whitespace();
    words.any(|word| is_among(PASSING, word))
}

fn is_among(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}
