//! The usage, and the HTTP status that an error inside a stream corresponds to.

use serde_json::Value;

use crate::domain::completion::{Exactness, Usage};

/// Returns the status of an error code; codes about the request's own content count as a bad
/// request.
pub(super) fn status(code: &str) -> Option<u16> {
    Some(match code {
        "rate_limit_exceeded" | "insufficient_quota" => 429,
        "server_error" | "internal_error" => 500,
        "server_is_overloaded" | "slow_down" | "overloaded" => 503,
        "vector_store_timeout" => 504,
        "invalid_api_key" => 401,
        "context_length_exceeded" | "invalid_prompt" | "invalid_request_error" | "bio_policy" => {
            400
        }
        code if code.contains("image") => 400,
        _ => return None,
    })
}

/// Returns the usage of a response.
pub(super) fn usage(response: &Value) -> Option<Usage> {
    let usage = response.get("usage").filter(|usage| usage.is_object())?;
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    Some(Usage {
        input_tokens: count("/input_tokens")?,
        output_tokens: count("/output_tokens").unwrap_or(0),
        cached_input_tokens: count("/input_tokens_details/cached_tokens"),
        cache_write_tokens: count("/input_tokens_details/cache_write_tokens"),
        reasoning_tokens: count("/output_tokens_details/reasoning_tokens"),
        exactness: Exactness::Exact,
    })
}
