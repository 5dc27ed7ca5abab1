//! Whole documents of a provider that is not asked to stream, as each documents them.
//!
//! Each has a text and its finish reason in the words of chat completions, or a call of a tool.

use serde_json::{Value, json};

/// A call of a tool: its name and the JSON of its arguments.
type ToolCallOrNone<'a> = Option<(&'a str, &'a str)>;

fn parsed(arguments: &str) -> Value {
    serde_json::from_str(arguments).unwrap_or_default()
}

pub(super) fn chat(text: &str, finish: &str, call: ToolCallOrNone<'_>) -> Value {
    let (message, finish) = if let Some((name, arguments)) = call {
        let call = json!({"id": "call_a", "type": "function", "function": {"name": name, "arguments": arguments}});
        (
            json!({"role": "assistant", "content": null, "tool_calls": [call]}),
            "tool_calls",
        )
    } else {
        (json!({"role": "assistant", "content": text}), finish)
    };
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "test-model",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 24, "total_tokens": 34}})
}

pub(super) fn responses(text: &str, _: &str, call: ToolCallOrNone<'_>) -> Value {
    let item = if let Some((name, arguments)) = call {
        json!({"type": "function_call", "id": "fc_1", "call_id": "call_a", "name": name, "arguments": arguments})
    } else {
        json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
    };
    json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "test-model", "status": "completed",
        "error": null, "output": [item], "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "usage": {"input_tokens": 10, "output_tokens": 24, "total_tokens": 34}})
}

pub(super) fn anthropic(text: &str, _: &str, call: ToolCallOrNone<'_>) -> Value {
    let (block, stop) = if let Some((name, arguments)) = call {
        (
            json!({"type": "tool_use", "id": "toolu_01", "name": name, "input": parsed(arguments)}),
            "tool_use",
        )
    } else {
        (json!({"type": "text", "text": text}), "end_turn")
    };
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model", "content": [block],
        "stop_reason": stop, "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": 24}})
}

pub(super) fn gemini(text: &str, _: &str, call: ToolCallOrNone<'_>) -> Value {
    let part = if let Some((name, arguments)) = call {
        json!({"functionCall": {"name": name, "args": parsed(arguments)}})
    } else {
        json!({ "text": text })
    };
    json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 24, "totalTokenCount": 34},
        "modelVersion": "test-model", "responseId": "resp-1"})
}

pub(super) fn bedrock(text: &str, _: &str, call: ToolCallOrNone<'_>) -> Value {
    let (block, stop) = if let Some((name, arguments)) = call {
        (
            json!({"toolUse": {"toolUseId": "tooluse_1", "name": name, "input": parsed(arguments)}}),
            "tool_use",
        )
    } else {
        (json!({ "text": text }), "end_turn")
    };
    json!({"output": {"message": {"role": "assistant", "content": [block]}}, "stopReason": stop,
        "usage": {"inputTokens": 10, "outputTokens": 24, "totalTokens": 34}, "metrics": {"latencyMs": 9}})
}
