//! The usage, and the HTTP status that an exception inside a stream corresponds
//! to.

use serde_json::Value;

use crate::domain::completion::{Exactness, Usage};

/// Returns the status of an exception, as the API's documentation pairs them.
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

/// Returns the usage in metadata, or in a document.
pub(super) fn usage(value: &Value) -> Option<Usage> {
    let usage = value.get("usage").filter(|usage| usage.is_object())?;
    let detail = |name: &str| usage.get(name).and_then(Value::as_u64);
    let count = |name: &str| detail(name).unwrap_or(0);
    let read = detail("cacheReadInputTokens");
    let written = detail("cacheWriteInputTokens");
    Some(Usage {
        // The API counts cached tokens apart.
        input_tokens: count("inputTokens")
            .saturating_add(read.unwrap_or(0))
            .saturating_add(written.unwrap_or(0)),
        output_tokens: count("outputTokens"),
        cached_input_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: None,
        exactness: Exactness::Exact,
    })
}
