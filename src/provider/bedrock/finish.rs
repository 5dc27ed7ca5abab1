//! The finish reason, the usage, and the HTTP status that an exception inside a stream corresponds
//! to.

use serde_json::Value;

use crate::domain::completion::{Exactness, FinishReason, Usage};

/// The finish reason for the API's `stopReason`.
pub(super) fn reason(raw: &str) -> FinishReason {
    match raw {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "tool_use" => FinishReason::ToolCalls,
        "max_tokens" => FinishReason::Length,
        "model_context_window_exceeded" => FinishReason::ContextFull,
        "guardrail_intervened" | "content_filtered" => FinishReason::ContentFilter,
        // What is malformed is the call, or was to be one.
        "malformed_tool_use" | "malformed_model_output" => FinishReason::MalformedToolCall,
        "refusal" => FinishReason::Refusal,
        "pause_turn" => FinishReason::Paused,
        _ => FinishReason::Other,
    }
}

/// The status of an exception, as the API's documentation pairs them.
pub(super) fn status(exception: &str) -> Option<u16> {
    Some(
        match exception.to_ascii_lowercase().trim_end_matches("exception") {
            "validation" | "servicequotaexceeded" => 400,
            "accessdenied" => 403,
            "resourcenotfound" => 404,
            "modeltimeout" => 408,
            "modelstreamerror" | "modelerror" => 424,
            "throttling" | "modelnotready" => 429,
            "internalserver" => 500,
            "serviceunavailable" => 503,
            _ => return None,
        },
    )
}

/// The usage in metadata, or in a document.
pub(super) fn usage(value: &Value) -> Option<Usage> {
    let usage = value.get("usage").filter(|usage| usage.is_object())?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (read, written) = (
        count("cacheReadInputTokens"),
        count("cacheWriteInputTokens"),
    );
    Some(Usage {
        // The API counts cached tokens apart.
        input_tokens: count("inputTokens")
            .saturating_add(read)
            .saturating_add(written),
        output_tokens: count("outputTokens"),
        cached_input_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: 0,
        exactness: Exactness::Exact,
    })
}
