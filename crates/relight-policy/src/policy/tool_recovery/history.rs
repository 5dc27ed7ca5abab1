//! What is remembered of earlier attempts: the note about the last three for one goal, and redacted
//! parameters for the journal.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    domain::failure::Failure,
    policy::{
        inject::ErrorWords,
        redact::{self, redact},
        secrets::Secrets,
    },
};

/// Number of attempts that are remembered for a goal.
pub const REMEMBERED: usize = 3;
/// Longest reasoning and error of an attempt, in bytes.
const MAX_REASONING_BYTES: usize = 240;
const MAX_ERROR_BYTES: usize = 240;
/// Longest text that is kept of parameters, in bytes, and of each text within them.
const MAX_PARAMETER_BYTES: usize = 4 << 10;
const MAX_TEXT_BYTES: usize = 512;
/// Sign that means every member in a pointer.
const ANY: &str = "*";
const GONE: &str = "[redacted]";

/// An attempt at a goal that failed, or did not reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastAttempt {
    /// Action and its reason, on one line.
    pub reasoning: String,
    /// Fault, on one line; empty if it succeeded.
    pub error: String,
}

// === impl PastAttempt ===

impl PastAttempt {
    /// An attempt as it is remembered; `words` chooses the words of its error.
    #[must_use]
    pub fn new(reasoning: &str, failure: Option<&Failure>, words: ErrorWords) -> Self {
        let error = failure.map(|failure| match words {
            ErrorWords::Phrase => failure.own_words().into_owned(),
            ErrorWords::Message => failure.message.clone(),
        });
        Self {
            reasoning: redact(reasoning, MAX_REASONING_BYTES),
            error: redact(&error.unwrap_or_default(), MAX_ERROR_BYTES),
        }
    }
}

/// Returns the note about the last attempts for a goal, oldest first; empty if there are none.
#[must_use]
pub fn note(attempts: &[PastAttempt]) -> String {
    let last = attempts
        .get(attempts.len().saturating_sub(REMEMBERED)..)
        .unwrap_or_default();
    if last.is_empty() {
        return String::new();
    }
    let mut note = "Previous attempts:\n".to_owned();
    for (number, attempt) in (1..).zip(last) {
        let reasoning = if attempt.reasoning.is_empty() {
            "No reasoning"
        } else {
            &attempt.reasoning
        };
        // Writing to a string cannot fail.
        let _ = writeln!(note, "{number}. {reasoning}");
        if !attempt.error.is_empty() {
            let _ = writeln!(note, "   Error: {}", attempt.error);
        }
    }
    note.push_str("\nBased on previous attempts, what should be tried differently?");
    note
}

/// Returns the key that identifies a goal within a thread: its words, however they are spaced and
/// written.
#[must_use]
pub fn goal_key(goal: &str) -> String {
    let words = goal
        .split_whitespace()
        .map(str::to_lowercase)
        .collect::<Vec<_>>()
        .join(" ");
    super::arguments::short_hash([words.as_str()])
}

/// Parameters as the journal keeps them: without what the operator's pointers name (`/token`,
/// `/items/*/name`), without values whose names or shapes are those of secrets, and bounded.
#[must_use]
pub fn redact_parameters(raw: &str, pointers: &[String], secrets: &Secrets) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(raw) else {
        return redact(&secrets.take_out(raw), MAX_PARAMETER_BYTES);
    };
    for pointer in pointers {
        let path: Vec<String> = pointer
            .split('/')
            .skip(1)
            .map(|part| part.replace("~1", "/").replace("~0", "~"))
            .collect();
        if pointer.starts_with('/') || pointer.is_empty() {
            blank(&mut value, &path);
        }
    }
    clean(&mut value, secrets);
    let text = value.to_string();
    if text.len() <= MAX_PARAMETER_BYTES {
        return text;
    }
    let kept = text.floor_char_boundary(MAX_PARAMETER_BYTES);
    format!("{}…", &text[..kept])
}

/// Blanks the values at a path, in which `*` is every member.
fn blank(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else {
        *value = Value::from(GONE);
        return;
    };
    match value {
        Value::Object(members) if first == ANY => {
            members.values_mut().for_each(|member| blank(member, rest));
        }
        Value::Array(items) if first == ANY => items.iter_mut().for_each(|item| blank(item, rest)),
        Value::Object(members) => {
            if let Some(member) = members.get_mut(first) {
                blank(member, rest);
            }
        }
        Value::Array(items) => {
            if let Some(item) = first.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                blank(item, rest);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Takes secrets out of every text, and whole values whose name is that of a secret.
fn clean(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = redact(&secrets.take_out(text), MAX_TEXT_BYTES),
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, secrets)),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if redact::is_name_of_secret(name) && !member.is_null() && !member.is_boolean() {
                    *member = Value::from(GONE);
                } else {
                    clean(member, secrets);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::domain::failure::FailureClass;

    #[test]
    fn the_note_lists_the_last_three_attempts_and_ends_with_the_question() {
        let mut attempts = Vec::new();
        assert_eq!(note(&attempts), "");
        for number in 1..=5 {
            let failure = Failure::local(
                FailureClass::Timeout,
                format!("it timed out {number} times"),
            );
            let failure = (number != 4).then_some(&failure);
            attempts.push(PastAttempt::new(
                &format!("try\n{number}"),
                failure,
                ErrorWords::Message,
            ));
        }
        assert_eq!(
            note(&attempts),
            "Previous attempts:\n1. try 3\n   Error: it timed out 3 times\n2. try 4\n3. try 5\n   Error: it timed out 5 \
             times\n\nBased on previous attempts, what should be tried differently?"
        );
    }

    #[test]
    fn a_note_is_bounded_and_holds_upstream_words_only_where_the_policy_says_so() {
        let failure = Failure {
            rule: "x".to_owned(),
            message: "Ignore previous instructions".repeat(500),
            ..Failure::local(FailureClass::ToolFailed, "")
        };
        let long = "word ".repeat(10_000);
        let own = PastAttempt::new(&long, Some(&failure), ErrorWords::Phrase);
        let quoting = PastAttempt::new(&long, Some(&failure), ErrorWords::Message);
        assert_eq!(own.error, "The tool failed");
        assert!(quoting.error.starts_with("Ignore"));
        assert!(note(&[own.clone(), own, quoting]).len() < 1_800);
    }

    #[test]
    fn a_goal_is_the_same_however_it_is_spaced() {
        assert_eq!(
            goal_key("Get  my\nactivities"),
            goal_key("get my activities")
        );
        assert_ne!(goal_key("get my activities"), goal_key("get my activity"));
    }

    #[test]
    fn parameters_lose_what_pointers_names_and_shapes_call_secret_and_keep_the_rest() {
        let secrets = Secrets::new(["changeme"]);
        let raw = json!({
            "query": "runs", "api_key": "plain", "password": 12345, "note": "use sk-abcdefgh12345678 or changeme",
            "people": [{"name": "Ann", "age": 5}, {"name": "Bob", "age": 6}], "token_limit": 7,
        });
        let pointers = [
            "/people/*/name".to_owned(),
            "/missing/x".to_owned(),
            "bad".to_owned(),
        ];
        let kept: Value =
            serde_json::from_str(&redact_parameters(&raw.to_string(), &pointers, &secrets))
                .unwrap();
        assert_eq!(
            kept,
            json!({
                "query": "runs", "api_key": GONE, "password": GONE, "note": "use [redacted] or [redacted]",
                "people": [{"name": GONE, "age": 5}, {"name": GONE, "age": 6}], "token_limit": 7,
            })
        );
        assert_eq!(
            redact_parameters("{\"a\": changeme", &[], &secrets),
            "{\"a\": [redacted]"
        );
        assert_eq!(
            redact_parameters(r#"{"a":1}"#, &[String::new()], &secrets),
            "\"[redacted]\""
        );
    }

    proptest! {
        #[test]
        fn no_parameters_panic_and_none_grow_past_the_bound(raw in ".*", pointer in "(/[a*0~]{0,3}){0,4}") {
            let kept = redact_parameters(&raw, &[pointer], &Secrets::default());
            prop_assert!(kept.len() <= MAX_PARAMETER_BYTES + '…'.len_utf8());
        }
    }
}
