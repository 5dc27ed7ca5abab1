//! Shortens a conversation that no target of a route can take any more, if the route allows it.
//!
//! A call and its result stay together or go together. The instructions, the first and the last
//! message of the user and the newest exchange stay. What is left out is replaced by a sentence, so
//! that the model knows, and named in words, so that the caller knows.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::window::{message_bytes, prompt_bytes};
use crate::domain::message::{Message, ModelCall, Part, Role};

/// What is done about a conversation that outgrew the context windows of all targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The call fails.
    #[default]
    Fail,
    /// The contents of tool results are left out, the oldest first.
    DropToolResults,
    /// Messages between the first and the newest are left out, the oldest first.
    DropMiddle,
}

/// A shorter conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Shortened {
    /// The call.
    pub call: ModelCall,
    /// What was left out, in words.
    pub words: String,
}

/// Returns the call with a prompt of at most so many bytes; `None` if it must not or cannot be
/// shortened so far.
#[must_use]
pub fn shorten(call: &ModelCall, overflow: Overflow, most_bytes: u64) -> Option<Shortened> {
    let beyond = prompt_bytes(call).checked_sub(most_bytes);
    let excess = beyond.filter(|excess| *excess > 0)?;
    match overflow {
        Overflow::Fail => None,
        Overflow::DropToolResults => without_results(call, excess),
        Overflow::DropMiddle => without_middle(call, excess),
    }
}

fn without_results(call: &ModelCall, excess: u64) -> Option<Shortened> {
    let newest = exchanges(&call.messages).pop().unwrap_or_default();
    let mut call = call.clone();
    let (mut count, mut bytes) = (0_usize, 0_u64);
    let messages = &mut call.messages[..newest.start];
    let parts = messages.iter_mut().flat_map(|message| &mut message.parts);
    for part in parts {
        let Part::ToolResult(result) = part else {
            continue;
        };
        let length = result.content.len();
        let left = format!(
            "[This result of {length} bytes was left out, because the conversation outgrew the context window.]"
        );
        if left.len() >= length {
            continue;
        }
        bytes += (length - left.len()) as u64;
        count += 1;
        result.content = left;
        if bytes >= excess {
            let words = format!(
                "the contents of {} were left out",
                counted(count, "old tool result")
            );
            return Some(Shortened { call, words });
        }
    }
    None
}

fn without_middle(call: &ModelCall, excess: u64) -> Option<Shortened> {
    let all = exchanges(&call.messages);
    let is_users = |message: &Message| {
        let has_result = message.parts.iter().any(is_result);
        message.role == Role::User && !has_result
    };
    let is_instruction = |message: &Message| matches!(message.role, Role::System | Role::Developer);
    let first = call.messages.iter().position(is_users);
    let last = call.messages.iter().rposition(is_users);
    let newest = all.last().map(|exchange| exchange.start);
    let stays = |exchange: &Range<usize>| {
        let mut places = exchange.clone();
        Some(exchange.start) == newest
            || places.any(|place| {
                Some(place) == first || Some(place) == last || is_instruction(&call.messages[place])
            })
    };
    let (mut dropped, mut bytes) = (Vec::new(), 0);
    for exchange in all.into_iter().filter(|exchange| !stays(exchange)) {
        bytes += call.messages[exchange.clone()]
            .iter()
            .map(message_bytes)
            .sum::<u64>();
        dropped.extend(exchange);
        let left = left_out(dropped.len());
        if bytes >= excess + left.len() as u64 {
            return Some(without(call, &dropped, &left));
        }
    }
    None
}

/// Returns the call without these messages, in whose place the model reads this.
fn without(call: &ModelCall, dropped: &[usize], left: &str) -> Shortened {
    let mut messages = Vec::with_capacity(call.messages.len());
    for (place, message) in call.messages.iter().enumerate() {
        if Some(&place) == dropped.first() {
            messages.push(Message::text(Role::User, left));
        }
        if !dropped.contains(&place) {
            messages.push(message.clone());
        }
    }
    let words = format!("{} left out", were(dropped.len(), "older message"));
    let call = ModelCall {
        messages,
        ..call.clone()
    };
    Shortened { call, words }
}

fn left_out(count: usize) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!(
        "[{} of this conversation {verb} left out here, because it outgrew the context window.]",
        counted(count, "older message")
    )
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn were(count: usize, what: &str) -> String {
    let verb = if count == 1 { "was" } else { "were" };
    format!("{} {verb}", counted(count, what))
}

fn is_result(part: &Part) -> bool {
    matches!(part, Part::ToolResult(_))
}

/// Returns the messages as parts that are left out together: a message with tool calls and all that
/// follow it up to its last result; any other message alone.
fn exchanges(messages: &[Message]) -> Vec<Range<usize>> {
    let calls = |message: &Message| {
        let parts = message.parts.iter();
        parts
            .filter(|part| matches!(part, Part::ToolCall(_)))
            .count()
    };
    let mut all: Vec<Range<usize>> = Vec::new();
    // Calls whose results did not come yet.
    let mut open = 0_usize;
    for (place, message) in messages.iter().enumerate() {
        let results = message.parts.iter().filter(|part| is_result(part)).count();
        let belongs = open > 0 || results > 0;
        match all.last_mut().filter(|_| belongs) {
            Some(exchange) => exchange.end = place + 1,
            None => all.push(place..place + 1),
        }
        open = open.saturating_sub(results) + calls(message);
    }
    all
}

#[cfg(test)]
mod tests;
