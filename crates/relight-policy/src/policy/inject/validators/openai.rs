//! Order required by `OpenAI`'s two dialects.
//!
//! Chat: `tool` messages follow the assistant message whose `tool_calls` they respond to, all of
//! them, with nothing between. Responses: the same over items, and a reasoning item is followed by
//! the item it led to. Of content only its presence is judged.

use serde_json::Value;

use crate::domain::target::Capabilities;

use super::{Violation, ensure, list, text};

pub(super) fn chat(messages: &[Value], able: &Capabilities) -> Result<(), Violation> {
    ensure(!messages.is_empty(), 0, "there is no message")?;
    let mut open: Vec<&str> = Vec::new();
    let mut previous = "";
    for (index, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        let has_content = message.get("content").is_some_and(is_some_content);
        if role == "tool" {
            let place = open
                .iter()
                .position(|id| *id == text(message, "tool_call_id"));
            let place = place.ok_or(Violation {
                index,
                rule: "a tool message answers no open call",
            })?;
            open.remove(place);
            ensure(
                message.get("content").is_some_and(Value::is_string),
                index,
                "a tool message has no content",
            )?;
        } else {
            ensure(
                open.is_empty(),
                index,
                "a message is between tool calls and their results",
            )?;
        }
        match role {
            "tool" => {}
            "assistant" => {
                let calls = list(message, "tool_calls");
                ensure(
                    has_content || !calls.is_empty(),
                    index,
                    "an assistant message is empty",
                )?;
                open = calls.iter().map(|call| text(call, "id")).collect();
                ensure(!open.contains(&""), index, "a tool call has no id")?;
            }
            "user" => {
                ensure(has_content, index, "a user message is empty")?;
                ensure(
                    able.user_after_tool || previous != "tool",
                    index,
                    "a user message follows a tool message",
                )?;
                let alternates = able.user_after_tool || able.tail_system_message;
                ensure(
                    alternates || previous != "user",
                    index,
                    "roles do not alternate",
                )?;
            }
            "system" | "developer" => {
                ensure(has_content, index, "instructions are empty")?;
                let is_at_front = matches!(previous, "" | "system" | "developer");
                ensure(
                    able.tail_system_message || is_at_front,
                    index,
                    "instructions come after the first turn",
                )?;
                ensure(
                    able.user_after_tool || previous != "tool",
                    index,
                    "instructions follow a tool message",
                )?;
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
        open.is_empty(),
        messages.len(),
        "a tool call is not answered",
    )
}

fn is_some_content(content: &Value) -> bool {
    match content {
        Value::String(text) => !text.is_empty(),
        Value::Array(parts) => !parts.is_empty(),
        _ => false,
    }
}

pub(super) fn responses(items: &[Value]) -> Result<(), Violation> {
    ensure(!items.is_empty(), 0, "there is no item")?;
    let mut open: Vec<&str> = Vec::new();
    let mut is_answering = false;
    let mut follows_reasoning = false;
    for (index, item) in items.iter().enumerate() {
        let kind = match text(item, "type") {
            "" => "message",
            kind => kind,
        };
        let is_of_the_model = kind != "function_call_output"
            && (kind != "message" || text(item, "role") == "assistant");
        ensure(
            !follows_reasoning || is_of_the_model,
            index,
            "an item is between reasoning and the item it led to",
        )?;
        follows_reasoning = false;
        match kind {
            "function_call" => {
                ensure(
                    !is_answering || open.is_empty(),
                    index,
                    "a call is between calls and their outputs",
                )?;
                is_answering = false;
                open.push(text(item, "call_id"));
            }
            "function_call_output" => {
                let place = open.iter().position(|id| *id == text(item, "call_id"));
                let place = place.ok_or(Violation {
                    index,
                    rule: "an output answers no open call",
                })?;
                open.remove(place);
                is_answering = true;
            }
            "reasoning" => {
                ensure(
                    !is_answering || open.is_empty(),
                    index,
                    "reasoning is between calls and their outputs",
                )?;
                follows_reasoning = true;
            }
            "message" => {
                let role = text(item, "role");
                let is_known = matches!(role, "user" | "assistant" | "system" | "developer");
                ensure(is_known, index, "the role is unknown")?;
                ensure(
                    role == "assistant" || open.is_empty(),
                    index,
                    "a message comes before a call is answered",
                )?;
                ensure(
                    item.get("content").is_some_and(is_some_content),
                    index,
                    "a message is empty",
                )?;
            }
            _ => {
                return Err(Violation {
                    index,
                    rule: "the item's type is unknown",
                });
            }
        }
    }
    ensure(
        !follows_reasoning,
        items.len(),
        "reasoning is not followed by what it led to",
    )?;
    ensure(open.is_empty(), items.len(), "a call is not answered")
}
