//! The usage, as every server of this dialect reports it, and the status of a server's own failure.

use serde_json::Value;

use crate::domain::completion::{Exactness, Usage};

/// Returns the HTTP status that a server's value for its own failure corresponds to.
pub(super) fn failed_status(raw: &str) -> u16 {
    if raw == "insufficient_system_resource" {
        503
    } else {
        500
    }
}

/// Returns the usage in a chunk or document, also where Groq keeps it, or in a choice as Moonshot
/// has it.
pub(super) fn usage(value: &Value) -> Option<Usage> {
    let of_groq = || {
        value
            .get("x_groq")?
            .get("usage")
            .filter(|it| it.is_object())
    };
    let of_choice = || {
        let choices = value.get("choices")?.as_array()?.iter();
        choices
            .filter_map(|choice| choice.get("usage"))
            .find(|it| it.is_object())
    };
    let usage = value
        .get("usage")
        .filter(|it| it.is_object())
        .or_else(of_groq)
        .or_else(of_choice)?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64);
    let detail = |details: &str, name: &str| usage.get(details)?.get(name)?.as_u64();
    Some(Usage {
        input_tokens: count("prompt_tokens")?,
        output_tokens: count("completion_tokens").unwrap_or(0),
        cached_input_tokens: detail("prompt_tokens_details", "cached_tokens")
            .or_else(|| count("prompt_cache_hit_tokens")),
        cache_write_tokens: detail("prompt_tokens_details", "cache_write_tokens"),
        reasoning_tokens: detail("completion_tokens_details", "reasoning_tokens"),
        exactness: Exactness::Exact,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_details_of_the_usage_are_read() {
        let chunk = json!({"usage": {
            "prompt_tokens": 10, "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 2},
        }});
        let expected = Usage {
            input_tokens: 10,
            output_tokens: 5,
            cached_input_tokens: Some(4),
            cache_write_tokens: Some(3),
            reasoning_tokens: Some(2),
            exactness: Exactness::Exact,
        };
        assert_eq!(usage(&chunk), Some(expected));
        let groq = json!({"usage": null, "x_groq": {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}});
        assert_eq!(usage(&groq).map(|usage| usage.output_tokens), Some(2));
        let moonshot = json!({"choices": [{"index": 0, "usage": {"prompt_tokens": 23, "completion_tokens": 2}}]});
        assert_eq!(usage(&moonshot).map(|usage| usage.input_tokens), Some(23));
        assert_eq!(usage(&json!({"usage": null})), None);
    }
}
