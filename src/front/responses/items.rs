//! The items of a response's output: the content of a message, each piece as an item with an id of
//! its own; items that came from a provider of this protocol, and have no word in the neutral
//! answer, as they came.

use serde_json::{Map, Value, json};

use crate::{
    domain::{
        ids::InvocationId,
        message::{Opaque, Part, Reasoning, ToolCall},
        own_fields,
        target::Dialect,
    },
    front::carried,
    provider::responses::{ANNOTATIONS, ITEM, NAMESPACE, REASONING, custom_input},
};

/// Returns the items of these parts of a completion; `custom` are the names of the tools that take a
/// text instead of JSON.
pub(super) fn of_parts(
    invocation: &InvocationId,
    custom: &[String],
    parts: impl IntoIterator<Item = Part>,
) -> Vec<Value> {
    let mut items: Vec<Value> = Vec::new();
    for part in parts {
        if let Some(fields) = fields_of_text(&part)
            && let Some(text) = items.last_mut().filter(|last| is_text(last))
        {
            add_fields(text, fields);
            continue;
        }
        let more = of_part(invocation, custom, items.len(), &part);
        items.extend(more);
    }
    items
}

/// Fields of the text before that only this protocol knows; `None` if the part is something else.
pub(super) fn fields_of_text(part: &Part) -> Option<Map<String, Value>> {
    let opaque = part.as_opaque();
    opaque.and_then(|opaque| own_fields::read(Dialect::OpenaiResponses, opaque))
}

/// Adds such fields to the message of a text: the annotations to its content, others to the
/// message.
pub(super) fn add_fields(message: &mut Value, mut fields: Map<String, Value>) {
    if let (Some(annotations), Some(text)) = (
        fields.remove(ANNOTATIONS),
        message.pointer_mut("/content/0"),
    ) {
        text[ANNOTATIONS] = annotations;
    }
    for (name, value) in fields {
        message[name] = value;
    }
}

fn is_text(item: &Value) -> bool {
    item.pointer("/content/0/type").and_then(Value::as_str) == Some("output_text")
}

/// Returns the items of one part, of which the first is the item `index` of the output.
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
                .filter(|opaque| !own_fields::is_usual_of_calls(opaque))
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

/// Returns the invocation that an item's id names, and its place in the output.
pub(super) fn read_id(id: &str) -> Option<(InvocationId, usize)> {
    let (invocation, index) = id.split_once('_')?.1.rsplit_once('_')?;
    Some((InvocationId::from(invocation), index.parse().ok()?))
}

/// Returns a message of the model.
pub(super) fn message(
    invocation: &InvocationId,
    index: usize,
    status: &str,
    content: &[Value],
) -> Value {
    let id = format!("msg_{invocation}_{index}");
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

/// Returns a text as a content of a message.
pub(super) fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Returns a refusal as a content of a message.
pub(super) fn refusal(text: &str) -> Value {
    json!({"type": "refusal", "refusal": text})
}

/// Returns the model's reasoning, with the part that its provider needs back.
pub(super) fn reasoning(invocation: &InvocationId, index: usize, thought: &Reasoning) -> Value {
    let summary = if thought.text.is_empty() {
        json!([])
    } else {
        own_summary(thought)
            .unwrap_or_else(|| json!([{"type": "summary_text", "text": thought.text}]))
    };
    let mut item =
        json!({"id": format!("rs_{invocation}_{index}"), "type": "reasoning", "summary": summary});
    if let Some(opaque) = &thought.opaque {
        item["encrypted_content"] = json!(carried::seal(opaque, None));
    }
    item
}

/// Returns the summary in the parts in which a provider of this protocol gave it.
fn own_summary(thought: &Reasoning) -> Option<Value> {
    let opaque = thought.opaque.as_ref()?;
    let own = (opaque.kind == REASONING).then_some(&opaque.bytes)?;
    let summary = serde_json::from_slice::<Value>(own).ok()?["summary"].take();
    let parts = summary.as_array()?.iter();
    let texts: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
    (texts.join("\n\n") == thought.text).then_some(summary)
}

/// Returns the part that a provider needs back with a tool call, for which this protocol's tool
/// calls have no field.
pub(super) fn before_call(
    invocation: &InvocationId,
    index: usize,
    opaque: &Opaque,
    call: &str,
) -> Value {
    let sealed = carried::seal(opaque, Some(call));
    json!({"id": format!("rs_{invocation}_{index}"), "type": "reasoning", "summary": [], "encrypted_content": sealed})
}

/// Returns a tool call: of a function, or of a custom tool.
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
        let item = format!("ctc_{invocation}_{index}");
        let input = custom_input(arguments);
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
