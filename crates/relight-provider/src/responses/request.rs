//! Translates a neutral call into a request of the Responses API.
//!
//! The caller's `extra` is merged last. Parameters that the API does not support (`seed`, `top_k`,
//! penalties) are left out; at stop sequences, for which it has no field, the completion is cut here.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{custom_names, items};
use crate::{
    domain::{
        failure::ProviderError,
        message::{ModelCall, ResponseFormat, ToolChoice, ToolDefinition},
        own_fields,
        target::Dialect,
        wire::ProviderRequest,
    },
    turns::{merge_extra, schema},
};

/// Models without reasoning; they reject a request for encrypted reasoning.
const WITHOUT_REASONING: [&str; 4] = ["gpt-3", "gpt-4", "chatgpt", "-chat"];
/// Values asked for beyond the completion itself: reasoning is sent back in the next turn.
const INCLUDED: &str = "reasoning.encrypted_content";

/// A request in this dialect.
pub(super) struct RequestBody {
    /// JSON.
    pub(super) body: Vec<u8>,
    /// If set, the response is generated in the background.
    pub(super) in_background: bool,
}

/// Returns the request's JSON body; `stream`: whether the response is to be streamed.
///
/// # Errors
/// When a schema that the caller gave is not JSON.
pub(super) fn body(call: &ProviderRequest, stream: bool) -> Result<RequestBody, ProviderError> {
    let refused = |message: String| ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(message),
        ..ProviderError::default()
    };
    // What comes whole has nothing that could be read on.
    let able = stream && call.target.capabilities.background;
    let mut fields = fields(&call.target.model, &call.call, able).map_err(refused)?;
    fields.insert("stream".to_owned(), json!(stream));
    // The caller's own fields take precedence over the target's.
    let in_background = able
        && ["background", "store"]
            .iter()
            .all(|name| fields.get(*name) == Some(&json!(true)));
    let body = serde_json::to_vec(&fields);
    let body =
        body.map_err(|error| refused(format!("the request cannot be written as JSON: {error}")))?;
    Ok(RequestBody {
        body,
        in_background,
    })
}

fn fields(model: &str, call: &ModelCall, background: bool) -> Result<Map<String, Value>, String> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    set("model", json!(model));
    let custom: Vec<&str> = custom_names(call.own_tools()).collect();
    set(
        "input",
        Value::Array(items::translate(&call.messages, &custom)),
    );
    // A response that is not stored cannot be fetched again.
    set("store", json!(background));
    if background {
        set("background", json!(true));
    }
    let reasons = !WITHOUT_REASONING.iter().any(|name| model.contains(name));
    if reasons {
        set("include", json!([INCLUDED]));
    }
    if !call.tools.is_empty() {
        let tools: Result<Vec<Value>, String> = call.tools.iter().map(tool).collect();
        set("tools", Value::Array(tools?));
    }
    let own =
        call.extra_for(Dialect::OpenaiResponses.as_str()).is_some() && !call.own_tools().is_empty();
    if own || !call.tools.is_empty() {
        if let Some(choice) = tool_choice(&call.tool_choice, &custom) {
            set("tool_choice", choice);
        }
        if let Some(parallel) = call.parallel_tool_calls {
            set("parallel_tool_calls", json!(parallel));
        }
    }
    for (name, value) in [
        ("temperature", call.sampling.temperature),
        ("top_p", call.sampling.top_p),
    ] {
        if let Some(value) = value {
            set(name, json!(value));
        }
    }
    if let Some(limit) = call.max_output_tokens {
        set("max_output_tokens", json!(limit));
    }
    if let Some(effort) = &call.reasoning_effort {
        set("reasoning", json!({"effort": effort}));
    }
    if let Some(format) = format(&call.response_format)? {
        set("text", json!({"format": format}));
    }
    merge_extra(&mut body, call, Dialect::OpenaiResponses);
    if let Some(Value::Array(include)) = body.get_mut("include")
        && reasons
        && !include.iter().any(|name| name == INCLUDED)
    {
        include.push(json!(INCLUDED));
    }
    // A field of chat completions has another place in this API.
    if let Some(verbosity) = body.shift_remove("verbosity")
        && let Value::Object(text) = body.entry("text").or_insert_with(|| json!({}))
    {
        text.insert("verbosity".to_owned(), verbosity);
    }
    Ok(body)
}

/// The API enforces schemas unless `strict` is false, and rejects those that it cannot enforce.
fn tool(definition: &ToolDefinition) -> Result<Value, String> {
    let schema = schema(
        &definition.parameters,
        &format!("function '{}'", definition.name),
    )?;
    let strict = definition.strict.unwrap_or(false);
    let mut fields = json!({"type": "function", "name": definition.name, "parameters": schema, "strict": strict});
    if !definition.description.is_empty() {
        fields["description"] = json!(definition.description);
    }
    let own = own_fields::fields_in(Dialect::OpenaiResponses, definition.own.as_ref());
    own_fields::merge(&mut fields, &own);
    Ok(fields)
}

fn tool_choice(choice: &ToolChoice, custom: &[&str]) -> Option<Value> {
    match choice {
        ToolChoice::Unset => None,
        ToolChoice::Auto => Some(json!("auto")),
        ToolChoice::None => Some(json!("none")),
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Tool(name) => {
            let kind = if custom.contains(&name.as_str()) {
                "custom"
            } else {
                "function"
            };
            Some(json!({"type": kind, "name": name}))
        }
    }
}

fn format(format: &ResponseFormat) -> Result<Option<Value>, String> {
    match format {
        ResponseFormat::Text => Ok(None),
        ResponseFormat::JsonObject => Ok(Some(json!({"type": "json_object"}))),
        ResponseFormat::JsonSchema {
            name,
            description,
            schema: text,
            strict,
        } => {
            let schema = schema(text, &format!("response_format '{name}'"))?;
            let mut format =
                json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict});
            if let Some(description) = description {
                format["description"] = json!(description);
            }
            Ok(Some(format))
        }
    }
}
