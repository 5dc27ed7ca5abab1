//! `streamGenerateContent` as Google documents it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Answers, documents};
use crate::wire_server::Reply;

pub(super) const ANSWERS: Answers = Answers {
    text,
    tool_call,
    broken_tool_call,
    rate_limited,
    overloaded_amid,
    unfit,
    refuses,
    document: documents::gemini,
};

/// Returns a text, word by word.
#[must_use]
pub fn text(text: &str) -> Reply {
    let mut chunks = begun(text);
    chunks.push(last(&json!([]), "STOP"));
    stream(&chunks)
}

/// Returns a signed function call, in one piece as this API sends it; arguments that are not valid
/// JSON cannot be sent.
#[must_use]
pub fn tool_call(name: &str, arguments: &str) -> Reply {
    let args: Value = serde_json::from_str(arguments).unwrap_or_default();
    let part =
        json!({"functionCall": {"name": name, "args": args}, "thoughtSignature": "c2lnbmF0dXJl"});
    stream(&[last(&json!([part]), "STOP")])
}

/// Returns the API's finish reason for a malformed tool call.
#[must_use]
pub fn broken_tool_call(_: &str) -> Reply {
    stream(&[last(&json!([]), "MALFORMED_FUNCTION_CALL")])
}

/// With `RetryInfo`.
#[must_use]
pub fn rate_limited() -> Reply {
    let message = "You exceeded your current quota, please check your plan and billing details. Please retry in 1s.";
    let quota = json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "10"}]});
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"});
    refused(429, message, "RESOURCE_EXHAUSTED", &json!([quota, retry]))
}

/// Returns a bare error object over several lines, without `data:`, as Google mixes it into a
/// stream.
#[must_use]
pub fn overloaded_amid(text: &str) -> Reply {
    let error = json!({"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"});
    let bare = serde_json::to_string_pretty(&json!({"error": error})).unwrap_or_default();
    let chunks = begun(text);
    let lines = chunks.iter().map(line).chain([format!("{bare}\n")]);
    Reply::stream(
        lines
            .map(|line| (Duration::ZERO, line.into_bytes()))
            .collect(),
    )
}

/// The requested output limit is too large.
#[must_use]
pub fn unfit() -> Reply {
    let message = "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is \
                   from 1 (inclusive) to 65537 (exclusive). Update the value and try again.";
    refused(400, message, "INVALID_ARGUMENT", &json!([]))
}

/// The prompt is blocked: no candidate comes.
#[must_use]
pub fn refuses() -> Reply {
    let usage = json!({"promptTokenCount": 10});
    stream(&[
        json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage, "modelVersion": MODEL}),
    ])
}

const MODEL: &str = "gemini-test-1";

fn chunk(parts: &Value) -> Value {
    let candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    json!({"candidates": [candidate], "modelVersion": MODEL, "responseId": "resp-1"})
}

fn last(parts: &Value, finish: &str) -> Value {
    let mut chunk = chunk(parts);
    chunk["candidates"][0]["finishReason"] = json!(finish);
    chunk["usageMetadata"] =
        json!({"promptTokenCount": 10, "candidatesTokenCount": 8, "totalTokenCount": 18});
    chunk
}

fn begun(text: &str) -> Vec<Value> {
    text.split_inclusive(' ')
        .map(|word| chunk(&json!([{"text": word}])))
        .collect()
}

fn line(chunk: &Value) -> String {
    format!("data: {chunk}\r\n\r\n")
}

fn stream(chunks: &[Value]) -> Reply {
    Reply::stream(
        chunks
            .iter()
            .map(|chunk| (Duration::ZERO, line(chunk).into_bytes()))
            .collect(),
    )
}

fn refused(code: u16, message: &str, status: &str, details: &Value) -> Reply {
    let error = json!({"code": code, "message": message, "status": status, "details": details});
    Reply::refusal(code, &[], &json!({"error": error}))
}
