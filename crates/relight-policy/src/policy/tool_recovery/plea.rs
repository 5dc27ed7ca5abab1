//! Reads what a tool that failed asks for in its own words, if no other arguments can give it that.

use crate::domain::failure::{Failure, FailureClass};

/// Thing that a tool asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plea {
    /// Input of a person, or of a model, which it wanted to ask through its caller.
    Person,
    /// Time: it does something else.
    Time,
}

/// Words of a tool that wants to ask somebody, beside those that say that it has to.
const ASKS: [&str; 9] = [
    "elicitation",
    "sampling",
    "user input",
    "human input",
    "input from a person",
    "input from the user",
    "user interaction",
    "user confirmation",
    "confirmation from the user",
];
/// Words that say that it has to, or cannot.
const HAS_TO: [&str; 6] = [
    "requir",
    "need",
    "wait",
    "support",
    "await",
    "method not found",
];
/// Words of those about something else of the same name.
const ELSEWHERE: [&str; 3] = ["sampling rate", "sampling frequency", "sampling param"];
/// Words of a tool that has something else to do.
const BUSY: [&str; 7] = [
    "is busy",
    "busy:",
    "too busy",
    "still busy",
    "currently busy",
    "server busy",
    "try again later",
];

// === impl Plea ===

impl Plea {
    /// Returns what a tool asks for; `None` if it is the call that it refuses.
    pub(super) fn of(failure: &Failure) -> Option<Self> {
        let is_told_otherwise = matches!(
            failure.class,
            FailureClass::InvalidRequest | FailureClass::NotFound
        );
        let words = failure.message.to_lowercase();
        let has = |list: &[&str]| list.iter().any(|it| words.contains(it));
        if !is_told_otherwise {
            None
        } else if has(&ASKS) && has(&HAS_TO) && !has(&ELSEWHERE) {
            Some(Self::Person)
        } else {
            has(&BUSY).then_some(Self::Time)
        }
    }

    /// Returns the reason for which the tool cannot do what was requested.
    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::Person => "The tool needs input from a person, whom it cannot ask in this call.",
            Self::Time => FailureClass::Overloaded.row().tool_why,
        }
    }

    /// Returns what would make it work.
    pub(super) const fn remedies(self) -> &'static [&'static str] {
        match self {
            Self::Person => {
                &["The same call from a client through which the tool can ask a person."]
            }
            Self::Time => &["Time: the same call later."],
        }
    }

    /// Returns the action that an operator can take.
    pub(super) const fn hint(self) -> &'static str {
        match self {
            Self::Person => {
                "Set the tool up so that it has to ask nobody, or call it from a client that it can ask."
            }
            Self::Time => "The tool is busy: wait, or declare an alternative in `tools.groups`.",
        }
    }
}
