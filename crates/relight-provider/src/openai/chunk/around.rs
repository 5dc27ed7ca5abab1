//! Fields around a completion, beside those that are read.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, value::RawValue};

use super::WireText;
use crate::domain::own_fields;

/// Fields of a response that are read here, or concern one connection alone.
const RESPONSE_FIELDS: [&str; 13] = [
    "choices",
    "created",
    "error",
    "id",
    "model",
    "object",
    "obfuscation",
    "type",
    "usage.completion_tokens",
    "usage.completion_tokens_details.reasoning_tokens",
    "usage.prompt_tokens",
    "usage.prompt_tokens_details.cached_tokens",
    "usage.total_tokens",
];

/// A usage of which all is read here: those of `RESPONSE_FIELDS`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsualUsage {
    #[serde(rename = "completion_tokens")]
    _output: Option<IgnoredAny>,
    #[serde(rename = "completion_tokens_details")]
    _output_details: Option<UsualOutputDetails>,
    #[serde(rename = "prompt_tokens")]
    _input: Option<IgnoredAny>,
    #[serde(rename = "prompt_tokens_details")]
    _input_details: Option<UsualInputDetails>,
    #[serde(rename = "total_tokens")]
    _total: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsualOutputDetails {
    #[serde(rename = "reasoning_tokens")]
    _reasoning: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct UsualInputDetails {
    #[serde(rename = "cached_tokens")]
    _cached: Option<IgnoredAny>,
}

/// Returns the fields around the completion in a chunk that are not read here. Nearly every chunk
/// has none, which is found out without a tree.
pub(in crate::openai) fn around(chunk: &str) -> Map<String, Value> {
    let fields: BTreeMap<WireText<'_>, &RawValue> = serde_json::from_str(chunk).unwrap_or_default();
    let others = fields.into_iter().filter(|(name, value)| {
        let is_usual_usage =
            || name.0 == "usage" && serde_json::from_str::<UsualUsage>(value.get()).is_ok();
        !RESPONSE_FIELDS.contains(&&*name.0) && !is_usual_usage()
    });
    let others = others.filter_map(|(name, value)| {
        let value = serde_json::from_str(value.get()).ok()?;
        Some((name.0.into_owned(), value))
    });
    let others: Map<String, Value> = others.collect();
    if others.is_empty() {
        return others;
    }
    around_of(&Value::Object(others))
}

/// Returns the same in a chunk or document that was parsed as a whole.
pub(in crate::openai) fn around_of(response: &Value) -> Map<String, Value> {
    own_fields::unread(&RESPONSE_FIELDS, response)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::select};
    use serde_json::json;

    use super::*;

    /// Values as servers write them in any field, and as they should not.
    fn value() -> impl Strategy<Value = Value> {
        select(vec![
            json!(null),
            json!(3),
            json!("a \"text\""),
            json!([]),
            json!({}),
            json!({"cached_tokens": 1}),
            json!({"cached_tokens": {"x": 1}, "audio_tokens": 0}),
            json!({"reasoning_tokens": 2}),
            json!({"reasoning_tokens": null, "accepted_prediction_tokens": null}),
        ])
    }

    fn fields(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
        let field = (select(names), value()).prop_map(|(name, value)| (name.to_owned(), value));
        let fields = prop::collection::vec(field, 0..6);
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    const USAGE: &[&str] = &[
        "completion_tokens",
        "completion_tokens_details",
        "prompt_tokens",
        "prompt_tokens_details",
        "total_tokens",
        "cost",
    ];
    const OTHERS: &[&str] = &["id", "choices", "system_fingerprint", "citations", "usage"];

    proptest! {
        #[test]
        fn a_chunk_read_in_place_has_the_fields_of_one_that_is_parsed_as_a_whole(
            mut chunk in fields(OTHERS),
            usage in fields(USAGE),
            has_usage: bool,
        ) {
            if has_usage {
                chunk["usage"] = usage;
            }
            prop_assert_eq!(around(&chunk.to_string()), around_of(&chunk));
        }
    }

    #[test]
    fn a_name_that_is_escaped_is_a_name() {
        let chunk = r#"{"\u0069d": 1, "system\u005ffingerprint": "f"}"#;
        let expected = json!({"system_fingerprint": "f"});
        assert_eq!(Value::Object(around(chunk)), expected);
    }
}
