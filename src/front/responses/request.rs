//! A request of the Responses API, read into the neutral call.
//!
//! Fields that are not read here (`truncation`, `service_tier`, …) go as they are to targets of
//! this dialect, and to no other. So do tools that are not functions (`web_search`, namespaces, …);
//! a custom tool is offered to others as a function of one text. Requests that cannot be
//! met (background, stored prompts) are refused and never silently left out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::input;
use crate::{
    domain::{
        message::{Message, ModelCall, ResponseFormat, Sampling, ToolChoice, ToolDefinition},
        own_fields,
        target::Dialect,
    },
    front::{
        error::CallError,
        fields::{RequestFields, is_null, parsed},
        place::{FieldPath, description},
    },
    provider::responses::CUSTOM_INPUT,
};

/// Fields of a request that its response repeats.
const REPEATED: [&str; 14] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
];

/// The fields of a function that are read here.
const READ_OF_FUNCTIONS: [&str; 5] = ["type", "name", "description", "parameters", "strict"];

/// Parts of a completion that are not available here.
const LOG_PROBABILITIES: &str = "message.output_text.logprobs";

/// A request as it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::front) struct ResponsesRequest {
    /// The model, which is a route here.
    pub(super) model: String,
    /// `true` if the completion is streamed.
    pub(super) stream: bool,
    /// If set, the response is to be stored or not; `None` if that is left to the default.
    pub(super) store: Option<bool>,
    /// Response that it continues.
    pub(super) previous: Option<String>,
    /// The items of its input.
    pub(super) input: Vec<Value>,
    /// Call that is requested, without its messages.
    pub(super) call: ModelCall,
    /// `metadata`, and `user` as the label of that name.
    pub(super) labels: BTreeMap<String, String>,
    /// Fields that the response repeats.
    pub(super) echo: Map<String, Value>,
    instructions: Option<String>,
}

// === impl ResponsesRequest ===

impl ResponsesRequest {
    /// Reads a body but for the items of its input.
    ///
    /// # Errors
    /// When a field is missing, is not what it must be, or asks for what this front has not.
    pub(in crate::front) fn read(body: &[u8]) -> Result<Self, CallError> {
        let mut fields = RequestFields::read(body)?;
        let repeated = fields
            .all()
            .iter()
            .filter(|(name, value)| REPEATED.contains(&name.as_str()) && !is_null(value));
        let echo = repeated
            .map(|(name, value)| parsed(name, value).map(|value| (name.clone(), value)))
            .collect::<Result<_, _>>()?;
        refuse_what_is_not_here(&mut fields)?;
        let model = fields.model()?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let store = fields.boolean("store")?;
        let previous = fields.text("previous_response_id")?;
        let instructions = fields.text("instructions")?;
        if previous.is_some() && store == Some(false) {
            let message = "`store` may not be false where a stored conversation goes on: its next turn is stored as well";
            return Err(CallError::unsupported("store", message));
        }
        let input = input_items(&mut fields)?;
        if input.is_empty() && previous.is_none() {
            return Err(CallError::invalid(
                "input",
                "`input` is missing: a text or an array of items",
            ));
        }
        let labels = fields.labels()?;
        let (reasoning_effort, reasoning) = reasoning(&mut fields)?;
        let (response_format, mut text) = text(&mut fields)?;
        let (tools, own_tools) = tools(&mut fields)?;
        let (tool_choice, own_choice) = tool_choice(&mut fields)?;
        let mut call = ModelCall {
            own_instructions: instructions.is_some(),
            tools,
            tool_choice,
            parallel_tool_calls: fields.boolean("parallel_tool_calls")?,
            sampling: Sampling {
                temperature: fields.number("temperature", 0.0, 2.0)?,
                top_p: fields.number("top_p", 0.0, 1.0)?,
                ..Sampling::default()
            },
            max_output_tokens: fields.count("max_output_tokens")?,
            reasoning_effort,
            response_format,
            extra_of: Some(Dialect::OpenaiResponses.as_str().to_owned()),
            ..ModelCall::default()
        };
        let include = include(&mut fields)?;
        // It says how events are padded, which is of no concern here.
        fields.take("stream_options")?;
        call.extra = fields.rest()?;
        call.extra
            .extend(include.map(|include| ("include".to_owned(), include)));
        // Chat completions have it as a field of its own.
        let verbosity = text.shift_remove("verbosity");
        call.extra
            .extend(verbosity.map(|verbosity| ("verbosity".to_owned(), verbosity)));
        for (name, rest) in [("reasoning", reasoning), ("text", text)] {
            if !rest.is_empty() {
                call.extra.insert(name.to_owned(), Value::Object(rest));
            }
        }
        let own_tools = (!own_tools.is_empty()).then_some(Value::Array(own_tools));
        for (name, own) in [("tools", own_tools), ("tool_choice", own_choice)] {
            call.extra.extend(own.map(|own| (name.to_owned(), own)));
        }
        Ok(Self {
            model,
            stream,
            store,
            previous,
            input,
            call,
            labels,
            echo,
            instructions,
        })
    }

    /// Returns the conversation that the instructions and the input make.
    pub(in crate::front) fn messages(&self) -> Result<Vec<Message>, CallError> {
        input::read(self.instructions.as_deref(), &self.input)
    }
}

/// Refuses what a client would wait for in vain; takes out what asks for nothing.
fn refuse_what_is_not_here(fields: &mut RequestFields<'_>) -> Result<(), CallError> {
    if fields.boolean("background")? == Some(true) {
        let message = "`background` is not available here; a stream whose request has the header \
                       `x-relight-resumable: true` continues without its client, and is resumed";
        return Err(CallError::unsupported("background", message));
    }
    for name in ["conversation", "prompt", "max_tool_calls"] {
        if fields.take_raw(name).is_some() {
            return Err(CallError::unsupported(
                name,
                format!("`{name}` is not available here"),
            ));
        }
    }
    if fields
        .take("top_logprobs")?
        .is_some_and(|value| value.as_u64() != Some(0))
    {
        return Err(CallError::unsupported(
            "top_logprobs",
            "`top_logprobs` is not available here",
        ));
    }
    Ok(())
}

/// What else a response is to hold, for targets of this dialect; encrypted reasoning it always
/// does.
fn include(fields: &mut RequestFields<'_>) -> Result<Option<Value>, CallError> {
    let read = |value: &Value| value.as_array().cloned();
    let mut names = fields
        .typed("include", "an array of strings", read)?
        .unwrap_or_default();
    if names.iter().any(|name| name == LOG_PROBABILITIES) {
        return Err(CallError::unsupported(
            "include",
            format!("`{LOG_PROBABILITIES}` is not available here"),
        ));
    }
    names.retain(|name| name != "reasoning.encrypted_content");
    Ok((!names.is_empty()).then_some(Value::Array(names)))
}

fn input_items(fields: &mut RequestFields<'_>) -> Result<Vec<Value>, CallError> {
    let read = |value: &Value| match value {
        Value::String(text) => Some(vec![
            json!({"type": "message", "role": "user", "content": text}),
        ]),
        Value::Array(items) => Some(items.clone()),
        _ => None,
    };
    Ok(fields
        .typed("input", "a string or an array of items", read)?
        .unwrap_or_default())
}

/// Returns the effort, and what else is said of reasoning.
fn reasoning(
    fields: &mut RequestFields<'_>,
) -> Result<(Option<String>, Map<String, Value>), CallError> {
    let read = |value: &Value| {
        let mut rest: Map<String, Value> = value.as_object()?.clone();
        rest.retain(|_, value| !value.is_null());
        let effort = match rest.shift_remove("effort") {
            None => None,
            Some(effort) => Some(effort.as_str()?.to_owned()),
        };
        Some((effort, rest))
    };
    Ok(fields
        .typed("reasoning", "an object whose `effort` is a string", read)?
        .unwrap_or_default())
}

/// Returns the shape of the completion, and the other settings of its text.
fn text(fields: &mut RequestFields<'_>) -> Result<(ResponseFormat, Map<String, Value>), CallError> {
    let what = "an object whose `format` is of type `text`, `json_object` or `json_schema` with a name and a schema";
    let read = |value: &Value| {
        let mut rest: Map<String, Value> = value.as_object()?.clone();
        rest.retain(|_, value| !value.is_null());
        let Some(format) = rest.shift_remove("format") else {
            return Some((ResponseFormat::Text, rest));
        };
        let format = match format.get("type")?.as_str()? {
            "text" => ResponseFormat::Text,
            "json_object" => ResponseFormat::JsonObject,
            "json_schema" => ResponseFormat::JsonSchema {
                name: format.get("name")?.as_str()?.to_owned(),
                description: format
                    .get("description")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                schema: format
                    .get("schema")
                    .filter(|schema| schema.is_object())?
                    .to_string(),
                strict: format
                    .get("strict")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
            },
            _ => return None,
        };
        Some((format, rest))
    };
    Ok(fields.typed("text", what, read)?.unwrap_or_default())
}

/// Returns the tools, and those among them that are not functions, as they came: a custom tool is
/// in both.
fn tools(fields: &mut RequestFields<'_>) -> Result<(Vec<ToolDefinition>, Vec<Value>), CallError> {
    let tools = fields
        .typed("tools", "an array", |value| value.as_array().cloned())?
        .unwrap_or_default();
    let mut functions = Vec::with_capacity(tools.len());
    let mut own = Vec::new();
    for (index, tool) in tools.into_iter().enumerate() {
        let list = FieldPath::new("tools");
        let place = list.at(index);
        match place.text(&tool, "type")? {
            "function" => functions.push(function(&place, &tool)?),
            "custom" => {
                functions.push(custom(&place, &tool)?);
                own.push(tool);
            }
            _ => own.push(tool),
        }
    }
    Ok((functions, own))
}

fn function(place: &FieldPath<'_>, tool: &Value) -> Result<ToolDefinition, CallError> {
    let parameters = match tool.get("parameters") {
        None | Some(Value::Null) => String::new(),
        Some(schema @ Value::Object(_)) => schema.to_string(),
        Some(_) => return Err(place.below("parameters").refused("must be an object")),
    };
    let strict = place.boolean(tool, "strict")?;
    let name = place.text(tool, "name")?.to_owned();
    let description = description(tool);
    let own = own_fields::unread(&READ_OF_FUNCTIONS, tool);
    Ok(ToolDefinition {
        name,
        description,
        parameters,
        strict,
        own: own_fields::kept(Dialect::OpenaiResponses, own),
    })
}

/// Returns a custom tool as a function of one text, whose grammar, if it has one, is described.
fn custom(place: &FieldPath<'_>, tool: &Value) -> Result<ToolDefinition, CallError> {
    let grammar = tool.pointer("/format/definition").and_then(Value::as_str);
    let words = grammar.map_or_else(
        || "The input of the tool, as it is.".to_owned(),
        |grammar| format!("The input of the tool, as it is, in this grammar:\n{grammar}"),
    );
    let input = json!({"type": "string", "description": words});
    let schema =
        json!({"type": "object", "properties": {CUSTOM_INPUT: input}, "required": [CUSTOM_INPUT]});
    let name = place.text(tool, "name")?.to_owned();
    let parameters = schema.to_string();
    Ok(ToolDefinition {
        name,
        description: description(tool),
        parameters,
        ..ToolDefinition::default()
    })
}

/// Returns the choice; one that belongs to neither a function nor a custom tool goes to targets of
/// this dialect as it came.
fn tool_choice(fields: &mut RequestFields<'_>) -> Result<(ToolChoice, Option<Value>), CallError> {
    let read = |value: &Value| match value {
        Value::String(word) => match word.as_str() {
            "auto" => Some((ToolChoice::Auto, None)),
            "none" => Some((ToolChoice::None, None)),
            "required" => Some((ToolChoice::Required, None)),
            _ => None,
        },
        _ => match value.get("type").and_then(Value::as_str) {
            None | Some("function" | "custom") => Some((
                ToolChoice::Tool(value.get("name")?.as_str()?.to_owned()),
                None,
            )),
            Some(_) => Some((ToolChoice::Unset, Some(value.clone()))),
        },
    };
    let what = "`auto`, `none`, `required` or a tool by its type and name";
    Ok(fields.typed("tool_choice", what, read)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
