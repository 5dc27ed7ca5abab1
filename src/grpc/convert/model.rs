//! A model call as the caller wrote it, checked against the contract's rules for each field.
//!
//! Raw JSON (schemas, arguments) is checked to be JSON and passed on as written, without
//! re-encoding.

use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::{Map, Number, Value};

use super::{
    message::read_messages,
    violation::{Path, Violations},
};
use crate::{
    domain::message::{
        Message, ModelCall, ResponseFormat, Role, Sampling, ToolChoice, ToolDefinition,
    },
    grpc::v1,
};

/// Fields of a provider's request that `extra` may not set.
const NOT_EXTRA: [&str; 8] = [
    "model",
    "messages",
    "input",
    "contents",
    "system",
    "systemInstruction",
    "system_instruction",
    "stream",
];

/// The schema of a tool that takes no arguments.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

/// Integers are exact in a double up to here.
const EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Longest name of a response schema, in bytes.
const MAX_SCHEMA_NAME_BYTES: usize = 64;

/// `on_thread`: the kept messages come before these, so there may be none.
pub(super) fn read_model_call(
    at: &Path<'_>,
    wire: v1::ModelCall,
    on_thread: bool,
    faults: &mut Violations,
) -> ModelCall {
    if wire.messages.is_empty() && wire.text.is_empty() && !on_thread {
        faults.add(
            at.field("messages"),
            "is empty; at least one message, or `text`, is required without a thread",
        );
    }
    if wire.max_output_tokens == Some(0) {
        faults.add(at.field("max_output_tokens"), "is 0; the least is 1");
    }
    for (index, text) in wire.stop.iter().enumerate() {
        if text.is_empty() {
            faults.add(at.field("stop").item(index), "is empty");
        }
    }
    let mut messages = read_messages(&at.field("messages"), wire.messages, faults);
    if !wire.text.is_empty() {
        messages.push(Message::text(Role::User, wire.text));
    }
    let tools = tools(&at.field("tools"), wire.tools, faults);
    let tool_choice = wire
        .tool_choice
        .map(|choice| tool_choice(&at.field("tool_choice"), choice, &tools, faults));
    let response_format = wire
        .response_format
        .map(|format| format_of(&at.field("response_format"), format, faults));
    ModelCall {
        messages,
        tool_choice: tool_choice.unwrap_or_default(),
        tools,
        parallel_tool_calls: wire.parallel_tool_calls,
        sampling: wire
            .sampling
            .map(|wire| sampling(&at.field("sampling"), wire, faults))
            .unwrap_or_default(),
        max_output_tokens: wire.max_output_tokens,
        reasoning_effort: (!wire.reasoning_effort.is_empty()).then_some(wire.reasoning_effort),
        response_format: response_format.unwrap_or_default(),
        stop: wire.stop,
        extra: wire
            .extra
            .map(|wire| extra(&at.field("extra"), wire, faults))
            .unwrap_or_default(),
        ..ModelCall::default()
    }
}

/// Checks that a text is a JSON object; the text itself is what is passed on.
pub(super) fn check_json_object(at: impl std::fmt::Display, text: &str, faults: &mut Violations) {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => faults.add(
            at,
            format!(
                "is not JSON: line {}, column {}",
                error.line(),
                error.column()
            ),
        ),
        Ok(_) if !text.trim_start().starts_with('{') => faults.add(at, "is not a JSON object"),
        Ok(_) => {}
    }
}

fn tools(
    at: &Path<'_>,
    wire: Vec<v1::ToolDefinition>,
    faults: &mut Violations,
) -> Vec<ToolDefinition> {
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(wire.len());
    for (index, tool) in wire.into_iter().enumerate() {
        let at = at.item(index);
        if tool.name.is_empty() {
            faults.add(at.field("name"), "is empty");
        } else if !names.insert(tool.name.clone()) {
            faults.add(at.field("name"), "is the name of an earlier tool");
        }
        let parameters = if tool.input_schema_json.is_empty() {
            NO_ARGUMENTS.to_owned()
        } else {
            check_json_object(
                at.field("input_schema_json"),
                &tool.input_schema_json,
                faults,
            );
            tool.input_schema_json
        };
        tools.push(ToolDefinition {
            name: tool.name,
            description: tool.description,
            parameters,
            strict: tool.strict,
            ..ToolDefinition::default()
        });
    }
    tools
}

fn tool_choice(
    at: &Path<'_>,
    wire: v1::ToolChoice,
    tools: &[ToolDefinition],
    faults: &mut Violations,
) -> ToolChoice {
    let Ok(mode) = v1::ToolChoiceMode::try_from(wire.mode) else {
        faults.add(at.field("mode"), format!("{} is no mode", wire.mode));
        return ToolChoice::Unset;
    };
    if mode != v1::ToolChoiceMode::Named && !wire.name.is_empty() {
        faults.add(
            at.field("name"),
            "is set, but only the mode NAMED takes a name",
        );
    }
    match mode {
        v1::ToolChoiceMode::Unspecified => ToolChoice::Unset,
        v1::ToolChoiceMode::Auto => ToolChoice::Auto,
        v1::ToolChoiceMode::None => ToolChoice::None,
        v1::ToolChoiceMode::Required => ToolChoice::Required,
        v1::ToolChoiceMode::Named => {
            if wire.name.is_empty() {
                faults.add(at.field("name"), "is empty; the mode NAMED needs it");
            } else if !tools.iter().any(|tool| tool.name == wire.name) {
                faults.add(at.field("name"), "is none of the tools");
            }
            ToolChoice::Tool(wire.name)
        }
    }
}

fn sampling(at: &Path<'_>, wire: v1::Sampling, faults: &mut Violations) -> Sampling {
    let ranges = [
        ("temperature", wire.temperature, 0.0, 2.0),
        ("top_p", wire.top_p, 0.0, 1.0),
        ("frequency_penalty", wire.frequency_penalty, -2.0, 2.0),
        ("presence_penalty", wire.presence_penalty, -2.0, 2.0),
    ];
    for (name, value, min, max) in ranges {
        // A NaN is in no range.
        if value.is_some_and(|value| !(min..=max).contains(&value)) {
            faults.add(at.field(name), format!("is out of range: {min} to {max}"));
        }
    }
    if wire.top_k == Some(0) {
        faults.add(at.field("top_k"), "is 0; the least is 1");
    }
    Sampling {
        temperature: wire.temperature,
        top_p: wire.top_p,
        top_k: wire.top_k,
        seed: wire.seed,
        frequency_penalty: wire.frequency_penalty,
        presence_penalty: wire.presence_penalty,
    }
}

fn format_of(at: &Path<'_>, wire: v1::ResponseFormat, faults: &mut Violations) -> ResponseFormat {
    let Ok(kind) = v1::ResponseFormatKind::try_from(wire.kind) else {
        faults.add(
            at.field("kind"),
            format!("{} is no kind of answer", wire.kind),
        );
        return ResponseFormat::Text;
    };
    if wire.name.len() > MAX_SCHEMA_NAME_BYTES {
        faults.add(
            at.field("name"),
            format!("is longer than {MAX_SCHEMA_NAME_BYTES} bytes"),
        );
    }
    if kind != v1::ResponseFormatKind::JsonSchema && !wire.schema_json.is_empty() {
        faults.add(
            at.field("schema_json"),
            "is set, but only the kind JSON_SCHEMA takes a schema",
        );
    }
    match kind {
        v1::ResponseFormatKind::Unspecified | v1::ResponseFormatKind::Text => ResponseFormat::Text,
        v1::ResponseFormatKind::JsonObject => ResponseFormat::JsonObject,
        v1::ResponseFormatKind::JsonSchema => {
            if wire.schema_json.is_empty() {
                faults.add(
                    at.field("schema_json"),
                    "is empty; the kind JSON_SCHEMA needs it",
                );
            } else {
                check_json_object(at.field("schema_json"), &wire.schema_json, faults);
            }
            let name = if wire.name.is_empty() {
                "response".to_owned()
            } else {
                wire.name
            };
            ResponseFormat::JsonSchema {
                name,
                description: None,
                schema: wire.schema_json,
                strict: wire.strict.unwrap_or(false),
            }
        }
    }
}

/// Parameters of a provider, without those that would make another call of it than the one that was
/// checked.
fn extra(at: &Path<'_>, wire: prost_types::Struct, faults: &mut Violations) -> Map<String, Value> {
    let extra = object(at, wire, faults);
    for name in extra
        .keys()
        .filter(|name| NOT_EXTRA.contains(&name.as_str()))
    {
        faults.add(
            at.key(name),
            "is set by Relight: the model by the route, the conversation by `messages`",
        );
    }
    for (name, value) in &extra {
        let asks_for_nothing = match name.as_str() {
            "n" => value.as_f64() == Some(1.0),
            "logprobs" | "top_logprobs" => value.as_f64() == Some(0.0),
            _ => continue,
        };
        if !asks_for_nothing && !matches!(value, Value::Null | Value::Bool(false)) {
            faults.add(
                at.key(name),
                "is not available here: an answer is recovered as one, without log probabilities",
            );
        }
    }
    extra
}

fn object(at: &Path<'_>, wire: prost_types::Struct, faults: &mut Violations) -> Map<String, Value> {
    let mut fields = Map::with_capacity(wire.fields.len());
    for (key, value) in wire.fields {
        let value = json(&at.key(&key), value, faults);
        fields.insert(key, value);
    }
    fields
}

fn json(at: &Path<'_>, wire: prost_types::Value, faults: &mut Violations) -> Value {
    use prost_types::value::Kind;
    match wire.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::NumberValue(number)) => number_of(number).unwrap_or_else(|| {
            faults.add(at, "is no finite number");
            Value::Null
        }),
        Some(Kind::StructValue(fields)) => Value::Object(object(at, fields, faults)),
        Some(Kind::ListValue(list)) => {
            let items = list.values.into_iter().enumerate();
            Value::Array(
                items
                    .map(|(index, value)| json(&at.item(index), value, faults))
                    .collect(),
            )
        }
    }
}

/// Providers distinguish `5` from `5.0`: a double that is a whole number is sent as an integer.
fn number_of(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() <= EXACT_INTEGER {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a whole number within 2^53"
        )]
        return Some(Value::from(number as i64));
    }
    Number::from_f64(number).map(Value::Number)
}

#[cfg(test)]
mod tests;
