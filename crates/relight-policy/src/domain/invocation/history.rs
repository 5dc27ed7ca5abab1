//! The change that a caller makes to its history after an invocation.

use serde::{Deserialize, Serialize};

use crate::domain::message::Message;

/// A change to the caller's history, after which its next request continues exactly what the model
/// saw.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryPatch {
    /// Number of the caller's last messages that are replaced; 0 if everything is only appended.
    pub replace_tail: u32,
    /// The messages that replace and follow them: changed messages or notes, then the assistant's
    /// turn.
    pub messages: Vec<Message>,
}

impl HistoryPatch {
    /// Applies the patch to the history that was sent.
    pub fn apply(&self, history: &mut Vec<Message>) {
        let replaced = usize::try_from(self.replace_tail).unwrap_or(usize::MAX);
        history.truncate(history.len().saturating_sub(replaced));
        history.extend(self.messages.iter().cloned());
    }
}
