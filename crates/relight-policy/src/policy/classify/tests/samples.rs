//! Texts that hold a rule's phrase, made from its notation.

use super::super::{phrase, rule::Rule};
use crate::domain::failure::Surface;

/// A text that holds one phrase.
#[derive(Debug)]
pub(super) struct Sample {
    pub rule: String,
    pub text: String,
    pub surface: Surface,
    /// Whether the phrase asks for a status.
    pub by_status: bool,
}

/// Returns a sample of every phrase of a rule that consists of words.
pub(super) fn of(rule: &Rule) -> Vec<Sample> {
    let phrases = rule.any.iter().flat_map(|phrase| phrase::read(phrase));
    let worded = phrases.filter(|phrase| !phrase.chain.is_empty());
    worded
        .map(|phrase| {
            let parts = phrase.chain.iter().map(|part| &part.spellings[0]);
            let parts = parts.chain(phrase.with.iter().map(|words| &words[0]));
            let words: Vec<_> = parts
                .map(|words| words.replace('*', "").replace('#', "7"))
                .collect();
            Sample {
                rule: rule.name.clone(),
                text: words.join(" "),
                surface: phrase.surfaces.first().copied().unwrap_or_default(),
                by_status: !phrase.statuses.is_empty(),
            }
        })
        .collect()
}
