//! Facts of one attempt's response beside its blocks: by whom it was made, its usage and its end.

use crate::domain::{
    completion::{Completion, FinishReason, Usage},
    message::{Message, Opaque},
};

/// Facts of a response beside its blocks, as far as they came.
#[derive(Debug, Default)]
pub(super) struct ResponseFacts {
    pub(super) model: Option<String>,
    pub(super) response_id: Option<String>,
    pub(super) usage: Usage,
    pub(super) around: Option<Opaque>,
    pub(super) finish: Option<(FinishReason, String)>,
}

// === impl ResponseFacts ===

impl ResponseFacts {
    /// Returns the completion that ends with this turn; `None` if the response has not finished.
    pub(super) fn completion(&self, message: Message, asked_model: &str) -> Option<Completion> {
        let (finish, finish_raw) = self.finish.clone()?;
        Some(Completion {
            message,
            finish,
            finish_raw,
            model: self.model.clone().unwrap_or_else(|| asked_model.to_owned()),
            response_id: self.response_id.clone(),
            usage: self.usage,
            around: self.around.clone(),
            tool_output: None,
        })
    }
}
