//! A neutral call in the words of chat completions.
//!
//! What the caller put into `extra` is merged last and as it is: it is the way to everything that is not modelled.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    ChatDialect,
    json::{Json, JsonObject},
    messages,
};
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
    // A sixteenth more for what is escaped, so that a long body is not moved while it is written.
    let expected = call.call.approximate_bytes();
    let mut written = Vec::with_capacity(1024 + expected + expected / 16);
    serde_json::to_writer(&mut written, &body)
        .map_err(|error| refused(format!("the request cannot be written as JSON: {error}")))?;
    Ok(written)
}

/// The fields of the body.
pub(super) fn fields<'a>(
    model: &'a str,
    call: &'a ModelCall,
    dialect: &'a ChatDialect<'_>,
) -> Result<JsonObject<'a>, String> {
    let mut body = JsonObject::of([("model", model.into())]);
    let begun = call.messages.last().is_some_and(|message| message.role == Role::Assistant);
    let mut messages = messages::translate(&call.messages, dialect);
    match dialect.prefill_mark {
        PrefillMark::ContinueFinalMessage if begun => {
            body.set("continue_final_message", json!(true));
            body.set("add_generation_prompt", json!(false));
        }
        PrefillMark::Prefix if begun => {
            if let Some(last) = messages.last_mut() {
                last.set("prefix", json!(true));
            }
        }
        PrefillMark::None | PrefillMark::ContinueFinalMessage | PrefillMark::Prefix => {}
    }
    body.set("messages", Json::Array(messages.into_iter().map(Json::Object).collect()));
    body.set("stream", json!(dialect.options.stream));
    if dialect.stream_usage {
        body.set("stream_options", json!({"include_usage": true}));
    }
    if !call.tools.is_empty() {
        let tools: Result<Vec<Json<'_>>, String> = call.tools.iter().map(tool).collect();
        body.set("tools", Json::Array(tools?));
        if let Some(choice) = tool_choice(&call.tool_choice) {
            body.set("tool_choice", choice);
        }
        if let Some(parallel) = call.parallel_tool_calls.filter(|_| dialect.parallel_tools) {
            body.set("parallel_tool_calls", json!(parallel));
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
            body.set(name, json!(value));
        }
    }
    if let Some(top_k) = sampling.top_k {
        body.set("top_k", json!(top_k));
    }
    if let Some(seed) = sampling.seed {
        body.set("seed", json!(seed));
    }
    if let Some(limit) = call.max_output_tokens {
        body.set(dialect.output_limit_field.as_str(), json!(limit));
    }
    if let Some(effort) = &call.reasoning_effort {
        body.set("reasoning_effort", effort);
    }
    if let Some(format) = response_format(&call.response_format)? {
        body.set("response_format", format);
    }
    if !call.stop.is_empty() {
        body.set("stop", json!(call.stop));
    }
    let extra = call.extra_for(Dialect::OpenaiChat.as_str()).into_iter().flatten();
    body.merge(extra.map(|(name, value)| (name.as_str(), value.clone())));
    Ok(body)
}

fn tool(definition: &ToolDefinition) -> Result<Json<'_>, String> {
    let mut function = JsonObject::of([("name", (&definition.name).into())]);
    if !definition.description.is_empty() {
        function.set("description", &definition.description);
    }
    if !definition.parameters.trim().is_empty() {
        let schema = raw(&definition.parameters)
            .map_err(|error| format!("Invalid schema for function '{}': it is not JSON: {error}", definition.name))?;
        function.set("parameters", schema);
    }
    Ok(JsonObject::of([("type", "function".into()), ("function", function.into())]).into())
}

/// JSON text as it is; its outer blanks are left out.
fn raw(text: &str) -> Result<Json<'_>, serde_json::Error> {
    serde_json::from_str(text).map(Json::Raw)
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

fn response_format(format: &ResponseFormat) -> Result<Option<Json<'_>>, String> {
    match format {
        ResponseFormat::Text => Ok(None),
        ResponseFormat::JsonObject => Ok(Some(json!({"type": "json_object"}).into())),
        ResponseFormat::JsonSchema { name, schema, strict } => {
            let schema = raw(schema)
                .map_err(|error| format!("Invalid schema for response_format '{name}': it is not JSON: {error}"))?;
            let named = JsonObject::of([("name", name.into()), ("schema", schema), ("strict", json!(strict).into())]);
            Ok(Some(JsonObject::of([("type", "json_schema".into()), ("json_schema", named.into())]).into()))
        }
    }
}
