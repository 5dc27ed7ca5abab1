//! A plain translation of the neutral conversation into each dialect, as input for the validators.
//!
//! It does what the documented positions require of a translation: a user message after tool
//! results joins their turn where the dialect has no tool role. It is independent of the
//! translations in `provider`, which may use the same validators.

use serde_json::{Value, json};

use crate::domain::{
    message::{Message, Part, Role, ToolCall, ToolResult},
    target::Dialect,
};

pub(super) fn body(dialect: Dialect, messages: &[Message]) -> Value {
    match dialect {
        Dialect::OpenaiChat | Dialect::Scripted | Dialect::Tool => {
            json!({"messages": chat(messages)})
        }
        Dialect::OpenaiResponses => json!({"input": responses(messages)}),
        Dialect::Anthropic => json!({"messages": merged(messages, "content", anthropic)}),
        Dialect::Bedrock => json!({"messages": merged(messages, "content", bedrock)}),
        Dialect::Gemini => json!({"contents": merged(messages, "parts", gemini)}),
    }
}

fn role(message: &Message) -> &'static str {
    match message.role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

fn chat(messages: &[Message]) -> Vec<Value> {
    let mut out = Vec::new();
    for message in messages {
        let mut texts = Vec::new();
        let mut calls = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text(text) => texts.push(json!({"type": "text", "text": text})),
                Part::ToolCall(ToolCall {
                    id,
                    name,
                    arguments,
                    ..
                }) => {
                    calls.push(
                        json!({"id": id, "function": {"name": name, "arguments": arguments}}),
                    );
                }
                Part::ToolResult(ToolResult {
                    call_id, content, ..
                }) => {
                    out.push(json!({"role": "tool", "tool_call_id": call_id, "content": content}));
                }
                Part::Reasoning(_) | Part::Refusal(_) | Part::Image(_) | Part::File(_) => {}
            }
        }
        if !calls.is_empty() {
            out.push(json!({"role": "assistant", "content": texts, "tool_calls": calls}));
        } else if message.role != Role::Tool {
            out.push(json!({"role": role(message), "content": texts}));
        }
    }
    out
}

fn responses(messages: &[Message]) -> Vec<Value> {
    let item = |message: &Message, part: &Part| match part {
        Part::Text(text) => json!({"type": "message", "role": role(message), "content": text}),
        Part::ToolCall(call) => {
            json!({"type": "function_call", "call_id": call.id, "name": call.name})
        }
        Part::ToolResult(result) => {
            json!({"type": "function_call_output", "call_id": result.call_id, "output": result.content})
        }
        Part::Reasoning(_) => json!({"type": "reasoning"}),
        Part::Refusal(_) | Part::Image(_) | Part::File(_) => json!({"type": "unknown"}),
    };
    messages
        .iter()
        .flat_map(|message| message.parts.iter().map(move |part| item(message, part)))
        .collect()
}

/// Turns of blocks: standing instructions go elsewhere, results belong to the user, and neighbours
/// of one role are merged. Gemini keeps a text of the user out of the content that holds the
/// responses.
fn merged(messages: &[Message], key: &str, block: fn(&Part) -> Value) -> Vec<Value> {
    let is_gemini = key == "parts";
    let mut out: Vec<(&str, Vec<Value>)> = Vec::new();
    let instructions = messages
        .iter()
        .take_while(|message| message.role == Role::System)
        .count();
    let mut previous = Role::System;
    for message in &messages[instructions..] {
        let role = match message.role {
            Role::Assistant if is_gemini => "model",
            Role::Tool => "user",
            Role::System | Role::Developer | Role::User | Role::Assistant => role(message),
        };
        let blocks: Vec<Value> = message.parts.iter().map(block).collect();
        let is_apart = is_gemini && previous == Role::Tool && message.role == Role::User;
        match out.last_mut() {
            Some((last, all)) if *last == role && !is_apart => all.extend(blocks),
            _ => out.push((role, blocks)),
        }
        previous = message.role;
    }
    out.into_iter()
        .map(|(role, blocks)| json!({"role": role, key: blocks}))
        .collect()
}

fn anthropic(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::ToolCall(call) => json!({"type": "tool_use", "id": call.id, "name": call.name}),
        Part::ToolResult(result) => {
            json!({"type": "tool_result", "tool_use_id": result.call_id, "content": result.content})
        }
        Part::Reasoning(_) => json!({"type": "thinking"}),
        Part::Refusal(_) | Part::Image(_) | Part::File(_) => json!({"type": "unknown"}),
    }
}

fn bedrock(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"text": text}),
        Part::ToolCall(call) => json!({"toolUse": {"toolUseId": call.id, "name": call.name}}),
        Part::ToolResult(result) => json!({"toolResult": {"toolUseId": result.call_id}}),
        Part::Reasoning(_) => json!({"reasoningContent": {}}),
        Part::Refusal(_) | Part::Image(_) | Part::File(_) => json!({"unknown": {}}),
    }
}

fn gemini(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"text": text}),
        Part::ToolCall(call) => json!({"functionCall": {"name": call.name}}),
        Part::ToolResult(result) => {
            let key = if result.is_error { "error" } else { "output" };
            json!({"functionResponse": {"name": result.name, "response": {key: result.content}}})
        }
        Part::Reasoning(_) => json!({"thought": true, "text": "hm"}),
        Part::Refusal(_) | Part::Image(_) | Part::File(_) => json!({"unknown": {}}),
    }
}
