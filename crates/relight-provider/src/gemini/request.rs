//! Translates a neutral call into a request of `generateContent`.
//!
//! The caller's `extra` is merged last (safety settings, thinking budgets, built-in tools). The API
//! has no field for one tool call at a time, so `parallel_tool_calls` is left out.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::contents;
use crate::{
    domain::{
        failure::ProviderError,
        left_out::sent_stops,
        message::{ModelCall, ResponseFormat, ToolChoice, ToolDefinition},
        target::Dialect,
        wire::ProviderRequest,
    },
    turns::{merge_extra, schema},
};

/// Returns the request's JSON body.
///
/// # Errors
/// When a schema that the caller gave is not JSON.
pub(super) fn body(call: &ProviderRequest) -> Result<Vec<u8>, ProviderError> {
    let refused = |message: String| ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(message),
        ..ProviderError::default()
    };
    let fields = fields(&call.call, call.target.capabilities.signed_calls).map_err(refused)?;
    serde_json::to_vec(&fields)
        .map_err(|error| refused(format!("the request cannot be written as JSON: {error}")))
}

/// `signed_calls`: calls of the current turn must come with signatures, as from version 3 on.
fn fields(call: &ModelCall, signed_calls: bool) -> Result<Map<String, Value>, String> {
    let mut body = Map::new();
    let conversation = contents::translate(&call.messages, signed_calls)?;
    if !conversation.system.is_empty() {
        body.insert(
            "systemInstruction".to_owned(),
            json!({"parts": conversation.system}),
        );
    }
    body.insert("contents".to_owned(), Value::Array(conversation.contents));
    if !call.tools.is_empty() {
        let declarations: Result<Vec<Value>, String> = call.tools.iter().map(declaration).collect();
        body.insert(
            "tools".to_owned(),
            json!([{"functionDeclarations": declarations?}]),
        );
        if let Some(config) = calling_config(&call.tool_choice) {
            body.insert(
                "toolConfig".to_owned(),
                json!({"functionCallingConfig": config}),
            );
        }
    }
    let generation = generation_config(call)?;
    if !generation.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(generation));
    }
    merge_extra(&mut body, call, Dialect::Gemini);
    Ok(body)
}

fn declaration(definition: &ToolDefinition) -> Result<Value, String> {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(definition.name));
    fields.insert("description".to_owned(), json!(definition.description));
    if !definition.parameters.trim().is_empty() {
        let schema = schema(
            &definition.parameters,
            &format!("function '{}'", definition.name),
        )?;
        fields.insert("parametersJsonSchema".to_owned(), schema);
    }
    Ok(Value::Object(fields))
}

fn calling_config(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Unset => None,
        ToolChoice::Auto => Some(json!({"mode": "AUTO"})),
        ToolChoice::None => Some(json!({"mode": "NONE"})),
        ToolChoice::Required => Some(json!({"mode": "ANY"})),
        ToolChoice::Tool(name) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
    }
}

fn generation_config(call: &ModelCall) -> Result<Map<String, Value>, String> {
    let mut config = Map::new();
    let mut set = |name: &str, value: Value| {
        config.insert(name.to_owned(), value);
    };
    let sampling = &call.sampling;
    let numbers = [
        ("temperature", sampling.temperature),
        ("topP", sampling.top_p),
        ("frequencyPenalty", sampling.frequency_penalty),
        ("presencePenalty", sampling.presence_penalty),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            set(name, json!(value));
        }
    }
    if let Some(top_k) = sampling.top_k {
        set("topK", json!(top_k));
    }
    if let Some(seed) = sampling.seed {
        set("seed", json!(seed));
    }
    if let Some(limit) = call.max_output_tokens {
        set("maxOutputTokens", json!(limit));
    }
    let stops = sent_stops(call, Dialect::Gemini);
    if !stops.is_empty() {
        set("stopSequences", json!(stops));
    }
    if let Some(effort) = &call.reasoning_effort {
        set(
            "thinkingConfig",
            json!({"thinkingLevel": thinking_level(effort)}),
        );
    }
    match &call.response_format {
        ResponseFormat::Text => {}
        ResponseFormat::JsonObject => set("responseMimeType", json!("application/json")),
        ResponseFormat::JsonSchema {
            name, schema: text, ..
        } => {
            let schema = schema(text, &format!("response_format '{name}'"))?;
            set("responseMimeType", json!("application/json"));
            set("responseJsonSchema", schema);
        }
    }
    Ok(config)
}

/// Returns the level: the API's levels end at `HIGH` and start at `MINIMAL`.
fn thinking_level(effort: &str) -> String {
    match effort {
        "none" => "MINIMAL".to_owned(),
        "xhigh" | "max" => "HIGH".to_owned(),
        level => level.to_ascii_uppercase(),
    }
}
