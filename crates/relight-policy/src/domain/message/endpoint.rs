//! The request that a call makes of a target.

use serde::{Deserialize, Serialize};

/// Request that a call makes of a target: most request a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// The model's completion to the conversation.
    #[default]
    Answer,
    /// Embeddings of the texts in `extra`; the provider's document is passed on as the text of the
    /// answer.
    Embeddings,
    /// The tokens of the conversation, as the provider counts them; its document is passed on as
    /// the text of the completion.
    CountTokens,
}

// === impl Endpoint ===

impl Endpoint {
    /// Returns whether a completion is requested, as by most calls.
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    pub(super) fn is_answer(&self) -> bool {
        *self == Self::Answer
    }
}
