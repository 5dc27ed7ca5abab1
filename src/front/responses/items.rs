//! The items of a response's output: what a message holds, each piece as an item with an id of its
//! own; items that came from a provider of this protocol, and have no word in the neutral answer,
//! as they came.

use serde_json::{Value, json};

use crate::{
    domain::{
        ids::InvocationId,
        message::{Opaque, Part, Reasoning, ToolCall},
    },
    front::carried,
    provider::responses::{ITEM, NAMESPACE, custom_input},
};

/// The items of these parts of an answer; `custom` are the names of the tools that take a text and
/// no JSON.
pub(super) fn of_parts(
    invocation: &InvocationId,
    custom: &[String],
    parts: impl IntoIterator<Item = Part>,
) -> Vec<Value> {
    let mut items = Vec::new();
    for part in parts {
        let more = of_part(invocation, custom, items.len(), &part);
        items.extend(more);
    }
    items
}

/// The items of one part, of which the first is the item `index` of the output.
pub(super) fn of_part(
    invocation: &InvocationId,
    custom: &[String],
    index: usize,
    part: &Part,
) -> Vec<Value> {
    let opaque = match part {
        Part::Reasoning(thought) => thought.opaque.as_ref(),
        Part::ToolCall(call) => call.opaque.as_ref(),
        Part::Text(_) | Part::Refusal(_) | Part::Image(_) | Part::File(_) | Part::ToolResult(_) => {
            None
        }
    };
    if let Some(opaque) = opaque.filter(|opaque| opaque.kind == ITEM) {
        return serde_json::from_slice(&opaque.bytes).into_iter().collect();
    }
    match part {
        Part::Text(text) => vec![message(
            invocation,
            index,
            "completed",
            &[output_text(text)],
        )],
        Part::Refusal(text) => vec![message(invocation, index, "completed", &[refusal(text)])],
        Part::Reasoning(thought) => vec![reasoning(invocation, index, thought)],
        Part::ToolCall(call) => {
            let mut items = Vec::new();
            if let Some(opaque) = call
                .opaque
                .as_ref()
                .filter(|opaque| opaque.kind != NAMESPACE)
            {
                items.push(before_call(invocation, index, opaque, &call.id));
            }
            items.push(tool_call(
                invocation,
                custom,
                index + items.len(),
                "completed",
                call,
            ));
            items
        }
        Part::Image(_) | Part::File(_) | Part::ToolResult(_) => Vec::new(),
    }
}

/// The invocation that an item's id names, and its place in the output.
pub(super) fn read_id(id: &str) -> Option<(InvocationId, usize)> {
    let (invocation, index) = id.split_once('_')?.1.rsplit_once('_')?;
    Some((InvocationId::from(invocation), index.parse().ok()?))
}

/// A message of the model.
pub(super) fn message(
    invocation: &InvocationId,
    index: usize,
    status: &str,
    content: &[Value],
) -> Value {
    let id = format!("msg_{invocation}_{index}");
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

/// A text as a content of a message.
pub(super) fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A refusal as a content of a message.
pub(super) fn refusal(text: &str) -> Value {
    json!({"type": "refusal", "refusal": text})
}

/// What the model thought, with what its provider needs back.
pub(super) fn reasoning(invocation: &InvocationId, index: usize, thought: &Reasoning) -> Value {
    let summary = if thought.text.is_empty() {
        json!([])
    } else {
        json!([{"type": "summary_text", "text": thought.text}])
    };
    let mut item =
        json!({"id": format!("rs_{invocation}_{index}"), "type": "reasoning", "summary": summary});
    if let Some(opaque) = &thought.opaque {
        item["encrypted_content"] = json!(carried::seal(opaque, None));
    }
    item
}

/// What a provider needs back with a tool call, for which this protocol's tool calls have no field.
pub(super) fn before_call(
    invocation: &InvocationId,
    index: usize,
    opaque: &Opaque,
    call: &str,
) -> Value {
    let sealed = carried::seal(opaque, Some(call));
    json!({"id": format!("rs_{invocation}_{index}"), "type": "reasoning", "summary": [], "encrypted_content": sealed})
}

/// A tool call: of a function, or of a custom tool.
pub(super) fn tool_call(
    invocation: &InvocationId,
    custom: &[String],
    index: usize,
    status: &str,
    call: &ToolCall,
) -> Value {
    let ToolCall {
        id,
        name,
        arguments,
        opaque,
    } = call;
    if custom.contains(name) {
        let (item, input) = (format!("ctc_{invocation}_{index}"), custom_input(arguments));
        let kind = "custom_tool_call";
        return json!({"id": item, "type": kind, "status": status, "call_id": id, "name": name, "input": input});
    }
    let mut item = json!({
        "id": format!("fc_{invocation}_{index}"),
        "type": "function_call",
        "status": status,
        "call_id": id,
        "name": name,
        "arguments": arguments,
    });
    if let Some(namespace) = opaque.as_ref().filter(|opaque| opaque.kind == NAMESPACE) {
        item["namespace"] = json!(String::from_utf8_lossy(&namespace.bytes));
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_back_to_its_item() {
        let invocation = InvocationId::mint();
        let opaque = Some(Opaque {
            kind: "gemini.thought_signature".to_owned(),
            bytes: vec![1],
        });
        let call = ToolCall {
            id: "c1".into(),
            name: "add".into(),
            arguments: "{}".into(),
            opaque,
        };
        let items = of_parts(
            &invocation,
            &[],
            [Part::Text("Yes.".into()), Part::ToolCall(call)],
        );
        let kinds: Vec<&str> = items
            .iter()
            .filter_map(|item| item["type"].as_str())
            .collect();
        assert_eq!(kinds, ["message", "reasoning", "function_call"]);
        for (index, item) in items.iter().enumerate() {
            assert_eq!(
                read_id(item["id"].as_str().unwrap()),
                Some((invocation.clone(), index)),
                "{item}"
            );
        }
        assert_eq!(read_id("msg_123"), None);
    }
}
