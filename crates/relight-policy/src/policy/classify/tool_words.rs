//! Reads what a tool says of a failure in words of its own.
//!
//! Load, time, network and access have words that rules know; what is left is about the call, and
//! the same call meets it again. Where the tool names no more than the step that failed, it failed
//! itself.

use super::reading::NormalizedText;
use crate::domain::failure::{ProviderError, Surface};

/// Words that say no more than that something failed.
const EMPTY: &str = "\
    a an the this it tool call request operation action execution execute executing run running \
    error errors fail failed failure failing unknown unexpected occurred happened went wrong was has \
    been is with while of for to in at by didn t doesn does did do work works broke reason details given redacted";
/// Words that ask to come back, or speak of a state that passes.
const PASSING: &str = "again retry later soon wait moment temporarily restart restarting recovering \
    稍后 稍後 稍候 重试 重試 再试 再試 しばらく 再度";
/// Words of a clause that names what failed.
const FAILED: &str = "failed fails failing failure exception error échec fehlgeschlagen falló falhou bại 失败 失敗 エラー";
/// Other words from which on a tool says something of its own.
const TELLING: usize = 2;

/// Returns whether a tool says what it objects to.
pub(super) fn says_why(error: &ProviderError, reading: &NormalizedText) -> bool {
    let text = own_text(error, reading);
    let statements = clauses(text).filter(|clause| !names_a_step(clause));
    statements.map(telling_words).sum::<usize>() >= TELLING
}

/// Returns whether all that a tool says is which of its steps failed.
pub(super) fn says_only_where(error: &ProviderError, reading: &NormalizedText) -> bool {
    let text = own_text(error, reading);
    clauses(text).any(|clause| names_a_step(clause) && telling_words(clause) > 0)
}

/// Returns what a tool says, unless it asks to come back.
fn own_text<'e>(error: &'e ProviderError, reading: &NormalizedText) -> &'e str {
    if error.surface == Surface::Tool && !may_pass(reading) {
        error.text().unwrap_or_default()
    } else {
        ""
    }
}

/// Returns the parts of a text, of which an inner one follows the one that wraps it.
fn clauses(text: &str) -> impl Iterator<Item = &str> {
    text.lines().flat_map(|line| line.split(": "))
}

/// Returns whether a clause only wraps what follows: `Failed to get the page`, `Error creating issue
/// X`, `ToolError`.
fn names_a_step(clause: &str) -> bool {
    let words: Vec<String> = words(clause).collect();
    let is_error = |word: Option<&String>| word.is_some_and(|word| word.ends_with("error"));
    words.iter().any(|word| is_among(FAILED, word))
        || is_error(words.first())
        || is_error(words.last())
}

fn telling_words(clause: &str) -> usize {
    let telling = words(clause).filter(|word| !is_among(EMPTY, word));
    telling.map(|word| 1 + usize::from(is_wide(&word))).sum()
}

fn words(clause: &str) -> impl Iterator<Item = String> {
    clause
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
}

/// Returns whether a text asks to come back.
pub(super) fn may_pass(reading: &NormalizedText) -> bool {
    let mut words = reading.text.split_ascii_whitespace();
    words.any(|word| is_among(PASSING, word))
}

fn is_among(words: &str, word: &str) -> bool {
    words
        .split(' ')
        .any(|one| one == word || is_wide(one) && word.contains(one))
}

/// Returns whether a word is of a script without spaces, where it is a clause.
fn is_wide(word: &str) -> bool {
    word.chars().next() >= Some('\u{2e80}')
}
