//! Translates a neutral call into a request of the Messages API.
//!
//! The caller's `extra` is merged last (thinking budgets, tools that the API defines, metadata,
//! beta fields). Parameters that the API does not support (`seed`, penalties) are dropped. JSON
//! without a schema, for which the API has no field, is demanded in the system prompt. Of marks for
//! caching, as many as the API takes are written: those of the newest messages, and all of the rest
//! of the request.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::messages;
use crate::{
    domain::{
        failure::ProviderError,
        left_out::sent_stops,
        message::{ModelCall, ResponseFormat, ToolChoice, ToolDefinition},
        own_fields,
        target::Dialect,
        wire::ProviderRequest,
    },
    {
        json_demand,
        turns::{merge_extra, schema},
    },
};

/// Output limit if the caller sets none: the API requires one, and every model since 2024 accepts
/// this one.
const DEFAULT_MAX_TOKENS: u32 = 8192;
/// The name of a mark for caching.
const CACHE_MARK: &str = "cache_control";
/// Number of marks for caching that the API takes in a request.
const MAX_CACHE_MARKS: usize = 4;
/// The fields that a request to count tokens takes.
const COUNTED: [&str; 7] = [
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
];

/// Returns the request's JSON body; `stream`: whether the response is to be streamed.
///
/// # Errors
/// When a schema that the caller gave is not JSON.
pub(super) fn body(call: &ProviderRequest, stream: bool) -> Result<Vec<u8>, ProviderError> {
    written(call, |fields| {
        fields.insert("stream".to_owned(), json!(stream));
    })
}

/// Returns the JSON body of a request to count the tokens of the same call.
///
/// # Errors
/// As for [`body`].
pub(super) fn count(call: &ProviderRequest) -> Result<Vec<u8>, ProviderError> {
    written(call, |fields| {
        fields.retain(|name, _| COUNTED.contains(&name.as_str()));
    })
}

fn written(
    call: &ProviderRequest,
    change: impl FnOnce(&mut Map<String, Value>),
) -> Result<Vec<u8>, ProviderError> {
    let refused = |message: String| ProviderError {
        provider: Arc::clone(&call.target.family),
        message: Some(message),
        ..ProviderError::default()
    };
    let able = &call.target.capabilities;
    let mut fields =
        fields(&call.target.model, &call.call, able.tail_system_message).map_err(refused)?;
    change(&mut fields);
    serde_json::to_vec(&fields)
        .map_err(|error| refused(format!("the request cannot be written as JSON: {error}")))
}

/// Returns the body's fields; `takes_system` is whether the model accepts a system message within
/// the conversation.
pub(super) fn fields(
    model: &str,
    call: &ModelCall,
    takes_system: bool,
) -> Result<Map<String, Value>, String> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    let mut conversation = messages::translate(&call.messages, takes_system)?;
    if call.response_format == ResponseFormat::JsonObject {
        let demand = json_demand::in_words(&call.response_format)?;
        let block = |text| json!({"type": "text", "text": text});
        conversation.system.extend(demand.map(block));
    }
    set("model", json!(model));
    set(
        "max_tokens",
        json!(call.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS)),
    );
    if !conversation.system.is_empty() {
        set("system", Value::Array(conversation.system));
    }
    set("messages", Value::Array(conversation.messages));
    if !call.tools.is_empty() {
        let tools: Result<Vec<Value>, String> = call.tools.iter().map(tool).collect();
        set("tools", Value::Array(tools?));
        if let Some(choice) = tool_choice(&call.tool_choice, call.parallel_tool_calls) {
            set("tool_choice", choice);
        }
    }
    let sampling = &call.sampling;
    for (name, value) in [
        ("temperature", sampling.temperature),
        ("top_p", sampling.top_p),
    ] {
        if let Some(value) = value {
            set(name, json!(value));
        }
    }
    if let Some(top_k) = sampling.top_k {
        set("top_k", json!(top_k));
    }
    let stops = sent_stops(call, Dialect::Anthropic);
    if !stops.is_empty() {
        set("stop_sequences", json!(stops));
    }
    let output = output_config(call)?;
    if !output.is_empty() {
        set("output_config", Value::Object(output));
    }
    merge_extra(&mut body, call, Dialect::Anthropic);
    drop_oldest_marks(&mut body);
    Ok(body)
}

/// Leaves out the marks for caching of the oldest messages, if the request has more than the API
/// takes: a kept conversation gathers those of all its turns.
fn drop_oldest_marks(body: &mut Map<String, Value>) {
    let blocks = ["system", "tools"]
        .iter()
        .filter_map(|name| body.get(*name)?.as_array())
        .flatten();
    let fixed = blocks
        .filter(|block| block.get(CACHE_MARK).is_some())
        .count();
    let mut left =
        MAX_CACHE_MARKS.saturating_sub(fixed + usize::from(body.contains_key(CACHE_MARK)));
    let messages = body
        .get_mut("messages")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .rev();
    let blocks = messages
        .filter_map(|message| message.get_mut("content")?.as_array_mut())
        .flat_map(|it| it.iter_mut().rev());
    for block in blocks
        .filter_map(Value::as_object_mut)
        .filter(|block| block.contains_key(CACHE_MARK))
    {
        match left.checked_sub(1) {
            Some(fewer) => left = fewer,
            None => {
                block.remove(CACHE_MARK);
            }
        }
    }
}

fn tool(definition: &ToolDefinition) -> Result<Value, String> {
    let mut tool = Map::new();
    tool.insert("name".to_owned(), json!(definition.name));
    if !definition.description.is_empty() {
        tool.insert("description".to_owned(), json!(definition.description));
    }
    let schema = schema(
        &definition.parameters,
        &format!("function '{}'", definition.name),
    )?;
    tool.insert("input_schema".to_owned(), schema);
    if definition.strict == Some(true) {
        tool.insert("strict".to_owned(), json!(true));
    }
    let own = definition.own.as_ref();
    tool.extend(own_fields::fields_in(Dialect::Anthropic, own));
    Ok(Value::Object(tool))
}

/// Returns the tool choice with the limit of one call at a time, which has no field of its own.
fn tool_choice(choice: &ToolChoice, parallel: Option<bool>) -> Option<Value> {
    let one_at_a_time = parallel == Some(false);
    let mut fields = match choice {
        ToolChoice::Unset if !one_at_a_time => return None,
        ToolChoice::None => return Some(json!({"type": "none"})),
        ToolChoice::Unset | ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if let Some(parallel) = parallel {
        fields["disable_parallel_tool_use"] = json!(!parallel);
    }
    Some(fields)
}

fn output_config(call: &ModelCall) -> Result<Map<String, Value>, String> {
    let mut output = Map::new();
    if let Some(effort) = &call.reasoning_effort {
        output.insert("effort".to_owned(), json!(effort));
    }
    match &call.response_format {
        ResponseFormat::Text | ResponseFormat::JsonObject => {}
        ResponseFormat::JsonSchema {
            name, schema: text, ..
        } => {
            let schema = schema(text, &format!("response_format '{name}'"))?;
            output.insert(
                "format".to_owned(),
                json!({"type": "json_schema", "schema": schema}),
            );
        }
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::message::{Message, Role};

    fn fields_of(call: &ModelCall) -> Value {
        Value::Object(fields("claude", call, true).unwrap())
    }

    #[test]
    fn the_output_limit_is_always_sent() {
        let call = ModelCall {
            messages: vec![Message::text(Role::User, "Hi")],
            ..ModelCall::default()
        };
        assert_eq!(fields_of(&call)["max_tokens"], 8192);
        assert_eq!(
            fields_of(&ModelCall {
                max_output_tokens: Some(7),
                ..call
            })["max_tokens"],
            7
        );
    }

    #[test]
    fn tools_choice_effort_and_format_are_translated_for_the_api() {
        let tools = vec![ToolDefinition {
            name: "search".to_owned(),
            description: String::new(),
            parameters: "{\"type\":\"object\"}".to_owned(),
            strict: Some(true),
            ..ToolDefinition::default()
        }];
        let format = ResponseFormat::JsonSchema {
            name: "n".into(),
            description: None,
            schema: "{\"type\":\"object\"}".into(),
            strict: true,
        };
        let call = ModelCall {
            tools,
            tool_choice: ToolChoice::Required,
            parallel_tool_calls: Some(false),
            reasoning_effort: Some("low".to_owned()),
            response_format: format,
            extra: json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}})
                .as_object()
                .unwrap()
                .clone(),
            ..ModelCall::default()
        };
        let body = fields_of(&call);
        assert_eq!(
            body["tools"],
            json!([{"name": "search", "input_schema": {"type": "object"}, "strict": true}])
        );
        assert_eq!(
            body["tool_choice"],
            json!({"type": "any", "disable_parallel_tool_use": true})
        );
        let format = json!({"type": "json_schema", "schema": {"type": "object"}});
        assert_eq!(
            body["output_config"],
            json!({"effort": "max", "format": format})
        );
        assert_eq!(body["thinking"]["type"], "adaptive");
    }

    #[test]
    fn a_schema_that_is_no_json_is_refused_with_the_name_of_its_tool() {
        let tool = ToolDefinition {
            name: "bad".into(),
            description: String::new(),
            parameters: "{".into(),
            ..ToolDefinition::default()
        };
        let refused = fields(
            "claude",
            &ModelCall {
                tools: vec![tool],
                ..ModelCall::default()
            },
            true,
        )
        .unwrap_err();
        assert!(
            refused.starts_with("Invalid schema for function 'bad'"),
            "{refused}"
        );
    }
}
