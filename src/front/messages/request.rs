//! A request of the Messages API, read into the neutral call.
//!
//! Fields that are not read here (`thinking`, `service_tier`, …) go as they are to targets of this
//! dialect, and to no other: they would not be understood there. So do marks for caching, each at
//! its block or tool, and tools that this API defines.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::content;
use crate::{
    domain::{
        message::{ModelCall, ResponseFormat, Sampling, ToolChoice, ToolDefinition},
        own_fields,
        target::Dialect,
    },
    front::{
        error::CallError,
        fields::RequestFields,
        place::{FieldPath, description},
    },
};

/// The fields of a tool that are not passed on as they are.
const READ_OF_TOOLS: [&str; 5] = ["type", "name", "description", "input_schema", "strict"];

/// A request as it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::front) struct MessagesRequest {
    /// The model, which is a route here.
    pub(super) model: String,
    /// `true` if the completion is streamed.
    pub(super) stream: bool,
    /// Call that is requested.
    pub(super) call: ModelCall,
    /// `metadata.user_id`, as the label `user`.
    pub(super) labels: BTreeMap<String, String>,
}

// === impl MessagesRequest ===

impl MessagesRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// When a field is missing, is not what it must be, or asks for what this front has not.
    pub(in crate::front) fn read(body: &[u8]) -> Result<Self, CallError> {
        let mut fields = RequestFields::read(body)?;
        let model = fields.model()?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let system = fields.take("system")?;
        let messages = fields.take("messages")?.unwrap_or_default();
        let tools = fields
            .typed("tools", "an array", |value| value.as_array().cloned())?
            .unwrap_or_default();
        let choice = fields.take("tool_choice")?;
        let (tool_choice, parallel_tool_calls) = choice
            .as_ref()
            .map(tool_choice)
            .transpose()?
            .unwrap_or_default();
        let (reasoning_effort, response_format, output) = output_config(&mut fields)?;
        let metadata = fields.take("metadata")?;
        let labels = metadata
            .as_ref()
            .map(labels)
            .transpose()?
            .unwrap_or_default();
        let messages = content::read(system.as_ref(), &messages)?;
        let (own, theirs): (Vec<_>, Vec<_>) = tools
            .iter()
            .enumerate()
            .partition(|(_, tool)| is_custom(tool));
        let tools: Result<Vec<ToolDefinition>, CallError> = own.into_iter().map(tool).collect();
        let mut call = ModelCall {
            messages,
            tools: tools?,
            tool_choice,
            parallel_tool_calls,
            sampling: Sampling {
                temperature: fields.number("temperature", 0.0, 2.0)?,
                top_p: fields.number("top_p", 0.0, 1.0)?,
                top_k: fields.count("top_k")?,
                ..Sampling::default()
            },
            max_output_tokens: fields.count("max_tokens")?,
            reasoning_effort,
            response_format,
            stop: stop_sequences(&mut fields)?,
            extra: fields.rest()?,
            extra_of: Some(Dialect::Anthropic.as_str().to_owned()),
            ..ModelCall::default()
        };
        call.extra
            .extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
        if !output.is_empty() {
            call.extra
                .insert("output_config".to_owned(), Value::Object(output));
        }
        if !theirs.is_empty() {
            call.extra.insert(
                "tools".to_owned(),
                theirs.into_iter().map(|(_, tool)| tool.clone()).collect(),
            );
            // What other dialects know nothing of must not be chosen there.
            let is_theirs = match &call.tool_choice {
                ToolChoice::Tool(name) => !call.tools.iter().any(|tool| tool.name == *name),
                _ => call.tools.is_empty(),
            };
            if let Some(choice) = choice.filter(|_| is_theirs) {
                call.extra.insert("tool_choice".to_owned(), choice);
                (call.tool_choice, call.parallel_tool_calls) = (ToolChoice::Unset, None);
            }
        }
        Ok(Self {
            model,
            stream,
            call,
            labels,
        })
    }
}

/// `metadata.user_id` as the label `user`.
fn labels(metadata: &Value) -> Result<BTreeMap<String, String>, CallError> {
    let read = || match metadata.as_object()?.get("user_id") {
        None | Some(Value::Null) => Some(None),
        Some(user) => {
            let user = user
                .as_str()
                .filter(|user| user.len() <= 512 && !user.chars().any(char::is_control))?;
            Some(Some(user.to_owned()).filter(|user| !user.is_empty()))
        }
    };
    let what = "`metadata` must be an object whose `user_id` is a string of at most 512 bytes, without control characters";
    let user = read().ok_or_else(|| CallError::invalid("metadata", what))?;
    Ok(user
        .map(|user| ("user".to_owned(), user))
        .into_iter()
        .collect())
}

/// Returns whether a tool is the client's own, and not one that this API defines.
fn is_custom(tool: &Value) -> bool {
    tool.get("type")
        .is_none_or(|kind| kind.is_null() || kind == "custom")
}

fn tool((index, tool): (usize, &Value)) -> Result<ToolDefinition, CallError> {
    let list = FieldPath::new("tools");
    let place = list.at(index);
    let name = place.text(tool, "name")?.to_owned();
    let description = description(tool);
    let schema = tool.get("input_schema").filter(|schema| schema.is_object());
    let schema = schema.ok_or_else(|| place.below("input_schema").refused("must be an object"))?;
    let strict = place.boolean(tool, "strict")?;
    let own = own_fields::unread(&READ_OF_TOOLS, tool);
    Ok(ToolDefinition {
        name,
        description,
        parameters: schema.to_string(),
        strict,
        own: own_fields::kept(Dialect::Anthropic, own),
    })
}

/// Returns the choice, and whether several calls at once may be made.
fn tool_choice(value: &Value) -> Result<(ToolChoice, Option<bool>), CallError> {
    let read = || {
        let one = value
            .get("disable_parallel_tool_use")
            .and_then(Value::as_bool);
        let choice = match value.get("type")?.as_str()? {
            "auto" => ToolChoice::Auto,
            "any" => ToolChoice::Required,
            "none" => ToolChoice::None,
            "tool" => ToolChoice::Tool(value.get("name")?.as_str()?.to_owned()),
            _ => return None,
        };
        Some((choice, one.map(|one| !one)))
    };
    let what = "`tool_choice` must be of type `auto`, `any`, `none` or `tool` with a name";
    read().ok_or_else(|| CallError::invalid("tool_choice", what))
}

/// The effort, the shape of the completion, and what else there is.
type OutputConfig = (Option<String>, ResponseFormat, Map<String, Value>);

/// Returns the effort and the shape of the completion; the rest of the field is passed on.
fn output_config(fields: &mut RequestFields<'_>) -> Result<OutputConfig, CallError> {
    let what = "an object whose `effort` is a string and whose `format` is of type `json_schema` with a schema";
    let read = |value: &Value| {
        let mut rest: Map<String, Value> = value.as_object()?.clone();
        rest.retain(|_, value| !value.is_null());
        let effort = match rest.shift_remove("effort") {
            None => None,
            Some(effort) => Some(effort.as_str()?.to_owned()),
        };
        let format = match rest.shift_remove("format") {
            None => ResponseFormat::Text,
            Some(format) if format.get("type")? == "json_schema" => {
                let schema = format
                    .get("schema")
                    .filter(|schema| schema.is_object())?
                    .to_string();
                ResponseFormat::JsonSchema {
                    name: "answer".to_owned(),
                    description: None,
                    schema,
                    strict: true,
                }
            }
            Some(_) => return None,
        };
        Some((effort, format, rest))
    };
    Ok(fields
        .typed("output_config", what, read)?
        .unwrap_or_default())
}

fn stop_sequences(fields: &mut RequestFields<'_>) -> Result<Vec<String>, CallError> {
    let read = |value: &Value| {
        value
            .as_array()?
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect()
    };
    Ok(fields
        .typed("stop_sequences", "an array of strings", read)?
        .unwrap_or_default())
}

#[cfg(test)]
mod tests;
