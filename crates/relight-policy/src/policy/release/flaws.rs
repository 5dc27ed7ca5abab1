//! What a tool returned that is of no use, though it reported no failure.
//!
//! An empty result is often right. It speaks against a release only if the stable release does not
//! return as many.

use serde_json::Value;

use crate::{
    domain::tool::{ToolContent, ToolReply},
    policy::schema::{self, SchemaFault},
};

/// Longest structured result that is held against its schema here, in bytes.
const MAX_CHECKED_BYTES: usize = 64 << 10;

/// Returns whether a result is empty, or not as the tool's own schema of results has it.
#[must_use]
pub fn is_flawed(reply: &ToolReply, schema: Option<&Value>) -> bool {
    let structured = reply.structured.as_deref();
    match schema {
        Some(_) if structured.is_none() => true,
        Some(schema) if structured.is_some_and(|text| text.len() <= MAX_CHECKED_BYTES) => {
            let value = structured.and_then(|text| serde_json::from_str::<Value>(text).ok());
            let fits = value.as_ref().map(|value| schema::check(schema, value));
            matches!(fits, None | Some(Err(SchemaFault::Misfit(_))))
                || value.as_ref().is_some_and(is_empty)
        }
        Some(_) | None => is_blank(reply),
    }
}

fn is_blank(reply: &ToolReply) -> bool {
    let is_empty_text = |text: &str| {
        text.trim().is_empty()
            || (text.len() < 16
                && serde_json::from_str(text).is_ok_and(|value: Value| is_empty(&value)))
    };
    let texts_are_empty = reply.content.iter().all(|content| match content {
        ToolContent::Text(text) => is_empty_text(text),
        ToolContent::Image(_) | ToolContent::File(_) | ToolContent::Other(_) => false,
    });
    texts_are_empty && reply.structured.as_deref().is_none_or(is_empty_text)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(texts: &[&str], structured: Option<Value>) -> ToolReply {
        ToolReply {
            content: texts
                .iter()
                .map(|text| ToolContent::Text((*text).to_owned()))
                .collect(),
            structured: structured.map(|value| value.to_string()),
            sent: None,
        }
    }

    #[test]
    fn an_empty_result_and_one_that_does_not_fit_its_schema_are_flawed() {
        for (flawed, texts, structured) in [
            (true, &[][..], None),
            (true, &["", " \n"][..], None),
            (true, &["[]"][..], None),
            (true, &["null"][..], Some(json!(null))),
            (true, &[][..], Some(json!({}))),
            (false, &["0"][..], None),
            (false, &["no rows"][..], None),
            (false, &[][..], Some(json!({ "rows": [] }))),
        ] {
            let reply = reply(texts, structured);
            assert_eq!(is_flawed(&reply, None), flawed, "{reply:?}");
        }
        let schema = json!({ "type": "object", "required": ["rows"], "properties": { "rows": { "type": "array" } } });
        for (flawed, structured) in [
            (false, Some(json!({ "rows": [1] }))),
            (true, Some(json!({ "rows": "1" }))),
            (true, Some(json!({ "lines": [1] }))),
            (true, None),
        ] {
            let reply = reply(&["one row"], structured);
            assert_eq!(is_flawed(&reply, Some(&schema)), flawed, "{reply:?}");
        }
    }
}
