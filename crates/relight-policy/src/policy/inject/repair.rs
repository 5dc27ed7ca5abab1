//! Makes a history legal before a note is added: every tool call has its result, every result its
//! call.
//!
//! A worker that died between call and result leaves a conversation that every provider rejects for
//! ever. The missing result is filled in with neutral words: whether the tool ran is unknown. Pure
//! and idempotent; a legal history is borrowed, not copied. Assistant turns, and with them signed
//! parts, stay untouched; the first result of a call that comes before the model's next turn is
//! kept: at most it moves up to its call.

use std::borrow::Cow;

use crate::domain::message::{Message, ModelCall, Part, Role, ToolCall, ToolResult};

/// The content of a result that replaces a lost one.
pub const INTERRUPTED: &str = "interrupted, outcome unknown";

/// Returns the call with a legal history: lost results are replaced, results without a call are
/// dropped.
///
/// Assistant messages in a row that all call tools are one turn, which a translation may have to
/// merge.
#[must_use]
pub fn repair(call: &ModelCall) -> Cow<'_, ModelCall> {
    let mut parts = call.messages.iter().flat_map(|message| &message.parts);
    let has_tools = parts.any(|part| matches!(part, Part::ToolCall(_) | Part::ToolResult(_)));
    if !has_tools
        || exchanges(&call.messages).all(|(assistant, replies)| is_legal(assistant, replies))
    {
        return Cow::Borrowed(call);
    }
    let mut messages = Vec::with_capacity(call.messages.len());
    for (assistant, replies) in exchanges(&call.messages) {
        exchange(&mut messages, assistant, replies);
    }
    Cow::Owned(ModelCall {
        messages,
        ..call.clone()
    })
}

/// Returns the changes that a repair made, in words: `None` if it made none.
#[must_use]
pub fn changes(original: &ModelCall, repaired: &ModelCall) -> Option<String> {
    let results = |call: &ModelCall, is_counted: fn(&ToolResult) -> bool| {
        let parts = call.messages.iter().flat_map(|message| &message.parts);
        parts
            .filter(|part| matches!(part, Part::ToolResult(result) if is_counted(result)))
            .count()
    };
    let filled_in = |call: &ModelCall| {
        results(call, |result| {
            result.is_error && result.content == INTERRUPTED
        })
    };
    let filled_in = filled_in(repaired).saturating_sub(filled_in(original));
    let left_out =
        (results(original, |_| true) + filled_in).saturating_sub(results(repaired, |_| true));
    let words = [
        (
            left_out,
            "tool result without its call was left out",
            "tool results without their calls were left out",
        ),
        (
            filled_in,
            "missing tool result was filled in",
            "missing tool results were filled in",
        ),
    ];
    let words = words.into_iter().filter(|(count, ..)| *count > 0);
    let words: Vec<String> = words
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    match words.is_empty() {
        true if original.messages == repaired.messages => None,
        true => Some("tool results were moved to their calls".to_owned()),
        false => Some(words.join(", and ")),
    }
}

/// Returns the conversation as assistant messages in a row, each with the replies that follow it.
fn exchanges(messages: &[Message]) -> impl Iterator<Item = (&[Message], &[Message])> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let (assistant, after) = split_while(rest, |message| message.role == Role::Assistant);
        let (replies, next) = split_while(after, |message| message.role != Role::Assistant);
        let exchange = (!rest.is_empty()).then_some((assistant, replies));
        rest = next;
        exchange
    })
}

/// Returns whether each call of these messages has its result right after its turn, and nothing
/// else is a result.
fn is_legal(assistant: &[Message], replies: &[Message]) -> bool {
    let mut turns = turns(assistant).peekable();
    let mut are_legal = turns.peek().is_some() || is_in_order(&[], replies);
    while let Some(turn) = turns.next() {
        let calls: Vec<&ToolCall> = turn
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(as_call)
            .collect();
        are_legal &= if turns.peek().is_none() {
            is_in_order(&calls, replies)
        } else {
            calls.is_empty()
        };
    }
    are_legal
}

/// Appends assistant messages and replies, the results of each turn right after it.
fn exchange(repaired: &mut Vec<Message>, assistant: &[Message], replies: &[Message]) {
    let mut replies = Cow::Borrowed(replies);
    let mut turns = turns(assistant).peekable();
    if turns.peek().is_none() {
        repaired.extend(without_results(&replies));
    }
    while let Some(turn) = turns.next() {
        let calls: Vec<&ToolCall> = turn
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(as_call)
            .collect();
        repaired.extend_from_slice(turn);
        let is_last = turns.peek().is_none();
        if is_last && is_in_order(&calls, &replies) {
            repaired.extend_from_slice(&replies);
            return;
        }
        for call in calls {
            repaired.push(
                take_result(replies.to_mut(), &call.id).unwrap_or_else(|| placeholder_result(call)),
            );
        }
        if is_last {
            repaired.extend(without_results(&replies));
        }
    }
}

/// Returns the assistant messages in turns: one that calls nothing, after one that does, starts the
/// next turn.
fn turns(assistant: &[Message]) -> impl Iterator<Item = &[Message]> {
    let calls = |message: &Message| message.parts.iter().any(|part| as_call(part).is_some());
    assistant.chunk_by(move |left, right| !calls(left) || calls(right))
}

/// Returns whether each call has exactly one result, in messages of results that come first, and
/// there is no other result.
fn is_in_order(calls: &[&ToolCall], replies: &[Message]) -> bool {
    let mut open: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    let mut is_past_results = false;
    for reply in replies {
        let mut holds_result = false;
        for part in &reply.parts {
            if let Part::ToolResult(result) = part {
                let Some(place) = open.iter().position(|id| *id == result.call_id) else {
                    return false;
                };
                if is_past_results {
                    return false;
                }
                holds_result = true;
                open.remove(place);
            } else if reply.role != Role::Tool {
                is_past_results = true;
            }
        }
        if reply.role == Role::Tool && !holds_result {
            return false;
        }
        is_past_results |= reply.role != Role::Tool && !holds_result;
    }
    open.is_empty()
}

/// Removes the first result of a call from the replies, with its own fields and, in the message of a
/// tool, its images and files, and with its message if that holds nothing else, and returns it.
fn take_result(replies: &mut Vec<Message>, call_id: &str) -> Option<Message> {
    let answers =
        |part: &Part| matches!(part, Part::ToolResult(result) if result.call_id == call_id);
    let index = replies
        .iter()
        .position(|reply| reply.parts.iter().any(answers))?;
    let is_of_tool = replies[index].role == Role::Tool;
    let is_media = |part: &Part| is_of_tool && matches!(part, Part::Image(_) | Part::File(_));
    let mut is_found = false;
    let mut is_behind = false;
    let result = replies[index].take_parts(|part| {
        is_behind = if is_found {
            is_behind && (part.is_fields() || is_media(part))
        } else {
            is_found = answers(part);
            is_found
        };
        is_behind
    });
    if replies[index].parts.is_empty() {
        replies.remove(index);
    }
    Some(Message {
        role: Role::Tool,
        name: None,
        ..result
    })
}

/// Returns the replies without results; other content of a tool message is dropped too, for no
/// other role may hold it.
fn without_results(replies: &[Message]) -> impl Iterator<Item = Message> {
    let is_result = |part: &Part| matches!(part, Part::ToolResult(_));
    replies
        .iter()
        .filter(|reply| reply.role != Role::Tool)
        .filter_map(move |reply| {
            let mut rest = reply.clone();
            drop(rest.take_parts(is_result));
            let had_only_results = rest.parts.is_empty() && !reply.parts.is_empty();
            (!had_only_results).then_some(rest)
        })
}

fn placeholder_result(call: &ToolCall) -> Message {
    let result = ToolResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: INTERRUPTED.to_owned(),
        is_error: true,
    };
    Message::new(Role::Tool, vec![Part::ToolResult(result)])
}

const fn as_call(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    }
}

fn split_while(
    messages: &[Message],
    belongs: impl Fn(&Message) -> bool,
) -> (&[Message], &[Message]) {
    messages.split_at(
        messages
            .iter()
            .take_while(|message| belongs(message))
            .count(),
    )
}
