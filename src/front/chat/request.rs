//! A chat completion request as this wire has it, read into the neutral call.
//!
//! Fields that this page does not name are passed to the provider as they are (`extra`); those that
//! only hint, such as `store`, to `OpenAI`'s APIs alone, so that a call can fail over. What was
//! asked for and cannot be given, such as several choices or log probabilities, is refused and
//! never silently left out.

use std::collections::BTreeMap;

use serde::{Deserialize, de::MapAccess};
use serde_json::{Map, Value, value::RawValue};

use super::message::{self, MessageFields};
use crate::{
    domain::{
        message::{ModelCall, ResponseFormat, Sampling, ToolChoice, ToolDefinition},
        own_fields,
        target::Dialect,
    },
    front::{
        error::CallError,
        fields::{FieldByField, LongFields, Object, RequestFields, TextOrValue},
    },
};

/// A request as it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::front) struct ChatRequest {
    /// The model, which is a route here.
    pub(super) model: String,
    /// If set, the completion is streamed.
    pub(super) stream: bool,
    /// If set, the stream ends with its usage.
    pub(super) include_usage: bool,
    /// Call that is requested.
    pub(super) call: ModelCall,
    /// `metadata`, and `user` as the label of that name.
    pub(super) labels: BTreeMap<String, String>,
}

/// The conversation and the tools, which are most of a request.
#[derive(Default)]
struct LongChatFields<'a> {
    messages: Option<Vec<Object<MessageFields<'a>>>>,
    tools: Option<Vec<FieldByField<ToolFields<'a>>>>,
}

impl<'a> LongFields<'a> for LongChatFields<'a> {
    fn read<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "messages" => self.messages = map.next_value()?,
            "tools" => self.tools = map.next_value()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

// === impl ChatRequest ===

impl ChatRequest {
    /// Reads a body.
    ///
    /// # Errors
    /// When a field is missing, is not what it must be, or asks for what this front has not.
    pub(in crate::front) fn read(body: &[u8]) -> Result<Self, CallError> {
        let (mut fields, long) = RequestFields::read_with_long::<LongChatFields<'_>>(body)?;
        refuse_what_is_not_here(&mut fields)?;
        let model = fields.model()?;
        let conversation;
        let LongChatFields { messages, tools } = if let Some(long) = long {
            long
        } else {
            // One of them is not what it must be, and the error names it.
            conversation = fields.take("messages")?;
            let tools = fields.take_raw("tools").map(tool_fields).transpose()?;
            LongChatFields {
                messages: conversation.as_ref().map(message::fields),
                tools,
            }
        };
        let include_usage = include_usage(&mut fields)?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let labels = fields.labels()?;
        let longest = fields.count("max_completion_tokens")?;
        let call = ModelCall {
            messages: message::read(messages.unwrap_or_default())?,
            tools: self::tools(tools.unwrap_or_default())?,
            tool_choice: tool_choice(&mut fields)?,
            parallel_tool_calls: fields.boolean("parallel_tool_calls")?,
            sampling: Sampling {
                temperature: fields.number("temperature", 0.0, 2.0)?,
                top_p: fields.number("top_p", 0.0, 1.0)?,
                top_k: fields.count("top_k")?,
                seed: fields.seed()?,
                frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?,
                presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?,
            },
            max_output_tokens: fields
                .count("max_tokens")?
                .filter(|_| longest.is_none())
                .or(longest),
            reasoning_effort: fields.text("reasoning_effort")?,
            response_format: response_format(&mut fields)?,
            stop: stop(&mut fields)?,
            extra: fields.rest()?,
            ..ModelCall::default()
        };
        Ok(Self {
            model,
            stream,
            include_usage,
            call,
            labels,
        })
    }
}

/// Refuses what a client would wait for in vain; takes out what asks for nothing.
fn refuse_what_is_not_here(fields: &mut RequestFields<'_>) -> Result<(), CallError> {
    let one_choice = fields.take("n")?.is_none_or(|n| n.as_u64() == Some(1));
    if !one_choice {
        return Err(CallError::unsupported(
            "n",
            "`n` must be 1: an answer is recovered as one",
        ));
    }
    if fields.boolean("logprobs")? == Some(true) {
        return Err(CallError::unsupported(
            "logprobs",
            "`logprobs` is not available here",
        ));
    }
    for name in ["top_logprobs", "audio", "background"] {
        if fields
            .take(name)?
            .is_some_and(|value| value.as_u64() != Some(0) && value.as_bool() != Some(false))
        {
            return Err(CallError::unsupported(
                name,
                format!("`{name}` is not available here"),
            ));
        }
    }
    for (name, instead) in [("functions", "tools"), ("function_call", "tool_choice")] {
        if fields.take_raw(name).is_some() {
            return Err(CallError::unsupported(
                name,
                format!("`{name}` is not taken here; use `{instead}`"),
            ));
        }
    }
    let only_text = |value: &Value| {
        value
            .as_array()
            .is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
    };
    if fields
        .take("modalities")?
        .is_some_and(|value| !only_text(&value))
    {
        return Err(CallError::unsupported(
            "modalities",
            "`modalities` may hold nothing but `text`",
        ));
    }
    Ok(())
}

fn include_usage(fields: &mut RequestFields<'_>) -> Result<bool, CallError> {
    let wanted = fields.typed("stream_options", "an object", |value| {
        let options = value.as_object()?;
        match options.get("include_usage") {
            None | Some(Value::Null) => Some(false),
            Some(wanted) => wanted.as_bool(),
        }
    })?;
    Ok(wanted.unwrap_or(false))
}

fn tools(tools: Vec<FieldByField<ToolFields<'_>>>) -> Result<Vec<ToolDefinition>, CallError> {
    tools
        .into_iter()
        .enumerate()
        .map(|(index, FieldByField(tool))| one_tool(index, tool))
        .collect()
}

/// Returns the fields of each tool, of which one is not what it must be. What is not a tool has
/// none.
fn tool_fields(tools: &RawValue) -> Result<Vec<FieldByField<ToolFields<'_>>>, CallError> {
    let tools: Vec<&RawValue> = serde_json::from_str(tools.get())
        .map_err(|_| CallError::invalid("tools", "`tools` must be an array"))?;
    Ok(tools
        .into_iter()
        .map(|tool| serde_json::from_str(tool.get()).unwrap_or_default())
        .collect())
}

/// The fields of a tool that are read here, and all others.
#[derive(Default)]
struct ToolFields<'a> {
    r#type: Option<ToolType>,
    function: Option<FieldByField<FunctionFields<'a>>>,
    own: Map<String, Value>,
}

impl<'a> LongFields<'a> for ToolFields<'a> {
    fn read<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "type" => self.r#type = map.next_value()?,
            "function" => self.function = map.next_value()?,
            _ => {
                self.own.insert(name.to_owned(), map.next_value()?);
            }
        }
        Ok(true)
    }
}

/// Kind of a tool.
#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolType {
    Function,
    #[serde(other)]
    Other,
}

/// The fields of a tool's function; the schema as it came, for it may be long.
#[derive(Default)]
struct FunctionFields<'a> {
    name: Option<TextOrValue<'a>>,
    description: Option<TextOrValue<'a>>,
    parameters: Option<&'a RawValue>,
    strict: Option<&'a RawValue>,
    own: Map<String, Value>,
}

impl<'a> LongFields<'a> for FunctionFields<'a> {
    fn read<A: MapAccess<'a>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "name" => self.name = map.next_value()?,
            "description" => self.description = map.next_value()?,
            "parameters" => self.parameters = map.next_value()?,
            "strict" => self.strict = map.next_value()?,
            _ => {
                self.own.insert(name.to_owned(), map.next_value()?);
            }
        }
        Ok(true)
    }
}

fn one_tool(index: usize, tool: ToolFields<'_>) -> Result<ToolDefinition, CallError> {
    if tool.r#type.is_some_and(|kind| kind != ToolType::Function) {
        return Err(CallError::unsupported(
            format!("tools[{index}].type"),
            "only tools of type `function` are taken",
        ));
    }
    let FieldByField(FunctionFields {
        name,
        description,
        parameters,
        strict,
        own: of_function,
    }) = tool.function.unwrap_or_default();
    let text = |field: Option<TextOrValue<'_>>| match field {
        Some(TextOrValue::Text(text)) => text.into_owned(),
        Some(TextOrValue::Value(_)) | None => String::new(),
    };
    let name = text(name);
    let description = text(description);
    if name.is_empty() {
        return Err(CallError::invalid(
            format!("tools[{index}].function.name"),
            "a tool needs a name",
        ));
    }
    let parameters = parameters.map_or("", RawValue::get);
    if !parameters.is_empty() && !parameters.starts_with('{') {
        return Err(CallError::invalid(
            format!("tools[{index}].function.parameters"),
            "a schema is an object",
        ));
    }
    let strict = strict
        .map(|strict| serde_json::from_str(strict.get()))
        .transpose();
    let strict = strict.map_err(|_| {
        CallError::invalid(
            format!("tools[{index}].function.strict"),
            "`strict` must be a boolean",
        )
    })?;
    let mut own = tool.own;
    if !of_function.is_empty() {
        own.insert("function".to_owned(), Value::Object(of_function));
    }
    let own = own_fields::unread(&[], &Value::Object(own));
    Ok(ToolDefinition {
        name,
        description,
        parameters: parameters.to_owned(),
        strict,
        own: own_fields::kept(Dialect::OpenaiChat, own),
    })
}

fn tool_choice(fields: &mut RequestFields<'_>) -> Result<ToolChoice, CallError> {
    let what = "`auto`, `none`, `required` or a function by its name";
    let read = |value: &Value| match value {
        Value::String(word) => match word.as_str() {
            "auto" => Some(ToolChoice::Auto),
            "none" => Some(ToolChoice::None),
            "required" => Some(ToolChoice::Required),
            _ => None,
        },
        _ => Some(ToolChoice::Tool(
            value.pointer("/function/name")?.as_str()?.to_owned(),
        )),
    };
    Ok(fields.typed("tool_choice", what, read)?.unwrap_or_default())
}

fn response_format(fields: &mut RequestFields<'_>) -> Result<ResponseFormat, CallError> {
    let what = "of type `text`, `json_object` or `json_schema` with a name and a schema";
    let read = |value: &Value| match value.get("type")?.as_str()? {
        "text" => Some(ResponseFormat::Text),
        "json_object" => Some(ResponseFormat::JsonObject),
        "json_schema" => Some(ResponseFormat::JsonSchema {
            name: value.pointer("/json_schema/name")?.as_str()?.to_owned(),
            description: value
                .pointer("/json_schema/description")
                .and_then(Value::as_str)
                .map(str::to_owned),
            schema: value
                .pointer("/json_schema/schema")
                .filter(|schema| schema.is_object())?
                .to_string(),
            strict: value
                .pointer("/json_schema/strict")
                .and_then(Value::as_bool)
                .unwrap_or(false),
        }),
        _ => None,
    };
    Ok(fields
        .typed("response_format", what, read)?
        .unwrap_or_default())
}

fn stop(fields: &mut RequestFields<'_>) -> Result<Vec<String>, CallError> {
    let read = |value: &Value| match value {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(many) => many
            .iter()
            .map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    Ok(fields
        .typed("stop", "a string or an array of strings", read)?
        .unwrap_or_default())
}

#[cfg(test)]
mod tests;
