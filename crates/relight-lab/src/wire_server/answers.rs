//! Responses and failures of each provider, as its documentation shows them.
//!
//! They are written from the providers' documentation and not from the code that parses them, so
//! that playing them proves something. One table has the same kinds of responses for each dialect;
//! when they are played is decided elsewhere.

pub mod anthropic;
pub mod bedrock;
mod documents;
pub mod gemini;
pub mod openai;
pub mod responses;

use serde_json::Value;

use super::Reply;
use crate::domain::target::Dialect;

/// The responses of a provider of one dialect.
#[derive(Debug, Clone, Copy)]
pub struct Answers {
    /// A whole text, in pieces.
    pub text: fn(&str) -> Reply,
    /// A whole call of a tool, by its name and the JSON of its arguments.
    pub tool_call: fn(&str, &str) -> Reply,
    /// A call of a tool by that name with unusable arguments.
    pub broken_tool_call: fn(&str) -> Reply,
    /// The caller is over its rate limit, for a second if the provider states a time at all.
    pub rate_limited: fn() -> Reply,
    /// A text starts, then the provider reports inside the stream that it is overloaded.
    pub overloaded_amid: fn(&str) -> Reply,
    /// The model does not take the request as it is: see `unfit` of each dialect for what it does
    /// not take.
    pub unfit: fn() -> Reply,
    /// The model, or a filter behind it, refuses.
    pub refuses: fn() -> Reply,
    /// A whole document: a text and its finish reason in the words of chat completions, or a call
    /// of a tool by its name and the JSON of its arguments.
    pub document: fn(&str, &str, Option<(&str, &str)>) -> Value,
}

/// Returns the responses of a provider of this dialect.
#[must_use]
pub const fn of(dialect: Dialect) -> Answers {
    match dialect {
        Dialect::OpenaiChat | Dialect::Scripted | Dialect::Tool => openai::ANSWERS,
        Dialect::OpenaiResponses => responses::ANSWERS,
        Dialect::Anthropic => anthropic::ANSWERS,
        Dialect::Gemini => gemini::ANSWERS,
        Dialect::Bedrock => bedrock::ANSWERS,
    }
}

/// Returns a text in pieces of at most that many bytes, characters whole.
fn pieces(text: &str, bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, tail) = rest.split_at(rest.ceil_char_boundary(bytes.min(rest.len())));
        pieces.push(piece);
        rest = tail;
    }
    pieces
}
