//! The finish reason and the usage.

use serde_json::Value;

use crate::domain::completion::{Exactness, FinishReason, Usage};

/// The finish reason for the API's `finishReason`.
pub(super) fn reason(raw: &str) -> FinishReason {
    match raw {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY"
        | "RECITATION"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => FinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => FinishReason::MalformedToolCall,
        // LANGUAGE, TOO_MANY_TOOL_CALLS, MISSING_THOUGHT_SIGNATURE, NO_IMAGE, IMAGE_OTHER, OTHER,
        // and what is to come.
        _ => FinishReason::Other,
    }
}

/// The usage in a chunk; the last one counts.
pub(super) fn usage(chunk: &Value) -> Option<Usage> {
    let usage = chunk
        .get("usageMetadata")
        .filter(|usage| usage.is_object())?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let reasoning_tokens = count("thoughtsTokenCount");
    Some(Usage {
        input_tokens: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
        // The API counts thoughts apart.
        output_tokens: count("candidatesTokenCount").saturating_add(reasoning_tokens),
        cached_input_tokens: count("cachedContentTokenCount"),
        cache_write_tokens: 0,
        reasoning_tokens,
        exactness: Exactness::Exact,
    })
}
