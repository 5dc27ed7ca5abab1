//! The usage.

use serde_json::Value;

use crate::domain::completion::{Exactness, Usage};

/// Returns the usage in a chunk; the last one counts.
pub(super) fn usage(chunk: &Value) -> Option<Usage> {
    let usage = chunk
        .get("usageMetadata")
        .filter(|usage| usage.is_object())?;
    let detail = |name: &str| usage.get(name).and_then(Value::as_u64);
    let count = |name: &str| detail(name).unwrap_or(0);
    let reasoning_tokens = detail("thoughtsTokenCount");
    Some(Usage {
        input_tokens: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
        // The API counts thoughts apart.
        output_tokens: count("candidatesTokenCount").saturating_add(reasoning_tokens.unwrap_or(0)),
        cached_input_tokens: detail("cachedContentTokenCount"),
        cache_write_tokens: None,
        reasoning_tokens,
        exactness: Exactness::Exact,
    })
}
