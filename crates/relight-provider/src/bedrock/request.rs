//! Translates a neutral call into a request of Converse.
//!
//! The caller's `extra` is merged last (`additionalModelRequestFields` for reasoning, guardrails).
//! Parameters without a common field in the API (`top_k`, `seed`, penalties, effort) are left out.
//! A response format, for which models of the API have no common field either, is demanded in the
//! system prompt.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::content;
use crate::{
    domain::{
        failure::ProviderError,
        left_out::sent_stops,
        message::{ModelCall, Part, ToolChoice, ToolDefinition},
        target::Dialect,
        wire::ProviderRequest,
    },
    {
        json_demand,
        turns::{merge_extra, schema},
    },
};

/// Returns the request's JSON body.
///
/// # Errors
/// When a schema that the caller gave is not JSON, or media cannot be sent.
pub(super) fn body(call: &ProviderRequest) -> Result<Vec<u8>, ProviderError> {
    let refused = |message: String| ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(message),
        ..ProviderError::default()
    };
    let fields = fields(&call.call, call.target.capabilities.user_after_tool).map_err(refused)?;
    serde_json::to_vec(&fields)
        .map_err(|error| refused(format!("the request cannot be written as JSON: {error}")))
}

fn fields(call: &ModelCall, mixes: bool) -> Result<Map<String, Value>, String> {
    let mut body = Map::new();
    let mut conversation = content::translate(&call.messages, mixes)?;
    let demand = json_demand::in_words(&call.response_format)?;
    conversation
        .system
        .extend(demand.map(|text| json!({"text": text})));
    if !conversation.system.is_empty() {
        body.insert("system".to_owned(), Value::Array(conversation.system));
    }
    body.insert("messages".to_owned(), Value::Array(conversation.messages));
    let inference = inference_config(call);
    if !inference.is_empty() {
        body.insert("inferenceConfig".to_owned(), Value::Object(inference));
    }
    if let Some(config) = tool_config(call)? {
        body.insert("toolConfig".to_owned(), config);
    }
    merge_extra(&mut body, call, Dialect::Bedrock);
    Ok(body)
}

fn inference_config(call: &ModelCall) -> Map<String, Value> {
    let mut config = Map::new();
    if let Some(limit) = call.max_output_tokens {
        config.insert("maxTokens".to_owned(), json!(limit));
    }
    for (name, value) in [
        ("temperature", call.sampling.temperature),
        ("topP", call.sampling.top_p),
    ] {
        if let Some(value) = value {
            config.insert(name.to_owned(), json!(value));
        }
    }
    let stops = sent_stops(call, Dialect::Bedrock);
    if !stops.is_empty() {
        config.insert("stopSequences".to_owned(), json!(stops));
    }
    config
}

/// Returns the tools. A conversation that holds calls is refused without them, so tools that are
/// offered no more, or that may not be called, are named all the same.
fn tool_config(call: &ModelCall) -> Result<Option<Value>, String> {
    let called: BTreeSet<&str> = call
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| {
            if let Part::ToolCall(call) = part {
                Some(call.name.as_str())
            } else {
                None
            }
        })
        .collect();
    let is_offered = !call.tools.is_empty() && call.tool_choice != ToolChoice::None;
    if !is_offered && called.is_empty() {
        return Ok(None);
    }
    let mut tools = call
        .tools
        .iter()
        .map(tool)
        .collect::<Result<Vec<Value>, String>>()?;
    if tools.is_empty() {
        tools.extend(called.into_iter().map(|name| {
            json!({"toolSpec": {"name": name, "description": "No longer available.", "inputSchema": {"json": {"type": "object"}}}})
        }));
    }
    let mut config = json!({"tools": tools});
    if let Some(choice) = tool_choice(&call.tool_choice).filter(|_| is_offered) {
        config["toolChoice"] = choice;
    }
    Ok(Some(config))
}

fn tool(definition: &ToolDefinition) -> Result<Value, String> {
    let schema = schema(
        &definition.parameters,
        &format!("function '{}'", definition.name),
    )?;
    let mut spec = json!({"name": definition.name, "inputSchema": {"json": schema}});
    if !definition.description.is_empty() {
        spec["description"] = json!(definition.description);
    }
    Ok(json!({"toolSpec": spec}))
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Unset | ToolChoice::None => None,
        ToolChoice::Auto => Some(json!({"auto": {}})),
        ToolChoice::Required => Some(json!({"any": {}})),
        ToolChoice::Tool(name) => Some(json!({"tool": {"name": name}})),
    }
}
