//! Pieces of a model's answer, the complete answer, and its usage.
//!
//! A provider's response is a sequence of `Delta`s; it is complete only after a `Finish`, however
//! the connection ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    failure::TransportFault,
    message::{Message, ModelCall, Opaque},
    tool::{ToolOutput, ToolReply},
};

/// A piece of a model's answer, as one attempt streams it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// The response begins: its metadata as the provider sent it.
    Start {
        /// The model, as the provider names it.
        model: Option<String>,
        /// The provider's id of the response.
        response_id: Option<String>,
        /// Kept headers, lower-case names: rate limits and request ids; empty where the provider
        /// sends none.
        headers: Vec<(String, String)>,
    },
    /// A block begins. Blocks are numbered from 0 within an attempt and may interleave.
    BlockStart {
        /// The block.
        block: u32,
        /// What it holds.
        kind: BlockKind,
    },
    /// Text is added to a block; for a tool call, raw JSON of its arguments.
    BlockDelta {
        /// The block.
        block: u32,
        /// What is added; ends on a character boundary.
        text: String,
    },
    /// A block is complete.
    BlockStop {
        /// The block.
        block: u32,
        /// Opaque data that the provider needs back verbatim with this block.
        opaque: Option<Opaque>,
    },
    /// Usage of the attempt so far; the last one counts.
    Usage(Usage),
    /// The connection broke and the same response is resumed: the next delta continues it without
    /// loss or repetition.
    ReadOn(Break),
    /// What a tool returned, whole; of a tool call alone.
    ToolReply(Arc<ToolReply>),
    /// The dialect's own mark of a complete response.
    Finish {
        /// Why the model stopped.
        reason: FinishReason,
        /// The provider's own name for the reason.
        raw: String,
    },
}

/// How the connection to a response broke before the response was resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// The transport fault that interrupted it.
    pub fault: TransportFault,
    /// Requests made so far to resume the response, failed ones included; from 1.
    pub requests: u32,
}

impl Break {
    /// A short description of the interruption.
    #[must_use]
    pub const fn words(self) -> &'static str {
        if matches!(self.fault, TransportFault::IdleTimeout) {
            "the answer fell silent"
        } else {
            "the answer was cut off"
        }
    }
}

impl Delta {
    /// Whether this is output for a reader; metadata is not.
    #[must_use]
    pub const fn is_content(&self) -> bool {
        matches!(
            self,
            Self::BlockStart { .. }
                | Self::BlockDelta { .. }
                | Self::ToolReply(_)
                | Self::Finish { .. }
        )
    }
}

/// What kind of content a block holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BlockKind {
    /// Text for the reader.
    Text,
    /// Reasoning.
    Reasoning,
    /// A tool call.
    ToolCall {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// A refusal in the model's words.
    Refusal,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The model calls tools.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// The context window is full.
    ContextFull,
    /// A filter stopped it.
    ContentFilter,
    /// The model refused.
    Refusal,
    /// The provider paused; the caller may continue.
    Paused,
    /// The provider reports that the model's tool call is malformed.
    MalformedToolCall,
    /// Another reason; see the raw value.
    Other,
}

impl FinishReason {
    /// The reason's name in snake case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContextFull => "context_full",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Paused => "paused",
            Self::MalformedToolCall => "malformed_tool_call",
            Self::Other => "other",
        }
    }

    /// Whether the answer ended before the model was done, so that its last tool call may be torn.
    #[must_use]
    pub const fn is_short(self) -> bool {
        match self {
            Self::Length
            | Self::ContextFull
            | Self::ContentFilter
            | Self::Refusal
            | Self::Paused
            | Self::MalformedToolCall => true,
            Self::Stop | Self::ToolCalls | Self::Other => false,
        }
    }
}

/// Token counts of one attempt, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// Answer tokens, reasoning included.
    pub output_tokens: u64,
    /// Prompt tokens read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Answer tokens spent on reasoning.
    pub reasoning_tokens: u64,
    /// How reliable these counts are.
    pub exactness: Exactness,
}

/// How reliable a token count is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Exactness {
    /// Nothing is known.
    #[default]
    Unknown,
    /// Estimated from the text.
    Estimated,
    /// Counted by the provider.
    Exact,
}

/// Estimates the tokens in so many bytes of text: four bytes a token, as is usual for English.
#[must_use]
pub const fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

impl Usage {
    /// The larger of this usage and an estimate (four bytes a token) for the prompt and
    /// `answered_bytes` of a cut answer.
    #[must_use]
    pub fn at_least(self, call: &ModelCall, answered_bytes: usize) -> Self {
        let input = if self.input_tokens == 0 {
            estimated_tokens(call.text_bytes())
        } else {
            self.input_tokens
        };
        let output = self.output_tokens.max(estimated_tokens(answered_bytes));
        Self {
            input_tokens: input,
            output_tokens: output,
            exactness: Exactness::Estimated,
            ..self
        }
    }

    /// The sum of both; only as exact as the less exact of the two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if other == Self::default() {
            return self;
        }
        if self == Self::default() {
            return other;
        }
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_input_tokens: self
                .cached_input_tokens
                .saturating_add(other.cached_input_tokens),
            cache_write_tokens: self
                .cache_write_tokens
                .saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            exactness: self.exactness.min(other.exactness),
        }
    }
}

/// A model's complete answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The assistant's turn, opaque fields included.
    pub message: Message,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// The provider's own name for the reason.
    pub finish_raw: String,
    /// The model, as the provider names it.
    pub model: String,
    /// The provider's id of the response.
    pub response_id: Option<String>,
    /// Usage of the attempt whose answer this is.
    pub usage: Usage,
    /// What the tool returned; `None` where a model answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_output: Option<Box<ToolOutput>>,
}
