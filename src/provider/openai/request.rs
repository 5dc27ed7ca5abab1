//! A neutral call in the words of chat completions.
//!
//! What the caller put into `extra` is merged last and as it is: it is the way to everything that is not modelled.

use serde_json::{Value, json};

use super::{
    ChatDialect,
    json::{Json, JsonObject},
    messages,
};
use crate::domain::{
    message::{ModelCall, ResponseFormat, Role, ToolChoice, ToolDefinition},
    target::{Dialect, PrefillMark},
    wire::ProviderRequest,
};

/// The request's JSON body.
pub(super) fn body(call: &ProviderRequest, dialect: &ChatDialect<'_>) -> Vec<u8> {
    // A sixteenth more for what is escaped, so that a long body is not moved while it is written.
    let expected = call.call.approximate_bytes();
    let mut written = Vec::with_capacity(1024 + expected + expected / 16);
    fields(&call.target.model, &call.call, dialect).write(&mut written);
    written
}

/// The fields of the body.
pub(super) fn fields<'a>(model: &'a str, call: &'a ModelCall, dialect: &'a ChatDialect<'_>) -> JsonObject<'a> {
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
        body.set("tools", Json::Array(call.tools.iter().map(tool).collect()));
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
    if let Some(format) = response_format(&call.response_format) {
        body.set("response_format", format);
    }
    if !call.stop.is_empty() {
        body.set("stop", json!(call.stop));
    }
    let extra = call.extra_for(Dialect::OpenaiChat.as_str()).into_iter().flatten();
    body.merge(extra.map(|(name, value)| (name.as_str(), value.clone())));
    body
}

fn tool(definition: &ToolDefinition) -> Json<'_> {
    let mut function = JsonObject::of([("name", (&definition.name).into())]);
    if !definition.description.is_empty() {
        function.set("description", &definition.description);
    }
    let schema = definition.parameters.trim();
    if !schema.is_empty() {
        function.set("parameters", Json::Raw(schema));
    }
    JsonObject::of([("type", "function".into()), ("function", function.into())]).into()
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

fn response_format(format: &ResponseFormat) -> Option<Json<'_>> {
    match format {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject => Some(json!({"type": "json_object"}).into()),
        ResponseFormat::JsonSchema { name, schema, strict } => {
            let schema = Json::Raw(schema.trim());
            let named = JsonObject::of([("name", name.into()), ("schema", schema), ("strict", json!(strict).into())]);
            Some(JsonObject::of([("type", "json_schema".into()), ("json_schema", named.into())]).into())
        }
    }
}
