//! A request to a model: the provider-neutral conversation, tools and parameters.
//!
//! Opaque fields (signatures, …) are carried in place, neither merged nor re-encoded; tool arguments
//! stay the raw JSON text that the model wrote.

mod endpoint;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::endpoint::Endpoint;

/// Size that the names of a JSON object's fields are counted with, in bytes.
const JSON_NAMES_BYTES: usize = 64;

/// A model call as the caller wrote it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelCall {
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// If set, the first message precedes a kept conversation in this call alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_instructions: bool,
    /// Tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Choice of the tools that must be called, if any.
    pub tool_choice: ToolChoice,
    /// If set to `true`, the model may call several tools at once; unset leaves the provider's
    /// default.
    pub parallel_tool_calls: Option<bool>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Longest answer, in tokens; unset leaves the provider's default.
    pub max_output_tokens: Option<u32>,
    /// Reasoning effort under the provider's name for it (`low`, `medium`, `high`, …).
    pub reasoning_effort: Option<String>,
    /// Required format of the completion.
    pub response_format: ResponseFormat,
    /// Texts at which the model stops.
    pub stop: Vec<String>,
    /// Merged into the provider's request as is.
    pub extra: Map<String, Value>,
    /// The dialect of `extra`, by its name, whose targets alone get it; unset: all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_of: Option<String>,
    /// Betas that the call uses: the header `anthropic-beta`, for targets of that dialect alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub betas: Vec<String>,
    /// Request that is made of the target.
    #[serde(skip_serializing_if = "Endpoint::is_answer")]
    pub endpoint: Endpoint,
    /// Fields that each document of its response repeats, as they came; sent to no target.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub repeated: Map<String, Value>,
}

impl ModelCall {
    /// Returns the fields that are passed into a request of this dialect as they are.
    #[must_use]
    pub fn extra_for(&self, dialect: &str) -> Option<&Map<String, Value>> {
        self.extra_of
            .as_deref()
            .is_none_or(|own| own == dialect)
            .then_some(&self.extra)
    }

    /// Returns the tools in `extra`, in the words of one dialect, which are offered to its targets
    /// alone.
    #[must_use]
    pub fn own_tools(&self) -> &[Value] {
        self.extra
            .get("tools")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// Returns the tools among these that a target of this dialect is not offered, in words; `None`
    /// if it gets them all.
    #[must_use]
    pub fn tools_left_out(&self, dialect: &str) -> Option<String> {
        let own = self.extra_of.as_deref().filter(|own| *own != dialect)?;
        let text =
            |tool: &Value, field: &str| tool.get(field).and_then(Value::as_str).map(str::to_owned);
        let names = self
            .own_tools()
            .iter()
            .filter_map(|tool| text(tool, "name").or_else(|| text(tool, "type")));
        let names: Vec<String> = names
            .filter(|name| self.tools.iter().all(|tool| tool.name != *name))
            .collect();
        let words = if names.len() == 1 {
            "the tool"
        } else {
            "the tools"
        };
        (!names.is_empty()).then(|| format!("{words} {} of {own} left out", names.join(", ")))
    }

    /// Bytes of the conversation's text.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.messages
            .iter()
            .flat_map(|message| &message.parts)
            .filter_map(Part::as_text)
            .map(str::len)
            .sum()
    }

    /// About how long this is as JSON, in bytes, without `extra`.
    #[must_use]
    pub fn approximate_bytes(&self) -> usize {
        let messages = self.messages.iter().map(Message::approximate_bytes);
        let tool = |tool: &ToolDefinition| {
            tool.name.len() + tool.description.len() + tool.parameters.len()
        };
        let own = self.tools.iter().filter_map(|tool| tool.own.as_ref());
        let own = own.map(|own| own.bytes.len()).sum::<usize>();
        let tools = self.tools.iter().map(|one| JSON_NAMES_BYTES + tool(one));
        let format = match &self.response_format {
            ResponseFormat::JsonSchema {
                schema,
                description,
                ..
            } => schema.len() + description.as_ref().map_or(0, String::len),
            ResponseFormat::Text | ResponseFormat::JsonObject => 0,
        };
        JSON_NAMES_BYTES + messages.sum::<usize>() + tools.sum::<usize>() + own + format
    }
}

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The operator's instructions, in dialects that distinguish them from system messages.
    Developer,
    /// The end user.
    User,
    /// The model.
    Assistant,
    /// Results of tool calls.
    Tool,
}

impl Role {
    /// Returns whether the author is the operator.
    #[must_use]
    pub const fn is_operator(self) -> bool {
        matches!(self, Self::System | Self::Developer)
    }
}

/// One turn of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The content, in order.
    pub parts: Vec<Part>,
    /// The author's name among several of that role; sent to providers that have a place for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Marks for caching, in the order of their parts; sent to providers that have a place for
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_marks: Vec<CacheMark>,
}

/// Up to here a provider is to keep what it read, for the next call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMark {
    /// The place of the part that ends there; beyond the last part, it is the last one.
    pub part: usize,
    /// The mark as the caller wrote it.
    pub mark: Value,
}

impl Message {
    /// A message of these parts.
    #[must_use]
    pub const fn new(role: Role, parts: Vec<Part>) -> Self {
        Self {
            role,
            parts,
            name: None,
            cache_marks: Vec::new(),
        }
    }

    /// A message of one text part.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self::new(role, vec![Part::Text(text.into())])
    }

    /// Takes out the parts that `is_taken` is true for, with their marks, as a message of their
    /// own.
    #[must_use]
    pub fn take_parts(&mut self, mut is_taken: impl FnMut(&Part) -> bool) -> Self {
        let mut taken = Self {
            name: self.name.clone(),
            ..Self::new(self.role, Vec::new())
        };
        let last = self.parts.len().saturating_sub(1);
        let mut marks = std::mem::take(&mut self.cache_marks).into_iter().peekable();
        for (place, part) in std::mem::take(&mut self.parts).into_iter().enumerate() {
            let into = if is_taken(&part) {
                &mut taken
            } else {
                &mut *self
            };
            while let Some(CacheMark { mark, .. }) =
                marks.next_if(|mark| mark.part.min(last) <= place)
            {
                into.cache_marks.push(CacheMark {
                    part: into.parts.len(),
                    mark,
                });
            }
            into.parts.push(part);
        }
        taken
    }

    /// About how long this is as JSON, in bytes.
    #[must_use]
    pub fn approximate_bytes(&self) -> usize {
        let parts = self
            .parts
            .iter()
            .map(|part| JSON_NAMES_BYTES + part.content_bytes());
        let marks = self
            .cache_marks
            .iter()
            .map(|mark| JSON_NAMES_BYTES + mark.mark.to_string().len());
        JSON_NAMES_BYTES + parts.sum::<usize>() + marks.sum::<usize>()
    }

    /// Returns all text parts, joined by line feeds.
    #[must_use]
    pub fn joined_text(&self) -> Cow<'_, str> {
        let mut texts = self.parts.iter().filter_map(Part::as_text);
        match (texts.next(), texts.next()) {
            (None, _) => Cow::Borrowed(""),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(_), Some(_)) => {
                let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
                Cow::Owned(texts.join("\n"))
            }
        }
    }
}

/// A typed piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", content = "value", rename_all = "snake_case")]
pub enum Part {
    /// Plain text.
    Text(String),
    /// An image, by value or by reference.
    Image(Media),
    /// A file, by value or by reference.
    File(Media),
    /// The model's reasoning, with what the provider needs back.
    Reasoning(Reasoning),
    /// A tool call that the model made.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A refusal in the model's words.
    Refusal(String),
}

impl Part {
    /// Bytes of what it holds.
    fn content_bytes(&self) -> usize {
        let opaque =
            |opaque: &Option<Opaque>| opaque.as_ref().map_or(0, |opaque| opaque.bytes.len());
        match self {
            Self::Text(text) | Self::Refusal(text) => text.len(),
            Self::Image(media) | Self::File(media) => match &media.source {
                MediaSource::Bytes(bytes) => bytes.len(),
                MediaSource::Url(url) => url.len(),
            },
            Self::Reasoning(reasoning) => reasoning.text.len() + opaque(&reasoning.opaque),
            Self::ToolCall(call) => {
                call.id.len() + call.name.len() + call.arguments.len() + opaque(&call.opaque)
            }
            Self::ToolResult(result) => {
                result.call_id.len() + result.name.len() + result.content.len()
            }
        }
    }

    /// Returns the value that its provider needs back, of a part that is reasoning.
    #[must_use]
    pub const fn as_opaque(&self) -> Option<&Opaque> {
        match self {
            Self::Reasoning(reasoning) => reasoning.opaque.as_ref(),
            _ => None,
        }
    }

    /// Returns the value that its provider needs back, of reasoning or of a tool call.
    #[must_use]
    pub const fn opaque(&self) -> Option<&Opaque> {
        match self {
            Self::ToolCall(call) => call.opaque.as_ref(),
            part => part.as_opaque(),
        }
    }

    /// Returns whether it is only fields that one dialect knows.
    #[must_use]
    pub fn is_fields(&self) -> bool {
        self.as_opaque()
            .is_some_and(|opaque| opaque.owner_of_fields().is_some())
    }

    /// Returns the text of a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// An image or file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Media {
    /// MIME type, such as `image/png`.
    pub mime_type: String,
    /// Source of the content.
    pub source: MediaSource,
    /// File name, if one is known.
    pub name: Option<String>,
    /// Level of detail at which the model looks at an image, in the provider's words; sent to
    /// providers that have a place for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Source of media content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// The bytes themselves.
    Bytes(Vec<u8>),
    /// A URL that the provider fetches.
    Url(String),
}

/// Bytes that only their provider understands; sent back to that provider alone, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opaque {
    /// Kind and owner (`anthropic.signature`, `gemini.thought_signature`, …).
    pub kind: String,
    /// The bytes as received.
    pub bytes: Vec<u8>,
}

/// End, behind the dialect's name, of the kind of fields that only that dialect knows (see
/// `own_fields`): fields of the model's message, of a text of it or of a call; in chat completions of
/// any message.
pub(super) const FIELDS: &str = ".fields";

/// The same for fields of the part before it, which the caller wrote.
pub(super) const FIELDS_OF_PART: &str = ".part_fields";

/// The same for fields of a message that the caller wrote, in any other dialect.
pub(super) const FIELDS_OF_MESSAGE: &str = ".message_fields";

impl Opaque {
    /// Returns the name of the dialect whose fields it is; `None` if it is something else.
    #[must_use]
    pub fn owner_of_fields(&self) -> Option<&str> {
        let mut suffixes = [FIELDS, FIELDS_OF_PART, FIELDS_OF_MESSAGE].into_iter();
        suffixes.find_map(|suffix| self.kind.strip_suffix(suffix))
    }
}

/// A piece of reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reasoning {
    /// The part of it that may be read; may be empty.
    pub text: String,
    /// Data that the provider needs back verbatim.
    pub opaque: Option<Opaque>,
}

/// A tool call as the model made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's id, which its result must name.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Raw JSON text of the arguments, possibly invalid.
    pub arguments: String,
    /// Data that the provider needs back verbatim with this call.
    pub opaque: Option<Opaque>,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the tool call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// The result as text.
    pub content: String,
    /// `true` if the tool failed.
    pub is_error: bool,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Its name.
    pub name: String,
    /// Description of its effect, for the model.
    pub description: String,
    /// JSON Schema of its arguments, as raw JSON text.
    pub parameters: String,
    /// If set to `true`, the provider must hold the model to the schema; sent to providers that
    /// have a place for it. Unset leaves the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Further fields that only the dialect in which it was written knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<Opaque>,
}

/// Choice of the tools that the model must call, if any.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The provider's default.
    #[default]
    Unset,
    /// The model decides.
    Auto,
    /// No tool may be called.
    None,
    /// Some tool must be called.
    Required,
    /// This tool must be called.
    Tool(String),
}

/// Sampling of the next token; each unset value leaves the provider's default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0 to 2 for most providers.
    pub temperature: Option<f64>,
    /// 0 to 1.
    pub top_p: Option<f64>,
    /// 1 and more.
    pub top_k: Option<u32>,
    /// Best-effort determinism.
    pub seed: Option<i64>,
    /// -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// -2 to 2.
    pub presence_penalty: Option<f64>,
}

/// Required format of the completion.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Free text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that satisfies a schema.
    JsonSchema {
        /// The schema's name, which some providers require.
        name: String,
        /// Purpose of the completion, if the caller states it and the provider has a place for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The schema as raw JSON text.
        schema: String,
        /// If set, the provider is to enforce the schema.
        strict: bool,
    },
}
