//! Checks whether a provider would accept the order of a conversation: each dialect's rules, stated
//! over its own JSON.
//!
//! Providers reject a wrong order of roles, tool calls and results with a 400, and explain little.
//! These checks are written from the providers' documentation, not from the code that places notes
//! or translates calls, so that a test of those proves something. They judge order and pairing
//! only, not models, parameters or sizes.

use std::fmt;

use serde_json::Value;

use crate::domain::target::{Capabilities, Dialect};

mod blocks;
mod gemini;
mod openai;

/// Rule that a request breaks, and the place of the fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Index of the message, item or content in the request.
    pub index: usize,
    /// The rule, in words for people.
    pub rule: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message {}: {}", self.index, self.rule)
    }
}

impl std::error::Error for Violation {}

/// Checks the body of a request as the dialect's provider would, on a model of these capabilities.
///
/// # Errors
/// The first rule that the body breaks.
pub fn check(dialect: Dialect, able: &Capabilities, body: &Value) -> Result<(), Violation> {
    match dialect {
        Dialect::OpenaiChat | Dialect::Scripted | Dialect::Tool => {
            openai::chat(list(body, "messages"), able)
        }
        Dialect::OpenaiResponses => openai::responses(list(body, "input")),
        Dialect::Anthropic => blocks::anthropic(list(body, "messages"), able),
        Dialect::Bedrock => blocks::bedrock(list(body, "messages"), able),
        Dialect::Gemini => gemini::contents(list(body, "contents")),
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value
        .get(key)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

const fn ensure(holds: bool, index: usize, rule: &'static str) -> Result<(), Violation> {
    if holds {
        Ok(())
    } else {
        Err(Violation { index, rule })
    }
}
