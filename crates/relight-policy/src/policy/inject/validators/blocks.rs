//! Order required by dialects with turns of blocks: Anthropic Messages and Bedrock Converse.
//!
//! The turn after tool calls starts with one result for each of them; everything else in that turn
//! comes after. Anthropic's server merges turns of one role, Bedrock's rejects them. Signatures are
//! not judged.

use serde_json::Value;

use crate::domain::target::Capabilities;

use super::{Violation, ensure, list, text};

/// A block, as far as order depends on it.
enum TurnBlock<'a> {
    Call(&'a str),
    Result(&'a str),
    EmptyText,
    Other,
}

/// A turn with the index of its first message.
struct RoleTurn<'a> {
    index: usize,
    is_user: bool,
    blocks: Vec<TurnBlock<'a>>,
}

pub(super) fn anthropic(messages: &[Value], able: &Capabilities) -> Result<(), Violation> {
    let mut turns: Vec<RoleTurn<'_>> = Vec::new();
    let mut previous = "";
    for (index, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        match role {
            "system" => {
                ensure(
                    able.tail_system_message,
                    index,
                    "the model takes no system message in a conversation",
                )?;
                ensure(
                    previous == "user",
                    index,
                    "a system message does not follow a user turn",
                )?;
                let next = messages.get(index + 1).map(|next| text(next, "role"));
                ensure(
                    matches!(next, None | Some("assistant")),
                    index,
                    "a system message is before a user turn",
                )?;
            }
            "user" | "assistant" => {
                let blocks = anthropic_blocks(message);
                ensure(!blocks.is_empty(), index, "a message is empty")?;
                match turns.last_mut() {
                    Some(turn) if turn.is_user == (role == "user") => turn.blocks.extend(blocks),
                    _ => turns.push(RoleTurn {
                        index,
                        is_user: role == "user",
                        blocks,
                    }),
                }
            }
            _ => {
                return Err(Violation {
                    index,
                    rule: "the role is unknown",
                });
            }
        }
        previous = role;
    }
    ensure(
        able.assistant_prefill || previous != "assistant",
        messages.len(),
        "the conversation ends in a prefill",
    )?;
    turns_in_order(&turns)
}

pub(super) fn bedrock(messages: &[Value], able: &Capabilities) -> Result<(), Violation> {
    let mut turns: Vec<RoleTurn<'_>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        ensure(
            matches!(role, "user" | "assistant"),
            index,
            "the role is unknown",
        )?;
        let is_user = role == "user";
        ensure(
            turns.last().is_none_or(|turn| turn.is_user != is_user),
            index,
            "roles do not alternate",
        )?;
        let blocks: Vec<TurnBlock<'_>> =
            list(message, "content").iter().map(bedrock_block).collect();
        ensure(!blocks.is_empty(), index, "a message is empty")?;
        let results = blocks
            .iter()
            .filter(|block| matches!(block, TurnBlock::Result(_)))
            .count();
        let is_mixed = results > 0 && results < blocks.len();
        ensure(
            able.user_after_tool || !is_mixed,
            index,
            "the model takes nothing beside tool results",
        )?;
        turns.push(RoleTurn {
            index,
            is_user,
            blocks,
        });
    }
    ensure(
        turns.last().is_some_and(|turn| turn.is_user),
        messages.len(),
        "the conversation does not end with the user",
    )?;
    turns_in_order(&turns)
}

fn turns_in_order(turns: &[RoleTurn<'_>]) -> Result<(), Violation> {
    ensure(
        turns.first().is_some_and(|turn| turn.is_user),
        0,
        "the conversation does not begin with the user",
    )?;
    let mut open: Vec<&str> = Vec::new();
    for RoleTurn {
        index,
        is_user,
        blocks,
    } in turns
    {
        let mut is_past_results = false;
        for block in blocks {
            match block {
                TurnBlock::EmptyText => {
                    return Err(Violation {
                        index: *index,
                        rule: "a text block is empty",
                    });
                }
                TurnBlock::Result(id) => {
                    ensure(
                        *is_user && !is_past_results,
                        *index,
                        "a tool result does not stand first in a user turn",
                    )?;
                    let place = open.iter().position(|call| call == id);
                    let place = place.ok_or(Violation {
                        index: *index,
                        rule: "a result answers no open call",
                    })?;
                    open.remove(place);
                }
                TurnBlock::Call(id) => {
                    ensure(!is_user, *index, "a user turn holds a tool call")?;
                    open.push(id);
                }
                TurnBlock::Other => is_past_results = true,
            }
        }
        ensure(
            !is_user || open.is_empty(),
            *index,
            "a tool call is not answered in the next turn",
        )?;
    }
    ensure(open.is_empty(), turns.len(), "a tool call is not answered")
}

fn anthropic_blocks(message: &Value) -> Vec<TurnBlock<'_>> {
    match message.get("content") {
        Some(Value::String(text)) if text.is_empty() => vec![TurnBlock::EmptyText],
        Some(Value::String(_)) => vec![TurnBlock::Other],
        _ => list(message, "content")
            .iter()
            .map(anthropic_block)
            .collect(),
    }
}

fn anthropic_block(block: &Value) -> TurnBlock<'_> {
    match text(block, "type") {
        "tool_use" => TurnBlock::Call(text(block, "id")),
        "tool_result" => TurnBlock::Result(text(block, "tool_use_id")),
        "text" if text(block, "text").is_empty() => TurnBlock::EmptyText,
        _ => TurnBlock::Other,
    }
}

fn bedrock_block(block: &Value) -> TurnBlock<'_> {
    if let Some(call) = block.get("toolUse") {
        TurnBlock::Call(text(call, "toolUseId"))
    } else if let Some(result) = block.get("toolResult") {
        TurnBlock::Result(text(result, "toolUseId"))
    } else if block
        .get("text")
        .is_some_and(|text| text.as_str().is_none_or(|text| text.trim().is_empty()))
    {
        TurnBlock::EmptyText
    } else {
        TurnBlock::Other
    }
}
