//! A neutral call in the words of chat completions.
//!
//! What the caller put into `extra` is merged last and as it is: it is the way to everything that is not modelled.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ChatDialect, messages};
use crate::domain::{
    failure::ProviderError,
    message::{ModelCall, ResponseFormat, Role, ToolChoice, ToolDefinition},
    target::{Dialect, PrefillMark},
    wire::ProviderRequest,
};

/// The request's JSON body.
///
/// # Errors
/// When a schema that the caller gave is not JSON: it cannot be put into any request.
pub(super) fn body(call: &ProviderRequest, dialect: &ChatDialect<'_>) -> Result<Vec<u8>, ProviderError> {
    let refused = |message: String| ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(message),
        ..ProviderError::default()
    };
    let body = fields(&call.target.model, &call.call, dialect).map_err(&refused)?;
    serde_json::to_vec(&body).map_err(|error| refused(format!("the request cannot be written as JSON: {error}")))
}

/// The fields of the body.
pub(super) fn fields(model: &str, call: &ModelCall, dialect: &ChatDialect<'_>) -> Result<Map<String, Value>, String> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    set("model", json!(model));
    let begun = call.messages.last().is_some_and(|message| message.role == Role::Assistant);
    let mut messages = messages::translate(&call.messages, dialect);
    match dialect.prefill_mark {
        PrefillMark::ContinueFinalMessage if begun => {
            set("continue_final_message", json!(true));
            set("add_generation_prompt", json!(false));
        }
        PrefillMark::Prefix if begun => {
            if let Some(last) = messages.last_mut() {
                last["prefix"] = json!(true);
            }
        }
        PrefillMark::None | PrefillMark::ContinueFinalMessage | PrefillMark::Prefix => {}
    }
    set("messages", Value::Array(messages));
    set("stream", json!(dialect.options.stream));
    if dialect.stream_usage {
        set("stream_options", json!({"include_usage": true}));
    }
    if !call.tools.is_empty() {
        let tools: Result<Vec<Value>, String> = call.tools.iter().map(tool).collect();
        set("tools", Value::Array(tools?));
        if let Some(choice) = tool_choice(&call.tool_choice) {
            set("tool_choice", choice);
        }
        if let Some(parallel) = call.parallel_tool_calls.filter(|_| dialect.parallel_tools) {
            set("parallel_tool_calls", json!(parallel));
        }
    }
    let sampling = &call.sampling;
    let numbers = [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
        ("frequency_penalty", sampling.frequency_penalty),
        ("presence_penalty", sampling.presence_penalty),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            set(name, json!(value));
        }
    }
    if let Some(top_k) = sampling.top_k {
        set("top_k", json!(top_k));
    }
    if let Some(seed) = sampling.seed {
        set("seed", json!(seed));
    }
    if let Some(limit) = call.max_output_tokens {
        set(dialect.output_limit_field.as_str(), json!(limit));
    }
    if let Some(effort) = &call.reasoning_effort {
        set("reasoning_effort", json!(effort));
    }
    if let Some(format) = response_format(&call.response_format)? {
        set("response_format", format);
    }
    if !call.stop.is_empty() {
        set("stop", json!(call.stop));
    }
    body.extend(call.extra_for(Dialect::OpenaiChat.as_str()).cloned().unwrap_or_default());
    Ok(body)
}

fn tool(definition: &ToolDefinition) -> Result<Value, String> {
    let mut function = Map::new();
    function.insert("name".to_owned(), json!(definition.name));
    if !definition.description.is_empty() {
        function.insert("description".to_owned(), json!(definition.description));
    }
    if !definition.parameters.trim().is_empty() {
        let schema: Value = serde_json::from_str(&definition.parameters)
            .map_err(|error| format!("Invalid schema for function '{}': it is not JSON: {error}", definition.name))?;
        function.insert("parameters".to_owned(), schema);
    }
    Ok(json!({"type": "function", "function": function}))
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Unset => None,
        ToolChoice::Auto => Some(json!("auto")),
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

fn response_format(format: &ResponseFormat) -> Result<Option<Value>, String> {
    match format {
        ResponseFormat::Text => Ok(None),
        ResponseFormat::JsonObject => Ok(Some(json!({"type": "json_object"}))),
        ResponseFormat::JsonSchema { name, schema, strict } => {
            let schema: Value = serde_json::from_str(schema)
                .map_err(|error| format!("Invalid schema for response_format '{name}': it is not JSON: {error}"))?;
            let wrapped = json!({"name": name, "schema": schema, "strict": strict});
            Ok(Some(json!({"type": "json_schema", "json_schema": wrapped})))
        }
    }
}
