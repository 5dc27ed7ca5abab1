//! Pieces of a model's completion, the complete completion, and its usage.
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

/// A piece of a model's completion, as one attempt streams it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// The response starts: its metadata as the provider sent it.
    Start {
        /// The model, as the provider names it.
        model: Option<String>,
        /// The provider's id of the response.
        response_id: Option<String>,
        /// Kept headers, lower-case names: rate limits and request ids; empty if the provider sends
        /// none.
        headers: Vec<(String, String)>,
    },
    /// A block starts. Blocks are numbered from 0 within an attempt and may interleave.
    BlockStart {
        /// The block.
        block: u32,
        /// Content of the block.
        kind: BlockKind,
    },
    /// Text is added to a block; for a tool call, raw JSON of its arguments.
    BlockDelta {
        /// The block.
        block: u32,
        /// Text that is added; ends on a character boundary.
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
    /// Fields of the response around the completion that only its dialect knows; the last one counts.
    Around(Opaque),
    /// The connection broke and the same response is resumed: the next delta continues it without
    /// loss or repetition.
    ReadOn(Break),
    /// Tool's reply, whole; of a tool call alone.
    ToolReply(Arc<ToolReply>),
    /// The dialect's own mark of a complete response.
    Finish {
        /// Reason for which the model stopped.
        reason: FinishReason,
        /// The provider's own name for the reason.
        raw: String,
    },
}

/// Break of the connection to a response before the response was resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// The transport fault that interrupted it.
    pub fault: TransportFault,
    /// Requests made so far to resume the response, failed ones included; from 1.
    pub requests: u32,
}

impl Break {
    /// Returns a short description of the interruption.
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
    /// Returns whether this is output for a reader; metadata is not.
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

/// Kind of content that a block holds.
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

/// Reason for which the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum FinishReason {
    /// The completion is complete.
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
    /// Returns the reason's name in snake case.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether the completion ended before the model was done, so that its last tool call may
    /// be torn.
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
    /// Prompt tokens read from the provider's cache; `None` if it does not say.
    pub cached_input_tokens: Option<u64>,
    /// Prompt tokens written to the provider's cache; `None` if it does not say.
    pub cache_write_tokens: Option<u64>,
    /// Answer tokens spent on reasoning; `None` if the provider does not say.
    pub reasoning_tokens: Option<u64>,
    /// Reliability of these counts.
    pub exactness: Exactness,
}

/// Reliability of a token count.
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
    /// Returns the larger of this usage and an estimate (four bytes a token) for the prompt and
    /// `answered_bytes` of a cut completion.
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
            cached_input_tokens: sum(self.cached_input_tokens, other.cached_input_tokens),
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens: sum(self.reasoning_tokens, other.reasoning_tokens),
            exactness: self.exactness.min(other.exactness),
        }
    }
}

/// The sum of what is known.
fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}

/// A model's complete completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The assistant's turn, opaque fields included.
    pub message: Message,
    /// Reason for which the model stopped.
    pub finish: FinishReason,
    /// The provider's own name for the reason.
    pub finish_raw: String,
    /// The model, as the provider names it.
    pub model: String,
    /// The provider's id of the response.
    pub response_id: Option<String>,
    /// Usage of the attempt whose completion this is.
    pub usage: Usage,
    /// Fields of the response around the completion that only its dialect knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub around: Option<Opaque>,
    /// Tool's reply; `None` if a model answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_output: Option<Box<ToolOutput>>,
}
