//! A chat completion request as this wire has it, read into the neutral call.
//!
//! Fields that this page does not name are passed to the provider as they are (`extra`); those that
//! only hint, such as `store`, to `OpenAI`'s APIs alone, so that a call can fail over. What was
//! asked for and cannot be given, such as several choices or log probabilities, is refused and
//! never silently left out.

use std::collections::BTreeMap;

use serde::{Deserialize, de::MapAccess};
use serde_json::{Value, value::RawValue};

use super::message::{self, MessageFields};
use crate::{
    domain::message::{ModelCall, ResponseFormat, Sampling, ToolChoice, ToolDefinition},
    front::{
        error::Refused,
        fields::{LongFields, Object, RequestFields, TextOrValue},
    },
};

/// A request as it was asked.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::front) struct ChatRequest {
    /// The model, which is a route here.
    pub(super) model: String,
    /// Whether the answer is streamed.
    pub(super) stream: bool,
    /// Whether the stream ends with its usage.
    pub(super) include_usage: bool,
    /// What is asked.
    pub(super) call: ModelCall,
    /// `metadata`, and `user` as the label of that name.
    pub(super) labels: BTreeMap<String, String>,
}

/// The conversation and the tools, which are most of a request.
#[derive(Default)]
struct LongChatFields<'a> {
    messages: Option<Vec<Object<MessageFields<'a>>>>,
    tools: Option<Vec<Object<ToolFields<'a>>>>,
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
    pub(in crate::front) fn read(body: &[u8]) -> Result<Self, Refused> {
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
        let (include_usage, stream) = (
            include_usage(&mut fields)?,
            fields.boolean("stream")?.unwrap_or(false),
        );
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
fn refuse_what_is_not_here(fields: &mut RequestFields<'_>) -> Result<(), Refused> {
    let one_choice = fields.take("n")?.is_none_or(|n| n.as_u64() == Some(1));
    if !one_choice {
        return Err(Refused::unsupported(
            "n",
            "`n` must be 1: an answer is recovered as one",
        ));
    }
    if fields.boolean("logprobs")? == Some(true) {
        return Err(Refused::unsupported(
            "logprobs",
            "`logprobs` is not available here",
        ));
    }
    for name in ["top_logprobs", "audio", "background"] {
        if fields
            .take(name)?
            .is_some_and(|value| value.as_u64() != Some(0) && value.as_bool() != Some(false))
        {
            return Err(Refused::unsupported(
                name,
                format!("`{name}` is not available here"),
            ));
        }
    }
    for (name, instead) in [("functions", "tools"), ("function_call", "tool_choice")] {
        if fields.take_raw(name).is_some() {
            return Err(Refused::unsupported(
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
        return Err(Refused::unsupported(
            "modalities",
            "`modalities` may hold nothing but `text`",
        ));
    }
    Ok(())
}

fn include_usage(fields: &mut RequestFields<'_>) -> Result<bool, Refused> {
    let wanted = fields.typed("stream_options", "an object", |value| {
        let options = value.as_object()?;
        match options.get("include_usage") {
            None | Some(Value::Null) => Some(false),
            Some(wanted) => wanted.as_bool(),
        }
    })?;
    Ok(wanted.unwrap_or(false))
}

fn tools(tools: Vec<Object<ToolFields<'_>>>) -> Result<Vec<ToolDefinition>, Refused> {
    tools
        .into_iter()
        .enumerate()
        .map(|(index, Object(tool))| one_tool(index, tool))
        .collect()
}

/// The fields of each tool, of which one is not what it must be. What is no tool has none.
fn tool_fields(tools: &RawValue) -> Result<Vec<Object<ToolFields<'_>>>, Refused> {
    let tools: Vec<&RawValue> = serde_json::from_str(tools.get())
        .map_err(|_| Refused::invalid("tools", "`tools` must be an array"))?;
    Ok(tools
        .into_iter()
        .map(|tool| serde_json::from_str(tool.get()).unwrap_or_default())
        .collect())
}

/// The fields of a tool that are read here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ToolFields<'a> {
    r#type: Option<ToolType>,
    #[serde(borrow)]
    function: Option<Object<FunctionFields<'a>>>,
}

/// What a tool is.
#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolType {
    Function,
    #[serde(other)]
    Other,
}

/// The fields of a tool's function; the schema as it came, for it may be long.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FunctionFields<'a> {
    #[serde(borrow)]
    name: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    description: Option<TextOrValue<'a>>,
    #[serde(borrow)]
    parameters: Option<&'a RawValue>,
    #[serde(borrow)]
    strict: Option<&'a RawValue>,
}

fn one_tool(index: usize, tool: ToolFields<'_>) -> Result<ToolDefinition, Refused> {
    if tool.r#type.is_some_and(|kind| kind != ToolType::Function) {
        return Err(Refused::unsupported(
            format!("tools[{index}].type"),
            "only tools of type `function` are taken",
        ));
    }
    let Object(FunctionFields {
        name,
        description,
        parameters,
        strict,
    }) = tool.function.unwrap_or_default();
    let text = |field: Option<TextOrValue<'_>>| match field {
        Some(TextOrValue::Text(text)) => text.into_owned(),
        Some(TextOrValue::Value(_)) | None => String::new(),
    };
    let (name, description) = (text(name), text(description));
    if name.is_empty() {
        return Err(Refused::invalid(
            format!("tools[{index}].function.name"),
            "a tool needs a name",
        ));
    }
    let parameters = parameters.map_or("", RawValue::get);
    if !parameters.is_empty() && !parameters.starts_with('{') {
        return Err(Refused::invalid(
            format!("tools[{index}].function.parameters"),
            "a schema is an object",
        ));
    }
    let strict = strict
        .map(|strict| serde_json::from_str(strict.get()))
        .transpose();
    let strict = strict.map_err(|_| {
        Refused::invalid(
            format!("tools[{index}].function.strict"),
            "`strict` must be a boolean",
        )
    })?;
    Ok(ToolDefinition {
        name,
        description,
        parameters: parameters.to_owned(),
        strict,
        ..ToolDefinition::default()
    })
}

fn tool_choice(fields: &mut RequestFields<'_>) -> Result<ToolChoice, Refused> {
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

fn response_format(fields: &mut RequestFields<'_>) -> Result<ResponseFormat, Refused> {
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

fn stop(fields: &mut RequestFields<'_>) -> Result<Vec<String>, Refused> {
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
