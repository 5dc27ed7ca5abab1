//! The fields that are read of a chunk, or of a complete document, of any server.
//!
//! Chunks are parsed in place, without a tree: nearly all of them have just the usual fields. One
//! that has others, or reports an error, is parsed once more, completely and leniently.

mod around;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, json};

pub(super) use self::around::{around, around_of};
use super::finish;
use crate::domain::{
    completion::{Exactness, Usage},
    own_fields,
};

/// Fields of a message that are read here; any other is one of its provider's own.
pub(super) const MESSAGE_FIELDS: [&str; 9] = [
    "content",
    "function_call",
    "name",
    "reasoning",
    "reasoning_content",
    "refusal",
    "role",
    "tool_call_id",
    "tool_calls",
];

/// Fields of a tool call that are read here, in all the ways in which it is written.
pub(super) const CALL_FIELDS: [&str; 8] = [
    "arguments",
    "custom",
    "function",
    "id",
    "index",
    "input",
    "name",
    "type",
];

/// One chunk.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Chunk<'a> {
    pub(super) model: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    /// If set, it has a list of choices, even if that is empty.
    pub(super) has_choices: bool,
    pub(super) choices: Vec<ChunkChoice<'a>>,
    pub(super) usage: Option<Usage>,
}

/// Part of a chunk for one choice.
#[derive(Debug, PartialEq, Default)]
pub(super) struct ChunkChoice<'a> {
    pub(super) index: Option<u64>,
    pub(super) finish_reason: Option<Cow<'a, str>>,
    pub(super) piece: Option<Piece<'a>>,
}

/// Piece of a completion; missing fields are empty.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Piece<'a> {
    pub(super) reasoning: Cow<'a, str>,
    pub(super) content: Cow<'a, str>,
    /// Content in parts, each reasoning or text.
    pub(super) parts: Vec<ContentPart<'a>>,
    pub(super) refusal: Cow<'a, str>,
    pub(super) calls: Vec<Fragment<'a>>,
    /// Fields of the provider's own.
    pub(super) own: Option<Map<String, Value>>,
}

/// A part of a content that is not plain text.
#[derive(Debug, PartialEq)]
pub(super) enum ContentPart<'a> {
    Text(&'a str),
    Reasoning(&'a str),
}

/// A piece of a tool call; missing fields are empty.
#[derive(Debug, PartialEq, Default)]
pub(super) struct Fragment<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: Cow<'a, str>,
    /// The arguments came as JSON itself and not as its text, so that they are whole.
    pub(super) is_whole: bool,
    /// Fields of the provider's own.
    pub(super) own: Option<Map<String, Value>>,
}

// === impl Chunk ===

impl<'a> Chunk<'a> {
    /// Parses a chunk with the usual fields only; `None` if it has others.
    pub(super) fn usual(text: &'a str) -> Option<Self> {
        let wire: WireChunk<'a> = serde_json::from_str(text).ok()?;
        let says_error =
            |word: &Option<WireText<'_>>| word.as_ref().is_some_and(|word| word.0 == "error");
        if wire.error.is_some()
            || wire.x_groq.is_some()
            || says_error(&wire.object)
            || says_error(&wire.kind)
        {
            return None;
        }
        let choices = wire
            .choices?
            .into_iter()
            .map(ChunkChoice::usual)
            .collect::<Option<_>>()?;
        Some(Self {
            model: wire.model.map(|text| text.0),
            id: wire.id.map(|text| text.0),
            has_choices: true,
            choices,
            usage: wire.usage.map(Usage::from),
        })
    }

    /// Returns whether it ends a completion, or states its usage: what servers say around the completion is
    /// there as well.
    pub(super) fn is_last(&self) -> bool {
        let is_last = |choice: &ChunkChoice<'_>| choice.finish_reason.is_some();
        self.usage.is_some() || self.choices.iter().any(is_last)
    }

    /// Reads any chunk or document; `None` if it is not one.
    pub(super) fn of(value: &'a Value) -> Option<Self> {
        let fields = value.as_object()?;
        let choices: &[Value] = match fields.get("choices") {
            Some(Value::Array(choices)) => choices,
            None | Some(Value::Null) => &[],
            Some(_) => return None,
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(Cow::Borrowed);
        Some(Self {
            model: text("model"),
            id: text("id"),
            has_choices: fields.contains_key("choices"),
            choices: choices.iter().map(ChunkChoice::of).collect(),
            usage: finish::usage(value),
        })
    }
}

// === impl ChunkChoice ===

impl<'a> ChunkChoice<'a> {
    fn usual(wire: WireChoice<'a>) -> Option<Self> {
        let finish_reason = wire.finish_reason.map(|text| text.0);
        if wire.error.is_some()
            || wire.message.is_some()
            || wire.usage.is_some()
            || finish_reason.as_deref() == Some("error")
        {
            return None;
        }
        let piece = match wire.delta {
            Some(delta) => Some(Piece::usual(delta)?),
            None => None,
        };
        Some(Self {
            index: wire.index,
            finish_reason,
            piece,
        })
    }

    fn of(value: &'a Value) -> Self {
        let piece = value
            .get("delta")
            .or_else(|| value.get("message"))
            .filter(|it| it.is_object());
        Self {
            index: value.get("index").and_then(Value::as_u64),
            finish_reason: value
                .get("finish_reason")
                .and_then(Value::as_str)
                .map(Cow::Borrowed),
            piece: piece.map(Piece::of),
        }
    }
}

// === impl Piece ===

impl<'a> Piece<'a> {
    fn usual(wire: WirePiece<'a>) -> Option<Self> {
        if wire.function_call.is_some() || has_more(&wire.rest, "role") {
            return None;
        }
        let text = |text: Option<WireText<'a>>| text.map(|text| text.0).unwrap_or_default();
        Some(Self {
            reasoning: text(
                wire.reasoning_content
                    .filter(|text| !text.0.is_empty())
                    .or(wire.reasoning),
            ),
            content: text(wire.content),
            parts: Vec::new(),
            refusal: text(wire.refusal),
            calls: wire
                .tool_calls
                .unwrap_or_default()
                .into_iter()
                .map(Fragment::usual)
                .collect::<Option<_>>()?,
            own: None,
        })
    }

    fn of(value: &'a Value) -> Self {
        // Some servers send the same reasoning under both names, some an empty text beside it.
        let mut reasoning = ["reasoning_content", "reasoning"]
            .iter()
            .filter_map(|name| value.get(name)?.as_str());
        let reasoning = reasoning.find(|text| !text.is_empty());
        let mut own = value
            .as_object()
            .and_then(|fields| own_fields::beside(&MESSAGE_FIELDS, fields));
        let (content, parts) = match value.get("content") {
            Some(Value::String(text)) => (text.as_str(), Vec::new()),
            Some(Value::Array(parts)) => {
                if let Value::Object(pictures) = pictures(parts) {
                    own_fields::add(own.get_or_insert_default(), &pictures);
                }
                ("", parts.iter().flat_map(parts_of).collect())
            }
            _ => ("", Vec::new()),
        };
        let calls = value
            .get("tool_calls")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let old_call = value.get("function_call").filter(|call| call.is_object());
        Self {
            reasoning: reasoning.unwrap_or_default().into(),
            content: content.into(),
            parts,
            refusal: value
                .get("refusal")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .into(),
            calls: calls.chain(old_call).map(Fragment::of).collect(),
            own,
        }
    }
}

/// Whether there are other fields than this one that say something.
fn has_more(rest: &BTreeMap<String, Option<IgnoredAny>>, known: &str) -> bool {
    rest.iter()
        .any(|(name, value)| value.is_some() && name != known)
}

/// Returns the pictures among a content's parts, in the field in which most servers give them; null
/// if there are none.
fn pictures(parts: &[Value]) -> Value {
    let pictures = parts.iter().filter(|part| part["type"] == "image_url");
    let pictures: Vec<&Value> = pictures.collect();
    if pictures.is_empty() {
        Value::Null
    } else {
        json!({"images": pictures})
    }
}

/// Returns the content as parts: Mistral gives it so when the model reasons.
fn parts_of(part: &Value) -> impl Iterator<Item = ContentPart<'_>> {
    let text = part
        .get("text")
        .and_then(Value::as_str)
        .map(ContentPart::Text);
    let thoughts = part
        .get("thinking")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let thoughts = thoughts
        .filter_map(|thought| thought.get("text").and_then(Value::as_str))
        .map(ContentPart::Reasoning);
    text.into_iter().chain(thoughts)
}

// === impl Fragment ===

impl<'a> Fragment<'a> {
    fn usual(wire: WireFragment<'a>) -> Option<Self> {
        if wire.custom.is_some() || has_more(&wire.rest, "type") {
            return None;
        }
        let text = |text: Option<WireText<'a>>| text.map(|text| text.0).unwrap_or_default();
        let function = wire.function?;
        Some(Self {
            index: wire.index,
            id: text(wire.id),
            name: text(function.name),
            arguments: function.arguments?.0,
            is_whole: false,
            own: None,
        })
    }

    /// Reads a fragment in whatever way it is written.
    pub(super) fn of(value: &'a Value) -> Self {
        let function = value
            .get("function")
            .or_else(|| value.get("custom"))
            .unwrap_or(value);
        let text = |value: Option<&'a Value>| {
            Cow::Borrowed(value.and_then(Value::as_str).unwrap_or_default())
        };
        let (arguments, is_whole) =
            match function.get("arguments").or_else(|| function.get("input")) {
                Some(Value::String(arguments)) => (Cow::Borrowed(arguments.as_str()), false),
                Some(object @ (Value::Object(_) | Value::Array(_))) => {
                    (Cow::Owned(object.to_string()), true)
                }
                _ => (Cow::Borrowed(""), false),
            };
        Self {
            index: value.get("index").and_then(Value::as_u64),
            id: text(value.get("id")),
            name: text(function.get("name")),
            arguments,
            is_whole,
            own: value
                .as_object()
                .and_then(|fields| own_fields::beside(&CALL_FIELDS, fields)),
        }
    }
}

/// A text borrowed from the chunk, unless something in it is escaped.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct WireText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Debug, Deserialize)]
struct WireChunk<'a> {
    #[serde(borrow)]
    id: Option<WireText<'a>>,
    #[serde(borrow)]
    model: Option<WireText<'a>>,
    #[serde(borrow)]
    object: Option<WireText<'a>>,
    #[serde(borrow, rename = "type")]
    kind: Option<WireText<'a>>,
    #[serde(borrow)]
    choices: Option<Vec<WireChoice<'a>>>,
    usage: Option<WireUsage>,
    error: Option<IgnoredAny>,
    x_groq: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct WireChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<WirePiece<'a>>,
    #[serde(borrow)]
    finish_reason: Option<WireText<'a>>,
    message: Option<IgnoredAny>,
    usage: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct WirePiece<'a> {
    #[serde(borrow)]
    content: Option<WireText<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<WireText<'a>>,
    #[serde(borrow)]
    reasoning: Option<WireText<'a>>,
    #[serde(borrow)]
    refusal: Option<WireText<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<WireFragment<'a>>>,
    function_call: Option<IgnoredAny>,
    #[serde(flatten)]
    rest: BTreeMap<String, Option<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
struct WireFragment<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<WireText<'a>>,
    #[serde(borrow)]
    function: Option<WireFunction<'a>>,
    custom: Option<IgnoredAny>,
    #[serde(flatten)]
    rest: BTreeMap<String, Option<IgnoredAny>>,
}

#[derive(Debug, Deserialize)]
struct WireFunction<'a> {
    #[serde(borrow)]
    name: Option<WireText<'a>>,
    #[serde(borrow)]
    arguments: Option<WireText<'a>>,
}

#[derive(Debug, Deserialize)]
struct WireUsage {
    prompt_tokens: u64,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<WirePromptTokens>,
    prompt_cache_hit_tokens: Option<u64>,
    completion_tokens_details: Option<WireCompletionTokens>,
}

#[derive(Debug, Default, Deserialize)]
struct WirePromptTokens {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct WireCompletionTokens {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let prompt = wire.prompt_tokens_details.unwrap_or_default();
        Self {
            input_tokens: wire.prompt_tokens,
            output_tokens: wire.completion_tokens.unwrap_or(0),
            cached_input_tokens: prompt.cached_tokens.or(wire.prompt_cache_hit_tokens),
            cache_write_tokens: prompt.cache_write_tokens,
            reasoning_tokens: wire
                .completion_tokens_details
                .unwrap_or_default()
                .reasoning_tokens,
            exactness: Exactness::Exact,
        }
    }
}
