//! Errors that come inside a 200: every shape that a server of this dialect is known to use.
//!
//! They are checked before an event is parsed as a piece of the completion, because half of them would
//! pass as one.

use std::borrow::Cow;

use serde_json::Value;

/// Returns whether an event, or a complete document, reports an error.
///
/// Known shapes: an `error` event; a top-level `error` (object or text); `{"object": "error", …}`;
/// `{"type": "error", …}`; an `error` or a `finish_reason` of `error` in a choice.
pub(super) fn is_error(event_name: &str, value: &Value) -> bool {
    event_name == "error"
        || is_set(value.get("error"))
        || ["object", "type"]
            .iter()
            .any(|field| value.get(field).and_then(Value::as_str) == Some("error"))
        || choices(value).any(|choice| {
            is_set(choice.get("error"))
                || choice.get("finish_reason").and_then(Value::as_str) == Some("error")
        })
}

/// Returns the error alone, if it came within a piece of the completion: the rest of that piece does
/// not concern it.
pub(super) fn bare<'a>(value: &Value, data: &'a str) -> Cow<'a, str> {
    match value.get("error") {
        Some(error @ Value::Object(_)) if value.get("choices").is_some() => {
            Cow::Owned(serde_json::json!({"error": error}).to_string())
        }
        Some(_) | None => Cow::Borrowed(data),
    }
}

/// Returns whether a document without choices is an error in some gateway's own format.
pub(super) fn is_bare_error(document: &Value) -> bool {
    document.get("choices").is_none()
        && ["message", "msg", "detail", "error_msg", "errors"]
            .iter()
            .any(|field| is_set(document.get(field)))
}

fn is_set(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Bool(true) | Value::Number(_)) => true,
    }
}

fn choices(value: &Value) -> impl Iterator<Item = &Value> {
    value
        .get("choices")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_known_shape_of_an_error_is_seen() {
        for shape in [
            json!({"error": {"message": "m", "code": 500}}),
            json!({"error": "overloaded"}),
            json!({"object": "error", "message": "m", "code": 400}),
            json!({"type": "error", "message": "m"}),
            json!({"choices": [{"delta": {}, "finish_reason": "error"}]}),
            json!({"choices": [{"delta": {}, "error": {"code": 502}}]}),
            json!({"choices": [], "error": {"code": 502}}),
        ] {
            assert!(is_error("", &shape), "{shape}");
        }
        assert!(is_error("error", &json!({"anything": 1})));
    }

    #[test]
    fn an_empty_error_field_is_no_error() {
        for shape in [
            json!({"error": null, "choices": []}),
            json!({"error": {}, "choices": []}),
            json!({"error": "", "choices": []}),
            json!({"choices": [{"delta": {"content": "error"}, "finish_reason": null}]}),
        ] {
            assert!(!is_error("", &shape), "{shape}");
        }
    }
}
