//! Patch that a caller appends to its history so that its next request continues what the model
//! saw.
//!
//! Some models bind their reasoning to the exact prefix, so a completion that was given under a note
//! needs the note in the history. The patch is computed from what was sent, whatever changed it: a
//! note, or a repair. A turn that was sent as the caller wrote it is not rewritten.

use crate::domain::{
    invocation::HistoryPatch,
    message::{Message, ModelCall},
};

/// Returns the patch that turns the caller's history `original` into what the model saw, `sent`,
/// followed by its `answer`.
#[must_use]
pub fn history_patch(sent: &ModelCall, original: &ModelCall, answer: &Message) -> HistoryPatch {
    let is_same = |(left, right): &(&Message, &Message)| left == right;
    let common = if std::ptr::eq(sent, original) {
        sent.messages.len()
    } else {
        sent.messages
            .iter()
            .zip(&original.messages)
            .take_while(is_same)
            .count()
    };
    let replaced = original.messages.len() - common;
    let mut messages = sent.messages.get(common..).unwrap_or_default().to_vec();
    messages.push(answer.clone());
    HistoryPatch {
        replace_tail: u32::try_from(replaced).unwrap_or(u32::MAX),
        messages,
    }
}
