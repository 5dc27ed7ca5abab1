//! The judgement of what a caller holds, against what the provider sent.

use std::collections::BTreeSet;

use relight_lab::fake_llm::{ARGUMENTS, TOOL, half, other_text, text};
use serde_json::Value;

use crate::{
    caller::HeldByCaller,
    cases::{CallPattern, Case, Ideal},
};

/// Judgement of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaseJudgement {
    /// The caller holds the whole answer, once.
    Whole,
    /// The caller holds an error, and no gateway can do better.
    ErrorAsDue,
    /// The caller holds a clear error; a whole answer could have been had.
    GaveUp,
    /// The caller holds something sound, but more was asked of the provider than makes sense.
    Wasteful(String),
    /// The caller holds something that is not true, and cannot know it.
    Unsound(String),
    /// It was not tried.
    NotRun(String),
}

// === impl CaseJudgement ===

impl CaseJudgement {
    /// Judges what a caller holds.
    pub(crate) fn of(case: &Case, held: &HeldByCaller) -> Self {
        if case.calls == CallPattern::Abandoned {
            return if held.provider_left {
                Self::Whole
            } else {
                Self::Unsound("the provider goes on generating for a caller that left".to_owned())
            };
        }
        let fault = match &held.error {
            Some(_) => wrong_part(case, held),
            None => wrong_whole(case, held),
        };
        if let Some(fault) = fault {
            return Self::Unsound(fault);
        }
        if held.record.attempts > case.max_attempts {
            let attempts = held.record.attempts;
            return if case.calls == CallPattern::TwiceWithOneKey || held.error.is_none() {
                Self::Unsound(format!(
                    "a second payment: {attempts} attempts, {} would do",
                    case.max_attempts
                ))
            } else {
                Self::Wasteful(format!(
                    "{attempts} attempts at what cannot succeed, {} would do",
                    case.max_attempts
                ))
            };
        }
        match (&held.error, case.ideal) {
            (None, _) => Self::Whole,
            (Some(_), Ideal::Error) => Self::ErrorAsDue,
            (Some(_), Ideal::Whole) => Self::GaveUp,
        }
    }
}

/// The texts that a caller may hold whole.
fn texts(case: &Case) -> Vec<String> {
    match case.finish.as_str() {
        "stop" => vec![text(), other_text()],
        _ => vec![half(&text()).to_owned()],
    }
}

/// Returns the fault of an answer that came with an error: what was delivered must be the beginning
/// of one answer.
fn wrong_part(case: &Case, held: &HeldByCaller) -> Option<String> {
    if case.wants_tool()
        || texts(case)
            .iter()
            .any(|text| text.starts_with(held.text.as_str()))
    {
        return None;
    }
    Some(format!("before its error: {}", seam(&held.text)))
}

/// Returns the fault of an answer that claims to be whole.
fn wrong_whole(case: &Case, held: &HeldByCaller) -> Option<String> {
    if case.ideal == Ideal::Error && held.text.is_empty() && held.tools.is_empty() {
        return Some("an empty answer in place of the provider's error".to_owned());
    }
    let content = if case.wants_tool() {
        wrong_tool(held)
    } else {
        wrong_text(case, held)
    };
    content.or_else(|| match held.finish.as_deref() {
        None => Some("no finish reason, and no error".to_owned()),
        Some(finish) if finish != case.finish => Some(format!(
            "finish reason `{finish}` in place of `{}`",
            case.finish
        )),
        Some(_) => None,
    })
}

fn wrong_text(case: &Case, held: &HeldByCaller) -> Option<String> {
    let texts = texts(case);
    if texts.contains(&held.text) {
        return None;
    }
    if texts
        .iter()
        .any(|text| text.starts_with(held.text.as_str()))
    {
        let words = held.text.split_whitespace().count();
        return Some(format!(
            "a cut answer ends as if it were whole, after {words} words"
        ));
    }
    Some(seam(&held.text))
}

fn wrong_tool(held: &HeldByCaller) -> Option<String> {
    let [(name, arguments)] = held.tools.values().collect::<Vec<_>>()[..] else {
        return Some(format!("{} tool calls in place of one", held.tools.len()));
    };
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    if parsed(arguments).is_none() {
        return Some("half a tool call, as if it were whole".to_owned());
    }
    if name != TOOL || parsed(arguments) != parsed(ARGUMENTS) {
        return Some(format!("another tool call: {name} {arguments}"));
    }
    None
}

/// Names what is wrong with a text that is the beginning of none.
fn seam(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let distinct: BTreeSet<&str> = words.iter().copied().collect();
    if words.len() > distinct.len() {
        return format!("a duplicate: {} words twice", words.len() - distinct.len());
    }
    if text.contains("word-") && text.contains("other-") {
        return "two answers in one".to_owned();
    }
    format!("a loss, or what nobody sent: {} words", words.len())
}

#[cfg(test)]
mod tests;
