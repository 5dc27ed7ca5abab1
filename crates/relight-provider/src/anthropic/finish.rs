//! The usage, and the HTTP status that an error inside a stream corresponds to.

use serde_json::Value;

use crate::domain::completion::{Exactness, Usage};

/// Returns the status of an error type, as the API's documentation pairs them.
pub(super) fn status(error_type: &str) -> Option<u16> {
    Some(match error_type {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "conflict_error" => 409,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "api_error" => 500,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => return None,
    })
}

/// The usage as the events report it: each reports only what it knows, and counts are cumulative.
#[derive(Debug, Default)]
pub(super) struct AnthropicUsage {
    uncached: u64,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: u64,
    thinking: Option<u64>,
}

// === impl AnthropicUsage ===

impl AnthropicUsage {
    /// Adds a `usage` object; `None` if there is none.
    pub(super) fn add(&mut self, usage: Option<&Value>) -> Option<Usage> {
        let usage = usage.filter(|usage| usage.is_object())?;
        let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
        self.uncached = count("/input_tokens").unwrap_or(self.uncached);
        self.output = count("/output_tokens").unwrap_or(self.output);
        for (known, pointer) in [
            (&mut self.cache_read, "/cache_read_input_tokens"),
            (&mut self.cache_write, "/cache_creation_input_tokens"),
            (&mut self.thinking, "/output_tokens_details/thinking_tokens"),
        ] {
            *known = count(pointer).or(*known);
        }
        Some(Usage {
            // The API counts cached tokens apart.
            input_tokens: self
                .uncached
                .saturating_add(self.cache_read.unwrap_or(0))
                .saturating_add(self.cache_write.unwrap_or(0)),
            output_tokens: self.output,
            cached_input_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            reasoning_tokens: self.thinking,
            exactness: Exactness::Exact,
        })
    }
}
