//! The shape of a rule: a name, what it answers, and the phrases it keys on.
//!
//! Phrases are written in the spelling of [`super::reading`]: lower case, single spaces, `#` for a number. The small
//! language of one phrase, read once when the classifier is built:
//!
//! - `rate limit` – these words in a row, at word boundaries; a trailing `*` leaves the last word open (`exceed*`). Letters
//!   outside ASCII are found anywhere (Chinese has no word boundaries).
//! - `{a|b}` – either; `{a |}b` – a may be missing. Few combinations are written out, many become a chain.
//! - `a .. b` – b after a, at most [`NEAR`] bytes between.
//! - `a & b` – both, anywhere. `a !b` – a, and b nowhere.
//! - `=insufficient quota` – the whole value of a code-like key.
//! - `@tool`, `@grpc`, `@transport`, `@stream`, `@http` – only on that surface; `@400`, `@4xx` – only with that status
//!   (several mean any of them); `@num:1113` – a numeric code stands in the text;
//!   `@by:zhipu` – only from that provider family.
//!
//! Never judges on its own: order and effect are the engine's.

use crate::domain::failure::{FailureClass, InvalidRequestDetail};

/// Most bytes between two parts of an ordered phrase.
pub(super) const NEAR: usize = 90;

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// Unique name, `family.fact`.
    pub name: &'static str,
    /// The answer.
    pub class: FailureClass,
    /// What is wrong with the request, for `invalid_request`.
    pub detail: Option<InvalidRequestDetail>,
    /// Retryable against the class's default.
    pub retry: Option<bool>,
    /// Fallback against the class's default.
    pub fallback: Option<bool>,
    /// Any of these phrases.
    pub any: &'static [&'static str],
}

/// A rule without exceptions.
pub(super) const fn rule(name: &'static str, class: FailureClass, any: &'static [&'static str]) -> Rule {
    Rule { name, class, detail: None, retry: None, fallback: None, any }
}

/// A rule for an invalid request.
pub(super) const fn invalid(name: &'static str, detail: InvalidRequestDetail, any: &'static [&'static str]) -> Rule {
    Rule { name, class: FailureClass::InvalidRequest, detail: Some(detail), retry: None, fallback: None, any }
}

/// Phrases for numeric codes: `numbered!("@by:acme": 1, 2; "& acme": 3; also "words")`, each number in each scope's terms.
macro_rules! numbered {
    ($($scope:literal: $($number:literal),+);+ $(; also $($phrase:literal),+)?) => {
        &[$($(concat!("@num:", $number, " ", $scope),)+)+ $($($phrase),+)?]
    };
}
pub(super) use numbered;

// === impl Rule ===

impl Rule {
    /// The same rule, with another answer to whether a retry helps.
    pub(super) const fn retry(mut self, retry: bool) -> Self {
        self.retry = Some(retry);
        self
    }

    /// The same rule, with another answer to whether another target helps.
    pub(super) const fn fallback(mut self, fallback: bool) -> Self {
        self.fallback = Some(fallback);
        self
    }
}
