//! Pieces of an answer, the whole answer, and what it cost.
//!
//! A provider's answer is a sequence of `Delta`s; it is whole only when a `Finish` came, whatever the socket did.

use serde::{Deserialize, Serialize};

use super::{
    failure::TransportFault,
    message::{Message, ModelCall, Opaque},
};

/// A piece of an answer, as one attempt streams it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// The answer begins: what the provider says of itself.
    Start {
        /// The model that answers, as the provider names it.
        model: Option<String>,
        /// The provider's id of the answer.
        response_id: Option<String>,
        /// Kept headers, lower-case names: rate limits and ids of the request; empty where the provider sends none.
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
    /// A block is whole.
    BlockStop {
        /// The block.
        block: u32,
        /// What the provider needs back verbatim with this block.
        opaque: Option<Opaque>,
    },
    /// What the attempt cost so far; the last one counts.
    Usage(Usage),
    /// The answer broke off and is read on: what follows goes on where it was, nothing of it is lost or repeated.
    ReadOn(Break),
    /// The dialect's own mark of a whole answer.
    Finish {
        /// Why the model stopped.
        reason: FinishReason,
        /// The provider's own word for it.
        raw: String,
    },
}

/// How the reading of an answer broke off before it was read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// What went wrong.
    pub fault: TransportFault,
    /// How often this attempt was read on by now, from 1; requests for it that failed count.
    pub requests: u32,
}

impl Break {
    /// How it broke off, in words.
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
    /// Whether a person or program would see this as output (metadata is not output).
    #[must_use]
    pub const fn is_content(&self) -> bool {
        matches!(self, Self::BlockStart { .. } | Self::BlockDelta { .. } | Self::Finish { .. })
    }
}

/// What a block holds.
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
    /// It was done.
    Stop,
    /// It wants tools called.
    ToolCalls,
    /// The output limit cut it.
    Length,
    /// The context window is full.
    ContextFull,
    /// A filter stopped it.
    ContentFilter,
    /// It refused.
    Refusal,
    /// The provider paused; the caller may go on.
    Paused,
    /// The provider says that the tool call it made is malformed.
    MalformedToolCall,
    /// Something else; see the raw word.
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
}

/// Tokens of one attempt, or of several added up.
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
    /// How sure these numbers are.
    pub exactness: Exactness,
}

/// How sure a count is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
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

/// The tokens of so many bytes of text, by what is usual for English: four bytes a token.
#[must_use]
pub const fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

impl Usage {
    /// This usage of an answer that was cut after so many bytes, or the usual estimate where that is more: four bytes a token,
    /// of the prompt and of the answer.
    #[must_use]
    pub fn at_least(self, call: &ModelCall, answered_bytes: usize) -> Self {
        let input = if self.input_tokens == 0 { estimated_tokens(call.text_bytes()) } else { self.input_tokens };
        let output = self.output_tokens.max(estimated_tokens(answered_bytes));
        Self { input_tokens: input, output_tokens: output, exactness: Exactness::Estimated, ..self }
    }

    /// Both together; only as sure as the less sure of the two.
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
            cached_input_tokens: self.cached_input_tokens.saturating_add(other.cached_input_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            exactness: self.exactness.min(other.exactness),
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The assistant's turn, opaque fields included.
    pub message: Message,
    /// Why the model stopped.
    pub finish: FinishReason,
    /// The provider's own word for it.
    pub finish_raw: String,
    /// The model that answered, as the provider names it.
    pub model: String,
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// What the attempt that answered cost.
    pub usage: Usage,
}
