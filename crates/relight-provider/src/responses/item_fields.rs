//! The fields that are read of an item of a response's output, or of an event about one.

use serde_json::{Value, json};

use super::MESSAGE_FIELDS;
use crate::{
    domain::{completion::BlockKind, own_fields},
    reading::ParseError,
};

/// A text of a message, whole.
#[derive(Debug, Clone)]
pub(super) struct Content<'a> {
    pub(super) kind: BlockKind,
    pub(super) text: &'a str,
}

// === impl Content ===

impl<'a> Content<'a> {
    /// Returns the text of a part; `None` if it is of another kind, or has none.
    pub(super) fn of(part: &'a Value) -> Option<Self> {
        let (kind, name) = match text_of(part, "type") {
            "output_text" => (BlockKind::Text, "text"),
            "refusal" => (BlockKind::Refusal, "refusal"),
            _ => return None,
        };
        Self::named(part, kind, name)
    }

    /// Returns the text in this field of an event; `None` if it has none.
    pub(super) fn named(event: &'a Value, kind: BlockKind, name: &str) -> Option<Self> {
        let text = event.get(name).and_then(Value::as_str)?;
        Some(Self { kind, text })
    }
}

/// Returns whether an item must be in the whole response as it was delivered.
pub(super) fn is_compared(item: &Value) -> bool {
    matches!(
        text_of(item, "type"),
        "message" | "function_call" | "custom_tool_call"
    )
}

/// Returns what a caller reads of such an item, or acts upon. Blanks around a text are left out:
/// they are compared with the text itself.
pub(super) fn essence(item: &Value) -> String {
    let kind = text_of(item, "type");
    let contents = list(item, "content").iter().filter_map(Content::of);
    let texts: Vec<&str> = contents.map(|content| content.text.trim()).collect();
    let arguments = text_of(item, "arguments");
    let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments));
    let call = (kind != "message").then(|| call_id(item));
    let name = text_of(item, "name");
    let input = text_of(item, "input");
    let own = item.as_object().filter(|_| kind == "message");
    let own = own.and_then(|item| own_fields::beside(&MESSAGE_FIELDS, item));
    json!([kind, texts, call, name, arguments, input, own]).to_string()
}

/// Returns the kind of the block that a call is.
pub(super) fn call_kind(item: &Value) -> Result<BlockKind, ParseError> {
    let name = text_of(item, "name");
    if name.is_empty() {
        return Err(ParseError::Unusable("a tool call has no name".to_owned()));
    }
    Ok(BlockKind::ToolCall {
        id: call_id(item),
        name: name.to_owned(),
    })
}

/// Returns the id that the output of a call names.
pub(super) fn call_id(item: &Value) -> String {
    ["call_id", "id"]
        .into_iter()
        .map(|name| text_of(item, name))
        .find(|id| !id.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Returns the text in a field; empty if there is none.
pub(super) fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the list in a field; empty if there is none.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}
